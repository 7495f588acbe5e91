//! Determines which tenants may have crashed replicas. A replica that ends without releasing its
//! Lease has crashed, and every replica remembers for which tenants: those of its shard. A tenant
//! for which two replicas crashed within ten minutes is suspect. Suspects are tried in halves, so
//! that a crash during a trial shows which half contains the cause.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Holder, View, shard::wins};
use crate::tenant::id::TenantId;

/// Two crashes that are no further apart than this have the same cause.
const RELATED_SECONDS: i64 = 10 * 60;
/// How long a suspect waits after a replica crashed while it was tried alone. The time doubles
/// after each further crash.
const FIRST_DELAY_SECONDS: i64 = 2 * 60;
/// The longest time that a suspect waits.
const DELAY_SECONDS_MAX: i64 = 60 * 60;
/// Crashes are forgotten after a day.
const KEPT_SECONDS: i64 = 24 * 60 * 60;
/// The maximum number of crashes that are remembered. The earliest are forgotten first.
const KEPT_MAX: usize = 32;

/// A range of tenants, by the first four bytes of the hash of their names. Both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// The lowest hash.
    pub first: u32,
    /// The highest hash.
    pub last: u32,
}

impl Span {
    /// The range of all tenants.
    pub const ALL: Self = Self {
        first: 0,
        last: u32::MAX,
    };

    /// Returns true if the tenant with this hash is in the range.
    pub fn contains(self, hash: u32) -> bool {
        (self.first..=self.last).contains(&hash)
    }
}

/// Returns the hash that places a tenant in a range.
pub fn hash(tenant: &TenantId) -> u32 {
    let [first, second, third, fourth, ..] = Sha256::digest(tenant.namespace()).0;
    u32::from_be_bytes([first, second, third, fourth])
}

/// Suspects that a replica serves to see whether it survives. Its Lease names them before the trial
/// begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Trial {
    /// The suspects of which a part is tried.
    pub of: Span,
    /// The part that is served now.
    pub on: Span,
}

/// The outcome of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    /// The replica ended without releasing its Lease.
    Crashed,
    /// The replica survived a trial.
    Survived,
}

/// What happened to a replica while it had certain tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incident {
    /// The time at which another replica took its Lease, or at which it ended the trial, in seconds
    /// since 1970.
    at: i64,
    outcome: Outcome,
    /// Its `holderIdentity`.
    holder: String,
    /// The names of the replicas whose numbers it had to exceed for a tenant.
    against: BTreeSet<String>,
    /// The trial that was under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<Trial>,
}

impl Incident {
    /// Records that the holder of a Lease was found gone at `at`, in seconds since 1970.
    pub fn crash(holder: &Holder, view: &View, at: i64) -> Self {
        Self {
            at,
            outcome: Outcome::Crashed,
            holder: holder.to_string(),
            against: view.0.iter().map(|it| it.instance.clone()).collect(),
            trial: None,
        }
    }

    /// Records that the crash happened during a trial, if there was one.
    #[must_use]
    pub fn during(self, trial: Option<Trial>) -> Self {
        Self { trial, ..self }
    }

    /// Records that the replica did not crash, and survived the trial.
    #[must_use]
    pub fn survived(self, trial: Trial) -> Self {
        Self {
            outcome: Outcome::Survived,
            trial: Some(trial),
            ..self
        }
    }

    fn covers(&self, tenant: &TenantId) -> bool {
        let holder = Holder::parse(&self.holder);
        wins(&holder.instance, &self.against, tenant)
    }

    /// Returns true if both record the same end of a replica.
    fn is_same_end(&self, other: &Self) -> bool {
        let are_ends = [self, other]
            .iter()
            .all(|it| it.outcome == Outcome::Crashed);
        are_ends && self.holder == other.holder
    }
}

/// The crashes and trials of the last day that a replica has heard of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Crashes(BTreeSet<Incident>);

impl Crashes {
    /// Adds an incident. Of several records of the same end, the first one counts.
    pub fn insert(&mut self, incident: Incident) {
        if !self.0.iter().any(|known| known.is_same_end(&incident)) {
            self.0.insert(incident);
        }
    }

