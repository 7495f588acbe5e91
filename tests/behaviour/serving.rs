//! From a registration to what nodes boot from.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use osm::api::names::{CLOUD_CONFIG_KEY, FINALIZER, KUBECONFIG_KEY, PROFILE};
use osm::render::annotation_hash::annotation_hash;

use crate::administrator::{get, list};
use crate::fixtures::{self, a_machine_deployment, on_cloud, stamp};
use crate::process::Manager;
use crate::stage::{Made, Stage, Tenant};
use crate::wait;
use crate::world::World;

pub async fn tenants_that_register_at_run_time_are_served_each_in_its_own_clusters(
    world: &'static World,
) {
    let stage = Stage::open(world, "serving");
    let [berlin, lisbon] = stage.tenants(["berlin", "lisbon"]).await;
    let manager = Manager::start(&stage, &[]).await;
    for (tenant, cloud, name) in [
        (&berlin, "aws", "berlin-workers"),
        (&lisbon, "openstack", "lisbon-workers"),
    ] {
        tenant.register().await;
        tenant.says("Claimed", "True", "Claimed").await;
        tenant.says("ProfilesInstalled", "True", "Installed").await;
        get(&tenant.profiles(), "osp-ubuntu").await;
        let made = tenant
            .serve(&on_cloud(a_machine_deployment(name), cloud))
            .await;
        check_made(tenant, (name, cloud), &made).await;
        tenant.says("Ready", "True", "Ready").await;
    }
    for (tenant, other) in [(&berlin, "lisbon"), (&lisbon, "berlin")] {
        nothing_names(tenant, other).await;
    }
    manager.stop().await;
}

/// Names, namespaces, keys, annotations, types and immutability are contract with others.
async fn check_made(tenant: &Tenant, (name, cloud): (&str, &str), made: &Made) {
    let found = get(&tenant.machine_deployments(), name).await;
    assert!(found.finalizers().iter().any(|it| it == FINALIZER));
    assert_eq!(
        found.annotations().get(PROFILE).map(String::as_str),
        Some("osp-ubuntu")
    );
    let profile = get(&tenant.profiles(), "osp-ubuntu").await;
    let expected = [
        "1".to_owned(),
        annotation_hash(found.metadata.annotations.as_ref()),
        profile.spec.version,
    ];
    assert_eq!(
        made.names.bootstrap,
        format!("{name}-kube-system-bootstrap-config")
    );
    for (secret, annotations) in [
        (None, made.config.annotations()),
        (Some(&made.provisioning), made.provisioning.annotations()),
        (Some(&made.bootstrap), made.bootstrap.annotations()),
    ] {
        assert_eq!(stamp(annotations), expected);
        if let Some(secret) = secret {
            assert_eq!(keys(secret), [CLOUD_CONFIG_KEY]);
            assert_eq!(secret.immutable, Some(true));
            assert_eq!(secret.type_.as_deref(), Some("Opaque"));
            assert!(fixtures::text(secret, CLOUD_CONFIG_KEY).starts_with("#cloud-config\n"));
        }
    }
    assert_eq!(made.config.spec.cloud_provider.name.as_str(), cloud);
    assert!(made.config.owner_references().is_empty());
    assert_eq!(keys(&made.kubelet_kubeconfig), [KUBECONFIG_KEY]);
    assert_eq!(made.kubelet_kubeconfig.immutable, None);
    check_token(tenant, made).await;
}

async fn check_token(tenant: &Tenant, made: &Made) {
    let tokens = tenant.tokens_of(&made.names).await;
    let [token] = tokens.as_slice() else {
        assert_eq!(tokens.len(), 1, "there is one token");
        return;
    };
    let id = fixtures::text(token, "token-id");
    assert_eq!(token.name_any(), format!("bootstrap-token-{id}"));
    assert_eq!(
        token.type_.as_deref(),
        Some("bootstrap.kubernetes.io/token")
    );
    assert_eq!(
        fixtures::text(token, "auth-extra-groups"),
        "system:bootstrappers:machine-controller:default-node-token"
    );
    for usage in ["usage-bootstrap-authentication", "usage-bootstrap-signing"] {
        assert_eq!(fixtures::text(token, usage), "true");
    }
    let secret = fixtures::text(token, "token-secret");
    assert_eq!((id.len(), secret.len()), (6, 16));
    let kubeconfig = fixtures::text(&made.kubelet_kubeconfig, KUBECONFIG_KEY);
    assert!(kubeconfig.contains(&format!("token: {id}.{secret}\n")));
}

async fn nothing_names(tenant: &Tenant, other: &str) {
    let secrets = list(&tenant.secrets()).await;
    let tokens = list(&tenant.tokens()).await;
    let configs = list(&tenant.configs()).await;
    let names = secrets
        .iter()
        .chain(tokens.iter())
        .map(ResourceExt::name_any);
    let names = names.chain(configs.iter().map(ResourceExt::name_any));
    let foreign: Vec<String> = names.filter(|name| name.contains(other)).collect();
    assert_eq!(foreign, Vec::<String>::new());
    let labelled = tokens
        .iter()
        .flat_map(|token| token.labels().values().cloned());
    assert_eq!(labelled.filter(|label| label.contains(other)).count(), 0);
    let _ = wait::DEADLINE;
}

fn keys(secret: &Secret) -> Vec<&str> {
    let data = secret.data.iter().flatten();
    data.map(|(key, _)| key.as_str()).collect()
}
