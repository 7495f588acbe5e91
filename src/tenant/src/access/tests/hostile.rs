//! At least one case for every reason to refuse a field.

use super::*;

/// Sets a value in a valid kubeconfig, and expects this error.
fn refuses(pki: &Pki, pointer: &str, value: Value, expected: &AccessError) {
    let parsed = parse(&with(a_kubeconfig(pki), pointer, value));
    assert_eq!(parsed.as_ref(), Err(expected), "{pointer}");
    let shown = expected.to_string();
    assert!(
        !shown.contains("s3cr3t") && !expected.category().is_empty(),
        "{shown}"
    );
}

#[test]
fn every_field_of_a_cluster_that_is_not_on_the_list_is_refused_by_its_name() {
    let pki = a_pki();
    let at = |key: &str| format!("clusters[0].cluster.{key}");
    let unknown = |key| AccessError::UnknownField { field: at(key) };
    let file = AccessError::File {
        field: at("certificate-authority"),
        instead: "certificate-authority-data",
    };
    let (insecure, proxy) = (at("insecure-skip-tls-verify"), at("proxy-url"));
    for (key, value, expected) in [
        ("certificate-authority", json!("/etc/s3cr3t"), file),
        (
            "insecure-skip-tls-verify",
            json!(true),
            AccessError::InsecureTls { field: insecure },
        ),
        (
            "proxy-url",
            json!("http://s3cr3t"),
            AccessError::Proxy { field: proxy },
        ),
        ("Server", json!("https://s3cr3t"), unknown("Server")),
        ("exec", json!({}), unknown("exec")),
    ] {
        refuses(&pki, &format!("{CLUSTER}/{key}"), value, &expected);
    }
}

#[test]
fn every_field_of_a_user_that_is_not_on_the_list_is_refused_by_its_name() {
    let pki = a_pki();
    let at = |key: &str| format!("users[0].user.{key}");
    let file = |key, instead| AccessError::File {
        field: at(key),
        instead,
    };
    let exec = || AccessError::Exec { field: at("exec") };
    let plugin = AccessError::AuthProvider {
        field: at("auth-provider"),
    };
    let password = |key| AccessError::Password { field: at(key) };
    let acting = |key| AccessError::Impersonation { field: at(key) };
    let unknown = AccessError::UnknownField { field: at("Exec") };
    for (key, value, expected) in [
        ("exec", json!({ "command": "s3cr3t" }), exec()),
        ("exec", json!("s3cr3t"), exec()),
        ("auth-provider", json!({ "name": "gcp" }), plugin),
        (
            "tokenFile",
            json!("/var/run/s3cr3t"),
            file("tokenFile", "token"),
        ),
        (
            "client-certificate",
            json!("/x"),
            file("client-certificate", "client-certificate-data"),
        ),
        (
            "client-key",
            json!("/s3cr3t"),
            file("client-key", "client-key-data"),
        ),
        ("username", json!("s3cr3t"), password("username")),
        ("password", json!("s3cr3t"), password("password")),
        ("as", json!("admin"), acting("as")),
        ("as-uid", json!("1"), acting("as-uid")),
        ("as-groups", json!(["system:masters"]), acting("as-groups")),
        (
            "as-user-extra",
            json!({ "a": ["b"] }),
            acting("as-user-extra"),
        ),
        ("Exec", json!({ "command": "s3cr3t" }), unknown),
    ] {
        refuses(&pki, &format!("{USER}/{key}"), value, &expected);
    }
}

#[test]
fn a_kubeconfig_with_exec_anywhere_is_refused() {
    let pki = a_pki();
    let field = || "users[1].user.exec".to_owned();
    let user = json!({ "name": "unused", "user": { "exec": { "command": "true" } } });
    refuses(
        &pki,
        "/users/-",
        user,
        &AccessError::Exec { field: field() },
    );
    let user = json!({ "name": "unused", "user": { "auth-provider": { "name": "oidc" } } });
    let field = "users[1].user.auth-provider".to_owned();
    refuses(&pki, "/users/-", user, &AccessError::AuthProvider { field });
}

