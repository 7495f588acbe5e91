//! Settings that cannot work, and defaults that can.

use clap::Parser;
use fake_cluster::Cluster;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::{Value, json};

use super::*;
use crate::api::worker_cluster::WorkerCluster;
use crate::tenant::host::Host;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: RunFlags,
}

fn check(arguments: &[&str]) -> Result<Settings, String> {
    let line = Line::try_parse_from([&["osm"], arguments].concat()).expect("flags");
    line.flags.check().map_err(|error| error.to_string())
}

#[test]
fn the_management_api_cannot_be_registered_by_its_names() {
    let rules = check(&[])
        .unwrap()
        .policies
        .default
        .access
        .clone()
        .addresses;
    for name in ["kubernetes.default.svc", "kubernetes"] {
        let host = Host::parse(name).expect("a host");
        assert!(rules.check_host(&host, 443).is_err(), "{name}");
    }
}

#[test]
fn a_setting_that_cannot_work_is_refused_by_its_name() {
    for (arguments, expected) in [
        (["--registration-selector", " "], "--registration-selector"),
        (
            ["--token-lifetime", "1m"],
            "--token-lifetime must be at least 10m",
        ),
        (
            ["--request-timeout", "1ms"],
            "--request-timeout must be at least 100ms",
        ),
        (
            ["--reconciles", "0"],
            "--concurrent-renders must be at least 1",
        ),
        (["--worker-burst", "1"], "--worker-burst must be at least 2"),
        (
            ["--tenant-defaults", "/does/not/exist"],
            "cannot read --tenant-defaults",
        ),
    ] {
        let refused = check(&arguments).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn tenant_defaults_are_a_spec_without_what_is_one_tenants_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("defaults.yaml");
    let with = |text: &str| {
        std::fs::write(&path, text).unwrap();
        check(&["--tenant-defaults", path.to_str().unwrap()])
    };
    let defaults = with("clusterDNS: [10.0.0.10]\npauseImage: mirror/pause\n").unwrap();
    assert_eq!(defaults.tenant_defaults.pause_image, "mirror/pause");
    for (text, expected) in [
        ("paused: true", "paused is a tenant's own"),
        (
            "clusterDns: [10.0.0.10]",
            "clusterDns: no such field exists, and the API server would drop it; did you mean \
             `clusterDNS`?",
        ),
        ("noProxy: \"a\\nb\"", "noProxy: the value must match"),
        ("clusterDNS: [there]", "`there` is not an IP address"),
        ("- a", "spec are expected: it is not a map"),
    ] {
        let refused = with(text).unwrap_err();
        assert!(refused.contains(expected), "{text}: {refused}");
    }
}

/// Settings with values, and whether a WorkerCluster can have them.
fn settings() -> Vec<(&'static str, Value, bool)> {
    vec![
        ("httpProxy", json!("http://proxy.example:3128"), true),
        ("httpProxy", json!("proxy.example:3128"), true),
        ("httpProxy", json!("proxy.example"), false),
        ("httpProxy", json!("user@proxy.example"), true),
        ("httpProxy", json!(""), true),
        ("noProxy", json!(".svc\n"), false),
        ("hostCABundle", json!("certificate"), false),
        ("hostCABundle", json!(""), true),
        ("kubernetesCABundle", json!("certificate"), false),
        ("pauseImage", json!("pause:3.10"), true),
        ("pauseImage", json!("pause 3.10"), false),
        ("insecureRegistries", json!(["r.example:5000/a"]), true),
        ("insecureRegistries", json!(["http://r.example"]), false),
        (
            "registryMirrors",
            json!({"r": ["m.example", "localhost/a"]}),
            true,
        ),
        (
            "registryMirrors",
            json!({"r": ["m.example", "mirror"]}),
            false,
        ),
        (
            "registryMirrors",
            json!({"r": vec!["m.example"; 17]}),
            false,
        ),
        ("initialTaints", json!("a=b:NoSchedule,c:NoExecute"), true),
        ("initialTaints", json!("a=b"), false),
        ("clusterDNS", json!(["10.0.0.10", "fd00::a"]), true),
        ("clusterDNS", json!(["10.0.0"]), false),
        ("apiServerOverride", json!("http://api.example"), false),
        ("kubeletFeatureGates", json!({"A": "true"}), false),
        ("storedConfig", json!("Anything"), false),
        ("externalCloudProvider", json!(null), true),
    ]
}

/// Programs for image credentials, and whether a WorkerCluster can have them.
fn credential_providers() -> Vec<(Value, bool)> {
    let provider = |field: &str, value: Value| {
        let binary = json!({"url": "https://site.example/a", "sha256": "0".repeat(64)});
        let mut provider = json!({
            "name": "ecr", "binaries": {"amd64": binary}, "matchImages": ["*.example:5000/a"],
            "defaultCacheDuration": "12h0m", "env": [{"name": "A", "value": ""}],
        });
        provider[field] = value;
        provider
    };
    let with_password = json!({"url": "https://u:p@a.example/b", "sha256": "0".repeat(64)});
    let token = |requires_account: bool, optional: &str| {
        let token = json!({
            "serviceAccountTokenAudience": "a", "cacheType": "Token",
            "requireServiceAccount": requires_account,
            "requiredServiceAccountAnnotationKeys": ["example.com/a"],
            "optionalServiceAccountAnnotationKeys": [optional],
        });
        json!([provider("tokenAttributes", token)])
    };
    vec![
        (token(true, "b"), true),
        (token(true, "example.com/a"), false),
        (token(true, "a..b/c"), false),
        (token(false, "b"), false),
        (
            json!([provider("binaries", json!({"amd64": with_password}))]),
            false,
        ),
        (
            json!([provider("matchImages", json!(["[fd00::a]:5000/x"]))]),
            true,
        ),
        (json!(vec![provider("args", json!(["a"])); 2]), false),
        (json!([provider("name", json!("a/b"))]), false),
        (json!([provider("binaries", json!({}))]), false),
        (json!([provider("matchImages", json!([]))]), false),
        (
            json!([provider("matchImages", json!(["https://a"]))]),
            false,
        ),
        (
            json!([provider("defaultCacheDuration", json!("1.5"))]),
            false,
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn tenant_defaults_are_refused_as_the_api_server_refuses_them_in_a_worker_cluster() {
    let cluster = Cluster::default();
    let definition = include_str!("../../manifests/crds/workerclusters.yaml");
    cluster.apply_yaml(definition).unwrap();
    let created: Api<DynamicObject> = Api::namespaced_with(
        cluster.client(),
        "default",
        &ApiResource::erase::<WorkerCluster>(&()),
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    let others = credential_providers().into_iter();
    let others = others.map(|(value, is_taken)| ("imageCredentialProviders", value, is_taken));
    for (field, value, is_taken) in settings().into_iter().chain(others) {
        let object = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": {"generateName": "a-"},
            "spec": {"kubeconfigSecretRef": {"name": "worker"}, field: value},
        });
        let object = serde_json::from_value(object).unwrap();
        let answer = created.create(&PostParams::default(), &object).await;
        assert_eq!(answer.is_ok(), is_taken, "{field}: {value}: {answer:?}");
        std::fs::write(file.path(), json!({field: value}).to_string()).unwrap();
        let read = check(&["--tenant-defaults", file.path().to_str().unwrap()]);
        assert_eq!(read.is_ok(), is_taken, "{field}: {value}");
        if let Err(refused) = read {
            assert!(refused.contains(field), "{refused}");
        }
    }
}
