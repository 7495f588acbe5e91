use super::*;
use crate::fleet::sharding::{
    Holder, View,
    suspicion::{Crashes, Incident},
};

fn tenants(count: usize) -> Vec<TenantId> {
    (0..count)
        .map(|number| TenantId::new(format!("tenant-{number}").as_str()))
        .collect()
}

/// A sequence of replicas, each of which serves all tenants, and the records that their crashes
/// leave behind.
struct Fleet {
    tenants: Vec<TenantId>,
    killers: Vec<TenantId>,
    crashes: Crashes,
    lives: usize,
    now: i64,
}

/// How long a replica lives if it does not crash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// Until only tenants that are tried alone are waiting.
    CulpritsKnown,
    /// Until no tenant is waiting.
    AllServed,
}

/// The end of a replica's life.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// A killer was served.
    Crashed,
    /// All tenants are served except for these, which are waiting.
    Survived(Vec<TenantId>),
}

impl Fleet {
    fn new(count: usize, killers: &[usize]) -> Self {
        let tenants = tenants(count);
        Self {
            killers: killers.iter().map(|it| tenants[*it].clone()).collect(),
            tenants,
            crashes: Crashes::default(),
            lives: 0,
            now: 0,
        }
    }

    /// Runs one replica until a killer has been served for two seconds, or until the goal is
    /// reached.
    fn live(&mut self, goal: Goal) -> End {
        self.lives += 1;
        let mut quarantine = Quarantine::default();
        let mut served: HashSet<TenantId> = HashSet::new();
        for tenant in &self.tenants {
            let suspicion = self.crashes.suspicion(tenant, self.now);
            if quarantine.hold(tenant, suspicion, self.now).is_none() {
                served.insert(tenant.clone());
            }
        }
        let mut announced: Option<Trial> = None;
        loop {
            let step = quarantine.step(announced, self.now);
            let is_named = |it: &TenantId| announced.is_some_and(|by| by.on.contains(hash(it)));
            assert!(
                step.admitted.iter().all(is_named),
                "served before it is named"
            );
            served.extend(step.admitted);
            if self.killers.iter().any(|it| served.contains(it)) {
                self.now += 2;
                let holder = Holder::parse(&format!("a_{}", self.lives));
                let view = View([holder.clone()].into());
                let crash = Incident::crash(&holder, &view, self.now).during(announced);
                self.crashes.insert(crash);
                return End::Crashed;
            }
            let is_last = step.trial.is_some_and(|trial| trial.of == trial.on);
            if let Some(survived) = announced.filter(|_| step.trial != announced) {
                let holder = Holder::parse(&format!("a_{}", self.lives));
                let view = View([holder.clone()].into());
                let incident = Incident::crash(&holder, &view, self.now).survived(survived);
                self.crashes.insert(incident);
                announced = None;
            }
            if step.trial != announced && (goal == Goal::AllServed || !is_last) {
                announced = step.trial;
                continue;
            }
            let Some(next) = step.next else {
                break;
            };
            self.now = next;
        }
        let waits = |it: &&TenantId| !served.contains(*it);
        End::Survived(self.tenants.iter().filter(waits).cloned().collect())
    }

    /// Returns how many replicas crash until one survives all tenants but the killers.
    fn crashes_until_all_are_known(&mut self) -> usize {
        for crashes in 0..100 {
            if let End::Survived(waiting) = self.live(Goal::CulpritsKnown) {
                assert_eq!(waiting, self.killers);
                return crashes;
            }
        }
        panic!("nobody survives");
    }
}

#[test]
fn a_killer_is_found_in_logarithmic_steps_and_everybody_else_is_served() {
    for killer in [0, 17, 255] {
        let crashes = Fleet::new(256, &[killer]).crashes_until_all_are_known();
        assert_eq!(crashes, 2 + 8);
    }
    assert_eq!(Fleet::new(1, &[0]).crashes_until_all_are_known(), 2);
}

#[test]
fn killers_are_found_one_after_the_other() {
    let crashes = Fleet::new(64, &[3, 40]).crashes_until_all_are_known();
    assert!(crashes <= 2 * (2 + 6), "{crashes}");
    let crashes = Fleet::new(64, &[3, 4, 5, 6]).crashes_until_all_are_known();
    assert!(crashes <= 5 * (2 + 6), "{crashes}");
}

#[test]
fn who_is_alone_is_tried_again_later_and_later_and_served_once_it_does_no_harm() {
    let mut fleet = Fleet::new(8, &[5]);
    fleet.crashes_until_all_are_known();
    let mut gaps = Vec::new();
    assert_eq!(fleet.live(Goal::AllServed), End::Crashed);
    for _ in 0..6 {
        let before = fleet.now;
        assert_eq!(fleet.live(Goal::AllServed), End::Crashed);
        gaps.push(fleet.now - before);
    }
    assert!(gaps.is_sorted(), "{gaps:?}");
    assert!(gaps[5] > 20 * gaps[0], "{gaps:?}");
    fleet.killers.clear();
    assert_eq!(fleet.live(Goal::AllServed), End::Survived(Vec::new()));
}

#[test]
fn suspects_without_a_killer_are_all_served_after_two_trials() {
    let mut fleet = Fleet::new(9, &[]);
    for life in ["a_8", "a_9"] {
        let holder = Holder::parse(life);
        fleet
            .crashes
            .insert(Incident::crash(&holder, &View([holder.clone()].into()), 0));
    }
    assert_eq!(fleet.live(Goal::AllServed), End::Survived(Vec::new()));
    assert_eq!(fleet.now, 3 * TRIAL_SECONDS);
}

#[test]
fn who_is_served_here_already_is_not_held_back() {
    let mut fleet = Fleet::new(1, &[]);
    let tenant = fleet.tenants.remove(0);
    let mut quarantine = Quarantine::default();
    assert_eq!(quarantine.hold(&tenant, None, 0), None);
    for at in [0, 1] {
        let holder = Holder::parse(&format!("a_{at}"));
        let view = View([holder.clone()].into());
        fleet.crashes.insert(Incident::crash(&holder, &view, at));
    }
    let suspicion = fleet.crashes.suspicion(&tenant, 2);
    assert!(suspicion.is_some());
    assert_eq!(quarantine.hold(&tenant, suspicion, 2), None);
    quarantine.retain(|_| false);
    assert_eq!(quarantine.hold(&tenant, suspicion, 2), suspicion);
}
