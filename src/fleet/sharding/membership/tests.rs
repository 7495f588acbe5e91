//! Tests the real membership and Lease code against an in-memory API server, on a paused clock.
//!
//! The histories are random. Replicas start, stop, crash and are suspended. Requests and answers
//! are late or lost, also those whose callers gave up. Lists are stale. A person deletes Leases by
//! hand. Two replicas must never be able to write to one tenant at the same time. The tests play
//! the part of the fleet, which serves and releases tenants.

mod renewals;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    num::NonZeroU32,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use fake_cluster::{Cluster, Fault, Front, Matcher, Verb, object};
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{advance, sleep},
};
use tower::{BoxError, Service, util::BoxCloneSyncService};

use super::*;
use crate::client::{
    connect::{ClientParts, client},
    fence::Fenced,
    rate_limit::Budget,
    transport::ResponseBody,
};
use crate::telemetry::metrics::ClusterKind;
use crate::tenant::{id::TenantId, policy::RequestBudget};

const TERMS: Terms = Terms {
    duration: Duration::from_secs(16),
    margin: Duration::from_secs(4),
};
const NAMESPACE: &str = "default";
const TICK: Duration = Duration::from_millis(250);
const TICKS: u32 = 1_000;
const INSTANCES: [&str; 4] = ["a", "b", "c", "d"];

/// The network between one replica and the API server. A request that was sent arrives, whatever
/// happened to its sender.
#[derive(Clone)]
struct Network {
    front: Front,
    state: Arc<Mutex<(StdRng, JoinSet<()>)>>,
}

/// How long a request and its answer take, and whether they arrive.
struct Fate {
    request_takes: Duration,
    answer_takes: Duration,
    is_answered: bool,
}

impl Fate {
    fn draw(random: &mut StdRng) -> Self {
        let mut takes = || {
            let max = if random.random_range(0..14) == 0 {
                8_000
            } else {
                20
            };
            Duration::from_millis(random.random_range(0..max))
        };
        Self {
            request_takes: takes(),
            answer_takes: takes(),
            is_answered: random.random_range(0..40) > 0,
        }
    }
}

impl Service<Request<Body>> for Network {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (sender, answer) = oneshot::channel();
        let mut front = self.front.clone();
        let mut state = self.state.lock().unwrap();
        let (random, calls) = &mut *state;
        let fate = Fate::draw(random);
        calls.spawn(async move {
            sleep(fate.request_takes).await;
            let answer = front.call(request).await;
            sleep(fate.answer_takes).await;
            if fate.is_answered {
                drop(sender.send(answer));
            }
        });
        Box::pin(async move {
            let response = answer.await??;
            Ok(response.map(|body| body.map_err(std::io::Error::other).boxed_unsync()))
        })
    }
}

fn network(cluster: &Cluster, seed: u64) -> Client {
    let many = NonZeroU32::new(1_000).unwrap();
    client(ClientParts {
        transport: BoxCloneSyncService::new(Network {
            front: cluster.front(),
            state: Arc::new(Mutex::new((StdRng::seed_from_u64(seed), JoinSet::new()))),
        }),
        budget: Arc::new(Budget::new(RequestBudget {
            per_second: many,
            burst: many,
        })),
        share: None,
        timeout: TERMS.call_timeout(),
        health: None,
        fence: None,
        memory: None,
        kind: ClusterKind::Management,
        metrics: Metrics::new(),
    })
}

fn leases(client: Client, me: &Holder) -> Leases {
    let holder = (me.clone(), TERMS.duration);
    Leases::new((client, NAMESPACE), "osm", holder, String::new())
}

fn params(client: Client, me: &Holder, clock: &Clock) -> Params {
    Params {
        leases: leases(client, me),
        me: me.clone(),
        terms: TERMS,
        clock: clock.clone(),
        fence: Fence::closed(clock.clone(), TERMS.margin),
        metrics: Metrics::new(),
        heartbeat: Heartbeat::default(),
    }
}

/// Runs a process that may be suspended. It then makes no progress, while time goes on.
async fn suspendable<F: Future>(process: F, mut suspended: watch::Receiver<bool>) -> F::Output {
    let mut process = pin!(process);
    loop {
        // The sender lives as long as the process, so the waits cannot fail.
        let _ = suspended.wait_for(|it| !*it).await;
        tokio::select! {
            biased;
            _ = suspended.wait_for(|it| *it) => {}
            ended = &mut process => return ended,
        }
    }
}

/// One process, and what its fleet does.
struct Replica {
    me: Holder,
    placement: Placement,
    process: JoinSet<Result<(), LeaseError>>,
    suspended: watch::Sender<bool>,
    suspended_until: Duration,
    leave: CancellationToken,
    is_leaving: bool,
    served: BTreeMap<TenantId, Fence>,
    /// The writes that were sent, and the latest time at which each is executed.
    on_the_wire: Vec<(TenantId, Duration)>,
}

