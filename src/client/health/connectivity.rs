//! The health of a worker cluster, and the condition `Connected` that it implies.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::api::reason::Reason;
use crate::client::response_filter::EVENTS_MIB_MAX;
use crate::tenant::report::{ConditionState, is_same_failure};

/// What the calls to a cluster have shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connectivity {
    /// No outcome has been observed yet.
    #[default]
    Unknown,
    /// The circuit is closed. At most single requests have failed.
    Healthy,
    /// As [`Connectivity::Healthy`], but its clock shows another time than ours.
    ClocksDiffer {
        /// The number of minutes by which the cluster's clock is ahead.
        minutes: i64,
    },
    /// The circuit is open, and the last answer showed that something is wrong with the cluster.
    Degraded {
        /// The time at which that began.
        since: Timestamp,
        /// The last cause, without secrets.
        why: String,
    },
    /// The API server does not accept the credential. It may also close connections that have used
    /// it, so that calls on them get no answer.
    CredentialRefused {
        /// The time at which that began.
        since: Timestamp,
        /// What to do.
        why: String,
    },
    /// The circuit is open, and the last call got no answer.
    Unreachable {
        /// The time at which that began.
        since: Timestamp,
        /// The last cause, without secrets.
        why: String,
    },
}

/// A problem of a watch. Calls that succeed do not end it.
#[derive(Debug)]
struct WatchProblem {
    /// The time after which a call checks whether the watches have recovered.
    until: Instant,
    /// Why what a watch sends is refused, without secrets. `None` if a watch sends events faster
    /// than they are read.
    refused: Option<String>,
}

/// The health of a cluster: what its calls and what its watches have shown.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) calls: Connectivity,
    watches: Option<WatchProblem>,
}

impl Observations {
    /// Records what calls have shown. Returns true if that is news.
    pub(super) fn called(&mut self, mut next: Connectivity) -> bool {
        self.calls.continues_in(&mut next);
        let is_over = |problem: &WatchProblem| problem.until <= Instant::now();
        let have_recovered = next.is_well() && self.watches.as_ref().is_some_and(is_over);
        if have_recovered {
            self.watches = None;
        }
        let is_news = self.calls != next;
        self.calls = next;
        is_news || have_recovered
    }

    /// Records a problem of a watch, which is reported until this time. Of several, the first
    /// refusal is reported until all have recovered.
    pub(super) fn watch_has_problem(&mut self, until: Instant, refused: Option<String>) {
        match &mut self.watches {
            Some(known) if Instant::now() < known.until && known.refused.is_some() => {
                if refused.is_some() {
                    known.until = until;
                }
            }
            known => *known = Some(WatchProblem { until, refused }),
        }
    }

    /// Returns the time until which a problem of a watch is reported. `None` if there is none.
    pub(super) fn watch_problem_until(&self) -> Option<Instant> {
        Some(self.watches.as_ref()?.until)
    }

    /// Returns the state of the condition `Connected`. `None` if the health is unknown.
    pub(super) fn finding(&self) -> Option<ConditionState> {
        Some(match (&self.calls, &self.watches) {
            (Connectivity::Degraded { why, .. }, _) => {
                ConditionState::retried(Reason::Degraded, why.as_str())
            }
            (Connectivity::CredentialRefused { why, .. }, _) => {
                ConditionState::retried(Reason::CredentialRefused, why.as_str())
            }
            (Connectivity::Unreachable { why, .. }, _) => {
                ConditionState::retried(Reason::Unreachable, why.as_str())
            }
            (_, Some(problem)) => problem.finding(),
            (Connectivity::Unknown, None) => return None,
            (Connectivity::Healthy, None) => ConditionState::well(Reason::Healthy),
            (Connectivity::ClocksDiffer { minutes }, None) => ConditionState {
                message: clocks_differ(*minutes),
                ..ConditionState::well(Reason::ClocksDiffer)
            },
        })
    }
}

impl WatchProblem {
    fn finding(&self) -> ConditionState {
        match &self.refused {
            Some(why) => ConditionState::retried(Reason::WatchFailed, why.as_str()),
            None => ConditionState {
                message: format!(
                    "the worker cluster sends more than {EVENTS_MIB_MAX} MiB of events a second; \
                     they are read with a delay"
                ),
                ..ConditionState::well(Reason::EventsDelayed)
            },
        }
    }
}

impl Connectivity {
    /// Returns true if calls are answered.
    pub(super) const fn is_well(&self) -> bool {
        matches!(self, Self::Healthy | Self::ClocksDiffer { .. })
    }

    /// Lets a failure that goes on keep the time at which it began, and its cause if only numbers
    /// in it differ.
    fn continues_in(&self, next: &mut Self) {
        let ((
            Self::Degraded {
                since: begun,
                why: before,
            },
            Self::Degraded { since, why },
        )
        | (
            Self::CredentialRefused {
                since: begun,
                why: before,
            },
            Self::CredentialRefused { since, why },
        )
        | (
            Self::Unreachable {
                since: begun,
                why: before,
            },
            Self::Unreachable { since, why },
        )) = (self, next)
        else {
            return;
        };
        *since = *begun;
        if is_same_failure(before, why) {
            why.clone_from(before);
        }
    }
}

fn clocks_differ(minutes: i64) -> String {
    let difference = Duration::from_mins(minutes.unsigned_abs());
    let difference = humantime::format_duration(difference);
    let is = if minutes < 0 { "behind" } else { "ahead of" };
    format!(
        "the worker cluster's clock is {difference} {is} the manager's; bootstrap tokens follow \
         the worker cluster's: let both machines synchronise their clocks"
    )
}
