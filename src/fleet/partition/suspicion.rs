//! Which tenants may have ended replicas. A replica that ends without releasing its Lease has
//! crashed, and every replica remembers for which tenants: those that its grant covered. A tenant
//! for which two replicas crashed within ten minutes is suspect. Suspects are tried in halves, so
//! a crash during a trial says in which half the cause is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Holder, View, grant::wins};
use crate::tenant::id::TenantId;

/// Two crashes that are no further apart have one cause.
const RELATED_SECONDS: i64 = 10 * 60;
/// How long a suspect waits that is alone; twice as long after each crash that it comes with.
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

/// A replica that ended without releasing its Lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Crash {
    /// When somebody took its Lease, in seconds since 1970.
    at: i64,
    /// Its `holderIdentity`.
    holder: String,
    /// The names of the members whom it had to beat for a tenant.
    against: BTreeSet<String>,
    /// The trial that was under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<Trial>,
}

impl Crash {
    /// The holder of a Lease was found gone at `at`, in seconds since 1970.
    pub fn new(holder: &Holder, view: &View, at: i64) -> Self {
        Self {
            at,
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

    fn covers(&self, tenant: &TenantId) -> bool {
        let crashed = Holder::parse(&self.holder);
        wins(&crashed.instance, &self.against, tenant)
    }
}

/// The crashes of the last day, as far as a replica has heard of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Crashes(BTreeSet<Crash>);

impl Crashes {
    /// Takes note of a crash; of each replica's life the first note counts.
    pub fn insert(&mut self, crash: Crash) {
        if !self.0.iter().any(|known| known.holder == crash.holder) {
            self.0.insert(crash);
        }
    }

    /// Takes note of what another replica has heard of.
    pub fn extend(&mut self, others: Self) {
        for crash in others.0 {
            self.insert(crash);
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

    /// What the crashes tell of a tenant at `now`, in seconds since 1970: nothing, or that it may
    /// be their cause.
    pub fn suspicion(&self, tenant: &TenantId, now: i64) -> Option<Suspicion> {
        let mut found: Option<Suspicion> = None;
        for crash in &self.0 {
            found = found.filter(|it| crash.at < it.ends());
            if !crash.covers(tenant) {
                continue;
            }
            found = match (found.filter(Suspicion::is_strong), crash.trial) {
                (Some(suspicion), Some(trial)) => {
                    suspicion.after_trial(trial, hash(tenant), crash.at)
                }
                // Suspects are held back while there is no trial, and a trial blames nobody else.
                (Some(_), None) | (None, Some(_)) => found,
                (None, None) => Some(Suspicion {
                    span: Span::ALL,
                    crashes: found.map_or(1, |it| it.crashes + 1),
                    alone: 0,
                    last: crash.at,
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

    /// What is left of it after a crash during a trial.
    fn after_trial(self, trial: Trial, hash: u32, at: i64) -> Option<Self> {
        if trial.of != self.span {
            return Some(self);
        }
        let alone = if trial.on == trial.of {
            self.alone + 1
        } else {
            0
        };
        trial.on.contains(hash).then_some(Self {
            span: trial.on,
            crashes: self.crashes + 1,
            alone,
            last: at,
        })
    }

    /// When a suspect that is alone may be tried again, in seconds since 1970.
    pub fn due(&self) -> i64 {
        let delay = FIRST_DELAY_SECONDS.saturating_mul(1 << self.alone.min(16));
        self.last + delay.min(DELAY_SECONDS_MAX)
    }

    /// When it is forgotten, unless another crash comes before.
    fn ends(&self) -> i64 {
        self.due() + RELATED_SECONDS - FIRST_DELAY_SECONDS
    }
}

/// What a replica's Lease tells of crashes.
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
