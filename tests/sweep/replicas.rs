//! Several managers share one fleet: each tenant is served by one, and moves in order when replicas
//! come, go, die or lose sight of the management cluster.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Fault, Matcher, Verb, object};
use tokio::time::Instant;

use crate::{
    snapshot::boot_secret,
    wire::Life,
    world::{Process, World},
};

pub const TENANTS: [&str; 6] = ["berlin", "cairo", "dakar", "lima", "lisbon", "oslo"];
/// The default.
pub const LEASE: Duration = Duration::from_secs(15);
/// The namespace of the Leases.
const HOME: &str = "operating-system-manager";
/// Long enough for replicas to agree and for tenants to be engaged.
pub const AGREED: Duration = Duration::from_secs(20);

pub struct Replica {
    pub name: &'static str,
    pub life: Arc<Life>,
    pub process: Process,
}

pub struct Fleet {
    pub world: World,
    /// Everybody who ever lived.
    pub lives: Vec<(&'static str, Arc<Life>)>,
    made: usize,
}

impl Fleet {
    pub fn new() -> Self {
        let mut world = World::with(&TENANTS);
        world.settings.replica.lease_duration = LEASE;
        Self {
            world,
            lives: Vec::new(),
            made: 0,
        }
    }

    pub fn start(&mut self, name: &'static str) -> Replica {
        name.clone_into(&mut self.world.settings.replica.instance);
        let life = Life::new();
        self.lives.push((name, Arc::clone(&life)));
        Replica {
            name,
            process: self.world.start_as(&life),
            life,
        }
    }

    pub async fn start_all<const N: usize>(&mut self, names: [&'static str; N]) -> [Replica; N] {
        let replicas = names.map(|name| self.start(name));
        self.agreed().await;
        replicas
    }

    /// Waits until each tenant has its owner, who has written for it since all agreed.
    pub async fn agreed(&mut self) {
        tokio::time::sleep(AGREED).await;
        let begun = self.lives.iter().map(|(_, life)| life.forget()).count();
        assert_eq!(begun, self.lives.len());
        self.serves_a_change().await;
    }

    /// Makes one more machine deployment in every worker cluster.
    pub fn change(&mut self) -> String {
        self.made += 1;
        let name = format!("workers-{}", self.made);
        for tenant in TENANTS {
            self.world.deploy(tenant, &name);
        }
        name
    }

    /// Makes machine deployments, one after the other, until this moment; tells their names.
    pub async fn change_until(&mut self, end: Instant) -> Vec<String> {
        let mut names = Vec::new();
        while Instant::now() < end {
            names.push(self.change());
            tokio::time::sleep(Duration::from_millis(2_300)).await;
        }
        names
    }

    /// Makes one more machine deployment in every worker cluster, and waits until all are served;
    /// tells how long that took.
    pub async fn serves_a_change(&mut self) -> Duration {
        let name = self.change();
        let asked = Instant::now();
        self.all_served(&[name]).await;
        asked.elapsed()
    }

    /// Waits until a tenant's machine deployment is served, and tells how long that took.
    pub async fn served(&self, tenant: &str, name: &str) -> Duration {
        let asked = Instant::now();
        let secret = format!("{name}-kube-system-bootstrap-config");
        let worker = self.world.worker(tenant);
        let wait = worker.wait_until(|cluster| boot_secret(cluster, &secret).is_some());
        let waited = tokio::time::timeout(Duration::from_mins(2), wait).await;
        assert!(waited.is_ok(), "{tenant} is not served");
        asked.elapsed()
    }

    /// Waits until these machine deployments of all tenants are served.
    pub async fn all_served(&self, names: &[String]) {
        for name in names {
            for tenant in TENANTS {
                self.served(tenant, name).await;
            }
        }
    }

    /// Who has written for a tenant, one after the other: its worker cluster and its namespace.
    pub fn writers(&self, tenant: &str) -> Vec<&'static str> {
        let namespace = format!("/namespaces/{tenant}/");
        let mut writes: Vec<(Instant, &'static str)> = Vec::new();
        for (name, life) in &self.lives {
            let sent = life.sent();
            let is_write = |it: &&crate::wire::Sent| {
                it.method != http::Method::GET && (it.to == tenant || it.path.contains(&namespace))
            };
            writes.extend(sent.iter().filter(is_write).map(|it| (it.at, *name)));
        }
        writes.sort_by_key(|(at, _)| *at);
        let mut names: Vec<&str> = writes.into_iter().map(|(_, name)| name).collect();
        names.dedup();
        names
    }

    /// Nobody comes back to a tenant that another has taken.
    pub fn check_order(&self) {
        for tenant in TENANTS {
            let writers = self.writers(tenant);
            let mut once = writers.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(writers.len(), once.len(), "{tenant}: {writers:?}");
        }
    }

    pub fn owner(&self, tenant: &str) -> &'static str {
        self.writers(tenant)
            .last()
            .copied()
            .expect("somebody wrote")
    }

