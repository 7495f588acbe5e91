//! Random histories of a few replicas: late answers, stale lists, long pauses, crashes, restarts.
//! Never do two serve one tenant at a time with a fence that lets them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::fleet::partition::{
    evaluate::evaluate,
    sightings::{Listed, Sighting, Sightings},
};
use crate::tenant::id::TenantId;

const DURATION: Duration = Duration::from_secs(16);
/// A write takes no longer than this, and none is sent later than this before the Lease's end.
const MARGIN: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_millis(500);
const INSTANCES: [&str; 4] = ["a", "b", "c", "d"];

/// The Leases as the API server has them, and as it had them.
#[derive(Default)]
struct Server {
    now: Listed,
    history: Vec<Listed>,
    uids: u64,
}

impl Server {
    fn write(&mut self, change: impl FnOnce(&mut BTreeMap<String, Sighting>, u64)) {
        self.now.revision += 1;
        let revision = self.now.revision;
        change(&mut self.now.leases, revision);
        self.history.push(self.now.clone());
    }

    fn create(&mut self, me: &Holder, view: &View) -> Sighting {
        self.uids += 1;
        let uid = self.uids.to_string();
        let mut made = Sighting {
            holder: Some(me.clone()),
            view: view.digest(),
            uid,
            resource_version: String::new(),
            duration: DURATION,
        };
        self.write(|leases, revision| {
            made.resource_version = revision.to_string();
            leases.insert(me.instance.clone(), made.clone());
        });
        made
    }

    /// Compare-and-swap; none deletes.
    fn swap(&mut self, name: &str, seen: &Sighting, new: Option<&Sighting>) -> Option<Sighting> {
        let found = self.now.leases.get(name)?;
        if (&found.uid, &found.resource_version) != (&seen.uid, &seen.resource_version) {
            return None;
        }
        let mut written = new.cloned();
        self.write(|leases, revision| match &mut written {
            Some(lease) => {
                lease.resource_version = revision.to_string();
                leases.insert(name.to_owned(), lease.clone());
            }
            None => drop(leases.remove(name)),
        });
        written.or_else(|| Some(seen.clone()))
    }
}

/// What the server said.
#[derive(PartialEq)]
enum Outcome {
    NotYet,
    Written(Sighting),
    Refused,
}

/// A write of a Lease that is under way.
struct Renewal {
    sent: Duration,
    lands: Duration,
    answered: Duration,
    view: View,
    outcome: Outcome,
}

struct Replica {
    stance: Stance,
    lease: Sighting,
    sightings: Sightings,
    valid_until: Duration,
    served: BTreeSet<TenantId>,
    /// The last grant that was looked at, and what it covers.
    granted: (Grant, BTreeSet<TenantId>),
    renewal: Option<Renewal>,
    /// A list that was taken and not yet looked at.
    listed: Option<(Duration, Listed)>,
    asleep_until: Duration,
    is_dead: bool,
}

impl Replica {
    fn writes(&self, now: Duration, tenant: &TenantId) -> bool {
        !self.is_dead
            && now >= self.asleep_until
            && now + MARGIN <= self.valid_until
            && self.served.contains(tenant)
    }
}

struct World {
    random: StdRng,
    now: Duration,
    server: Server,
    replicas: Vec<Replica>,
    lives: u32,
    tenants: Vec<TenantId>,
    /// How often a tenant was served by another than before.
    moves: usize,
    last: BTreeMap<TenantId, Holder>,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            now: Duration::from_secs(100),
            server: Server::default(),
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

    /// A name comes back only after its last process has ended.
    fn join(&mut self) {
        let living = |name: &&&str| {
            let mut alive = self.replicas.iter().filter(|it| !it.is_dead);
            !alive.any(|it| it.stance.me.instance == **name)
        };
        let Some(name) = INSTANCES.iter().find(living) else {
            return;
        };
        self.lives += 1;
        let me = Holder::parse(&format!("{name}_{}", self.lives));
        let others = self.server.now.leases.values();
        let others = others.filter_map(|it| it.holder.clone());
        let mut view = View(others.filter(|it| it.instance != me.instance).collect());
        view.0.insert(me.clone());
        let lease = self.server.create(&me, &view);
        self.replicas.push(Replica {
            stance: Stance::joining(me, view),
            lease,
            sightings: Sightings::new(DURATION / 3),
            valid_until: self.now + DURATION,
            served: BTreeSet::new(),
            granted: (Grant::default(), BTreeSet::new()),
            renewal: None,
            listed: None,
            asleep_until: Duration::ZERO,
            is_dead: false,
        });
    }

    fn tick(&mut self) {
        self.now += TICK;
        if self.one_in(60) {
            self.join();
        }
        for index in 0..self.replicas.len() {
            let mut replica = self.replicas.swap_remove(index);
            self.land(&mut replica);
            if !replica.is_dead && self.now >= replica.asleep_until {
                self.live(&mut replica);
            }
            self.replicas.push(replica);
            let last = self.replicas.len() - 1;
            self.replicas.swap(index, last);
        }
        self.replicas
            .retain(|it| !it.is_dead || it.renewal.is_some());
        self.check();
    }

