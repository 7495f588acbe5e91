//! What the custom resource definitions themselves hold, without the manager.

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use osm::api::config::OperatingSystemConfig;
use osm::api::profile::{OperatingSystemProfile, ProvisioningUtility};
use osm::api::worker_cluster::WorkerCluster;
use serde_json::{Value, json};

use crate::suite::administrator::{create, merge};
use crate::suite::fixtures::{self, PROFILE_NAME, a_profile};
use crate::suite::server::ok;
use crate::suite::world::World;

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

pub async fn a_worker_clusters_status_is_written_apart_from_its_spec(world: &'static World) {
    let client = in_namespace(world, "status").await;
    let worker_clusters: Api<WorkerCluster> = Api::default_namespaced(client);
    let spec = json!({ "kubeconfigSecretRef": { "name": "worker" } });
    let spec = ok(serde_json::from_value(spec), "it is a spec");
    let made = WorkerCluster::new("worker", spec);
    create(&worker_clusters, &made).await;
    let status = json!({ "status": { "version": "v1" }, "spec": { "paused": true } });
    merge(&worker_clusters, "worker", status.clone()).await;
    let params = PatchParams::default();
    let patched = worker_clusters
        .patch_status("worker", &params, &Patch::Merge(&status))
        .await;
    let patched = ok(patched, "the status is patched");
    assert_eq!(
        patched.status.and_then(|it| it.version).as_deref(),
        Some("v1")
    );
    assert_eq!(
        patched.metadata.generation,
        Some(2),
        "the spec was patched once"
    );
    let url = json!({ "spec": { "apiServerOverride": "http://plain" } });
    let message = refused(&worker_clusters, "worker", url).await;
    assert!(message.contains("spec.apiServerOverride"), "{message}");
}

pub async fn kubectl_shows_what_matters_of_each_kind(world: &'static World) {
    let client = world.management.admin().await;
    for (url, expected) in [
        (
            WorkerCluster::url_path(&(), None),
            "Name Ready Reason Version Served Outdated Age Server Paused Message",
        ),
        (
            OperatingSystemProfile::url_path(&(), None),
            "Name OS|OS Version|Version Age Language",
        ),
        (
            OperatingSystemConfig::url_path(&(), None),
            "Name OS Provider Utility|Profile Version|Revision Age",
        ),
    ] {
        let request = http::Request::get(url)
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new());
        let table: Value = ok(
            client.request(ok(request, "it is a request")).await,
            "the server makes tables",
        );
        let mut columns: Vec<&str> = table
            .get("columnDefinitions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|column| column.get("name")?.as_str())
            .collect();
        let mut expected: Vec<&str> = expected.split('|').flat_map(words).collect();
        columns.sort_unstable();
        expected.sort_unstable();
        assert_eq!(columns, expected);
    }
}

/// One name with a space stands alone between bars.
fn words(part: &str) -> Vec<&str> {
    match part {
        "OS Version" | "Profile Version" => vec![part],
        several => several.split(' ').collect(),
    }
}

/// What the server says when it refuses a merge as invalid.
async fn refused<K: crate::suite::wait::Watched>(api: &Api<K>, name: &str, patch: Value) -> String {
    let patched = api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    let refusal = patched.map(|it| it.name_any()).expect_err("it is refused");
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