    /// The tenants that this one wrote for last.
    pub fn owned_by(&self, name: &str) -> Vec<&'static str> {
        let tenants = TENANTS.into_iter();
        tenants
            .filter(|tenant| self.owner(tenant) == name)
            .collect()
    }

    /// When somebody else than this one first wrote for a tenant since.
    pub fn taken_over(&self, tenant: &str, from: &str, since: Instant) -> Instant {
        let others = self.lives.iter().filter(|(name, _)| *name != from);
        let sent = others.flat_map(|(_, life)| life.sent());
        let namespace = format!("/namespaces/{tenant}/");
        sent.filter(|it| it.method != http::Method::GET && it.at > since)
            .filter(|it| it.to == tenant || it.path.contains(&namespace))
            .map(|it| it.at)
            .min()
            .expect("somebody took it over")
    }

    pub fn delete_lease(&self, name: &str) {
        let lease = format!("osm-{name}");
        assert!(
            self.world
                .management
                .delete_raw(object("leases", HOME, &lease))
        );
    }

    pub fn has_lease(&self, name: &str) -> bool {
        let lease = format!("osm-{name}");
        self.world
            .management
            .get(object("leases", HOME, &lease))
            .is_some()
    }
}

/// Ends replicas in order.
pub async fn stop_all(replicas: impl IntoIterator<Item = Replica>) {
    for replica in replicas {
        replica.process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn three_replicas_serve_each_tenant_once_and_share_them() {
    let mut fleet = Fleet::new();
    let replicas = fleet.start_all(["a", "b", "c"]).await;
    fleet.serves_a_change().await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    let mut owners: Vec<&str> = Vec::new();
    for tenant in TENANTS {
        let writers = fleet.writers(tenant);
        assert_eq!(writers.len(), 1, "{tenant}: {writers:?}");
        owners.extend(writers);
    }
    owners.sort_unstable();
    owners.dedup();
    assert_eq!(owners, ["a", "b", "c"], "these names share these tenants");
    stop_all(replicas).await;
}

/// Starts the only replica, which serves what has just changed.
async fn serves_at_once(fleet: &mut Fleet) -> Replica {
    let name = fleet.change();
    let asked = Instant::now();
    let replica = fleet.start("a");
    fleet.all_served(&[name]).await;
    let took = asked.elapsed();
    assert!(took < Duration::from_millis(500), "{took:?}");
    replica
}

#[tokio::test(start_paused = true)]
async fn alone_it_serves_at_once() {
    let mut fleet = Fleet::new();
    serves_at_once(&mut fleet).await.process.kill().await;
    // Its own name comes back from a crash at once, too.
    serves_at_once(&mut fleet).await.process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn killing_one_moves_its_tenants_alone_within_the_lease_and_five_seconds() {
    let mut fleet = Fleet::new();
    let [a, b, c] = fleet.start_all(["a", "b", "c"]).await;
    let before = TENANTS.map(|tenant| fleet.owner(tenant));
    b.process.kill().await;
    let took = fleet.serves_a_change().await;
    assert!(took <= LEASE + Duration::from_secs(5), "{took:?}");
    println!("killed one of three: all served after {took:?}");
    for (tenant, before) in TENANTS.iter().zip(before) {
        let now = fleet.owner(tenant);
        assert_eq!(now == before, before != b.name, "{tenant}: {before}, {now}");
    }
    fleet.check_order();
    tokio::time::sleep(LEASE * 2).await;
    assert!(!fleet.has_lease("b"), "somebody has cleared up");
    stop_all([a, c]).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_in_order_is_not_waited_for() {
    let mut fleet = Fleet::new();
    let [a, b] = fleet.start_all(["a", "b"]).await;
    b.process.stop().await;
    let took = fleet.serves_a_change().await;
    assert!(took < Duration::from_secs(5), "{took:?}");
    fleet.check_order();
    tokio::time::sleep(LEASE * 2).await;
    assert!(!fleet.has_lease("b"), "somebody has cleared up");
    a.process.stop().await;
}

/// The worst kind of absence: it does not hear that it is lost, and its tenants hear it well.
#[tokio::test(start_paused = true)]
async fn one_that_loses_the_management_cluster_stops_writing_before_others_begin_and_ends() {
    let mut fleet = Fleet::new();
    let [a, b] = fleet.start_all(["a", "b"]).await;
    b.life.stall("management");
    let cut = Instant::now();
    let names = fleet.change_until(cut + LEASE * 3).await;
    fleet.all_served(&names).await;
    let mut late = b.life.sent();
    late.retain(|it| it.method != http::Method::GET && it.at > cut + Duration::from_secs(5));
    assert_eq!(
        late.len(),
        0,
        "it wrote within a request of its Lease's end"
    );
    b.life.go_on();
    let ended = b.process.ended().await.expect_err("its Lease is lost");
    assert!(
        ended.to_string().contains("Lease osm-b is lost"),
        "{ended:#}"
    );
    fleet.check_order();
    a.process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_late_joiner_takes_over_tenant_by_tenant_under_load_even_if_lists_lag() {
    for lag in [0, 8] {
        let mut fleet = Fleet::new();
        let replicas = fleet.start_all(["a", "b"]).await;
        if lag > 0 {
            let stale = Fault::StaleList { revisions: lag };
            let matcher = Matcher::on(&[Verb::List], "leases");
            fleet.world.management.inject_times(matcher, stale, 30);
        }
        let joiner = fleet.start("c");
        let names = fleet.change_until(Instant::now() + AGREED * 2).await;
        fleet.all_served(&names).await;
        fleet.check_order();
        let taken = fleet.owned_by("c").len();
        assert!((1..=4).contains(&taken), "{taken} went to the joiner");
        joiner.process.stop().await;
        stop_all(replicas).await;
    }
}

/// A reconcile that hangs in a call holds its tenant, and with it the hand-over.
#[tokio::test(start_paused = true)]
async fn nothing_is_taken_before_a_reconcile_under_way_was_let_go() {
    let mut fleet = Fleet::new();
    let [elder] = fleet.start_all(["a"]).await;
    for tenant in TENANTS {
        elder.life.stall(tenant);
    }
    fleet.change();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    let younger = fleet.start("c");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let sent = younger.life.sent();
    let to_workers = sent
        .iter()
        .filter(|it| TENANTS.contains(&it.to.as_str()))
        .map(|it| it.at.duration_since(begun));
    let first = to_workers.min().expect("its share comes in the end");
    println!("the first call to a tenant after {first:?}");
    // The call that hangs was made before, and ends by its timeout of ten seconds.
    assert!(first > Duration::from_secs(8), "{first:?}");
    elder.process.kill().await;
    younger.process.stop().await;
}
