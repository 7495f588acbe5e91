//! What the custom resource definitions themselves hold, without the manager.

use std::fmt::Debug;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::{Client, CustomResourceExt};
use osm::api::config::OperatingSystemConfig;
use osm::api::profile::{OperatingSystemProfile, ProvisioningUtility};
use osm::api::worker_cluster::WorkerCluster;
use serde_json::{Value, json};

use crate::administrator::{create, merge};
use crate::fixtures::{self, PROFILE_NAME, a_profile};
use crate::server::ok;
use crate::wait;
use crate::world::World;

pub async fn a_configs_spec_never_changes_and_its_annotations_may(world: &'static World) {
    let client = in_namespace(world, "immutable-config").await;
    let configs: Api<OperatingSystemConfig> = Api::default_namespaced(client);
    let config = serde_json::from_value(json!({
        "metadata": { "name": "workers" },
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "cloudProvider": { "name": "aws" },
            "bootstrapConfig": {}, "provisioningConfig": {},
        },
    }));
    let config = ok(config, "it is a config");
    let created = create(&configs, &config).await;
    let utility = created
        .spec
        .provisioning_utility
        .map(ProvisioningUtility::as_str);
    assert_eq!(utility, Some("cloud-init"), "it has its default");
    let message = refused(
        &configs,
        "workers",
        json!({ "spec": { "osVersion": "26.04" } }),
    )
    .await;
    assert!(
        message.contains("OperatingSystemConfig is immutable"),
        "{message}"
    );
    let note = json!({ "metadata": { "annotations": { "note": "new" } } });
    merge(&configs, "workers", note).await;
}

pub async fn a_profiles_spec_changes_with_its_version_only(world: &'static World) {
    let client = in_namespace(world, "versioned-profile").await;
    let profiles: Api<OperatingSystemProfile> = Api::default_namespaced(client);
    let profile = a_profile("v1.0.0", "first");
    create(&profiles, &profile).await;
    let message = refused(
        &profiles,
        PROFILE_NAME,
        json!({ "spec": { "osVersion": "26.04" } }),
    );
    let message = message.await;
    assert!(
        message.contains(".spec.version needs to be updated"),
        "{message}"
    );
    let both = json!({ "spec": { "osVersion": "26.04", "version": "v1.1.0" } });
    merge(&profiles, PROFILE_NAME, both).await;
    let message = refused(
        &profiles,
        PROFILE_NAME,
        json!({ "spec": { "version": "1.2" } }),
    )
    .await;
    assert!(message.contains("spec.version"), "{message}");
    let unknown = json!({ "spec": { "provisioningUtility": "kickstart", "version": "v1.2.0" } });
    let message = refused(&profiles, PROFILE_NAME, unknown).await;
    assert!(message.contains("spec.provisioningUtility"), "{message}");
    // But a thin one may become whole, and not the other way.
    let thin = json!({ "spec": {
        "version": "v2.0.0", "extends": "osp@v2.0.0",
        "bootstrapConfig": null, "provisioningConfig": null,
    } });
    merge(&profiles, PROFILE_NAME, thin).await;
    let whole = json!({ "spec": {
        "extends": null, "bootstrapConfig": profile.spec.bootstrap_config,
        "provisioningConfig": profile.spec.provisioning_config,
    } });
    merge(&profiles, PROFILE_NAME, whole).await;
    let thin = json!({ "spec": { "extends": "osp@v2.0.0" } });
    let message = refused(&profiles, PROFILE_NAME, thin).await;
    assert!(message.contains("needs to be updated"), "{message}");
}

pub async fn only_a_profile_that_extends_another_may_leave_out_what_it_shares(
    world: &'static World,
) {
    let client = in_namespace(world, "overlay-profile").await;
    let profiles: Api<OperatingSystemProfile> = Api::default_namespaced(client);
    let profile = a_profile("v1.0.0", "first");
    create(&profiles, &profile).await;
    let shared = [
        "supportedCloudProviders",
        "bootstrapConfig",
        "provisioningConfig",
    ];
    for field in shared {
        let without = json!({ "spec": { field: null, "version": "v1.1.0" } });
        let message = refused(&profiles, PROFILE_NAME, without).await;
        assert!(
            message.contains("are required where spec.extends is absent"),
            "{message}"
        );
    }
    let overlay = json!({ "spec": {
        "extends": "another", "version": "v1.1.0", "supportedCloudProviders": null,
        "bootstrapConfig": null, "provisioningConfig": null,
    }});
    merge(&profiles, PROFILE_NAME, overlay).await;
}

