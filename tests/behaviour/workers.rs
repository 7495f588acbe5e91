//! Tenant-written profiles are rendered in worker processes.

use std::sync::Arc;

use osm::render_worker::Pool;

use super::fixtures::{a_little_machine_deployment, a_machine_deployment, a_profile};
use super::process::Manager;
use super::rotation::{change_profile, install, made_of_version};
use super::sizes::an_event;
use super::stage::Stage;
use super::world::World;

pub async fn tenant_templates_are_rendered_in_a_worker_and_shipped_ones_in_process(
    world: &'static World,
) {
    let stage = Stage::open(world, "workers");
    let tenant = stage.tenant().await;
    let workers = Arc::new(Pool::new(env!("CARGO_BIN_EXE_osm")));
    let manager = Manager::start_with(&stage, &[], Arc::clone(&workers)).await;
    tenant.register().await;
    drop(tenant.serve(&a_machine_deployment("ours")).await);
    assert_eq!(workers.idle(), [0; 0], "shipped profiles need no worker");
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    drop(tenant.serve(&a_little_machine_deployment("theirs")).await);
    assert_eq!(workers.idle().len(), 1);
    manager.stop().await;
}

pub async fn a_stopped_render_changes_nothing(world: &'static World) {
    let stage = Stage::open(world, "stopped");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    let before = tenant.serve(&a_little_machine_deployment("workers")).await;
    manager.stop().await;
    // A worker that exits at once.
    let broken = Arc::new(Pool::new("/bin/false"));
    let manager = Manager::start_with(&stage, &[], broken).await;
    change_profile(&tenant, "v1.0.1", "second").await;
    let event = an_event(&tenant, "RenderStopped").await;
    let message = event.note.unwrap_or_default();
    assert!(message.contains("nothing was changed"), "{message}");
    assert!(manager.metric("osm_renders_total", "result=\"stopped\"") >= 1.0);
    let left = tenant.made("workers", "1").await;
    assert_eq!(left.uids(), before.uids());
    assert_eq!(left.provisioning_text(), before.provisioning_text());
    manager.stop().await;
    let manager = Manager::start(&stage, &[]).await;
    let after = made_of_version(&tenant, "v1.0.1").await;
    assert_ne!(after.provisioning_text(), before.provisioning_text());
    manager.stop().await;
}
