//! Which registrations are refused, where people see that, and how they are corrected.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::Api;
use osm::api::names::{CLAIM, CLOUD_INIT_SETTINGS, FINALIZER, KUBE_SYSTEM, REVISION};
use osm::api::worker_cluster::WorkerCluster;
use serde_json::{Value, json};

use crate::administrator::{delete, get, list};
use crate::audit::told;
use crate::commands::Admin;
use crate::fixtures::{self, a_machine_deployment};
use crate::logged;
use crate::process::Manager;
use crate::proxy::Proxy;
use crate::server::{Account, Server, ok};
use crate::stage::{Stage, Tenant, WORKER, message};
use crate::wait;
use crate::world::{IN_WORKER, MANAGER, World};

pub async fn a_kubeconfig_that_would_do_more_than_connect_is_refused_and_harms_nobody(
    world: &'static World,
) {
    let stage = Stage::open(world, "refused");
    let [bad, good] = stage.tenants(["bad", "good"]).await;
    let manager = Manager::start(&stage, &[]).await;
    let kubeconfig = bad.worker.kubeconfig(IN_WORKER).await;
    bad.register_as(WORKER, "not: [a kubeconfig").await;
    for (refused, said) in refused_kubeconfigs(&kubeconfig) {
        bad.set_kubeconfig(&refused).await;
        is_refused(&bad, said).await;
    }
    good.register().await;
    drop(good.serve(&a_machine_deployment("workers")).await);
    bad.set_kubeconfig(&kubeconfig).await;
    drop(bad.serve(&a_machine_deployment("workers")).await);
    bad.says("Ready", "True", "Ready").await;
    // Nothing is known of the cluster any more, until it is accepted again.
    bad.set_kubeconfig("not: [a kubeconfig").await;
    for condition in ["Connected", "Claimed", "MachineDeploymentsServed"] {
        bad.says(condition, "Unknown", "NotRegistered").await;
    }
    let rows = ["tenants", "-n", &bad.namespace, "-o", "json"];
    let rows = Admin::of(&bad).osm(&rows).await.out;
    let all: Value = ok(serde_json::from_str(&rows), "it is JSON");
    let row = all.get(0).expect("it has one tenant");
    for count in ["served", "outdated", "failing"] {
        assert_eq!(row[count], Value::Null, "{rows}");
    }
    assert_eq!(row["machineDeployments"], 1, "{rows}");
    bad.set_kubeconfig(&kubeconfig).await;
    bad.says("Ready", "True", "Ready").await;
    manager.stop().await;
}

/// Kubeconfigs, and a part of what is said about each.
fn refused_kubeconfigs(kubeconfig: &str) -> [(String, &'static str); 11] {
    let token = kubeconfig
        .lines()
        .find(|line| line.trim_start().starts_with("token: "))
        .expect("it has a token");
    let authority = kubeconfig
        .lines()
        .find(|line| line.contains("certificate-authority-data"))
        .expect("it has an authority");
    let exec = "    exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true}";
    [
        ("{{{ garbage".to_owned(), "not YAML"),
        (String::new(), "the kubeconfig is empty"),
        (STANDARD.encode(kubeconfig), "encoded once too often"),
        (
            kubeconfig.replace(token, "    token: REDACTED"),
            "token: kubectl left the value out",
        ),
        (
            kubeconfig.replace(authority, "    certificate-authority-data: DATA+OMITTED"),
            "certificate-authority-data: kubectl left the value out",
        ),
        (kubeconfig.replace(token, exec), "exec: no command is run"),
        (
            kubeconfig.replace(token, "    tokenFile: /etc/hostname"),
            "tokenFile: files are not read",
        ),
        (
            kubeconfig.replace(authority, "    certificate-authority: /etc/hosts"),
            "certificate-authority: files are not read",
        ),
        (
            kubeconfig.replace(authority, "    insecure-skip-tls-verify: true"),
            "insecure-skip-tls-verify: certificates are always verified",
        ),
        (
            kubeconfig.replace("https://", "http://"),
            "must start with https://",
        ),
        // A Secret takes 1 MiB with everything in it.
        (
            format!("{kubeconfig}padding:\n{}", "- 0123456789\n".repeat(75_000)),
            "bytes; at most",
        ),
    ]
}

/// The condition and an Event say so.
async fn is_refused(tenant: &Tenant, said: &str) {
    let what = format!("it says {said:?}");
    wait::for_object(&tenant.worker_clusters(), WORKER, &what, |found| {
        message(found, "Registered").contains(said)
    })
    .await;
    tenant.says("Ready", "False", "KubeconfigRefused").await;
    event_says(tenant, ("KubeconfigRefused", said)).await;
}

/// Waits for an Event in the tenant's namespace of the management cluster.
pub async fn event_says(tenant: &Tenant, (reason, said): (&str, &str)) {
    let is_it = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event
                .note
                .as_deref()
                .is_some_and(|note| note.contains(said))
    };
    let holds = |seen: &BTreeMap<String, Event>| seen.values().any(is_it);
    let what = format!("an Event {reason} says {said:?}");
    drop(wait::for_objects(&tenant.events(), &what, holds).await);
}

