//! Tokens that expire, and that the manager renews.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::Api;
use osm::api::names::REVISION;
use osm::api::worker_cluster::Credentials;
use osm::client::token;
use osm::tenant::access::renewal::ServiceAccountName;
use serde_json::json;

use crate::administrator::{find, get};
use crate::audit::{Request, told};
use crate::commands::Admin;
use crate::fixtures::{self, a_machine_deployment};
use crate::process::Manager;
use crate::server::{Server, ok};
use crate::stage::{Stage, Tenant, WORKER, message};
use crate::tenant_add::{Add, strip};
use crate::wait;
use crate::world::{IN_WORKER, MANAGER, World};

/// The shortest lifetime that an API server grants, in seconds.
const LIFETIME: i64 = 600;

/// A kubeconfig with a token that expires.
async fn expiring(worker: &Server) -> String {
    let account = ServiceAccountName {
        namespace: IN_WORKER.namespace.to_owned(),
        name: IN_WORKER.name.to_owned(),
    };
    let token = token::request(&worker.admin().await, &account, None, LIFETIME).await;
    let token = ok(token, "an administrator may request a token");
    fixtures::a_kubeconfig(&worker.url(), &worker.authority(), token.expose())
}

/// The right to write the registration of this tenant.
async fn may_be_written(tenant: &Tenant) {
    let rights = include_str!("../../manifests/rbac/tenant-token-renewal.yaml");
    let of_it = rights
        .replace("tenant-berlin", &tenant.namespace)
        .replace("[berlin]", &format!("[{WORKER}]"));
    tenant.apply_in_management(&of_it).await;
}

async fn kubeconfig(tenant: &Tenant) -> String {
    fixtures::text(&get(&tenant.registrations(), WORKER).await, "kubeconfig")
}

async fn doctor_says(of: (&Stage, &Tenant), text: &str) {
    let said = Admin::of(of.1).osm_about(of, &["doctor"]).await;
    assert!(said.out.contains(text), "{said:?}");
}

pub async fn a_token_is_renewed_before_it_expires(world: &'static World) {
    let stage = Stage::open(world, "renewal");
    let tenant = stage.tenant().await;
    let manager = Manager::start(&stage, &["--renew-tokens-after", "1s"]).await;
    tenant.configure(json!({ "credentials": "Renewed" })).await;
    let first = expiring(&tenant.worker).await;
    tenant.register_as(WORKER, &first).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);

    // Each right that is missing is named.
    let failed = ("CredentialValid", "False", "RenewalFailed");
    let own = tenant
        .says("CredentialValid", "False", "RenewalFailed")
        .await;
    let says = message(&own, failed.0);
    assert!(says.contains("apply worker-token-renewal.yaml"), "{says}");
    doctor_says((&stage, &tenant), "missing: create serviceaccounts/token").await;
    let rights = "manifests/rbac/worker-token-renewal.yaml";
    tenant.worker.apply_file(rights).await;
    doctor_says((&stage, &tenant), "missing: update secrets").await;
    let is_next = |found: &_| message(found, failed.0).contains("apply tenant-token-renewal.yaml");
    wait::for_object(
        &tenant.worker_clusters(),
        WORKER,
        "it may request one",
        is_next,
    )
    .await;
    assert_eq!(kubeconfig(&tenant).await, first);

    tenant.worker.settle_audit().await;
    let begun = Timestamp::now();
    may_be_written(&tenant).await;
    wait::until("it is renewed twice", async || {
        let renewals = stage.world.management.requests(MANAGER, begun);
        let renewals = renewals
            .iter()
            .filter(|it| it.is("update", "secrets", WORKER));
        (renewals.filter(|it| it.code == 200).count() >= 2).then_some(())
    })
    .await;
    tenant.says("CredentialValid", "True", "Valid").await;
    let renewed = kubeconfig(&tenant).await;
    assert_ne!(renewed, first);
    let rest = |text: &str| text.split_once("token: ").map(|(rest, _)| rest.to_owned());
    assert_eq!(rest(&renewed), rest(&first), "nothing else is changed");

    // It is in use, and nothing was listed for that.
    tenant.annotate("workers", (REVISION, "2")).await;
    drop(tenant.made("workers", "2").await);
    manager.stop().await;
    tenant.worker.settle_audit().await;
    let mut lists = tenant.requests(begun);
    lists.retain(|it| it.verb == "list" && it.resource == "machinedeployments");
    assert!(lists.is_empty(), "{}", told(&lists));
    doctor_says((&stage, &tenant), "the manager may renew the token").await;
    stage.world.management.settle_audit().await;
    let mut patches = stage.world.management.requests(MANAGER, begun);
    patches.retain(|it| it.resource == "secrets" && it.is_write() && it.verb != "update");
    assert!(patches.is_empty(), "{}", told(&patches));
}

pub async fn a_cluster_is_added_with_a_token_that_is_renewed(world: &'static World) {
    let stage = Stage::open(world, "tenant-add-renewed");
    let tenant = stage.tenant().await;
    let (admin, add) = (Admin::of(&tenant), Add::of(&stage, &tenant));
    strip(&tenant).await;
    let manager = Manager::start(&stage, &["--renew-tokens-after", "1s"]).await;
    let begun = Timestamp::now();
    let added = admin.osm_in_both(&add.words(&["--renew-token"])).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    // What is renewed once stays so.
    let again = admin.osm_in_both(&add.words(&[])).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let own = get(&tenant.worker_clusters(), WORKER).await;
    assert_eq!(own.spec.credentials, Credentials::Renewed);
    let tokens: Api<Secret> = Api::namespaced(tenant.admin.clone(), IN_WORKER.namespace);
    let endless = find(&tokens, "operating-system-manager-token").await;
    assert!(endless.is_none(), "each token expires");
    wait::until("the manager renews it", async || {
        let writes = world.management.requests(MANAGER, begun);
        let is_renewal = |it: &Request| {
            it.is("update", "secrets", WORKER) && it.namespace == tenant.namespace && it.code == 200
        };
        writes.iter().any(is_renewal).then_some(())
    })
    .await;
    tenant.says("Ready", "True", "Ready").await;
    let kubeconfig = kubeconfig(&tenant).await;
    let (_, token) = kubeconfig.split_once("token: ").expect("it has a token");
    for said in [&added, &again] {
        assert!(!said.all().contains(token.trim()), "{said:?}");
    }

    let remove = ["tenant", "remove", WORKER, "-n", &tenant.namespace, "--yes"];
    let removed = admin.osm_in_both(&remove).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    manager.stop().await;
    let roles: Api<Role> = Api::namespaced(tenant.admin.clone(), IN_WORKER.namespace);
    let role = find(&roles, "operating-system-manager-worker-token-renewal").await;
    assert!(role.is_none(), "{role:?}");
    // The right to write the registration goes with it.
    let roles: Api<Role> = Api::namespaced(tenant.management.clone(), &tenant.namespace);
    let name = "operating-system-manager-token-renewal";
    if world.management.real().is_some() {
        wait::for_absence(&roles, name).await;
    }
}
