//! Decides which suspects this replica serves already. All other tenants come first. If the replica
//! survives that, it tries the suspects in groups: half of a group, then the rest. A suspect that
//! is alone in its group waits, longer after each crash. Before a trial begins, the replica's Lease
//! names it, so that other replicas know whom a crash concerns.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::sharding::suspicion::{Span, Suspicion, Trial, hash};
use crate::tenant::id::TenantId;

/// A replica that survives for this long has survived the trial. The attacks that were seen end a
/// process sooner.
pub const TRIAL: Duration = Duration::from_secs(TRIAL_SECONDS.unsigned_abs());
const TRIAL_SECONDS: i64 = 30;

/// The suspects of one replica. Times are in seconds since 1970.
#[derive(Debug, Default)]
pub struct Quarantine {
    /// The tenants that may be served, until they move to another replica.
    admitted: HashSet<TenantId>,
    held: HashMap<TenantId, Suspicion>,
    /// The time since which there are suspects.
    since: Option<i64>,
    trial: Option<Underway>,
    /// The group of which one half was tried and did no harm.
    half_tried: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Underway {
    trial: Trial,
    /// The end of the trial. Set once the replica's Lease names the trial.
    ends: Option<i64>,
}

/// The next step.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The trial that the replica's Lease must name.
    pub trial: Option<Trial>,
    /// The tenants that may be served from now on.
    pub admitted: Vec<TenantId>,
    /// The time of the next step.
    pub next: Option<i64>,
}

impl Quarantine {
    /// Records a tenant that moved to this replica at `now`. Returns the suspicion if the tenant is
    /// held back, or `None` if it may be served.
    pub fn hold(
        &mut self,
        tenant: &TenantId,
        suspicion: Option<Suspicion>,
        now: i64,
    ) -> Option<Suspicion> {
        let suspicion = suspicion.filter(|_| !self.admitted.contains(tenant));
        if let Some(suspicion) = suspicion {
            self.held.insert(tenant.clone(), suspicion);
            self.since.get_or_insert(now);
        } else {
            self.held.remove(tenant);
            self.admitted.insert(tenant.clone());
        }
        suspicion
    }

    /// Forgets the tenants that moved to other replicas.
    pub fn retain(&mut self, is_own: impl Fn(&TenantId) -> bool) {
        self.admitted.retain(&is_own);
        self.held.retain(|tenant, _| is_own(tenant));
    }

    /// Takes the next step. `announced` is the trial that the replica's Lease names.
    pub fn step(&mut self, announced: Option<Trial>, now: i64) -> Step {
        let mut step = Step::default();
        if let Some(Underway { trial, ends }) = &mut self.trial {
            let trial = *trial;
            step.trial = Some(trial);
            if announced != Some(trial) {
                return step;
            }
            let is_tried = |tenant: &TenantId, suspicion: &mut Suspicion| {
                suspicion.span == trial.of && trial.on.contains(hash(tenant))
            };
            let tried = self.held.extract_if(is_tried);
            step.admitted.extend(tried.map(|(tenant, _)| tenant));
            self.admitted.extend(step.admitted.iter().cloned());
            let ends = *ends.get_or_insert(now + TRIAL_SECONDS);
            if now < ends {
                step.next = Some(ends);
                return step;
            }
            self.half_tried = Some(trial.of);
            self.trial = None;
            step.trial = None;
        }
        let Some((due, trial)) = self.choose() else {
            self.since = None;
            return step;
        };
        let due = due.max(self.since.unwrap_or(now) + TRIAL_SECONDS);
        if now < due {
            step.next = Some(due);
        } else {
            self.trial = Some(Underway { trial, ends: None });
            step.trial = Some(trial);
        }
        step
    }

    /// Returns the next trial, and the earliest time for it. The rest of a half-tried group comes
    /// first, and suspects that are alone in their group come last.
    fn choose(&self) -> Option<(i64, Trial)> {
        let mut groups: BTreeMap<Span, Vec<(u32, Suspicion)>> = BTreeMap::new();
        for (tenant, suspicion) in &self.held {
            let registered = (hash(tenant), *suspicion);
            groups.entry(suspicion.span).or_default().push(registered);
        }
        let trials = groups.into_iter().map(|(of, mut group)| {
            group.sort_unstable_by_key(|(hash, _)| *hash);
            self.try_part(of, &group)
        });
        trials.min_by_key(|(due, trial)| (Some(trial.of) != self.half_tried, *due, *trial))
    }

    fn try_part(&self, of: Span, group: &[(u32, Suspicion)]) -> (i64, Trial) {
        let lowest = group.first().map_or(of.first, |(hash, _)| *hash);
        if self.half_tried == Some(of) {
            let rest = Span {
                first: lowest,
                ..of
            };
            return (i64::MIN, Trial { of, on: rest });
        }
        if let [(_, suspicion)] = group {
            return (suspicion.due(), Trial { of, on: of });
        }
        let (half, _) = group.split_at(group.len() / 2);
        let highest = half.last().map_or(of.last, |(hash, _)| *hash);
        let half = Span {
            last: highest,
            ..of
        };
        (i64::MIN, Trial { of, on: half })
    }
}

#[cfg(test)]
mod tests;