pub async fn a_second_registration_in_a_namespace_waits_until_the_first_goes(
    world: &'static World,
) {
    let stage = Stage::open(world, "second");
    let [tenant, spare] = stage.tenants(["tenant", "spare"]).await;
    let manager = Manager::start(&stage, &[]).await;
    tenant.register().await;
    tenant.says("Ready", "True", "Ready").await;
    wait::for_another_second().await;
    let kubeconfig = spare.worker.kubeconfig(IN_WORKER).await;
    tenant.register_as("second", &kubeconfig).await;
    tenant
        .says_of("second", ("Registered", "False", "NamespaceTaken"))
        .await;
    event_says(&tenant, ("NamespaceTaken", "registers a worker cluster")).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    assert_eq!(claim(&spare.worker).await, None, "nothing is written there");
    let remove = [
        "tenant",
        "remove",
        "second",
        "-n",
        &tenant.namespace,
        "--yes",
    ];
    let removed = Admin::of(&tenant).osm(&remove).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let never = "the registration is gone; the cluster was never engaged";
    assert!(removed.all().contains(never), "{removed:?}");
    tenant.register_as("second", &kubeconfig).await;
    tenant
        .says_of("second", ("Registered", "False", "NamespaceTaken"))
        .await;
    tenant.unregister().await;
    tenant.says_of("second", ("Ready", "True", "Ready")).await;
    manager.stop().await;
}

pub async fn a_renewed_credential_is_taken_over_without_a_list(world: &'static World) {
    let name = of_kind(world, ["renewed-real", "renewed-fake"]);
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, name)).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    tenant.says("Ready", "True", "Ready").await;
    let kubeconfig = |found: &WorkerCluster| found.status.as_ref()?.observed_kubeconfig.clone();
    let before = kubeconfig(&get(&tenant.worker_clusters(), WORKER).await);
    let old = token_secrets(&tenant).await;
    tenant.worker.settle_audit().await;
    let renewed_at = Timestamp::now();
    let renewed = tenant.worker.kubeconfig(IN_WORKER).await;
    tenant.set_kubeconfig(&renewed).await;
    let is_taken = |found: &WorkerCluster| kubeconfig(found) != before;
    wait::for_object(&tenant.worker_clusters(), WORKER, "it is taken", is_taken).await;
    for name in old {
        delete(&tenant.tokens(), &name).await;
    }
    tenant.annotate("workers", (REVISION, "2")).await;
    drop(tenant.made("workers", "2").await);
    tenant.worker.settle_audit().await;
    let mut lists = tenant.requests(renewed_at);
    lists.retain(|request| request.verb == "list" && request.resource == "machinedeployments");
    assert!(lists.is_empty(), "{}", told(&lists));
    tenant.says("Connected", "True", "Healthy").await;

    is_engaged_for_all_else(&tenant, &renewed).await;
    manager.stop().await;
}

/// A credential of the same user that fails, and one of another user who may do everything.
async fn is_engaged_for_all_else(tenant: &Tenant, renewed: &str) {
    let count = |text: &str| {
        let log = logged(&tenant.namespace);
        log.lines().filter(|line| line.contains(text)).count()
    };
    let (renewals, engaged) = ("took over a renewed credential", ": engaged registration");
    assert_eq!((count(renewals), count(engaged)), (1, 1));
    let (before, token) = renewed.split_once("token: ").expect("it has a token");
    let (token, after) = token.split_once('\n').expect("it ends with its line");
    // Its claims are those of the user, and its signature is nobody's.
    let forged = format!("{before}token: {token}A\n{after}");
    tenant.set_kubeconfig(&forged).await;
    tenant.says("Connected", "False", "CredentialRefused").await;
    tenant.set_kubeconfig(renewed).await;
    let is_engaged = async |times: usize| {
        let what = format!("it is engaged {times} times");
        wait::until(&what, async || (count(engaged) == times).then_some(())).await;
    };
    is_engaged(2).await;
    // Another user.
    let administrator = tenant.worker.admin_in("default");
    tenant.set_kubeconfig(&administrator).await;
    is_engaged(3).await;
    assert_eq!(count(renewals), 1, "{}", logged(&tenant.namespace));
}

