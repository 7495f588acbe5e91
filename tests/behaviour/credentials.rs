//! Credentials for the machines of one machine deployment alone.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use loadtest::control_plane::client_of;
use osm::api::names::{CLOUD_INIT_SETTINGS, FETCHER_TOKEN, INPUTS, REVISION};
use osm::api::profile::OperatingSystemProfile;
use serde_json::json;

use crate::administrator::find;
use crate::audit::told;
use crate::fixtures::{self, a_little_machine_deployment, a_profile, on_cloud};
use crate::process::Manager;
use crate::rotation::install;
use crate::server::ok;
use crate::stage::{Made, Stage, Tenant, message};
use crate::wait;
use crate::world::World;

/// What has to be applied beside `worker.yaml`.
const RIGHTS: &str = "manifests/rbac/worker-node-credentials.yaml";

pub async fn each_machine_deployments_token_reads_its_own_secrets_and_no_others(
    world: &'static World,
) {
    let stage = Stage::open(world, "own-tokens");
    let (tenant, manager) = opted_in(&stage).await;
    let first = tenant.serve(&a_little_machine_deployment("first")).await;
    let second = tenant.serve(&a_little_machine_deployment("second")).await;
    let edge = on_cloud(a_little_machine_deployment("edge"), "edge");
    let edge = tenant.serve(&edge).await;
    has_own_credentials(&tenant).await;
    tenant.says("Ready", "True", "Ready").await;
    for (made, at_edge) in [(&first, 403), (&second, 403), (&edge, 200)] {
        let token = own_token(&tenant, made).await;
        assert!(fetches_with(made, &token), "its machines have the token");
        let machine = machine(&tenant, &token).await;
        let names = &made.names;
        for (name, code) in [
            (&names.provisioning, 200),
            (&names.kubelet_kubeconfig, 200),
            (&names.bootstrap, at_edge),
            (&names.fetcher_token, 403),
        ] {
            assert_eq!(answer(&machine, name).await, code, "{name}");
        }
        for other in [&first, &second, &edge] {
            if other.names != made.names {
                let names = &other.names;
                for name in [
                    &names.provisioning,
                    &names.kubelet_kubeconfig,
                    &names.bootstrap,
                ] {
                    assert_eq!(answer(&machine, name).await, 403, "{name} is another's");
                }
            }
        }
        assert_eq!(answer(&machine, FETCHER_TOKEN).await, 403);
        let all: Api<Secret> = Api::namespaced(machine.clone(), CLOUD_INIT_SETTINGS);
        let listed = all.list(&ListParams::default()).await;
        assert_eq!(code_of(listed.map(drop)), 403, "a list would tell all");
    }
    let token = own_token(&tenant, &first).await;
    let second_before = parts(&tenant, &second).await;
    tenant.delete("first").await;
    wait::for_absence(&tenant.machine_deployments(), "first").await;
    assert_eq!(parts(&tenant, &first).await, Vec::<String>::new());
    assert_eq!(parts(&tenant, &second).await, second_before);
    assert_eq!(second_before.len(), 4);
    let machine = machine(&tenant, &token).await;
    let left = answer(&machine, &second.names.provisioning).await;
    assert!(
        [401, 403].contains(&left),
        "the token is worth nothing: {left}"
    );
    manager.stop().await;
}

