//! What others delete or change comes back.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, PostParams};
use osm::api::names::{CLOUD_INIT_SETTINGS, FETCHER, KUBE_SYSTEM};
use osm::api::worker_cluster::WorkerCluster;
use serde_json::json;

use crate::administrator::{create, delete, get, merge};
use crate::fixtures::{self, a_machine_deployment};
use crate::process::Manager;
use crate::server::{Server, ok};
use crate::stage::{Stage, Tenant, WORKER, message};
use crate::wait;
use crate::world::World;

/// Short, so that what is wrong is found soon.
const INTERVAL: &[&str] = &["--facts-interval", "1s"];

pub async fn a_role_that_machines_cannot_fetch_with_is_corrected(world: &'static World) {
    let (stage, tenant) = staged(world, "fetcher").await;
    let roles: Api<Role> = Api::namespaced(tenant.admin.clone(), CLOUD_INIT_SETTINGS);
    let useless = Role {
        metadata: fixtures::named(FETCHER),
        rules: Some(Vec::new()),
    };
    create(&roles, &useless).await;
    let manager = Manager::start(&stage, INTERVAL).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    lets_read(&roles).await;
    merge(&roles, FETCHER, json!({ "rules": [] })).await;
    lets_read(&roles).await;

    // Where the right to correct it is missing, a person is told what to run.
    withhold_the_right_to_correct(&roles).await;
    merge(&roles, FETCHER, json!({ "rules": [] })).await;
    let said = tenant.says("Prepared", "False", "FetcherRefused").await;
    let command = format!("kubectl -n {CLOUD_INIT_SETTINGS} delete role {FETCHER}");
    let why = message(&said, "Prepared");
    assert!(why.contains(&command), "{why}");
    tenant.says("Ready", "False", "FetcherRefused").await;
    delete(&roles, FETCHER).await;
    lets_read(&roles).await;
    tenant.says("Ready", "True", "Ready").await;
    manager.stop().await;
}

pub async fn a_deleted_namespace_is_back_once_a_person_restores_the_rights_in_it(
    world: &'static World,
) {
    let (stage, tenant) = staged(world, "namespace").await;
    // Only adoption needs the permission to check whether another manager runs.
    let adoption = "operating-system-manager-worker-adoption";
    let bindings: Api<RoleBinding> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    delete(&bindings, adoption).await;
    let manager = Manager::start(&stage, INTERVAL).await;
    let made = tenant.serve(&a_machine_deployment("workers")).await;
    tenant.says("Ready", "True", "Ready").await;
    let namespaces: Api<Namespace> = Api::all(tenant.admin.clone());
    delete(&namespaces, CLOUD_INIT_SETTINGS).await;

    let said = tenant.says("Prepared", "False", "RightsMissing").await;
    let command = "osm rbac worker | kubectl apply --server-side --force-conflicts -f -";
    let why = message(&said, "Prepared");
    assert!(why.contains(command), "{why}");
    tenant.says("Ready", "False", "RightsMissing").await;
    tenant
        .says("MachineDeploymentsServed", "Unknown", "NotEngaged")
        .await;
    let back = get(&namespaces, CLOUD_INIT_SETTINGS).await;
    assert!(back.metadata.deletion_timestamp.is_none());

    tenant.worker.apply_file("manifests/rbac/worker.yaml").await;
    // The fetcher's token, which the bootstrap document alone has, is another one.
    let again = tenant.made("workers", "1").await;
    assert_eq!(again.provisioning.data, made.provisioning.data);
    assert_eq!(again.kubelet_kubeconfig.data, made.kubelet_kubeconfig.data);
    tenant.says("Ready", "True", "Ready").await;
    manager.stop().await;
}

pub async fn whether_machines_can_join_is_checked_as_a_machine_would(world: &'static World) {
    let stage = Stage::open(world, "join");
    let [tenant, other] = stage.tenants(["tenant", "other"]).await;
    let manager = Manager::start(&stage, INTERVAL).await;
    let through = |worker: &Server| json!({ "apiServerOverride": worker.url() });
    tenant.configure(through(&tenant.worker)).await;
    tenant.register().await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    tenant.says("MachinesCanJoin", "True", "CanJoin").await;
    tenant.says("Ready", "True", "Ready").await;

    // The address leads to a server of another authority.
    tenant.configure(through(&other.worker)).await;
    let condition = ("False", "CertificateRefused");
    tenant
        .says("MachinesCanJoin", condition.0, condition.1)
        .await;
    tenant.says("Ready", condition.0, condition.1).await;
    // Another network may reach what does not answer from here: `Ready` does not depend on it. What
    // the tenant may not reach is not dialled.
    for (url, cause) in [
        ("https://127.0.0.1:1", "no TLS connection"),
        ("https://169.254.169.254", "link-local"),
    ] {
        let nowhere = json!({ "apiServerOverride": url });
        tenant.configure(nowhere).await;
        let is_said = |found: &WorkerCluster| {
            let why = message(found, "MachinesCanJoin");
            why.contains(cause)
        };
        let of = &tenant.worker_clusters();
        wait::for_object(of, WORKER, &format!("it says {cause}"), is_said).await;
        tenant
            .says("MachinesCanJoin", "Unknown", "NotChecked")
            .await;
        tenant.says("Ready", "True", "Ready").await;
    }
    tenant.configure(through(&tenant.worker)).await;
    tenant.says("MachinesCanJoin", "True", "CanJoin").await;

    manager.stop().await;
}

