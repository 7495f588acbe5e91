//! What must hold for any input, by the kind of input. cargo-fuzz looks for inputs that break it;
//! `tests/rendering/fuzz_corpus.rs` runs the same over those that are kept.

use std::{collections::BTreeMap, sync::LazyLock};

use osm::{
    api::profile::{OperatingSystemProfile, OperatingSystemProfileSpec, TemplateLanguage},
    render::{
        RenderError, Rendered, default_profiles::default_profile, input::ProviderConfig,
        template::CompiledProfile,
    },
    tenant::access::{AccessRules, ClusterAccess},
};
use serde_json::{Value, json};

use subject::Subject;

pub use answers::{list, review, watch_event};

mod answers;
#[path = "../../rendering/one_file.rs"]
mod one_file;
#[path = "../../rendering/subject.rs"]
mod subject;

/// What every secret of the subject begins with.
const SECRET: &str = "hidden-";
/// What stands in a stored config where a secret would.
const MARKER: &str = "<redacted:";
/// What stands between a named template and the file that may call it.
const BETWEEN: &str = "\n---\n";
/// The prefix of the annotations that the kubelet's settings are read from.
const ANNOTATION: &str = "v1.kubelet-config.machine-controller.kubermatic.io/";

/// A target: nothing comes back, and what does not hold is a panic.
pub type Target = fn(&[u8]);

/// Every target, by its name.
pub const TARGETS: [(&str, Target); 9] = [
    ("profile", profile),
    ("jinja", jinja),
    ("go_template", go_template),
    ("provider_spec", provider_spec),
    ("kubelet_annotations", kubelet_annotations),
    ("kubeconfig", kubeconfig),
    ("list", list),
    ("watch_event", watch_event),
    ("review", review),
];

/// A profile in YAML renders or is refused.
pub fn profile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(profile) = serde_saphyr::from_str::<OperatingSystemProfile>(text) else {
        return;
    };
    let mut subject = Subject::new();
    subject.provider_spec = json!({
        "operatingSystem": profile.spec.os_name,
        "cloudProvider": "openstack",
    });
    check((&subject, &profile.spec), text);
}

/// A template in Jinja renders or is refused.
pub fn jinja(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let profile = one_file::a_profile_of(TemplateLanguage::Jinja, text);
        check((&Subject::new(), &profile), text);
    }
}

/// A template in Go's language, before it a named one if there is one, renders or is refused.
pub fn go_template(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (named, file) = text.split_once(BETWEEN).unwrap_or(("", text));
    let mut profile = one_file::a_profile_of(TemplateLanguage::GoTemplate, file);
    if !named.is_empty() {
        let templates = &mut profile.provisioning_config.templates;
        templates.insert("a".to_owned(), named.to_owned());
    }
    check((&Subject::new(), &profile), text);
}

/// A provider spec is decoded or refused, and what is decoded renders or is refused.
pub fn provider_spec(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    if let Ok(strict) = ProviderConfig::decode(&value) {
        let lenient = ProviderConfig::decode_lenient(&value).expect("what is strict is lenient");
        assert_eq!(strict, lenient);
    }
    let mut subject = Subject::new();
    subject.provider_spec = value;
    check_compiled(&subject, &UBUNTU, "");
}

/// Annotations, one to a line, are read or refused, and the kubelet's configuration is YAML.
pub fn kubelet_annotations(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut subject = Subject::new();
    subject.annotations = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (format!("{ANNOTATION}{name}"), value.to_owned()))
        .collect();
    let Some(rendered) = check_compiled(&subject, &UBUNTU, text) else {
        return;
    };
    let files = &rendered.config.provisioning_config.files;
    let kubelet = files
        .iter()
        .find(|file| file.path == "/etc/kubernetes/kubelet.conf")
        .and_then(|file| file.content.inline.as_ref())
        .expect("the profile writes the kubelet's configuration");
    let read: BTreeMap<String, Value> =
        serde_saphyr::from_str(&kubelet.data).expect("the kubelet's configuration is YAML");
    assert_eq!(read.get("kind"), Some(&"KubeletConfiguration".into()));
}

/// A kubeconfig is read or refused, and what is read is what nodes are reached by.
pub fn kubeconfig(data: &[u8]) {
    let rules = AccessRules::default();
    let read = ClusterAccess::parse(data, &rules);
    assert_eq!(read, ClusterAccess::parse(data, &rules));
    match read {
        Ok(access) => {
            assert!(access.server.url().starts_with("https://"));
            assert!(!access.certificate_authority.is_empty());
            let shown = format!("{access:?}");
            let token = access.credential.token().map_or("", |token| token.expose());
            assert!(
                token.len() < 8 || shown.contains(token) == access.server.url().contains(token)
            );
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

static UBUNTU: LazyLock<CompiledProfile> = LazyLock::new(|| {
    let profile = default_profile("osp-ubuntu").expect("it is a default profile");
    CompiledProfile::compile(&profile.spec).expect("a default profile compiles")
});

fn check((subject, profile): (&Subject, &OperatingSystemProfileSpec), source: &str) {
    match CompiledProfile::compile(profile) {
        Ok(profile) => drop(check_compiled(subject, &profile, source)),
        Err(error) => check_error(&error, source),
    }
}

/// Two renders are equal, secrets stand in documents alone, and markers in stored configs alone.
fn check_compiled(subject: &Subject, profile: &CompiledProfile, source: &str) -> Option<Rendered> {
    let rendered = match subject.render(profile) {
        Ok(rendered) => rendered,
        Err(error) => {
            check_error(&error, source);
            return None;
        }
    };
    assert_eq!(subject.render(profile).as_ref(), Ok(&rendered));
    let stored = serde_json::to_string(&rendered.stored_config).expect("a config is JSON");
    assert!(
        !stored.contains(SECRET) || source.contains("hidden"),
        "a secret is stored"
    );
    for document in [&rendered.bootstrap, &rendered.provisioning] {
        let text = String::from_utf8_lossy(document.as_bytes());
        assert!(
            !text.contains(MARKER) || source.contains("redacted"),
            "a marker is delivered"
        );
    }
    Some(rendered)
}

fn check_error(error: &RenderError, source: &str) {
    let said = error.to_string();
    assert!(
        !said.contains(SECRET) || source.contains("hidden"),
        "an error tells a secret"
    );
    assert!(!error.category().is_empty());
}
