//! The fleet at a glance: how many tenants are in which state, what changed lately, and the
//! commonest causes.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::row::Row;
use osm_api::reason::{Reason, Severity};

/// How many causes are listed: more would not be read before the rows are.
const CAUSES_MAX: usize = 5;
/// How long ago a recent change is at most.
const RECENT: SignedDuration = SignedDuration::from_hours(1);

/// The fleet at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The number of tenants in each state.
    pub states: BTreeMap<&'static str, usize>,
    /// The number of those that have been in it for an hour at most.
    pub changed_last_hour: BTreeMap<&'static str, usize>,
    /// The commonest causes, the commonest first.
    pub causes: Vec<CommonCause>,
}

/// A cause that some tenants have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommonCause {
    /// The machine-readable CamelCase reason.
    pub reason: String,
    /// What happened, if the reason says only that there is no connection.
    pub detail: Option<String>,
    /// The number of tenants whose first problem has this reason.
    pub tenants: usize,
    /// What to do about it; absent if there is nothing to do, or if this version does not know the
    /// reason.
    pub remediation: Option<String>,
}

impl Overview {
    /// Creates the overview of these rows at this time.
    pub fn of(rows: &[Row], now: Timestamp) -> Self {
        let mut overview = Self::default();
        let mut causes: BTreeMap<(&str, Option<&str>), usize> = BTreeMap::new();
        for row in rows {
            let state = row.state.as_str();
            *overview.states.entry(state).or_default() += 1;
            if is_recent(row, now) {
                *overview.changed_last_hour.entry(state).or_default() += 1;
            }
            if let Some(reason) = row.reason.as_deref().filter(|it| is_problem(it)) {
                let detail = row.why.as_deref().and_then(detail);
                *causes.entry((reason, detail)).or_default() += 1;
            }
        }
        let causes = causes
            .into_iter()
            .map(|((reason, detail), tenants)| CommonCause {
                reason: reason.to_owned(),
                detail: detail.map(str::to_owned),
                tenants,
                remediation: Reason::named(reason).and_then(Reason::remediation),
            });
        overview.causes = causes.collect();
        overview.causes.sort_by_key(|cause| Reverse(cause.tenants));
        overview.causes.truncate(CAUSES_MAX);
        overview
    }
}

/// Returns the innermost cause of a connection that failed, which names no tenant.
fn detail(why: &str) -> Option<&str> {
    let (reason, message) = why.split_once(": ")?;
    let is_unreachable = reason == Reason::Unreachable.as_str();
    is_unreachable.then(|| message.rsplit(": ").next().unwrap_or(message))
}

/// Returns true if a tenant has been in its state for an hour at most.
pub fn is_recent(row: &Row, now: Timestamp) -> bool {
    let earliest = now.saturating_sub(RECENT).ok();
    row.since
        .zip(earliest)
        .is_some_and(|(since, earliest)| since.0 >= earliest)
}

/// Returns true if somebody should look at it. A reason of another release may be a problem.
fn is_problem(reason: &str) -> bool {
    Reason::named(reason).is_none_or(|it| it.severity() >= Severity::Warning)
}