    /// What is on the wire arrives, whatever became of its sender.
    fn land(&mut self, replica: &mut Replica) {
        let Some(renewal) = &mut replica.renewal else {
            return;
        };
        if renewal.outcome == Outcome::NotYet && self.now >= renewal.lands {
            let wanted = Sighting {
                view: renewal.view.digest(),
                ..replica.lease.clone()
            };
            let name = &replica.stance.me.instance;
            let swapped = self.server.swap(name, &replica.lease, Some(&wanted));
            renewal.outcome = swapped.map_or(Outcome::Refused, Outcome::Written);
        }
        if replica.is_dead && renewal.outcome != Outcome::NotYet {
            replica.renewal = None;
        }
    }

    fn live(&mut self, replica: &mut Replica) {
        if self.one_in(300) {
            replica.is_dead = true;
            return;
        }
        if self.one_in(150) {
            replica.asleep_until = self.now + self.up_to(DURATION * 3);
            return;
        }
        self.hear(replica);
        if replica.is_dead {
            return;
        }
        if replica.renewal.is_none() && self.one_in(3) {
            self.send(replica, replica.stance.published.clone());
        }
        self.look(replica);
        self.serve(replica);
    }

    fn hear(&mut self, replica: &mut Replica) {
        let Some(renewal) = replica.renewal.take_if(|it| self.now >= it.answered) else {
            return;
        };
        match renewal.outcome {
            Outcome::Written(lease) => {
                replica.lease = lease;
                replica.valid_until = renewal.sent + DURATION;
                replica.stance.has_published(renewal.view);
            }
            // Lost for good: the process ends.
            _ => replica.is_dead = true,
        }
    }

    fn send(&mut self, replica: &mut Replica, view: View) {
        let lands = self.now + self.up_to(Duration::from_secs(8));
        let answered = lands + self.up_to(Duration::from_secs(2)) + TICK;
        replica.renewal = Some(Renewal {
            sent: self.now,
            lands,
            answered,
            view,
            outcome: Outcome::NotYet,
        });
    }

    /// Lists may come from a cache that lags behind, and be looked at late.
    fn look(&mut self, replica: &mut Replica) {
        if replica.listed.is_none() {
            let lag = if self.one_in(4) {
                self.random.random_range(0..6)
            } else {
                0
            };
            let shown = self.server.history.len().saturating_sub(1 + lag);
            let listed = self.server.history[shown].clone();
            replica.listed = Some((self.now + self.up_to(Duration::from_secs(2)), listed));
        }
        let Some((_, listed)) = replica.listed.take_if(|(at, _)| self.now >= *at) else {
            return;
        };
        replica.sightings.update(listed, self.now);
        let stance = &mut replica.stance;
        let leases = replica.sightings.leases();
        let verdict = evaluate(&stance.me, &stance.published, leases, self.now);
        stance.follow(&verdict);
        for name in &verdict.over {
            let seen = &leases[name].lease;
            drop(self.server.swap(name, seen, None));
        }
    }

    /// Letting go takes its time, and so does taking.
    fn serve(&mut self, replica: &mut Replica) {
        let grant = &replica.stance.grant;
        if replica.granted.0 != *grant {
            let covered = self.tenants.iter().filter(|it| grant.covers(it));
            replica.granted = (grant.clone(), covered.cloned().collect());
        }
        for tenant in self.tenants.clone() {
            let is_served = replica.served.contains(&tenant);
            let is_granted = replica.granted.1.contains(&tenant);
            if is_served != is_granted && self.one_in(2) {
                if is_granted {
                    replica.served.insert(tenant);
                } else {
                    replica.served.remove(&tenant);
                }
            }
        }
        let has_let_go = replica.served.is_subset(&replica.granted.1);
        let view = replica.stance.to_publish().cloned();
        if let Some(view) = view
            && has_let_go
            && replica.renewal.is_none()
        {
            self.send(replica, view);
        }
    }

    fn check(&mut self) {
        for tenant in &self.tenants {
            let writers: Vec<&Holder> = self
                .replicas
                .iter()
                .filter(|it| it.writes(self.now, tenant))
                .map(|it| &it.stance.me)
                .collect();
            assert!(
                writers.len() <= 1,
                "{tenant} at {:?}: {writers:?}",
                self.now
            );
            if let Some(writer) = writers.first() {
                let before = self.last.insert(tenant.clone(), (*writer).clone());
                self.moves += usize::from(before.is_some_and(|before| before != **writer));
            }
        }
    }
}

#[test]
fn in_no_history_do_two_replicas_write_to_one_tenant() {
    let mut moves = 0;
    for seed in 0..100 {
        let mut world = World::new(seed);
        for _ in 0..3 {
            world.join();
        }
        for _ in 0..1_000 {
            world.tick();
        }
        moves += world.moves;
    }
    assert!(moves > 500, "{moves} moves are too few to say anything");
}