pub async fn without_the_rights_machines_share_the_fetcher_and_the_condition_says_so(
    world: &'static World,
) {
    let stage = Stage::open(world, "no-rights");
    let (tenant, manager) = Manager::with_tenant(&stage).await;
    opt_in(&tenant).await;
    tenant.register().await;
    install(&tenant, &a_fetching_profile()).await;
    let made = tenant.serve(&a_little_machine_deployment("workers")).await;
    let fetcher = fetcher_token(&tenant).await;
    assert!(fetches_with(&made, &fetcher), "the fetcher's token is used");
    assert_eq!(parts(&tenant, &made).await, Vec::<String>::new());
    let said = tenant.says("NodeCredentials", "False", "Forbidden").await;
    let said = message(&said, "NodeCredentials");
    let command = "osm rbac worker-node-credentials";
    assert!(said.contains(command), "it says what to do: {said}");
    // Deleting it takes no rights that are not there.
    tenant.delete("workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    drop(tenant.serve(&a_little_machine_deployment("others")).await);
    manager.stop().await;

    tenant.worker.apply_file(RIGHTS).await;
    let manager = Manager::start(&stage, &[]).await;
    has_own_credentials(&tenant).await;
    let others = tenant
        .made_when("others", |found| !holds(found, &fetcher))
        .await;
    assert!(fetches_with(&others, &own_token(&tenant, &others).await));
    manager.stop().await;
}

pub async fn switching_own_credentials_on_and_off_renders_again(world: &'static World) {
    let stage = Stage::open(world, "own-tokens-switch");
    let tenant = stage.tenant().await;
    tenant.worker.apply_file(RIGHTS).await;
    let manager = Manager::start(&stage, &[]).await;
    tenant.register().await;
    install(&tenant, &a_fetching_profile()).await;
    let shared = tenant.serve(&a_little_machine_deployment("workers")).await;
    let fetcher = fetcher_token(&tenant).await;
    assert!(fetches_with(&shared, &fetcher));
    opt_in(&tenant).await;
    let own = tenant
        .made_when("workers", |found| !holds(found, &fetcher))
        .await;
    assert!(fetches_with(&own, &own_token(&tenant, &own).await));
    assert_ne!(inputs(&own), inputs(&shared));
    assert_eq!(
        own.kubelet_kubeconfig.uid(),
        shared.kubelet_kubeconfig.uid()
    );
    tenant.says("Ready", "True", "Ready").await;
    tenant.is_current("workers").await;
    manager.stop().await;

    let restarted = Timestamp::now();
    let manager = Manager::start(&stage, &[]).await;
    manager.has_reconciled("served", 1.0).await;
    manager.stop().await;
    tenant.worker.settle_audit().await;
    world.management.settle_audit().await;
    let writes = tenant.writes(restarted);
    assert!(writes.is_empty(), "{}", told(&writes));

    let manager = Manager::start(&stage, &[]).await;
    tenant.annotate("workers", (REVISION, "2")).await;
    let again = tenant.made("workers", "2").await;
    assert_eq!(
        again.uids(),
        own.uids(),
        "the token is the same, and so are the bytes"
    );

    tenant.configure(credentials_spec("Shared")).await;
    let back = tenant
        .made_when("workers", |found| holds(found, &fetcher))
        .await;
    assert_eq!(
        parts(&tenant, &back).await.len(),
        4,
        "machines that start now have the token"
    );
    tenant.says("NodeCredentials", "True", "SharedGetter").await;
    tenant.delete("workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    assert_eq!(parts(&tenant, &back).await, Vec::<String>::new());
    manager.stop().await;
}

pub async fn purge_and_the_removal_of_orphans_take_credentials_along(world: &'static World) {
    let stage = Stage::open(world, "own-tokens-purge");
    let (tenant, manager) = opted_in(&stage).await;
    let workers = tenant.serve(&a_little_machine_deployment("workers")).await;
    let vanishing = tenant
        .serve(&a_little_machine_deployment("vanishing"))
        .await;
    tenant.says("Ready", "True", "Ready").await;
    manager.stop().await;
    tenant
        .change("vanishing", json!({ "metadata": { "finalizers": null } }))
        .await;
    tenant.delete("vanishing").await;
    wait::for_absence(&tenant.machine_deployments(), "vanishing").await;
    let manager = Manager::start(&stage, &[]).await;
    wait::for_absence(&tenant.configs(), &vanishing.names.config).await;
    assert_eq!(parts(&tenant, &vanishing).await, Vec::<String>::new());
    assert_eq!(parts(&tenant, &workers).await.len(), 4);
    tenant.leave().await;
    assert_eq!(parts(&tenant, &workers).await, Vec::<String>::new());
    manager.stop().await;
}

/// A tenant that wants credentials per machine deployment, may have them, and is registered.
pub async fn opted_in(stage: &Stage) -> (Tenant, Manager) {
    let tenant = stage.tenant().await;
    tenant.worker.apply_file(RIGHTS).await;
    let manager = Manager::start(stage, &[]).await;
    opt_in(&tenant).await;
    tenant.register().await;
    install(&tenant, &a_fetching_profile()).await;
    (tenant, manager)
}

/// Asks for credentials per machine deployment.
async fn opt_in(tenant: &Tenant) {
    let spec = credentials_spec("PerMachineDeployment");
    tenant.configure(spec).await;
}

fn credentials_spec(credentials: &str) -> serde_json::Value {
    json!({ "nodeCredentials": credentials, "onRemoval": "Purge" })
}

/// A profile whose machines fetch as ours do, in plain text.
pub fn a_fetching_profile() -> OperatingSystemProfile {
    let mut profile = a_profile("v1.0.0", "text");
    let spec = serde_json::to_string(&profile.spec).expect("plain values");
    let spec = spec
        .replace("{{ Token }}", "{{ fetch_token }}")
        .replace("openstack", "edge");
    profile.spec = serde_json::from_str(&spec).expect("it was one before");
    profile
}

/// Waits until the WorkerCluster says that machines have credentials of their own.
async fn has_own_credentials(tenant: &Tenant) {
    let condition = tenant.says("NodeCredentials", "True", "PerMachineDeployment");
    condition.await;
}

fn holds(secret: &Secret, text: &str) -> bool {
    fixtures::text(secret, osm::api::names::CLOUD_CONFIG_KEY).contains(text)
}

fn fetches_with(made: &Made, token: &str) -> bool {
    holds(&made.bootstrap, token)
}

fn inputs(made: &Made) -> Option<String> {
    made.bootstrap.annotations().get(INPUTS).cloned()
}

async fn own_token(tenant: &Tenant, made: &Made) -> String {
    let found = tenant.secrets().get(&made.names.fetcher_token).await;
    fixtures::text(&ok(found, "its token is there"), "token")
}

async fn fetcher_token(tenant: &Tenant) -> String {
    let found = tenant.secrets().get(FETCHER_TOKEN).await;
    fixtures::text(&ok(found, "the fetcher has a token"), "token")
}

/// A client with what a machine has.
async fn machine(tenant: &Tenant, token: &str) -> Client {
    let worker = &tenant.worker;
    let kubeconfig = fixtures::a_kubeconfig(&worker.url(), &worker.authority(), token);
    ok(
        client_of(&kubeconfig).await,
        "the kubeconfig is well formed",
    )
}

/// The status that a machine gets for a Secret.
async fn answer(machine: &Client, name: &str) -> u16 {
    let secrets: Api<Secret> = Api::namespaced(machine.clone(), CLOUD_INIT_SETTINGS);
    code_of(secrets.get(name).await.map(drop))
}

fn code_of(answered: Result<(), kube::Error>) -> u16 {
    match answered {
        Ok(()) => 200,
        Err(kube::Error::Api(status)) => status.code,
        // No answer at all.
        Err(_) => 0,
    }
}

fn apis(tenant: &Tenant) -> (Api<ServiceAccount>, Api<Role>, Api<RoleBinding>) {
    let admin = &tenant.admin;
    (
        Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS),
        Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS),
        Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS),
    )
}

/// What is there of a machine deployment's credentials, by kind.
async fn parts(tenant: &Tenant, made: &Made) -> Vec<String> {
    let (accounts, roles, bindings) = apis(tenant);
    let name = &made.names.fetcher;
    let (secrets, token) = (tenant.secrets(), &made.names.fetcher_token);
    let found = [
        ("Role", find(&roles, name).await.is_some()),
        ("RoleBinding", find(&bindings, name).await.is_some()),
        ("Secret", find(&secrets, token).await.is_some()),
        ("ServiceAccount", find(&accounts, name).await.is_some()),
    ];
    let found = found.into_iter().filter(|(_, is_there)| *is_there);
    found.map(|(kind, _)| kind.to_owned()).collect()
}
