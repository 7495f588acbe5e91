use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{
    super::{
        address::{AddressRefused, AddressRules, DeniedServer, Loopback},
        host::Host,
    },
    *,
};
use crate::secret_text::SecretText;

mod hostile;
mod renewal;
mod yaml;

/// A certificate authority, a certificate that it signed, the certificate's key, and an unrelated
/// key, in PEM.
struct Pki {
    authority: String,
    certificate: String,
    key: String,
    foreign_key: String,
}

fn a_pki() -> Pki {
    let own = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (authority, client) = (own("authority"), own("client"));
    Pki {
        authority: authority.cert.pem(),
        certificate: client.cert.pem(),
        key: client.signing_key.serialize_pem(),
        foreign_key: authority.signing_key.serialize_pem(),
    }
}

fn base64(text: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    STANDARD.encode(text)
}

/// Creates a kubeconfig with a token, as kubectl writes it.
fn a_kubeconfig(pki: &Pki) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "there",
        "clusters": [{
            "name": "cluster",
            "cluster": {
                "server": "https://api.berlin.example:6443",
                "certificate-authority-data": base64(&pki.authority),
            },
        }],
        "contexts": [{ "name": "there", "context": { "cluster": "cluster", "user": "osm" } }],
        "users": [{ "name": "osm", "user": { "token": "a-token" } }],
    })
}

fn parse(kubeconfig: &Value) -> Result<ClusterAccess, AccessError> {
    ClusterAccess::parse(kubeconfig.to_string().as_bytes(), &AccessRules::default())
}

/// Returns the kubeconfig with one value set by JSON pointer. The last part of the pointer may be
/// new.
fn with(mut kubeconfig: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match kubeconfig.pointer_mut(parent).unwrap() {
        Value::Object(parent) => {
            parent.insert(key.to_owned(), value);
        }
        Value::Array(parent) => parent.push(value),
        _ => panic!("{pointer} leads into a scalar"),
    }
    kubeconfig
}

const CLUSTER: &str = "/clusters/0/cluster";
const USER: &str = "/users/0/user";

#[test]
fn a_kubeconfig_with_a_token_is_accepted() {
    let pki = a_pki();
    let access = parse(&a_kubeconfig(&pki)).unwrap();
    assert_eq!(access.server.url(), "https://api.berlin.example:6443");
    assert_eq!(access.certificate_authority, pki.authority.as_bytes());
    assert_eq!(access.tls_server_name, None);
    assert_eq!(
        access.credential,
        Credential::Token(SecretText::new("a-token"))
    );
}

#[test]
fn a_client_certificate_is_accepted_alone_and_beside_a_token() {
    let pki = a_pki();
    let certificate = ClientCertificate {
        certificate: pki.certificate.clone().into_bytes(),
        key: SecretText::new(pki.key.as_str()),
    };
    let user = json!({
        "client-certificate-data": base64(&pki.certificate),
        "client-key-data": base64(&pki.key),
    });
    let kubeconfig = with(a_kubeconfig(&pki), USER, user);
    let access = parse(&kubeconfig).unwrap();
    assert_eq!(
        access.credential,
        Credential::Certificate(certificate.clone())
    );
    assert!(access.credential.token().is_none());

    let kubeconfig = with(kubeconfig, &format!("{USER}/token"), json!("a-token"));
    let token = SecretText::new("a-token");
    let access = parse(&kubeconfig).unwrap();
    assert_eq!(access.credential, Credential::Both { token, certificate });
}

#[test]
fn fields_without_a_say_are_accepted() {
    let kubeconfig = a_kubeconfig(&a_pki());
    for (pointer, value) in [
        (
            "/extensions",
            json!([{ "name": "x", "extension": { "any": [1, 2] } }]),
        ),
        ("/preferences/colors", json!(true)),
        ("/somebodys-note", json!("hello")),
        ("/clusters/0/cluster/extensions", json!([])),
        ("/clusters/0/cluster/disable-compression", json!(true)),
        ("/clusters/0/cluster/insecure-skip-tls-verify", json!(false)),
        ("/clusters/0/cluster/proxy-url", json!("")),
        ("/clusters/0/cluster/certificate-authority", Value::Null),
        ("/contexts/0/context/namespace", json!("default")),
        ("/users/0/user/exec", Value::Null),
        ("/users/0/user/username", json!("")),
        ("/users/0/user/as", json!("")),
        ("/users/0/user/surprise", Value::Null),
        ("/users/0/user/extensions", json!([])),
    ] {
        let accepted = parse(&with(kubeconfig.clone(), pointer, value));
        assert!(accepted.is_ok(), "{pointer}: {accepted:?}");
    }
}

