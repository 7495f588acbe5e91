//! The script for machines of the provider `edge`.

use kube::ResourceExt;
use osm::api::names::{DerivedNames, EDGE_SCRIPT_KEY, KUBE_SYSTEM};
use serde_json::json;

use crate::administrator::{delete, find, get};
use crate::fixtures::{self, a_machine_deployment, on_cloud};
use crate::process::Manager;
use crate::removal::remains;
use crate::stage::Stage;
use crate::wait;
use crate::world::World;

pub async fn an_edge_script_is_there_as_long_as_its_machine_deployment(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "edge")).await;
    let made = tenant
        .serve(&on_cloud(a_machine_deployment("workers"), "edge"))
        .await;
    let name = "edge-provider-script-workers-kube-system";
    let secrets = tenant.secrets();
    let first = get(&secrets, name).await;
    assert_eq!(first.immutable, None, "it changes in place");
    let script = fixtures::text(&first, EDGE_SCRIPT_KEY);
    assert!(script.starts_with("#!/bin/bash\n"), "{script}");
    assert!(script.contains(&made.names.bootstrap), "{script}");
    assert!(script.contains("-----BEGIN CERTIFICATE-----"), "{script}");

    let other = "https://other.example:6443";
    tenant
        .configure(json!({ "apiServerOverride": other }))
        .await;
    let changed = wait::for_object(&secrets, name, "it follows the server", |found| {
        fixtures::text(found, EDGE_SCRIPT_KEY).contains(other)
    })
    .await;
    assert_eq!(changed.uid(), first.uid(), "it was never absent");

    delete(&secrets, name).await;
    let back = wait::for_object(&secrets, name, "it is back", |found| {
        found.uid() != changed.uid()
    })
    .await;
    assert_eq!(back.data, changed.data);

    tenant.delete("workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    assert_eq!(remains(&tenant, &made).await, Vec::<String>::new());

    drop(tenant.serve(&a_machine_deployment("cloudy")).await);
    let none = DerivedNames::new(KUBE_SYSTEM, "cloudy").edge_script;
    let none = find(&secrets, &none).await;
    assert_eq!(none, None, "other clouds hand out user data");
    manager.stop().await;
}
