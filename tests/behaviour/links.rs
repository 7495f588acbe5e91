//! What the manager keeps open to a worker cluster, and what it does when nothing comes back.

use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::events::v1::Event;
use osm::api::names::REVISION;

use crate::fixtures::a_machine_deployment;
use crate::process::Manager;
use crate::proxy::Proxy;
use crate::stage::{Stage, Tenant, WORKER, conditions, message};
use crate::terminator::{After, Terminator};
use crate::wait;
use crate::world::{IN_WORKER, World};

pub const DEFINITION: &str = "machinedeployments.cluster.k8s.io";

pub async fn a_worker_cluster_has_one_connection_over_a_whole_life(world: &'static World) {
    let stage = Stage::open(world, "one-connection");
    let tenant = stage.tenant().await;
    let proxy = Proxy::start(&tenant.worker.url()).await;
    let manager = Manager::start(&stage, &[]).await;
    tenant
        .register_as(WORKER, &through(&proxy, &tenant).await)
        .await;
    let names = ["one", "two", "three", "four"];
    for name in names {
        drop(tenant.create(&a_machine_deployment(name)).await);
    }
    for name in names {
        drop(tenant.made(name, "1").await);
        tenant.annotate(name, (REVISION, "2")).await;
    }
    for name in names {
        drop(tenant.made(name, "2").await);
    }
    tenant.says("Ready", "True", "Ready").await;
    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));

    tenant.set_kubeconfig(&through(&proxy, &tenant).await).await;
    let is_renewed = async || (proxy.accepted() == 2).then_some(());
    wait::until("the renewed credential has a connection", is_renewed).await;
    for name in names {
        tenant.annotate(name, (REVISION, "3")).await;
    }
    for name in names {
        drop(tenant.made(name, "3").await);
    }
    // The old one stays for as long as its watches.
    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));

    // Anything else is another connection, and the old ones end.
    let commented = tenant.worker.commented_authority();
    let other = through(&proxy, &tenant).await;
    let other = other.replace(&tenant.worker.authority(), &commented);
    tenant.set_kubeconfig(&other).await;
    let is_replaced = async || (proxy.accepted() == 3 && proxy.open() == 1).then_some(());
    wait::until("the old connections give way to a new one", is_replaced).await;

    // Both watches and whatever is asked meanwhile want it back at once.
    proxy.cut();
    for name in names {
        tenant.annotate(name, (REVISION, "4")).await;
    }
    for name in names {
        drop(tenant.made(name, "4").await);
    }
    assert_eq!((proxy.accepted(), proxy.open()), (4, 1));
    manager.stop().await;
    let is_closed = async || (proxy.open() == 0).then_some(());
    wait::until("the last connection is closed", is_closed).await;
    assert_eq!(proxy.accepted(), 4);
}

pub async fn a_server_that_falls_silent_is_unreachable_and_harms_nobody(world: &'static World) {
    let stage = Stage::open(world, "silent");
    let [berlin, lisbon] = stage.tenants(["berlin", "lisbon"]).await;
    let manager = Manager::start(&stage, &["--request-timeout", "3s"]).await;
    let others = Proxy::start(&lisbon.worker.url()).await;
    let kubeconfig = through(&others, &lisbon).await;
    lisbon.register_as(WORKER, &kubeconfig).await;
    drop(lisbon.serve(&a_machine_deployment("workers")).await);
    lisbon.says("Ready", "True", "Ready").await;
    let before = others.accepted();

    // After the handshake.
    let end = Terminator::start(&berlin.worker, After::Silence).await;
    let kubeconfig = end.kubeconfig(&berlin.worker, IN_WORKER).await;
    berlin.register_as(WORKER, &kubeconfig).await;
    is_unreachable(&berlin, "no answer within 3s").await;

    // In the middle of a connection, where the ping is not answered; then before the handshake.
    let proxy = Proxy::start(&berlin.worker.url()).await;
    berlin.set_kubeconfig(&through(&proxy, &berlin).await).await;
    drop(berlin.serve(&a_machine_deployment("workers")).await);
    berlin.says("Ready", "True", "Ready").await;
    proxy.freeze();
    is_unreachable(&berlin, "no TLS connection to the API server").await;
    proxy.thaw();
    berlin.says("Connected", "True", "Healthy").await;
    berlin.annotate("workers", (REVISION, "2")).await;
    drop(berlin.made("workers", "2").await);
    assert_eq!((others.accepted(), others.open()), (before, 1));
    drop(lisbon.serve(&a_machine_deployment("others")).await);
    manager.stop().await;
}

/// Its kernel acknowledges everything, and there are no pings: only a call shows it.
pub async fn a_frozen_server_without_http2_is_noticed_though_nobody_asks_it(world: &'static World) {
    let stage = Stage::open(world, "frozen-http1");
    let tenant = stage.tenant().await;
    let end = Terminator::start(&tenant.worker, After::Http1).await;
    let proxy = Proxy::start(&end.url()).await;
    let kubeconfig = end.kubeconfig(&tenant.worker, IN_WORKER).await;
    let manager = Manager::start(&stage, &["--request-timeout", "1s"]).await;
    let through = kubeconfig.replace(&end.url(), &proxy.url());
    tenant.register_as(WORKER, &through).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    tenant.says("Ready", "True", "Ready").await;
    proxy.freeze();
    let frozen = Instant::now();
    is_unreachable(&tenant, "").await;
    // Three times the timeout, and once more for the answer; kube would wait for 295 s.
    println!("noticed after {:?}", frozen.elapsed());
    let warned = |event: &Event| event.reason.as_deref() == Some("Unreachable");
    let holds = |seen: &BTreeMap<String, Event>| seen.values().any(warned);
    drop(wait::for_objects(&tenant.events(), "there is an Event about it", holds).await);
    proxy.thaw();
    tenant.says("Connected", "True", "Healthy").await;
    tenant.annotate("workers", (REVISION, "2")).await;
    drop(tenant.made("workers", "2").await);
    manager.stop().await;
}

/// Waits until the condition says so, and why.
async fn is_unreachable(tenant: &Tenant, why: &str) {
    let what = format!("{} says: {why}", tenant.namespace);
    wait::for_object(&tenant.worker_clusters(), WORKER, &what, |found| {
        conditions(found).contains(&("Connected", "False", "Unreachable"))
            && message(found, "Connected").contains(why)
    })
    .await;
}

/// A fresh kubeconfig that leads to the tenant's cluster through a proxy.
async fn through(proxy: &Proxy, tenant: &Tenant) -> String {
    let direct = tenant.worker.kubeconfig(IN_WORKER).await;
    direct.replace(&tenant.worker.url(), &proxy.url())
}