impl Replica {
    fn new(cluster: &Cluster, clock: &Clock, (me, seed): (Holder, u64)) -> Self {
        let params = params(network(cluster, seed), &me, clock);
        let beating = params.heartbeat.clone().beat();
        let (membership, placement) = Membership::new(params);
        let (leave, suspended) = (CancellationToken::new(), watch::Sender::new(false));
        let mut process = JoinSet::new();
        let until_left = leave.clone();
        let replica = async move {
            tokio::select! {
                () = beating => unreachable!("it never ends"),
                ended = membership.run(&until_left) => ended,
            }
        };
        process.spawn(suspendable(replica, suspended.subscribe()));
        Self {
            me,
            placement,
            process,
            suspended,
            suspended_until: Duration::ZERO,
            leave,
            is_leaving: false,
            served: BTreeMap::new(),
            on_the_wire: Vec::new(),
        }
    }

    /// Returns true if a write of the replica may be executed now or later.
    fn writes(&self, tenant: &TenantId) -> bool {
        let is_open = |fence: &Fence| fence.check(&Method::POST).is_ok();
        let is_running = !*self.suspended.borrow();
        is_running && self.served.get(tenant).is_some_and(is_open) || self.has_sent(tenant)
    }

    fn has_sent(&self, tenant: &TenantId) -> bool {
        self.on_the_wire.iter().any(|(sent, _)| sent == tenant)
    }

    /// Reports the shard as released to, if only its tenants are served.
    fn confirm(&self) {
        let grant = self.placement.shards.borrow().clone();
        if self.served.keys().all(|tenant| grant.covers(tenant)) {
            self.placement.let_go.send_if_modified(|before| {
                let is_another = *before != grant;
                *before = grant;
                is_another
            });
        }
    }
}

/// What a person does by hand.
#[derive(Clone, Copy, PartialEq)]
enum Hand {
    DeletesLeases,
    KeepsOff,
}

struct World {
    random: StdRng,
    hand: Hand,
    seed: u64,
    cluster: Cluster,
    clock: Clock,
    replicas: Vec<Replica>,
    lives: u32,
    tenants: Vec<TenantId>,
    /// How often a tenant moved to another replica.
    moves: usize,
    last: BTreeMap<TenantId, Holder>,
}

impl World {
    fn new(seed: u64, hand: Hand) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            hand,
            seed,
            cluster: Cluster::default(),
            clock: Clock::tokio(Timestamp::UNIX_EPOCH),
            replicas: Vec::new(),
            lives: 0,
            tenants: (0..8)
                .map(|number| TenantId::new(&format!("tenant-{number}")))
                .collect(),
            moves: 0,
            last: BTreeMap::new(),
        }
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.random.random_range(0..count) == 0
    }

    fn up_to(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.random.random_range(0.0..1.0))
    }

    /// Starts a replica. A name is used again only after its last process has ended.
    fn come(&mut self) {
        let is_free = |name: &&&str| self.replicas.iter().all(|it| it.me.instance != **name);
        let Some(name) = INSTANCES.iter().find(is_free) else {
            return;
        };
        self.lives += 1;
        let me = Holder::parse(&format!("{name}_{}", self.lives));
        let seed = self.random.random();
        let replica = Replica::new(&self.cluster, &self.clock, (me, seed));
        self.replicas.push(replica);
    }

    fn delete_by_hand(&mut self) {
        let all = self.one_in(3);
        for lease in self.cluster.objects("leases") {
            let name = lease["metadata"]["name"].as_str().unwrap_or_default();
            if all || self.one_in(2) {
                self.cluster.delete_raw(object("leases", NAMESPACE, name));
            }
        }
    }

    async fn tick(&mut self) {
        sleep(TICK).await;
        if self.one_in(120) {
            self.come();
        }
        if self.hand == Hand::DeletesLeases && self.one_in(300) {
            self.delete_by_hand();
        }
        if self.one_in(8) {
            let revisions = self.random.random_range(1..6);
            let lists = Matcher::on(&[Verb::List], "leases");
            let stale = Fault::StaleList { revisions };
            self.cluster.inject_times(lists, stale, 1);
        }
        for mut replica in std::mem::take(&mut self.replicas) {
            if self.live(&mut replica) {
                self.replicas.push(replica);
            }
        }
        self.check();
    }

    /// Runs a replica and its fleet for one step. Returns false if its process ends.
    fn live(&mut self, replica: &mut Replica) -> bool {
        let now = self.clock.since_boot();
        replica.on_the_wire.retain(|(_, lands)| *lands >= now);
        if *replica.suspended.borrow() {
            if now < replica.suspended_until {
                return true;
            }
            replica.suspended.send_replace(false);
        }
        if let Some(ended) = replica.process.try_join_next() {
            drop(ended.expect("the membership does not panic"));
            return false;
        }
        if self.one_in(600) {
            return false;
        }
        if self.one_in(300) {
            replica.suspended_until = now + self.up_to(TERMS.duration * 3);
            replica.suspended.send_replace(true);
            return true;
        }
        replica.is_leaving |= self.one_in(800);
        self.serve(replica, now);
        if replica.is_leaving && replica.served.is_empty() {
            replica.leave.cancel();
        }
        replica.confirm();
        true
    }

    /// Serves and releases tenants. Both take time, and releasing also waits for writes.
    fn serve(&mut self, replica: &mut Replica, now: Duration) {
        let grant = replica.placement.shards.borrow().clone();
        for tenant in self.tenants.clone() {
            let is_granted = grant.covers(&tenant) && !replica.is_leaving;
            let is_busy = replica.has_sent(&tenant) || self.one_in(2);
            match replica.served.get(&tenant) {
                None if is_granted && !is_busy => {
                    let fence = replica.placement.fence.of_tenant();
                    replica.served.insert(tenant, fence);
                }
                Some(fence) if !is_granted && !is_busy => {
                    fence.let_go();
                    replica.served.remove(&tenant);
                }
                Some(fence)
                    if is_granted && fence.check(&Method::POST).is_ok() && self.one_in(4) =>
                {
                    let lands = now + self.up_to(TERMS.margin);
                    replica.on_the_wire.push((tenant, lands));
                }
                _ => {}
            }
        }
    }

    fn check(&mut self) {
        for tenant in &self.tenants {
            let writers = self.replicas.iter().filter(|it| it.writes(tenant));
            let writers: BTreeSet<&Holder> = writers.map(|it| &it.me).collect();
            assert!(
                writers.len() <= 1,
                "{tenant} at {:?} of seed {}: {writers:?}",
                self.clock.since_boot(),
                self.seed
            );
            if let Some(writer) = writers.first() {
                let before = self.last.insert(tenant.clone(), (*writer).clone());
                self.moves += usize::from(before.is_some_and(|before| before != **writer));
            }
        }
    }
}

