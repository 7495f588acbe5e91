//! The health of a worker cluster, and the condition `Connected` that it implies.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::api::reason::Reason;
use crate::client::border::EVENTS_MIB_MAX;
use crate::tenant::report::ConditionState;

/// The health of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No outcome has been observed yet.
    Unknown,
    /// The circuit is closed. At most single requests have failed.
    Healthy,
    /// As [`State::Healthy`], but its clock shows another time than ours.
    ClocksDiffer {
        /// The number of minutes by which the cluster's clock is ahead.
        minutes: i64,
    },
    /// As [`State::Healthy`], but a watch sends events faster than they are read.
    EventsDelayed {
        /// The time after which a call checks whether the cluster has recovered.
        until: Instant,
    },
    /// The circuit is closed, but what a watch sends is refused.
    WatchFailed {
        /// The time after which a call checks whether the cluster has recovered.
        until: Instant,
        /// The last cause, without secrets.
        why: String,
    },
    /// The circuit is open, and the last answer showed that something is wrong with the cluster.
    Degraded {
        /// The time at which that began.
        since: Timestamp,
        /// The last cause, without secrets.
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

impl State {
    /// Returns the time until which a problem of a watch is reported. `None` if there is none.
    pub(super) fn watch_problem_until(&self) -> Option<Instant> {
        match self {
            Self::EventsDelayed { until } | Self::WatchFailed { until, .. } => Some(*until),
            Self::Unknown
            | Self::Healthy
            | Self::ClocksDiffer { .. }
            | Self::Degraded { .. }
            | Self::Unreachable { .. } => None,
        }
    }

    /// Returns true if the cluster answers and its events arrive in time.
    pub(super) const fn is_well(&self) -> bool {
        matches!(self, Self::Healthy | Self::ClocksDiffer { .. })
    }

    /// Returns the state of the condition `Connected`. `None` if the health is unknown.
    pub(super) fn finding(&self) -> Option<ConditionState> {
        Some(match self {
            Self::Unknown => return None,
            Self::Healthy => ConditionState::well(Reason::Healthy),
            Self::ClocksDiffer { minutes } => ConditionState {
                message: clocks_differ(*minutes),
                ..ConditionState::well(Reason::ClocksDiffer)
            },
            Self::EventsDelayed { .. } => ConditionState {
                message: format!(
                    "the worker cluster sends more than {EVENTS_MIB_MAX} MiB of events a second; \
                     they are read with a delay"
                ),
                ..ConditionState::well(Reason::EventsDelayed)
            },
            Self::WatchFailed { why, .. } => {
                ConditionState::retried(Reason::WatchFailed, why.as_str())
            }
            Self::Degraded { why, .. } => ConditionState::retried(Reason::Degraded, why.as_str()),
            Self::Unreachable { why, .. } => {
                ConditionState::retried(Reason::Unreachable, why.as_str())
            }
        })
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