pub async fn an_effect_names_units_where_it_restarts_some(world: &'static World) {
    let client = in_namespace(world, "effects").await;
    let profiles: Api<OperatingSystemProfile> = Api::default_namespaced(client);
    create(&profiles, &a_profile("v1.0.0", "first")).await;
    let with = |effects: Value| json!({ "spec": { "version": "v1.1.0", "effects": effects } });
    let of = |class: &str, units: Value| json!({ "path": "/a", "class": class, "units": units });
    for (effects, told) in [
        (
            json!([of("RestartUnit", json!([]))]),
            "units must be named for",
        ),
        (
            json!([of("Drain", json!(["a.service"]))]),
            "units must be named for",
        ),
        (
            json!([of("Often", json!([]))]),
            "Unsupported value: \"Often\"",
        ),
        (
            json!([{ "path": "a", "class": "Drain" }]),
            "should match '^/'",
        ),
        (
            json!([of("Drain", json!([])), of("Reboot", json!([]))]),
            "Duplicate value",
        ),
    ] {
        let message = refused(&profiles, PROFILE_NAME, with(effects)).await;
        assert!(message.contains(told), "{message}");
    }
    let effects = json!([of("RestartUnit", json!(["a.service"]))]);
    merge(&profiles, PROFILE_NAME, with(effects)).await;
}

/// Fields with a value that no machine can use, and a part of what is said about it.
fn unusable() -> [(&'static str, Value, &'static str); 16] {
    [
        (
            "registryCredentialsSecretRef",
            json!({ "name": "registries", "namespace": "kube-system" }),
            "needs home: Worker",
        ),
        (
            "clusterDNS",
            json!(["10.0.0.10", "x"]),
            "`x` is not an IP address",
        ),
        (
            "httpProxy",
            json!("banana"),
            "must be a URL such as http://proxy.example.com:3128",
        ),
        ("noProxy", json!("a\nb"), "should match"),
        (
            "registryMirrors",
            json!({ "docker.io": ["https://a.example", "nope"] }),
            "`nope` is not a URL",
        ),
        ("insecureRegistries", json!(["a b"]), "should match"),
        (
            "insecureRegistries",
            json!(["https://a.example"]),
            "should match",
        ),
        (
            "kubeconfigSecretRef",
            json!({ "name": "another" }),
            "cannot be changed: put the kubeconfig into the Secret",
        ),
        (
            "initialTaints",
            json!("bad taint"),
            "must be taints such as dedicated=gpu:NoSchedule",
        ),
        (
            "initialTaints",
            json!("spot:Never"),
            "NoSchedule, PreferNoSchedule and NoExecute",
        ),
        (
            "hostCABundle",
            json!("bundle"),
            "must contain certificates in PEM",
        ),
        (
            "kubernetesCABundle",
            json!("bundle"),
            "must contain certificates in PEM",
        ),
        (
            "pauseImage",
            json!("registry.example/pause: 3"),
            "should match",
        ),
        ("apiServerOverride", json!("http://plain"), "should match"),
        ("defaultProfileNames", json!([""]), "at least 1 chars long"),
        (
            "confirmedClusterUid",
            json!("u".repeat(65)),
            "may not be more than 64",
        ),
    ]
}