pub async fn whether_machines_can_join_needs_rights_and_an_authority(world: &'static World) {
    let stage = Stage::open(world, "approval");
    let tenant = stage.tenant().await;
    let manager = Manager::start(&stage, INTERVAL).await;
    let url = tenant.worker.url();
    tenant.configure(json!({ "apiServerOverride": url })).await;
    tenant.register().await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    tenant.says("MachinesCanJoin", "True", "CanJoin").await;
    // Kubelets may not request certificates, or nobody approves these.
    let bindings: Api<ClusterRoleBinding> = Api::all(tenant.admin.clone());
    for (name, reason, told) in [
        (
            "machine-controller-kubelet-bootstrap",
            "JoinForbidden",
            "system:node-bootstrapper",
        ),
        (
            "machine-controller-node-signer",
            "ApprovalForbidden",
            "certificatesigningrequests:nodeclient",
        ),
    ] {
        let binding = get(&bindings, name).await;
        delete(&bindings, name).await;
        let said = tenant.says("Ready", "False", reason).await;
        let why = message(&said, "MachinesCanJoin");
        assert!(why.contains(told), "{why}");
        let again = ClusterRoleBinding {
            metadata: fixtures::named(name),
            ..binding
        };
        create(&bindings, &again).await;
        tenant.says("MachinesCanJoin", "True", "CanJoin").await;
        tenant.says("Ready", "True", "Ready").await;
    }
    if tenant.worker.real().is_some() {
        a_policy_refuses_machines(&tenant).await;
    }
    let authority = an_expired_authority();
    tenant
        .configure(json!({ "apiServerOverride": url, "kubernetesCABundle": authority }))
        .await;
    tenant.says("Ready", "False", "AuthorityExpired").await;
    tenant.configure(json!({ "apiServerOverride": url })).await;
    tenant.says("Ready", "True", "Ready").await;
    manager.stop().await;
}

/// A policy of the cluster is asked, although nothing is requested in earnest.
async fn a_policy_refuses_machines(tenant: &Tenant) {
    let policy = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-machines}
spec:
  matchConstraints:
    resourceRules:
    - apiGroups: [certificates.k8s.io]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [certificatesigningrequests]
  validations:
  - expression: \"!request.userInfo.username.startsWith('system:bootstrap:')\"
    message: no machines today
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-machines}
spec: {policyName: no-machines, validationActions: [Deny]}
";
    tenant.worker.apply(policy).await;
    let said = tenant.says("Ready", "False", "JoinForbidden").await;
    let why = message(&said, "MachinesCanJoin");
    assert!(why.contains("no machines today"), "{why}");
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(tenant.admin.clone());
    delete(&bindings, "no-machines").await;
    tenant.says("Ready", "True", "Ready").await;
}

fn an_expired_authority() -> String {
    let mut params = rcgen::CertificateParams::default();
    params.not_before = rcgen::date_time_ymd(2025, 1, 1);
    params.not_after = rcgen::date_time_ymd(2026, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key can be made");
    let authority = params.self_signed(&key);
    authority.expect("a certificate can be made").pem()
}

async fn lets_read(roles: &Api<Role>) {
    let has_rule = |role: &Role| {
        let mut granted = role.rules.iter().flatten();
        granted.any(|rule| rule.verbs.contains(&"get".to_owned()))
    };
    drop(wait::for_object(roles, FETCHER, "machines may read", has_rule).await);
}

async fn withhold_the_right_to_correct(roles: &Api<Role>) {
    let ours = "operating-system-manager-worker";
    let mut role = get(roles, ours).await;
    let granted = role.rules.get_or_insert_default();
    granted.retain(|rule| !rule.verbs.contains(&"patch".to_owned()));
    drop(ok(
        roles.replace(ours, &PostParams::default(), &role).await,
        "an administrator may",
    ));
}

async fn staged(world: &'static World, name: &'static str) -> (Stage, Tenant) {
    let stage = Stage::open(world, name);
    let tenant = stage.tenant().await;
    tenant.register().await;
    (stage, tenant)
}