/// Returns the number of histories. A compile-time variable can increase it.
fn histories() -> u64 {
    option_env!("OSM_HISTORIES").map_or(20, |count| count.parse().expect("it is a number"))
}

fn check_histories(hand: Hand) {
    let mut moves = 0;
    for seed in 0..histories() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime can be made");
        crate::client::jitter::begin(seed);
        moves += runtime.block_on(async {
            let mut world = World::new(seed, hand);
            for _ in 0..3 {
                world.come();
            }
            for _ in 0..TICKS {
                world.tick().await;
            }
            world.moves
        });
    }
    assert!(moves > 100, "{moves} moves are too few to say anything");
}

#[test]
fn in_no_history_do_two_replicas_write_to_one_tenant() {
    check_histories(Hand::KeepsOff);
}

#[test]
fn leases_that_are_deleted_by_hand_make_no_two_writers() {
    check_histories(Hand::DeletesLeases);
}

/// Other replicas have listed a Lease and consider it expired. In the meantime its holder renews
/// it, or it was deleted and the holder has joined again.
#[tokio::test(start_paused = true)]
async fn a_lease_that_was_written_since_it_was_listed_is_neither_taken_nor_removed() {
    let cluster = Cluster::default();
    let (a, b) = (Holder::parse("a_1"), Holder::parse("b_1"));
    let says = Statement {
        view: View([a.clone(), b.clone()].into()),
        ..Statement::default()
    };
    let now = Timestamp::UNIX_EPOCH;
    let of_a = leases(cluster.client(), &a);
    let of_b = leases(cluster.client(), &b);
    let holder = async || of_a.list().await.unwrap().leases["osm-b"].holder.clone();
    let listed = of_a.list().await.unwrap();
    let first = of_b.join(&says, &listed, now).await.unwrap();
    let before = of_a.list().await.unwrap().leases["osm-b"].clone();
    of_b.renew(&first, &says, now).await.unwrap();
    let renewed = of_a.list().await.unwrap().leases["osm-b"].clone();
    assert!(cluster.delete_raw(object("leases", NAMESPACE, "osm-b")));
    let listed = of_a.list().await.unwrap();
    of_b.join(&says, &listed, now).await.unwrap();
    for seen in [before, renewed] {
        let evicted = of_a.evict("osm-b", &seen).await.unwrap();
        assert_eq!(evicted, Swapped::Elsewhere);
        let removed = of_a.remove("osm-b", &seen).await.unwrap();
        assert_eq!(removed, Swapped::Elsewhere);
        assert_eq!(holder().await, Some(b.clone()));
    }
    let seen = of_a.list().await.unwrap().leases["osm-b"].clone();
    assert_eq!(of_a.evict("osm-b", &seen).await.unwrap(), Swapped::Here);
    assert_eq!(holder().await, None, "one that was not written since");
}