#[test]
fn a_named_context_counts_in_place_of_the_current_one() {
    let kubeconfig = a_kubeconfig(&a_pki());
    let user = json!({ "name": "other", "user": { "token": "another-token" } });
    let kubeconfig = with(kubeconfig, "/users/-", user);
    let context = json!({ "name": "here", "context": { "cluster": "cluster", "user": "other" } });
    let kubeconfig = with(kubeconfig, "/contexts/-", context).to_string();
    let parse = |context| {
        let rules = AccessRules::default();
        ClusterAccess::parse_context(kubeconfig.as_bytes(), context, &rules)
    };
    let token = |context| parse(context).map(|it| it.credential);
    let expected = |token: &str| Ok(Credential::Token(SecretText::new(token)));
    assert_eq!(token(None), expected("a-token"));
    assert_eq!(token(Some("here")), expected("another-token"));
    let refused = parse(Some("nowhere")).unwrap_err().to_string();
    assert_eq!(refused, "nowhere: no entry of `contexts` has this name");
}

#[test]
fn only_the_current_contexts_entries_count() {
    let pki = a_pki();
    let mut kubeconfig = a_kubeconfig(&pki);
    for (pointer, value) in [
        (
            "/clusters/-",
            json!({ "name": "other", "cluster": { "server": "http://other" } }),
        ),
        (
            "/users/-",
            json!({ "name": "other", "user": { "password": "p" } }),
        ),
        ("/users/-", json!({ "name": "empty" })),
        (
            "/contexts/-",
            json!({ "name": "other", "context": { "cluster": "gone" } }),
        ),
    ] {
        kubeconfig = with(kubeconfig, pointer, value);
    }
    assert!(parse(&kubeconfig).is_ok());
}

#[test]
fn a_missing_current_context_is_taken_from_the_only_one() {
    let mut kubeconfig = a_kubeconfig(&a_pki());
    kubeconfig
        .as_object_mut()
        .unwrap()
        .remove("current-context");
    assert!(parse(&kubeconfig).is_ok());
    kubeconfig["contexts"] = json!([]);
    assert!(parse(&kubeconfig).is_ok());
    kubeconfig["contexts"] = Value::Null;
    assert!(parse(&kubeconfig).is_ok());
}

#[test]
fn a_server_is_taken_apart_and_put_together() {
    for (url, expected) in [
        ("https://api.example", Some("https://api.example:443")),
        (
            "HTTPS://API.Example.:6443/",
            Some("https://api.example.:6443"),
        ),
        (
            "https://api.example./k8s",
            Some("https://api.example.:443/k8s"),
        ),
        ("https://api.example..", None),
        ("https://.", None),
        ("https://10.0.0.1.", None),
        ("https://[::1].", None),
        ("https://10.0.0.1:6443", Some("https://10.0.0.1:6443")),
        ("https://[2001:db8::1]", Some("https://[2001:db8::1]:443")),
        (
            "https://[2001:db8::1]:8443",
            Some("https://[2001:db8::1]:8443"),
        ),
        (
            "https://rancher.example/k8s/clusters/c-1",
            Some("https://rancher.example:443/k8s/clusters/c-1"),
        ),
        ("https://1a.example", Some("https://1a.example:443")),
        ("https://2b", Some("https://2b:443")),
        ("https://127.1", None),
        ("https://2130706433", None),
        ("https://0x7f.1", None),
        ("https://0x7f000001", None),
        ("https://017700000001", None),
        ("https://", None),
        ("https://:6443", None),
        ("https://[::1", None),
        ("https://[fe80::1%eth0]", None),
        ("https://api example", None),
        ("https://api.example:", None),
        ("https://api.example:0", None),
        ("https://api.example:65536", None),
        ("https://api.example:+80", None),
        ("https://api.example/%2e%2e", None),
        ("https://api.example\\@evil", None),
        ("https://bücher.example", None),
        ("https://api.example/\r\nHost: evil", None),
    ] {
        let parsed = Server::parse(url, "server");
        assert_eq!(
            parsed.ok().map(|server| server.url()).as_deref(),
            expected,
            "{url}"
        );
    }
}