    /// Adds the incidents that another replica has heard of.
    pub fn extend(&mut self, others: Self) {
        for incident in others.0 {
            self.insert(incident);
        }
    }

    /// Forgets incidents that are too old at `now`, in seconds since 1970, and the earliest ones if
    /// there are too many. One that lies further ahead than two crashes may be apart was recorded
    /// by a clock that was wrong, and is forgotten, too: its tenants would wait until then.
    pub fn prune(&mut self, now: i64) {
        let times = now - KEPT_SECONDS + 1..=now + RELATED_SECONDS;
        self.0.retain(|it| times.contains(&it.at));
        while self.0.len() > KEPT_MAX {
            self.0.pop_first();
        }
    }

    /// Returns true if there are no incidents.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the suspicion against a tenant at `now`, in seconds since 1970. Returns `None` if
    /// the tenant is not suspect.
    pub fn suspicion(&self, tenant: &TenantId, now: i64) -> Option<Suspicion> {
        let mut found: Option<Suspicion> = None;
        for incident in &self.0 {
            found = found.filter(|it| incident.at < it.ends());
            if !incident.covers(tenant) {
                continue;
            }
            found = match (found.filter(Suspicion::is_strong), incident.trial) {
                (Some(suspicion), Some(trial)) if suspicion.span == trial.of => {
                    let is_tried = trial.on.contains(hash(tenant));
                    match incident.outcome {
                        Outcome::Crashed if is_tried => {
                            Some(suspicion.narrowed(trial, incident.at))
                        }
                        Outcome::Survived if !is_tried => Some(suspicion),
                        Outcome::Crashed | Outcome::Survived => None,
                    }
                }
                // Suspects are held back unless they are tried, and other tenants are not blamed
                // for a crash during a trial.
                (Some(_), _) | (None, Some(_)) => found,
                (None, None) => Some(Suspicion {
                    span: Span::ALL,
                    crashes: found.map_or(1, |it| it.crashes + 1),
                    alone: 0,
                    last: incident.at,
                }),
            };
        }
        found.filter(|it| it.is_strong() && now < it.ends())
    }
}

/// The suspicion that a tenant may be the cause of crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The group of suspects that contains the cause.
    pub span: Span,
    /// The number of crashes.
    pub crashes: u32,
    /// The number of consecutive crashes during which it was tried alone.
    alone: u32,
    /// The time of the last crash, in seconds since 1970.
    last: i64,
}

impl Suspicion {
    fn is_strong(&self) -> bool {
        self.crashes >= 2
    }

    /// Narrows the suspicion after a crash during a trial of the tenant.
    fn narrowed(self, trial: Trial, at: i64) -> Self {
        let is_alone = trial.on == trial.of;
        Self {
            span: trial.on,
            crashes: self.crashes + 1,
            alone: if is_alone { self.alone + 1 } else { 0 },
            last: at,
        }
    }

    /// Returns the time at which a suspect that is alone may be tried again, in seconds since 1970.
    pub fn due(&self) -> i64 {
        let Some(doublings) = self.alone.checked_sub(1) else {
            return self.last;
        };
        let delay = FIRST_DELAY_SECONDS << doublings.min(16);
        self.last + delay.min(DELAY_SECONDS_MAX)
    }

    /// Returns the time at which it is forgotten, unless there is another crash.
    fn ends(&self) -> i64 {
        self.due() + RELATED_SECONDS
    }
}

/// The content of a replica's Lease about crashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The crashes that it has heard of.
    #[serde(default)]
    pub crashes: Crashes,
    /// The trial that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

impl Record {
    /// Parses an annotation. Invalid text is an empty record.
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// Returns the text of the annotation, or `None` if the record is empty.
    pub fn text(&self) -> Option<String> {
        let is_empty = self.crashes.is_empty() && self.trial.is_none();
        let text = serde_json::to_string(self).ok();
        text.filter(|_| !is_empty)
    }
}

#[cfg(test)]
mod tests;
