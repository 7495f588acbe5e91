//! Random histories of a few replicas: late answers, stale lists, long pauses, crashes, restarts,
//! and Leases that somebody deletes by hand. Never do two serve one tenant at a time with a fence
//! that lets them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::fleet::partition::{
    evaluate::evaluate,
    evidence::Evidence,
    sightings::{LAST, Listed, Sighting, Sightings, with_drift},
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

    /// Makes a Lease, or takes over the one that was listed.
    fn join(&mut self, me: &Holder, view: &View, listed: &Listed) -> Option<Sighting> {
        let name = &me.instance;
        if let Some(seen) = listed.leases.get(name) {
            let wanted = Sighting {
                holder: Some(me.clone()),
                view: view.digest(),
                ..seen.clone()
            };
            return self.swap(name, seen, Some(&wanted));
        }
        if self.now.leases.contains_key(name) {
            return None;
        }
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
        Some(made)
    }

    /// Takes a Lease that is over from its holder, or removes it.
    fn evict(&mut self, name: &str, seen: &Sighting) {
        let released = Sighting {
            holder: None,
            view: String::new(),
            ..seen.clone()
        };
        let new = seen.holder.is_some().then_some(&released);
        drop(self.swap(name, seen, new));
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

/// A replica that has listed the Leases and has none of its own yet.
struct Joiner {
    me: Holder,
    listed: Listed,
    seen: Duration,
    at: Duration,
}

/// What somebody does by hand.
#[derive(Clone, Copy, PartialEq)]
enum Hand {
    Deletes,
    KeepsOff,
}

struct World {
    random: StdRng,
    hand: Hand,
    seed: u64,
    joiners: Vec<Joiner>,
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
    fn new(seed: u64, hand: Hand) -> Self {
        Self {
            random: StdRng::seed_from_u64(seed),
            hand,
            seed,
            joiners: Vec::new(),
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
    fn come(&mut self) {
        let living = |name: &&&str| {
            let mut alive = self.replicas.iter().filter(|it| !it.is_dead);
            let mut coming = self.joiners.iter();
            !alive.any(|it| it.stance.me.instance == **name)
                && !coming.any(|it| it.me.instance == **name)
        };
        let Some(name) = INSTANCES.iter().find(living) else {
            return;
        };
        self.lives += 1;
        let me = Holder::parse(&format!("{name}_{}", self.lives));
        let at = self.now + self.up_to(Duration::from_secs(4));
        self.joiners.push(Joiner {
            me,
            listed: self.server.now.clone(),
            seen: self.now,
            at,
        });
    }

    fn join(&mut self, joiner: Joiner) {
        let Joiner {
            me,
            mut listed,
            seen,
            ..
        } = joiner;
        let unseen_until = match Evidence::of(&me, &listed) {
            Evidence::Enough => Duration::ZERO,
            Evidence::Last(name) => {
                let last = listed.leases.remove(&name).expect("it was listed");
                if self.server.swap(&name, &last, None).is_none() {
                    return;
                }
                Duration::ZERO
            }
            Evidence::Missing => self.now + with_drift(DURATION),
        };
        let stance = Stance::joining(me, &listed, unseen_until);
        let Some(lease) = self.server.join(&stance.me, &stance.published, &listed) else {
            return;
        };
        let mut sightings = Sightings::new(DURATION / 3);
        sightings.update(listed, seen);
        self.replicas.push(Replica {
            stance,
            lease,
            sightings,
            valid_until: self.now + DURATION,
            served: BTreeSet::new(),
            granted: (Grant::default(), BTreeSet::new()),
            renewal: None,
            listed: None,
            asleep_until: Duration::ZERO,
            is_dead: false,
        });
    }

    /// Leaves in order: nothing is served any more.
    fn leave(&mut self, replica: &mut Replica) {
        replica.is_dead = true;
        if self.now < replica.stance.unseen_until || replica.sightings.has_vanished() {
            return;
        }
        let text = if replica.stance.is_last() { LAST } else { "" };
        let released = Sighting {
            holder: None,
            view: text.to_owned(),
            ..replica.lease.clone()
        };
        let name = &replica.stance.me.instance;
        drop(self.server.swap(name, &replica.lease, Some(&released)));
    }

    fn delete_by_hand(&mut self) {
        let names: Vec<String> = self.server.now.leases.keys().cloned().collect();
        let all = self.one_in(3);
        for name in names {
            if all || self.one_in(2) {
                self.server.write(|leases, _| drop(leases.remove(&name)));
            }
        }
    }

    fn tick(&mut self) {
        self.now += TICK;
        if self.one_in(60) {
            self.come();
        }
        if self.hand == Hand::Deletes && self.one_in(150) {
            self.delete_by_hand();
        }
        let now = self.now;
        let due: Vec<Joiner> = self.joiners.extract_if(.., |it| now >= it.at).collect();
        for joiner in due {
            self.join(joiner);
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
        if self.one_in(400) && replica.renewal.is_none() {
            self.leave(replica);
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
            self.server.evict(name, seen);
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
        let view = replica.stance.to_publish(self.now).cloned();
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
                "{tenant} at {:?} of seed {}: {writers:?}",
                self.now,
                self.seed
            );
            if let Some(writer) = writers.first() {
                let before = self.last.insert(tenant.clone(), (*writer).clone());
                self.moves += usize::from(before.is_some_and(|before| before != **writer));
            }
        }
    }
}

/// How many histories there are: more when asked for as this is compiled.
fn histories() -> u64 {
    option_env!("OSM_HISTORIES").map_or(100, |count| count.parse().expect("it is a number"))
}

fn check_histories(hand: Hand) {
    let mut moves = 0;
    for seed in 0..histories() {
        let mut world = World::new(seed, hand);
        for _ in 0..3 {
            world.come();
        }
        for _ in 0..1_000 {
            world.tick();
        }
        moves += world.moves;
    }
    assert!(moves > 500, "{moves} moves are too few to say anything");
}

#[test]
fn in_no_history_do_two_replicas_write_to_one_tenant() {
    check_histories(Hand::KeepsOff);
}

#[test]
fn leases_that_are_deleted_by_hand_make_no_two_writers() {
    check_histories(Hand::Deletes);
}
