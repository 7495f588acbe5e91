//! Which suspects this replica serves already. It serves everybody else first. When it has
//! survived that, it tries the suspects: half of them, then the rest, one group after the other;
//! who is alone in its group waits, and longer after each crash. What it crashes with is in its
//! Lease by then.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::sharding::suspicion::{Span, Suspicion, Trial, hash};
use crate::tenant::id::TenantId;

/// Who survives for so long survives: the attacks that were seen end a process sooner.
pub const TRIAL: Duration = Duration::from_secs(TRIAL_SECONDS.unsigned_abs());
const TRIAL_SECONDS: i64 = 30;

/// The suspects of one replica. Times are in seconds since 1970.
#[derive(Debug, Default)]
pub struct Quarantine {
    /// Who is served, or may be, until another replica has it.
    admitted: HashSet<TenantId>,
    held: HashMap<TenantId, Suspicion>,
    /// Since when there are suspects.
    since: Option<i64>,
    trial: Option<Underway>,
    /// Half of these were tried and did no harm.
    half_tried: Option<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Underway {
    trial: Trial,
    /// Known once the replica's Lease names the trial.
    ends: Option<i64>,
}

/// What to do now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The trial that the replica's Lease must name.
    pub trial: Option<Trial>,
    /// Who is served from now on.
    pub admitted: Vec<TenantId>,
    /// When to ask again.
    pub next: Option<i64>,
}

impl Quarantine {
    /// Takes note at `now` of a tenant that has become the replica's own. Returns why it is held
    /// back; nothing if it may be served.
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

    /// Forgets the tenants of other replicas.
    pub fn retain(&mut self, is_own: impl Fn(&TenantId) -> bool) {
        self.admitted.retain(&is_own);
        self.held.retain(|tenant, _| is_own(tenant));
    }

    /// Goes on, now that the replica's Lease names this trial.
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

    /// Who is tried next, and when at the earliest. The rest of a group comes first, who is alone
    /// in its group last.
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