async fn token_secrets(tenant: &Tenant) -> Vec<String> {
    let all = list(&tenant.tokens()).await;
    let is_token =
        |secret: &&Secret| secret.type_.as_deref() == Some("kubernetes.io/service-account-token");
    let found = all.iter().filter(is_token);
    found.map(ResourceExt::name_any).collect()
}

pub async fn a_kubeconfig_that_leads_to_another_cluster_is_refused_until_confirmed(
    world: &'static World,
) {
    let stage = Stage::open(world, "changed");
    let [tenant, other] = stage.tenants(["tenant", "other"]).await;
    let manager = Manager::start(&stage, &[]).await;
    tenant.register().await;
    tenant.says("Ready", "True", "Ready").await;
    tenant
        .set_kubeconfig(&other.worker.kubeconfig(IN_WORKER).await)
        .await;
    tenant.says("Claimed", "False", "ClusterChanged").await;
    assert_eq!(claim(&other.worker).await, None, "nothing is written there");
    let uid = namespace(&other.worker, KUBE_SYSTEM).await.uid();
    tenant
        .configure(json!({ "confirmedClusterUid": uid }))
        .await;
    let ready = tenant.says("Ready", "True", "Ready").await;
    assert_eq!(ready.status.and_then(|status| status.cluster_uid), uid);
    let claimed = claim(&other.worker).await;
    assert!(claimed.is_some_and(|claim| claim.ends_with(&tenant.namespace)));
    manager.stop().await;
}

pub async fn a_worker_cluster_of_another_tenant_is_refused_until_it_is_released(
    world: &'static World,
) {
    let stage = Stage::open(world, "claimed");
    let [holder, late] = stage.tenants(["holder", "late"]).await;
    let manager = Manager::start(&stage, &[]).await;
    holder.configure(json!({ "onRemoval": "Release" })).await;
    holder.register().await;
    let made = holder.serve(&a_machine_deployment("workers")).await;
    late.register_as(WORKER, &holder.worker.kubeconfig(IN_WORKER).await)
        .await;
    late.says("Claimed", "False", "ClaimedByOther").await;
    // A mistake can be taken back, and the holder keeps everything.
    let remove = ["tenant", "remove", WORKER, "-n", &late.namespace, "--yes"];
    let removed = Admin::of(&late).osm(&remove).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let other = "somebody else has claimed the cluster, and it stays as it is";
    assert!(removed.out.contains(other), "{removed:?}");
    wait::for_absence(&late.worker_clusters(), WORKER).await;
    let held = get(&holder.machine_deployments(), "workers").await;
    assert!(held.finalizers().contains(&FINALIZER.to_owned()));
    late.register_as(WORKER, &holder.worker.kubeconfig(IN_WORKER).await)
        .await;
    late.says("Claimed", "False", "ClaimedByOther").await;
    holder.annotate("workers", (REVISION, "2")).await;
    let after = holder.made("workers", "2").await;
    assert_eq!(after.uids(), made.uids(), "the older does not suffer");
    holder.unregister().await;
    late.says("Claimed", "True", "Claimed").await;
    manager.stop().await;
}

