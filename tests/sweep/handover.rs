//! What may go wrong while tenants move: Leases that somebody deletes, watches that lag, replicas
//! that come while others are paused, registrations that go with their replica.

use std::time::Duration;

use fake_cluster::{Fault, Matcher, Verb, object};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    replicas::{AGREED, Fleet, LEASE, Replica, TENANTS, stop_all},
    scenarios::unregister,
    snapshot::text,
    wire::{Blow, Counted, Strike, Watches},
    world::{World, settings},
};

/// It hears of nothing that is made, changed or removed, and of those who come all the same.
#[tokio::test(start_paused = true)]
async fn one_whose_watches_lag_for_several_leases_hands_over_all_the_same() {
    let mut fleet = Fleet::new();
    let [a, b] = fleet.start_all(["a", "b"]).await;
    b.life.let_watches(Watches::Lag);
    let c = fleet.start("c");
    let names = fleet.change_until(Instant::now() + LEASE * 4).await;
    let taken = fleet.owned_by("c");
    assert!((1..=4).contains(&taken.len()), "{taken:?} went to c");
    for tenant in &taken {
        fleet.served(tenant, &names[names.len() - 2]).await;
    }
    b.life.let_watches(Watches::Deliver);
    fleet.all_served(&names).await;
    fleet.check_order();
    stop_all([a, b, c]).await;
}

/// Nobody can agree on a set with one that is paused, and nobody takes what it may still write to.
#[tokio::test(start_paused = true)]
async fn one_that_comes_while_another_is_paused_waits_for_its_end() {
    let mut fleet = Fleet::new();
    let [a, b] = fleet.start_all(["a", "b"]).await;
    b.life.stall("management");
    let paused = Instant::now();
    let c = fleet.start("c");
    let names = fleet.change_until(paused + LEASE * 3).await;
    fleet.all_served(&names).await;
    fleet.check_order();
    for tenant in TENANTS {
        if fleet.writers(tenant).first() == Some(&b.name) {
            check_wait(&fleet, (&b, paused), tenant);
        }
    }
    b.life.go_on();
    b.process.ended().await.expect_err("its Lease is lost");
    stop_all([a, c]).await;
}

/// One that is cut off from the Leases may write to its own tenants until its Lease would have
/// ended; all of them are served afterwards.
async fn nobody_writes_before_the_end_of(
    fleet: &mut Fleet,
    (holder, cut): (&Replica, Instant),
    its_own: &[&str],
) {
    let made = fleet.change_until(cut + LEASE * 4).await;
    fleet.all_served(&made).await;
    fleet.check_order();
    for tenant in its_own {
        check_wait(fleet, (holder, cut), tenant);
    }
}

/// Nobody took over a tenant before its holder's Lease would have ended.
fn check_wait(fleet: &Fleet, (holder, cut): (&Replica, Instant), tenant: &str) {
    let next = fleet.taken_over(tenant, holder.name, cut);
    let waited = next.duration_since(cut) + Duration::from_secs(2);
    assert!(waited > LEASE, "{tenant}: {waited:?}");
}

/// Its Lease is removed by somebody's hand, and it does not hear of it.
fn cut_off(fleet: &Fleet, holder: &Replica) -> Instant {
    holder.life.stall("management");
    fleet.delete_lease(holder.name);
    Instant::now()
}

/// Nobody is told by a Lease that is not there: its holder counts for as long as it may write.
#[tokio::test(start_paused = true)]
async fn a_lease_deleted_by_hand_makes_no_two_writers() {
    for (names, comes) in [
        (&["a", "b"][..], false),
        (&["a", "b"], true),
        (&["b"], true),
    ] {
        let mut fleet = Fleet::new();
        let mut others: Vec<Replica> = names.iter().map(|name| fleet.start(name)).collect();
        fleet.agreed().await;
        let holder = others.pop().expect("b is the last");
        let its_own = fleet.owned_by(holder.name);
        assert_ne!(its_own, Vec::<&str>::new());
        let cut = cut_off(&fleet, &holder);
        if comes {
            others.push(fleet.start("c"));
        }
        nobody_writes_before_the_end_of(&mut fleet, (&holder, cut), &its_own).await;
        holder.life.go_on();
        holder.process.ended().await.expect_err("its Lease is lost");
        stop_all(others).await;
    }
}

/// Two find the Lease that the last replica left; the one that is not the first to remove it knows
/// nothing of what came after.
#[tokio::test(start_paused = true)]
async fn what_the_last_member_left_says_only_one_that_nobody_came_since() {
    let mut fleet = Fleet::new();
    let [a] = fleet.start_all(["a"]).await;
    a.process.stop().await;
    assert!(fleet.has_lease(a.name));
    let mut removal = Matcher::on(&[Verb::Delete], "leases");
    removal.nth = Some(1);
    let slow = Fault::Delay(Duration::from_millis(1_500));
    fleet.world.management.inject(removal, slow);
    let late = fleet.start("b");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let first = fleet.start("c");
    fleet.serves_a_change().await;
    let cut = cut_off(&fleet, &first);
    assert!(!fleet.has_lease(late.name), "it has not come yet");
    nobody_writes_before_the_end_of(&mut fleet, (&first, cut), &TENANTS).await;
    first.life.go_on();
    first.process.ended().await.expect_err("its Lease is lost");
    late.process.stop().await;
}

