//! Which tenants may have ended replicas. A replica that ends without releasing its Lease has
//! crashed, and every replica remembers for which tenants: those of its shard. A tenant
//! for which two replicas crashed within ten minutes is suspect. Suspects are tried in halves, so
//! a crash during a trial says in which half the cause is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Holder, View, shard::wins};
use crate::tenant::id::TenantId;

/// Two crashes that are no further apart have one cause.
const RELATED_SECONDS: i64 = 10 * 60;
/// How long a suspect waits with which a replica crashed while no other was tried; after each
/// further crash twice as long.
const FIRST_DELAY_SECONDS: i64 = 2 * 60;
/// It waits no longer than this.
const DELAY_SECONDS_MAX: i64 = 60 * 60;
/// Crashes are forgotten after a day,
const KEPT_SECONDS: i64 = 24 * 60 * 60;
/// and where there were more, the earlier ones are.
const KEPT_MAX: usize = 32;

/// Tenants by the first four bytes of a hash of their names; both ends are included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    /// The lowest hash.
    pub first: u32,
    /// The highest hash.
    pub last: u32,
}

impl Span {
    /// All tenants.
    pub const ALL: Self = Self {
        first: 0,
        last: u32::MAX,
    };

    /// Whether the tenant with this hash is one of them.
    pub fn contains(self, hash: u32) -> bool {
        (self.first..=self.last).contains(&hash)
    }
}

/// A tenant's place among all spans.
pub fn hash(tenant: &TenantId) -> u32 {
    let [first, second, third, fourth, ..] = Sha256::digest(tenant.namespace()).0;
    u32::from_be_bytes([first, second, third, fourth])
}

/// Suspects that a replica serves to see whether it survives. Its Lease names them before it
/// begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Trial {
    /// The suspects that are divided.
    pub of: Span,
    /// Those of them that are served now.
    pub on: Span,
}

/// What became of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    /// It ended without releasing its Lease.
    Crashed,
    /// It survived a trial.
    Survived,
}

/// What became of a replica while it had certain tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Incident {
    /// When somebody took its Lease, or it ended the trial, in seconds since 1970.
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
    /// The holder of a Lease was found gone at `at`, in seconds since 1970.
    pub fn crash(holder: &Holder, view: &View, at: i64) -> Self {
        Self {
            at,
            outcome: Outcome::Crashed,
            holder: holder.to_string(),
            against: view.0.iter().map(|it| it.instance.clone()).collect(),
            trial: None,
        }
    }

    /// The crash came during a trial.
    #[must_use]
    pub fn during(self, trial: Option<Trial>) -> Self {
        Self { trial, ..self }
    }

    /// The replica did not crash: it survived the trial.
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

    /// Whether both record the same end of a replica.
    fn is_same_end(&self, other: &Self) -> bool {
        let are_ends = [self, other]
            .iter()
            .all(|it| it.outcome == Outcome::Crashed);
        are_ends && self.holder == other.holder
    }
}

/// The crashes and the trials of the last day, as far as a replica has heard of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Crashes(BTreeSet<Incident>);

impl Crashes {
    /// Takes note of an incident; of each replica's end the first note counts.
    pub fn insert(&mut self, incident: Incident) {
        if !self.0.iter().any(|known| known.is_same_end(&incident)) {
            self.0.insert(incident);
        }
    }

    /// Takes note of what another replica has heard of.
    pub fn extend(&mut self, others: Self) {
        for incident in others.0 {
            self.insert(incident);
        }
    }

    /// Forgets what is too old at `now`, in seconds since 1970, and what is too much.
    pub fn prune(&mut self, now: i64) {
        self.0
            .retain(|it| now.abs_diff(it.at) < KEPT_SECONDS.unsigned_abs());
        while self.0.len() > KEPT_MAX {
            self.0.pop_first();
        }
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the crashes imply for a tenant at `now`, in seconds since 1970: nothing, or that it may
    /// be their cause.
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
                // Suspects are held back while there is no trial, and a trial blames nobody else.
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

/// That a tenant may be why replicas crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The suspects among which the cause is.
    pub span: Span,
    /// After how many crashes.
    pub crashes: u32,
    /// How many of them came while nobody else was tried.
    alone: u32,
    /// When the last was, in seconds since 1970.
    last: i64,
}

impl Suspicion {
    fn is_strong(&self) -> bool {
        self.crashes >= 2
    }

    /// The tenant was on a trial that a replica did not survive.
    fn narrowed(self, trial: Trial, at: i64) -> Self {
        let is_alone = trial.on == trial.of;
        Self {
            span: trial.on,
            crashes: self.crashes + 1,
            alone: if is_alone { self.alone + 1 } else { 0 },
            last: at,
        }
    }

    /// When a suspect that is alone may be tried again, in seconds since 1970.
    pub fn due(&self) -> i64 {
        let Some(doublings) = self.alone.checked_sub(1) else {
            return self.last;
        };
        let delay = FIRST_DELAY_SECONDS << doublings.min(16);
        self.last + delay.min(DELAY_SECONDS_MAX)
    }

    /// When it is forgotten, unless another crash comes before.
    fn ends(&self) -> i64 {
        self.due() + RELATED_SECONDS
    }
}

/// What a replica's Lease records about crashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Those that it has heard of.
    #[serde(default)]
    pub crashes: Crashes,
    /// The trial that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

impl Record {
    /// Reads an annotation. One that is not ours tells nothing.
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// What the annotation says; none where there is nothing to tell.
    pub fn text(&self) -> Option<String> {
        let is_empty = self.crashes.is_empty() && self.trial.is_none();
        let text = serde_json::to_string(self).ok();
        text.filter(|_| !is_empty)
    }
}

#[cfg(test)]
mod tests;