#[test]
fn every_fault_of_a_servers_url_has_its_own_refusal() {
    let pki = a_pki();
    let field = || "clusters[0].cluster.server".to_owned();
    for (url, expected) in [
        (
            "http://api.example",
            AccessError::ServerNotHttps { field: field() },
        ),
        (
            "api.example:6443",
            AccessError::ServerNotHttps { field: field() },
        ),
        (
            "unix:///run/s3cr3t",
            AccessError::ServerNotHttps { field: field() },
        ),
        (
            "https://me:s3cr3t@api.example",
            AccessError::ServerUserInfo { field: field() },
        ),
        (
            "https://api.example/?s3cr3t",
            AccessError::ServerQuery { field: field() },
        ),
        (
            "https://api.example#s3cr3t",
            AccessError::ServerQuery { field: field() },
        ),
        ("https://127.1", AccessError::ServerHost { field: field() }),
        (
            "https://api.example:http",
            AccessError::ServerPort { field: field() },
        ),
        (
            "https://api.example/a/../b",
            AccessError::ServerPath { field: field() },
        ),
        (
            "https://api.example/a b",
            AccessError::ServerPath { field: field() },
        ),
        ("", AccessError::Missing { field: field() }),
    ] {
        refuses(&pki, &format!("{CLUSTER}/server"), json!(url), &expected);
    }
    let field = "clusters[0].cluster.tls-server-name".to_owned();
    let expected = AccessError::TlsServerName { field };
    refuses(
        &pki,
        &format!("{CLUSTER}/tls-server-name"),
        json!("a b"),
        &expected,
    );
}

#[test]
fn a_certificate_authority_is_certificates_and_nothing_else() {
    let pki = a_pki();
    let field = || "clusters[0].cluster.certificate-authority-data".to_owned();
    let not_pem = || AccessError::NotPem {
        field: field(),
        expected: "one or more certificates",
    };
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let with_key = format!("{}{}", pki.authority, pki.key);
    for (value, expected) in [
        (Value::Null, AccessError::Missing { field: field() }),
        (json!(""), AccessError::Missing { field: field() }),
        (json!("%%%"), AccessError::NotBase64 { field: field() }),
        (
            json!(pki.authority),
            AccessError::NotBase64 { field: field() },
        ),
        (json!(base64("no certificate")), not_pem()),
        (json!(base64("-----BEGIN CERTIFICATE-----\n")), not_pem()),
        (json!(base64(&pki.key)), not_pem()),
        (json!(base64(&with_key)), not_pem()),
        (
            json!(base64(broken)),
            AccessError::NotACertificate { field: field() },
        ),
    ] {
        refuses(
            &pki,
            &format!("{CLUSTER}/certificate-authority-data"),
            value,
            &expected,
        );
    }
}

#[test]
fn what_kubectl_leaves_out_is_refused_as_such() {
    let pki = a_pki();
    for (pointer, field) in [
        (
            "/clusters/0/cluster/certificate-authority-data",
            "clusters[0].cluster.certificate-authority-data",
        ),
        ("/users/0/user/token", "users[0].user.token"),
    ] {
        for placeholder in ["DATA+OMITTED", "REDACTED", "REDACTED\n"] {
            let field = field.to_owned();
            let expected = AccessError::Omitted { field };
            refuses(&pki, pointer, json!(placeholder), &expected);
        }
    }
    for key in ["client-certificate-data", "client-key-data"] {
        let pair = json!({
            "client-certificate-data": base64(&pki.certificate),
            "client-key-data": base64(&pki.key),
        });
        let user = with(pair, &format!("/{key}"), json!("DATA+OMITTED"));
        let field = format!("users[0].user.{key}");
        refuses(&pki, USER, user, &AccessError::Omitted { field });
    }
}