/// A replica that waits for one that cannot be seen any more does not leave before that one's end:
/// others go by its Lease.
#[tokio::test(start_paused = true)]
async fn one_that_knows_of_an_unseen_holder_leaves_its_lease_to_others() {
    for knew_it in [true, false] {
        let mut fleet = Fleet::new();
        let holder = fleet.start("a");
        let mut witness = knew_it.then(|| fleet.start("b"));
        fleet.agreed().await;
        let its_own = fleet.owned_by(holder.name);
        let cut = cut_off(&fleet, &holder);
        let witness = witness.take().unwrap_or_else(|| fleet.start("b"));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let newcomer = fleet.start("c");
        tokio::time::sleep(Duration::from_secs(1)).await;
        witness.process.stop().await;
        nobody_writes_before_the_end_of(&mut fleet, (&holder, cut), &its_own).await;
        holder.life.go_on();
        holder.process.ended().await.expect_err("its Lease is lost");
        newcomer.process.stop().await;
    }
}

fn tenant_status(fleet: &Fleet, tenant: &str) -> String {
    let found = fleet.world.condition(tenant, "Registered");
    format!("{} {}", text(&found, "/reason"), text(&found, "/message"))
}

fn finalizers(fleet: &Fleet, tenant: &str) -> usize {
    let all = fleet.world.worker(tenant).objects("machinedeployments");
    let held = |it: &&Value| it.pointer("/metadata/finalizers/0").is_some();
    all.iter().filter(held).count()
}

/// The kubeconfig went with the registration: who comes to a half of the work cannot finish it, and
/// says so.
#[tokio::test(start_paused = true)]
async fn a_registration_that_goes_with_its_replica_is_reported_and_can_be_given_back_later() {
    for is_begun in [false, true] {
        let mut fleet = Fleet::new();
        for tenant in TENANTS {
            let spec = json!({"onRemoval": "Release"});
            fleet.world.configure(tenant, &spec);
        }
        let [a, b] = fleet.start_all(["a", "b"]).await;
        let of_b = fleet.owned_by(b.name);
        let tenant = *of_b.first().expect("these names share these tenants");
        for _ in 0..3 {
            fleet.serves_a_change().await;
        }
        let all = finalizers(&fleet, tenant);
        let secret = object("secrets", tenant, tenant);
        if is_begun {
            // It dies after the second finalizer.
            b.life.arm(Strike {
                at: 2,
                counted: Counted::Writes,
                blow: Blow::DieAfter,
            });
            assert!(fleet.world.management.delete_raw(secret));
            b.life.died().await;
            b.process.kill().await;
            assert_eq!(finalizers(&fleet, tenant), all - 2);
        } else {
            b.process.kill().await;
            assert!(fleet.world.management.delete_raw(secret));
        }
        tokio::time::sleep(LEASE * 2).await;
        let told = tenant_status(&fleet, tenant);
        assert!(told.contains("RegistrationRemoved"), "{told}");
        assert!(told.contains("osm tenant remove"), "{told}");
        assert!(finalizers(&fleet, tenant) > 0);

        fleet.world.register(tenant);
        tokio::time::sleep(AGREED).await;
        let told = tenant_status(&fleet, tenant);
        assert!(told.contains("Accepted"), "{told}");
        assert!(fleet.world.management.delete_raw(secret));
        tokio::time::sleep(AGREED).await;
        assert_eq!(finalizers(&fleet, tenant), 0);
        let told = tenant_status(&fleet, tenant);
        assert!(told.contains("were released"), "{told}");
        a.process.stop().await;
    }
}

/// Each fleet has the registrations that its selector takes, and sees all WorkerClusters.
#[tokio::test(start_paused = true)]
async fn a_registration_of_another_fleet_is_not_taken_for_one_that_is_gone() {
    let mut world = World::with_berlin();
    let first = world.start_settled().await;
    let told = |world: &World| world.own("berlin")["status"]["conditions"].clone();
    let before = told(&world);
    assert_ne!(before, Value::Null);
    world.settings = settings(&["--fleet=other", "--registration-selector=fleet=other"]);
    let second = world.start();
    tokio::time::sleep(LEASE * 4).await;
    world.settle().await;
    assert_eq!(told(&world), before);
    first.stop().await;
    second.stop().await;
}

/// The replica that reports it has to be of the fleet that it was registered with.
#[tokio::test(start_paused = true)]
async fn a_registration_that_goes_while_its_fleet_is_away_is_reported_by_no_other_fleet() {
    let mut world = World::with_berlin();
    let first = world.start_settled().await;
    first.kill().await;
    let status = |world: &World| world.own("berlin")["status"].clone();
    let before = status(&world);
    assert_eq!(before["fleet"], "osm");
    unregister(&world);
    let flags_of_first = std::mem::replace(
        &mut world.settings,
        settings(&["--fleet=other", "--registration-selector=fleet=other"]),
    );
    let second = world.start();
    tokio::time::sleep(LEASE * 4).await;
    world.settle().await;
    assert_eq!(status(&world), before, "it is none of theirs");
    world.settings = flags_of_first;
    let third = world.start();
    tokio::time::sleep(LEASE * 4).await;
    world.settle().await;
    let told = status(&world).to_string();
    assert!(told.contains("RegistrationRemoved"), "{told}");
    second.stop().await;
    third.stop().await;
}