/// Image credential providers that no kubelet takes, and a part of what is said about them.
fn unusable_providers() -> [(Value, &'static str); 3] {
    let provider = |binaries: Value, required: &str| {
        json!({
            "name": "ecr", "binaries": binaries, "matchImages": ["a"], "defaultCacheDuration": "1h",
            "tokenAttributes": {
                "serviceAccountTokenAudience": "a", "cacheType": "Token",
                "requireServiceAccount": true,
                "requiredServiceAccountAnnotationKeys": [required],
                "optionalServiceAccountAnnotationKeys": ["b"],
            },
        })
    };
    let binary = json!({ "url": "https://a.example", "sha256": "0".repeat(64) });
    let binaries = json!({ "amd64": binary });
    [
        (
            json!([provider(binaries.clone(), "b")]),
            "annotations that are required need requireServiceAccount",
        ),
        (
            json!([provider(json!({}), "a")]),
            "should have at least 1 properties",
        ),
        (json!(vec![provider(binaries, "a"); 2]), "Duplicate value"),
    ]
}

pub async fn settings_that_no_machine_can_use_are_refused_with_what_to_write(
    world: &'static World,
) {
    let client = in_namespace(world, "settings").await;
    let worker_clusters: Api<WorkerCluster> = Api::default_namespaced(client);
    let a_spec = || {
        ok(
            serde_json::from_value(json!({ "kubeconfigSecretRef": { "name": "worker" } })),
            "it is a spec",
        )
    };
    create(&worker_clusters, &WorkerCluster::new("worker", a_spec())).await;
    let providers = unusable_providers().into_iter();
    let providers = providers.map(|(value, told)| ("imageCredentialProviders", value, told));
    for (field, value, expected) in unusable().into_iter().chain(providers) {
        let message = refused(
            &worker_clusters,
            "worker",
            json!({ "spec": { field: value } }),
        )
        .await;
        let named = format!("spec.{field}");
        assert!(
            message.contains(&named) && message.contains(expected),
            "{field}: {message}"
        );
    }
    // The answer would quote the password.
    let password = json!({ "spec": { "httpProxy": "http://user:pass word@proxy:3128" } });
    merge(&worker_clusters, "worker", password).await;
    merge(
        &worker_clusters,
        "worker",
        json!({ "spec": {
            "clusterDNS": ["10.0.0.10", "fd00::a"],
            "httpProxy": "http://user:pass@proxy.example:3128",
            "noProxy": ".svc, .cluster.local",
            "registryMirrors": {
                "docker.io": ["https://a.example/v2?kubermatic=override_path%3Dtrue", "b.example"],
                "*": ["http://mirror:5000", "localhost"],
            },
            "insecureRegistries": ["10.0.0.1:5000", "[fd00::a]:5000", "a.example/path"],
            "initialTaints": "example.com/dedicated=gpu:NoSchedule,spot:NoExecute",
            "hostCABundle": "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n",
            "pauseImage": "registry.example:5000/pause:3.10@sha256:0000",
        }}),
    )
    .await;
    let empty = json!({ "httpProxy": "", "initialTaints": "", "hostCABundle": "", "pauseImage": "", "noProxy": "" });
    merge(&worker_clusters, "worker", json!({ "spec": empty })).await;
    merge(
        &worker_clusters,
        "worker",
        json!({ "spec": { "httpProxy": "proxy:3128", "clusterDNS": null } }),
    )
    .await;
}

/// Kubernetes does not apply a rule to a value that an update leaves as it was.
pub async fn what_an_older_definition_let_through_can_still_be_updated(world: &'static World) {
    let client = in_namespace(world, "older-definition").await;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let (group, name) = ("older.example.com", "workerclusters.older.example.com");
    let mut current = WorkerCluster::crd();
    current.metadata.name = Some(name.to_owned());
    current.spec.group = group.to_owned();
    let mut older = ok(serde_json::to_value(&current), "it is JSON");
    remove_rules(&mut older);
    let older = ok(serde_json::from_value(older), "it is a definition");
    create(&definitions, &older).await;
    wait::for_object(&definitions, name, "it is served", |found| {
        let status = found.status.as_ref();
        let conditions = status.and_then(|it| it.conditions.as_ref());
        conditions.is_some_and(|all| {
            all.iter()
                .any(|it| it.type_ == "Established" && it.status == "True")
        })
    })
    .await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1alpha1", "WorkerCluster"));
    let worker_clusters: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    let mut worker = DynamicObject::new("worker", &kind);
    worker.data = json!({ "spec": {
        "kubeconfigSecretRef": { "name": "worker" }, "clusterDNS": ["x"], "httpProxy": "banana",
        "registryMirrors": { "docker.io": ["nope"] }, "initialTaints": "bad taint",
    }});
    wait::until("the kind is served", async || {
        let created = worker_clusters
            .create(&PostParams::default(), &worker)
            .await;
        created.ok()
    })
    .await;
    let rules = json!({ "spec": current.spec });
    merge(&definitions, name, rules).await;
    let mut tries = 0..;
    let message = wait::until("the rules are in force", async || {
        // Until then it is stored, and the same value again would be no change.
        let taint = format!("another taint {}", tries.next().unwrap_or_default());
        let taint = json!({ "spec": { "initialTaints": taint } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&taint));
        let patched = worker_clusters.patch("worker", &params, &patch).await;
        patched.err().map(|it| it.to_string())
    });
    let message = message.await;
    assert!(message.contains("spec.initialTaints"), "{message}");
    assert!(!message.contains("clusterDNS"), "{message}");
    let patch = Patch::Merge(json!({ "spec": { "paused": true, "httpProxy": "proxy:3128" } }));
    let patched = worker_clusters
        .patch("worker", &PatchParams::default(), &patch)
        .await;
    let spec = ok(patched, "what is as it was is not checked").data;
    assert_eq!(spec.pointer("/spec/clusterDNS"), Some(&json!(["x"])));
}

/// Removes what a schema refuses besides wrong types.
fn remove_rules(schema: &mut Value) {
    const RULES: [&str; 6] = [
        "x-kubernetes-validations",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minLength",
        "pattern",
    ];
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| !RULES.contains(&name.as_str()));
            fields.values_mut().for_each(remove_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_rules),
        _ => {}
    }
}

/// What the server says when it refuses a merge as invalid.
async fn refused<K>(api: &Api<K>, name: &str, patch: Value) -> String
where
    K: Clone + Debug + DeserializeOwned,
{
    let patched = api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    let refusal = patched.expect_err("it is refused");
    let kube::Error::Api(status) = refusal else {
        return String::new();
    };
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"));
    status.message
}

/// A client with a new namespace as its default.
async fn in_namespace(world: &'static World, name: &str) -> Client {
    let admin = world.management.admin().await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(admin.clone());
    let made = namespaces
        .create(&PostParams::default(), &fixtures::a_namespace(name))
        .await;
    ok(made, "a scenario's names are its own");
    let kubeconfig = world.management.admin_in(name);
    ok(
        loadtest::control_plane::client_of(&kubeconfig).await,
        "it works",
    )
}
