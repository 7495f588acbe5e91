//! What the API server refuses of a WorkerCluster's settings: values that no machine can use. The
//! text is written onto machines as it is, so each rule is about what their programs read.
//!
//! Kubernetes does not apply a rule to a value that an update does not change, so objects that were
//! stored before a rule existed can still be updated.

use std::collections::BTreeMap;

use kube_core::{Message, Rule};
use schemars::{Schema, SchemaGenerator, json_schema};

use super::ImageCredentialProvider;

/// The longest text of an IP address: IPv6 with an embedded IPv4 address.
pub const ADDRESS_CHARACTERS_MAX: usize = 45;
/// The maximum length of a DNS name, with a port.
pub const HOST_CHARACTERS_MAX: usize = 260;
/// The maximum length of a URL, an image or a flag.
pub const LINE_CHARACTERS_MAX: usize = 2_048;
/// The maximum length of a list or of certificates. All of user data has 16 KiB to 1 MiB,
/// depending on the cloud.
pub const LINES_CHARACTERS_MAX: usize = 262_144;
/// The maximum number of registries.
pub const REGISTRIES_MAX: usize = 64;
/// The maximum number of fields of the kubelet's configuration: it has fewer.
const KUBELET_FIELDS_MAX: usize = 256;
/// The maximum number of programs for credentials: clouds have one each.
const IMAGE_CREDENTIAL_PROVIDERS_MAX: usize = 16;
/// The maximum number of mirrors of a registry, and the maximum length of each. The API server
/// refuses a definition whose rules could take too long.
const MIRRORS_MAX: usize = 16;
const MIRROR_CHARACTERS_MAX: usize = 512;

/// A registry: a host with or without a port and a path.
pub const REGISTRY: &str = r"^(\[[0-9a-fA-F:]+\]|[^\s:/]+)(:[0-9]+)?(/\S*)?$";
/// Text without a line break.
pub const ONE_LINE: &str = r"^[^\r\n]*$";
/// Text without white space. It may be empty.
pub const ONE_WORD: &str = r"^\S*$";

/// A proxy is a URL, or a host with a port.
pub const PROXY: &str = r#"^([a-z0-9]+://[^\s"]+|[^\s"/]+:[0-9]+)?$"#;
/// What is said of another.
pub const PROXY_MUST: &str = "must be a URL such as http://proxy.example.com:3128";
/// What certificates in PEM have.
pub const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";
/// What is said of other texts.
pub const CERTIFICATES_MUST: &str = "must contain certificates in PEM";
/// A mirror is a URL, or a host that cannot be taken for a plain word: it has a dot, a port or is
/// `localhost`.
pub const MIRROR: &str = r"^(https?://\S+|[^\s/]*[.:][^\s/]*(/\S*)?|localhost(/\S*)?)$";
/// The URL of a download. It is in configs and on consoles, so it has no password.
pub const DOWNLOAD: &str = r"^https?://[^\s/@]+(/[^\s@]*)?$";
/// Images by their registry. A kubelet reads a `*` only in the host, and a scheme or a tag as part
/// of the host or path, so that no image matches.
pub const MATCHED_IMAGES: &str =
    r"^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9*._-]+)(:[0-9]+)?(/[A-Za-z0-9._/-]*)?$";
/// The key of an annotation.
const ANNOTATION_KEY: &str = r"^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$";
/// What is said of annotations of a ServiceAccount that contradict each other.
pub const TOKEN_ANNOTATIONS_MUST: &str =
    "annotations that are required need requireServiceAccount, and cannot be optional, too";
/// One taint, as `kubelet --register-with-taints` reads it: `key=value:effect` or `key:effect`.
const TAINT: &str =
    "([a-z0-9.-]+/)?[A-Za-z0-9._-]+(=[A-Za-z0-9._-]*)?:(NoSchedule|PreferNoSchedule|NoExecute)";

/// The rule for a field that identifies the object, with what to do instead of changing it.
pub fn unchanged(instead: &str) -> Rule {
    Rule::new("self == oldSelf").message(Message::Message(format!("cannot be changed: {instead}")))
}