#[test]
fn the_rules_for_addresses_hold_for_literal_ones() {
    let kubeconfig = a_kubeconfig(&a_pki());
    let parse_at = |url: &str, rules: &AccessRules| {
        let kubeconfig = with(kubeconfig.clone(), &format!("{CLUSTER}/server"), json!(url));
        ClusterAccess::parse(kubeconfig.to_string().as_bytes(), rules)
    };
    let refused = |host: &str, source| {
        Err(AccessError::ServerRefused {
            field: "clusters[0].cluster.server".to_owned(),
            host: host.to_owned(),
            source,
        })
    };
    let strict = AccessRules::default();
    for (url, host, source) in [
        (
            "https://127.0.0.1:6443",
            "127.0.0.1",
            AddressRefused::Loopback,
        ),
        (
            "https://[::ffff:7f00:1]",
            "[::ffff:127.0.0.1]",
            AddressRefused::Loopback,
        ),
        (
            "https://localhost.:6443",
            "localhost",
            AddressRefused::Loopback,
        ),
        (
            "https://169.254.169.254",
            "169.254.169.254",
            AddressRefused::LinkLocal,
        ),
        ("https://0.0.0.0", "0.0.0.0", AddressRefused::Unspecified),
    ] {
        assert_eq!(parse_at(url, &strict), refused(host, source), "{url}");
    }
    let open = AccessRules {
        addresses: AddressRules {
            loopback: Loopback::Allowed,
            denied_servers: vec![DeniedServer {
                host: Host::Name("management.example".to_owned()),
                port: None,
            }],
            ..AddressRules::default()
        },
        ..AccessRules::default()
    };
    assert!(parse_at("https://127.0.0.1:6443", &open).is_ok());
    assert_eq!(
        parse_at("https://Management.example.", &open),
        refused("management.example", AddressRefused::DeniedServer)
    );
}

#[test]
fn the_principal_changes_with_server_and_user_and_not_with_a_renewed_credential() {
    let pki = a_pki();
    let token = |sub: &str, exp: u32| {
        let claims = json!({ "iss": "a", "sub": sub, "exp": exp }).to_string();
        json!(format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)))
    };
    let of_user = "/users/0/user/token";
    let kubeconfig = with(a_kubeconfig(&pki), of_user, token("osm", 1));
    let principal = |kubeconfig: &Value| parse(kubeconfig).unwrap().principal();
    let before = principal(&kubeconfig);
    assert!(before.is_some());
    let renewed = with(kubeconfig.clone(), of_user, token("osm", 2));
    assert_eq!(principal(&renewed), before);
    let other_authority = format!("{}{}", pki.authority, pki.certificate);
    for (pointer, value) in [
        (
            "/clusters/0/cluster/server",
            json!("https://api.lisbon.example:6443"),
        ),
        (
            "/clusters/0/cluster/certificate-authority-data",
            json!(base64(&other_authority)),
        ),
        (
            "/clusters/0/cluster/server",
            json!("https://api.berlin.example.:6443"),
        ),
        ("/clusters/0/cluster/tls-server-name", json!("kubernetes")),
        (of_user, token("another", 1)),
        (
            "/users/0/user",
            json!({
                "client-certificate-data": base64(&pki.certificate),
                "client-key-data": base64(&pki.key),
            }),
        ),
    ] {
        let changed = with(kubeconfig.clone(), pointer, value);
        assert_ne!(principal(&changed), before, "{pointer}");
    }
    for opaque in ["another-token", "a.b.c", "e30.e30.c2ln"] {
        let changed = with(kubeconfig.clone(), of_user, json!(opaque));
        assert_eq!(
            principal(&changed),
            None,
            "{opaque} does not say whose it is"
        );
    }
}

#[test]
fn nothing_secret_is_printed() {
    let pki = a_pki();
    let user = json!({
        "token": "a-token",
        "client-certificate-data": base64(&pki.certificate),
        "client-key-data": base64(&pki.key),
    });
    let access = parse(&with(a_kubeconfig(&pki), USER, user)).unwrap();
    let shown = format!(
        "{access:?} {:?} {:?}",
        access.principal(),
        access.credential.certificate()
    );
    assert!(
        !shown.contains("a-token") && !shown.contains("PRIVATE"),
        "{shown}"
    );
    assert!(shown.contains("https://api.berlin.example:6443"), "{shown}");
}