#[test]
fn a_credential_is_whole_and_fits_together() {
    let pki = a_pki();
    let user = "users[0].user".to_owned();
    let certificate = || "users[0].user.client-certificate-data".to_owned();
    let key = || "users[0].user.client-key-data".to_owned();
    let pair = |certificate: &str, key: &str| json!({ "client-certificate-data": base64(certificate), "client-key-data": base64(key) });
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let no_key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let not_pem = AccessError::NotPem {
        field: key(),
        expected: "a private key",
    };
    let token = || "users[0].user.token".to_owned();
    for (value, expected) in [
        (json!({}), AccessError::NoCredential { field: user }),
        (
            json!({ "token": "s3cr3t\r\nX: y" }),
            AccessError::NotAToken { field: token() },
        ),
        (
            json!({ "token": "s3cr3t " }),
            AccessError::NotAToken { field: token() },
        ),
        (
            json!({ "token": 12345 }),
            AccessError::WrongType {
                field: token(),
                expected: "text; put it in quotes",
            },
        ),
        (
            json!({ "client-certificate-data": "AA==" }),
            AccessError::Missing { field: key() },
        ),
        (
            json!({ "client-key-data": "AA==" }),
            AccessError::Missing {
                field: certificate(),
            },
        ),
        (pair(&pki.certificate, &pki.certificate), not_pem),
        (
            pair(&pki.certificate, no_key),
            AccessError::NotAKey { field: key() },
        ),
        (
            pair(&pki.certificate, &pki.foreign_key),
            AccessError::ForeignKey { field: key() },
        ),
        (
            pair(broken, &pki.key),
            AccessError::NotACertificate {
                field: certificate(),
            },
        ),
    ] {
        refuses(&pki, USER, value, &expected);
    }
}

#[test]
fn a_kubeconfig_that_does_not_add_up_is_refused_where_it_does_not() {
    let pki = a_pki();
    let dangling = |field: &str, list| AccessError::Dangling {
        field: field.to_owned(),
        list,
    };
    let (cluster, user) = ("contexts[0].context.cluster", "contexts[0].context.user");
    let missing = AccessError::Missing {
        field: user.to_owned(),
    };
    let twice = AccessError::DuplicateName {
        field: "users[1].name".to_owned(),
    };
    let userless = json!({ "cluster": "cluster" });
    for (pointer, value, expected) in [
        (
            "/current-context",
            json!("gone"),
            dangling("current-context", "contexts"),
        ),
        (
            "/contexts/0/context/cluster",
            json!("x"),
            dangling(cluster, "clusters"),
        ),
        (
            "/contexts/0/context/user",
            json!("x"),
            dangling(user, "users"),
        ),
        ("/contexts/0/context", userless, missing),
        ("/users/-", json!({ "name": "osm", "user": {} }), twice),
    ] {
        refuses(&pki, pointer, value, &expected);
    }
}

#[test]
fn what_is_no_kubeconfig_is_refused_where_it_shows() {
    let pki = a_pki();
    let other = |field: &str, expected| AccessError::NotAKubeconfig {
        field: field.to_owned(),
        expected,
    };
    let wrong = |field: &str, expected| AccessError::WrongType {
        field: field.to_owned(),
        expected,
    };
    for (pointer, value, expected) in [
        ("/kind", json!("Secret"), other("kind", "Config")),
        ("/apiVersion", json!("v2"), other("apiVersion", "v1")),
        (
            "/clusters",
            json!({ "cluster": {} }),
            wrong("clusters", "a list"),
        ),
        ("/users/-", json!("a user"), wrong("users[1]", "a mapping")),
    ] {
        refuses(&pki, pointer, value, &expected);
    }
}

#[test]
fn several_contexts_need_a_current_one() {
    let mut kubeconfig = with(
        a_kubeconfig(&a_pki()),
        "/contexts/-",
        json!({ "name": "other", "context": { "cluster": "cluster", "user": "osm" } }),
    );
    kubeconfig["current-context"] = json!("");
    assert_eq!(parse(&kubeconfig), Err(AccessError::NoCurrentContext));
}