/// The rule for the namespace of registry credentials, which is one of the tenant's home.
pub fn credentials_at_home() -> Rule {
    let named = "self.registryCredentialsSecretRef.__namespace__";
    Rule::new(format!(
        "self.home == 'Worker' || !has(self.registryCredentialsSecretRef) || !has({named})"
    ))
    .message("spec.registryCredentialsSecretRef.namespace needs home: Worker")
}

/// The rule for a list of IP addresses.
pub fn addresses() -> Rule {
    let wrong = "'`' + self.filter(it, !isIP(it))[0] + '` is not an IP address'";
    Rule::new("self.all(it, isIP(it))").message(Message::Expression(wrong.to_owned()))
}

/// Returns the call that compares a text with a pattern.
fn matches(pattern: &str) -> String {
    format!("matches('{}')", pattern.replace('\\', r"\\"))
}

/// The rule for a proxy. An API server's answer quotes what it refuses, so it refuses nothing that
/// may hold a password.
pub fn proxy() -> Rule {
    let is_proxy = matches(PROXY);
    Rule::new(format!("self.contains('@') || self.{is_proxy}")).message(PROXY_MUST)
}

/// The rule for certificates.
pub fn certificates() -> Rule {
    Rule::new(format!("self == '' || self.contains('{CERTIFICATE}')")).message(CERTIFICATES_MUST)
}

/// The rule for the taints with which a kubelet registers.
pub fn taints() -> Rule {
    let are_taints = matches(&format!("^({TAINT}(,{TAINT})*)?$"));
    Rule::new(format!("self.{are_taints}")).message(
        "must be taints such as dedicated=gpu:NoSchedule,spot:NoExecute, with one of the effects \
         NoSchedule, PreferNoSchedule and NoExecute",
    )
}

/// The rule for the mirrors of registries.
pub fn mirrors() -> Rule {
    let is_mirror = format!("url.{}", matches(MIRROR));
    let wrong = format!(
        "'`' + self[self.filter(it, !self[it].all(url, {is_mirror}))[0]]\
         .filter(url, !{is_mirror})[0] + '` is not a URL'"
    );
    Rule::new(format!("self.all(it, self[it].all(url, {is_mirror}))"))
        .message(Message::Expression(wrong))
}

/// The rule for the annotations of a ServiceAccount that a program gets.
pub fn token_annotations() -> Rule {
    let required = "self.requiredServiceAccountAnnotationKeys";
    let optional = "self.optionalServiceAccountAnnotationKeys";
    Rule::new(format!(
        "!has({required}) || size({required}) == 0 || (self.requireServiceAccount \
         && (!has({optional}) || !{required}.exists(key, key in {optional})))"
    ))
    .message(TOKEN_ANNOTATIONS_MUST)
}

/// Returns the schema of keys of annotations, each of which stands there once.
pub fn annotation_keys_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "set",
        "items": { "type": "string", "maxLength": 317, "pattern": ANNOTATION_KEY },
    })
}

/// Returns the schema of programs, each of which has its own name.
pub fn image_credential_providers_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<Option<Vec<ImageCredentialProvider>>>();
    schema.insert("maxItems".to_owned(), IMAGE_CREDENTIAL_PROVIDERS_MAX.into());
    schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".to_owned(), vec!["name"].into());
    schema
}

/// Returns the schema of an object of which only the kubelet of a machine knows the fields.
pub fn any_fields_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "maxProperties": KUBELET_FIELDS_MAX,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Returns the schema of mirrors by registry, with limits for what the rule costs.
pub fn registry_mirrors_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<Option<BTreeMap<String, Vec<String>>>>();
    let mirrors = json_schema!({
        "type": "array",
        "maxItems": MIRRORS_MAX,
        "items": { "type": "string", "minLength": 1, "maxLength": MIRROR_CHARACTERS_MAX },
    });
    schema.insert("maxProperties".to_owned(), REGISTRIES_MAX.into());
    schema.insert("additionalProperties".to_owned(), mirrors.into());
    schema
}
