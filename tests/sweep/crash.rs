//! Each scenario once for every call that it makes: the manager dies there, or the call goes wrong
//! there, and in the end everything stands as it would have without.

use std::time::Duration;

use fake_cluster::object;
use osm::{
    api::{change::Class, names::MACHINES_BEHIND},
    plan::records::Behind,
};
use tokio::time::Instant;

use crate::{
    scenarios::{KUBELET_KUBECONFIG, PROVISIONING, Scenario, unregister},
    snapshot::{self, Snapshot},
    wire::{Blow, Counted, Life, Strike},
    world::World,
};

/// Longer than the interval at which the cluster info is read; shorter than half of a token's
/// lifetime.
const AFTERWARDS: Duration = Duration::from_mins(12);

/// What a run came to.
struct Run {
    snapshot: Snapshot,
    /// What machines are said to be behind by.
    behind: Class,
    was_struck: bool,
    /// Whether nodes found no provisioning Secret for a while.
    had_a_gap: bool,
}

/// Runs a scenario once, with at most one blow.
async fn run(scenario: Scenario, strike: Option<Strike>) -> Run {
    let world = scenario.world();
    let life = Life::new();
    let arm = || strike.into_iter().for_each(|strike| life.arm(strike));
    if !scenario.begins_settled() {
        arm();
    }
    let mut process = world.start_as(&life);
    if scenario.begins_settled() {
        world.settle().await;
        tokio::time::sleep(scenario.lead()).await;
        arm();
    }
    let begun = Instant::now();
    scenario.happen(&world).await;
    let end = async {
        tokio::time::sleep(scenario.takes()).await;
        world.settle().await;
    };
    let has_died = tokio::select! {
        biased;
        () = life.died() => true,
        () = end => false,
    };
    if has_died {
        process.kill().await;
        process = world.start();
        tokio::time::sleep(scenario.takes()).await;
        world.settle().await;
        if scenario.takes_kubeconfig() {
            // The operator who removed the registration does so again.
            world.register("berlin");
            world.settle().await;
            unregister(&world);
            world.settle().await;
        }
    }
    life.disarm();
    let writes = world.writes();
    tokio::time::sleep(AFTERWARDS).await;
    assert_eq!(
        world.writes(),
        writes,
        "{scenario:?} {strike:?}: a write after settling"
    );
    if scenario.begins_settled() && !scenario.takes_kubelet_kubeconfig() {
        check_kubelet_kubeconfig(&world, begun);
    }
    process.stop().await;
    Run {
        snapshot: snapshot::take(&world),
        behind: behind(&world),
        was_struck: life.is_struck(),
        had_a_gap: !scenario.takes_kubeconfig() && had_a_gap(&world),
    }
}

/// What the record says; nothing if there is none.
fn behind(world: &World) -> Class {
    let secret = object("secrets", "cloud-init-settings", KUBELET_KUBECONFIG);
    let found = world.worker("berlin").get(secret).unwrap_or_default();
    let annotations = found.pointer("/metadata/annotations");
    let record = annotations.and_then(|it| it.get(MACHINES_BEHIND)?.as_str());
    record.map_or(Class::None, |text| {
        let record = Behind::parse(text);
        record.expect("we wrote it").class
    })
}

/// Nodes that fetch it in a gap do not recover.
fn check_kubelet_kubeconfig(world: &World, since: Instant) {
    let secret = object("secrets", "cloud-init-settings", KUBELET_KUBECONFIG);
    let history = world.worker("berlin").history(secret);
    let mut since = history.iter().filter(|moment| moment.at >= since);
    assert!(
        since.all(|moment| moment.object.is_some()),
        "the kubelet's kubeconfig was deleted"
    );
}

/// Whether the provisioning Secret was away for longer than two calls in a row take.
fn had_a_gap(world: &World) -> bool {
    let secret = object("secrets", "cloud-init-settings", PROVISIONING);
    let history = world.worker("berlin").history(secret);
    let next = history.iter().skip(1);
    history
        .iter()
        .zip(next)
        .any(|(moment, next)| moment.object.is_none() && next.at > moment.at)
}

/// Strikes at every call, one after the other, and tells how many there were.
async fn sweep(scenario: Scenario, blow: Blow) -> u64 {
    let undisturbed = run(scenario, None).await;
    assert!(!undisturbed.had_a_gap, "{scenario:?}");
    let mut gaps = 0;
    for at in 1.. {
        let counted = Counted::Calls;
        let strike = Strike { at, counted, blow };
        let struck = run(scenario, Some(strike)).await;
        let difference = snapshot::difference(&undisturbed.snapshot, &struck.snapshot);
        assert_eq!(difference, None, "{scenario:?} {strike:?}");
        assert!(
            struck.behind >= undisturbed.behind,
            "{scenario:?} {strike:?}: a change was forgotten"
        );
        if !struck.was_struck {
            assert!(at > 1, "{scenario:?} makes calls");
            assert!(gaps <= 1, "{scenario:?} {blow:?}: {gaps} gaps");
            return at - 1;
        }
        gaps += u32::from(struck.had_a_gap);
    }
    0
}

/// A module for each scenario and a test for each blow, so that they run side by side.
macro_rules! sweeps {
    ($($name:ident: $scenario:ident;)*) => {$(
        mod $name {
            use super::*;

            async fn all(blow: Blow) {
                let scenario = Scenario::$scenario;
                let cuts = sweep(scenario, blow).await;
                println!("{scenario:?}: {cuts} {blow:?}");
            }

            #[tokio::test(start_paused = true)]
            async fn dying_between_any_two_calls_heals() {
                all(Blow::DieBefore).await;
            }

            #[tokio::test(start_paused = true)]
            async fn losing_any_answer_heals() {
                all(Blow::BreakAfter).await;
            }

            #[tokio::test(start_paused = true)]
            async fn waiting_in_vain_for_any_answer_heals() {
                all(Blow::HangAfter).await;
            }

            #[tokio::test(start_paused = true)]
            async fn any_refused_call_heals() {
                all(Blow::Refuse).await;
            }
        }
    )*};
}

sweeps! {
    create: Create;
    revision: Revision;
    profile_version: ProfileVersion;
    provisioning: Provisioning;
    revision_and_provisioning: RevisionAndProvisioning;
    settings: Settings;
    renewal: Renewal;
    kubeconfig: Kubeconfig;
    fetch_token: FetchToken;
    machines: Machines;
    tampering: Tampering;
    loss: Loss;
    deletion: Deletion;
    edge_create: EdgeCreate;
    edge_settings: EdgeSettings;
    edge_deletion: EdgeDeletion;
    release: Release;
    purge: Purge;
    own_create: OwnCreate;
    own_deletion: OwnDeletion;
    own_purge: OwnPurge;
}
