//! `osm tenant add --adopt`: a cluster that another operating-system-manager has served becomes a
//! tenant by one command, once that one has let go, and nothing rotates.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::Api;

use crate::administrator::{find, get};
use crate::adoption::{
    HELD, KUBEONE, Layout, MANAGEMENT, each_was_written_once, kept, look_again, renewed, restore,
    secrets,
};
use crate::commands::Admin;
use crate::process::Manager;
use crate::stage::Stage;
use crate::tenant_add::{Add, holds, strip_rights};
use crate::world::World;

const ADOPTION_ROLE: &str = "operating-system-manager-worker-adoption";

pub async fn a_cluster_of_kubeone_is_added_without_a_rotation(world: &'static World) {
    let layout = Layout {
        name: "take-kubeone",
        ..KUBEONE
    };
    Box::pin(added(world, layout)).await;
}

pub async fn a_cluster_with_a_management_cluster_is_added_without_a_rotation(
    world: &'static World,
) {
    let layout = Layout {
        name: "take-management",
        ..MANAGEMENT
    };
    Box::pin(added(world, layout)).await;
}

async fn added(world: &'static World, layout: Layout) {
    let stage = Stage::open(world, layout.name);
    let tenant = stage.tenant().await;
    strip_rights(&tenant).await;
    restore(&tenant, &layout).await;
    renewed(&tenant, &layout, HELD).await;
    let before = secrets(&tenant).await;
    let admin = Admin::of(&tenant);
    let add = Add::of(&stage, &tenant);
    let refused = admin.osm_in_both(&add.words(&[])).await;
    holds(&refused, &["another operating-system-manager", "--adopt"]);
    let roles: Api<ClusterRole> = Api::all(tenant.admin.clone());
    let role = find(&roles, ADOPTION_ROLE).await;
    assert!(role.is_none(), "a refusal grants nothing");

    let begun = Timestamp::now();
    let manager = Manager::start(&stage, &[]).await;
    // While the other one runs, the manager may look and waits.
    let early = admin
        .osm_in_both(&add.words(&["--adopt", "--wait", "5s"]))
        .await;
    holds(&early, &["is not ready after 5 s", layout.lease]);
    tenant.says("Adopted", "False", "UpstreamRunning").await;
    assert_eq!(before, secrets(&tenant).await, "nothing was touched");
    drop(get(&roles, ADOPTION_ROLE).await);

    renewed(&tenant, &layout, SignedDuration::from_hours(-2)).await;
    look_again(&tenant).await;
    let taken = admin.osm_in_both(&add.words(&["--adopt"])).await;
    assert_eq!(taken.code, Some(0), "{taken:?}");
    assert!(taken.out.contains("nothing to write"), "{taken:?}");
    let ready = format!("ready: {}/worker", tenant.namespace);
    assert!(taken.out.contains(&ready), "{taken:?}");
    tenant.says("Adopted", "True", "SecretsDiffer").await;
    let after = secrets(&tenant).await;
    assert_eq!(kept(&before), kept(&after), "uids and bytes");
    each_was_written_once(&tenant, begun).await;
    // What is ours now needs no word about whose it was.
    let again = admin.osm_in_both(&add.words(&[])).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.out.contains("nothing to write"), "{again:?}");
    manager.stop().await;
}