/// The name for a scenario that reads the log, which both kinds of servers share.
pub fn of_kind(world: &World, [real, fake]: [&'static str; 2]) -> &'static str {
    world.management.real().map_or(fake, |_| real)
}

/// Between two failures other calls succeed. The log has the failure once all the same.
pub async fn a_kubeconfig_without_rights_is_tried_again_and_logged_once(world: &'static World) {
    const NOBODY: Account = Account {
        namespace: "default",
        name: "nobody",
    };
    let name = of_kind(world, ["no-rights-real", "no-rights-fake"]);
    let (tenant, manager) = Manager::with_tenant(&Stage::open(world, name)).await;
    let begun = jiff::Timestamp::now();
    let account = "{apiVersion: v1, kind: ServiceAccount, \
        metadata: {name: nobody, namespace: default}}";
    tenant.worker.apply(account).await;
    let kubeconfig = tenant.worker.kubeconfig(NOBODY).await;
    tenant.register_as(WORKER, &kubeconfig).await;
    wait::until("it has been tried four times", async || {
        tenant.worker.settle_audit().await;
        let mut requests = tenant.worker.requests(NOBODY, begun);
        requests.retain(|it| it.resource == "namespaces" && it.name == KUBE_SYSTEM);
        (requests.len() >= 4).then_some(())
    })
    .await;
    let log = logged(&tenant.namespace);
    let lines = log.lines().filter(|line| line.contains("cannot connect"));
    assert_eq!(lines.count(), 1, "{log}");
    manager.stop().await;
}

pub async fn a_server_in_a_denied_range_is_refused_without_a_request(world: &'static World) {
    let stage = Stage::open(world, "loopback");
    let tenant = stage.tenant().await;
    let begun = jiff::Timestamp::now();
    let manager = Manager::start(&stage, &["--denied-servers", "127.0.0.0/8"]).await;
    tenant.register().await;
    let said = tenant
        .says("Registered", "False", "KubeconfigRefused")
        .await;
    assert!(message(&said, "Registered").contains("127.0.0.1"));
    tenant.worker.settle_audit().await;
    assert_eq!(tenant.worker.requests(IN_WORKER, begun).len(), 0);
    manager.stop().await;
}

pub async fn a_way_around_to_the_management_cluster_is_refused_once_it_answers(
    world: &'static World,
) {
    let stage = Stage::open(world, "way-around");
    let [tenant, at_home] = stage.tenants(["tenant", "at-home"]).await;
    let manager = Manager::start(&stage, &[]).await;
    at_home.configure(json!({ "home": "Worker" })).await;
    // No rule about addresses knows this one.
    let management = &world.management;
    let proxy = Proxy::start(&management.url()).await;
    let token = management.token(MANAGER).await;
    let kubeconfig = fixtures::a_kubeconfig(&proxy.url(), &management.authority(), &token);
    for tenant in [&tenant, &at_home] {
        tenant.register_as(WORKER, &kubeconfig).await;
        is_refused(tenant, "leads to the management cluster").await;
    }
    tenant
        .set_kubeconfig(&tenant.worker.kubeconfig(IN_WORKER).await)
        .await;
    tenant.says("Ready", "True", "Ready").await;
    manager.stop().await;
}

async fn namespace(server: &Server, name: &str) -> Namespace {
    let namespaces: Api<Namespace> = Api::all(server.admin().await);
    get(&namespaces, name).await
}

async fn claim(server: &Server) -> Option<String> {
    let namespace = namespace(server, CLOUD_INIT_SETTINGS).await;
    namespace.annotations().get(CLAIM).cloned()
}

pub async fn an_unreachable_worker_cluster_says_so_costs_nobody_and_comes_back(
    world: &'static World,
) {
    let stage = Stage::open(world, "outage");
    let [berlin, lisbon] = stage.tenants(["berlin", "lisbon"]).await;
    let manager = Manager::start(&stage, &[]).await;
    for tenant in [&berlin, &lisbon] {
        tenant.register().await;
        drop(tenant.serve(&a_machine_deployment("workers")).await);
        tenant.says("Ready", "True", "Ready").await;
    }
    berlin.worker.stop().await;
    berlin.says("Connected", "False", "Unreachable").await;
    drop(lisbon.serve(&a_machine_deployment("others")).await);
    lisbon.says("Ready", "True", "Ready").await;
    // The only kubeconfig of a cluster that cannot be given back now is not deleted.
    let remove = ["tenant", "remove", WORKER, "-n", &berlin.namespace, "--yes"];
    let refused = Admin::of(&berlin).osm(&remove).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for text in [
        "does not answer",
        "--worker-kubeconfig",
        "--on-removal keep",
    ] {
        assert!(refused.err.contains(text), "{text}: {refused:?}");
    }
    berlin.worker.start_again().await;
    berlin.says("Connected", "True", "Healthy").await;
    drop(berlin.serve(&a_machine_deployment("others")).await);
    manager.stop().await;
}
