//! Decides which tenants get newer default profiles next: a few tenants first, then more, and none
//! while too many machine deployments fail with them.
//!
//! Nothing is remembered: the profiles in a namespace show whether the tenant has had a slot.

use osm_api::reason::Reason;
use osm_tenant::waves::Pace;

/// Reasons for failures that a profile can cause.
const PROFILES_FAULTS: [Reason; 10] = [
    Reason::OperatingSystemProfileError,
    Reason::OverlayCycle,
    Reason::OverlayMismatch,
    Reason::OverlayTooDeep,
    Reason::ProfileBaseNotFound,
    Reason::ProfileUnreadable,
    Reason::ProfileUnusable,
    Reason::RenderFailed,
    Reason::RenderPanicked,
    Reason::UserDataTooLarge,
];

/// Returns true if the profile may be the cause when a machine deployment is not served for this
/// reason.
pub fn is_profiles_fault(reason: Reason) -> bool {
    PROFILES_FAULTS.contains(&reason)
}

/// A tenant's state in the rollout. Slots are granted in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParticipantState {
    /// It has the newer profiles, and all its machine deployments were reconciled with them.
    Settled,
    /// It has the newer profiles, and some machine deployments still have to be reconciled.
    Settling,
    /// It requests a slot, and has some of the newer profiles already.
    Underway,
    /// It requests a slot.
    SlotRequest,
    /// It requests a slot, but none of its machine deployments uses a default profile, so it cannot
    /// show that the newer profiles work.
    SlotRequestWithoutUsers,
    /// It has older profiles, and cannot be served now.
    Away,
}

impl ParticipantState {
    /// Returns true if the tenant requests a slot.
    pub const fn requests_slot(self) -> bool {
        matches!(
            self,
            Self::Underway | Self::SlotRequest | Self::SlotRequestWithoutUsers
        )
    }
}

/// A tenant that takes part in the rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant<Id> {
    /// The tenant.
    pub id: Id,
    /// The tenant's state in the rollout.
    pub state: ParticipantState,
    /// The number of its machine deployments that were reconciled with a newer profile.
    pub tried: usize,
    /// How many of these fail for a reason that a profile can cause.
    pub failed: usize,
}

/// Which tenants have a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<Id> {
    /// These tenants have a slot.
    Granted(Vec<Id>),
    /// No tenant has a slot, because too many machine deployments fail.
    Paused {
        /// The number of machine deployments that fail.
        failed: usize,
        /// The number of machine deployments that were reconciled with a newer profile.
        tried: usize,
    },
}

/// Decides which tenants have a slot.
pub fn decide<Id: Ord + Clone>(participants: &[Participant<Id>], pace: &Pace) -> Decision<Id> {
    let tried: usize = participants.iter().map(|it| it.tried).sum();
    let failed: usize = participants.iter().map(|it| it.failed).sum();
    let limit = usize::from(pace.failures_percent_max).saturating_mul(tried);
    if failed.saturating_mul(100) > limit {
        return Decision::Paused { failed, tried };
    }
    let count = |state| {
        let of_state = participants.iter().filter(|it| it.state == state);
        of_state.count()
    };
    let settled = count(ParticipantState::Settled);
    let started = settled + count(ParticipantState::Settling);
    let total = participants.len() - count(ParticipantState::SlotRequestWithoutUsers);
    let sizes = pace.waves.iter().map(|wave| wave.size(total));
    let size = sizes
        .into_iter()
        .find(|size| *size > settled)
        .unwrap_or(usize::MAX);
    let mut requesting: Vec<(ParticipantState, &Id)> = participants
        .iter()
        .filter(|it| {
            [ParticipantState::Underway, ParticipantState::SlotRequest].contains(&it.state)
        })
        .map(|it| (it.state, &it.id))
        .collect();
    requesting.sort();
    // Tenants without users of default profiles come last, and all in one wave.
    if requesting.is_empty() && started == settled {
        let rest = participants
            .iter()
            .filter(|it| it.state == ParticipantState::SlotRequestWithoutUsers);
        return Decision::Granted(rest.map(|it| it.id.clone()).collect());
    }
    let granted = requesting.into_iter().take(size.saturating_sub(started));
    Decision::Granted(granted.map(|(_, id)| id.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::ParticipantState::{
        Away, Settled, Settling, SlotRequest, SlotRequestWithoutUsers, Underway,
    };
    use super::*;

    type Fleet<'a> = [(ParticipantState, usize)];

    /// Returns a fleet with the given number of tenants of each state, numbered in this order.
    fn a_fleet(of: &Fleet<'_>) -> Vec<Participant<usize>> {
        let states = of.iter().flat_map(|(it, count)| vec![*it; *count]);
        let tenant = |(id, state)| Participant {
            id,
            state,
            tried: 0,
            failed: 0,
        };
        states.enumerate().map(tenant).collect()
    }

    fn check(of: &Fleet<'_>, expected: &[usize]) {
        let decided = decide(&a_fleet(of), &Pace::default());
        assert_eq!(decided, Decision::Granted(expected.to_vec()), "{of:?}");
    }

    #[test]
    fn a_wave_starts_when_all_tenants_of_the_previous_one_are_settled() {
        check(&[(SlotRequest, 40)], &[0]);
        check(&[(Settling, 1), (SlotRequest, 39)], &[]);
        check(&[(Settled, 1), (SlotRequest, 39)], &[1, 2, 3]);
        check(&[(Settled, 1), (Settling, 2), (SlotRequest, 37)], &[3]);
        check(&[(Settled, 3), (Settling, 1), (SlotRequest, 36)], &[]);
        let rest: Vec<usize> = (4..40).collect();
        check(&[(Settled, 4), (SlotRequest, 36)], &rest);
    }

    #[test]
    fn tenants_that_cannot_be_served_count_for_the_wave_size_and_do_not_block_others() {
        check(&[(Settled, 1), (Away, 30), (SlotRequest, 9)], &[31, 32, 33]);
        check(&[(Settled, 4), (Away, 30), (SlotRequest, 2)], &[34, 35]);
    }

    #[test]
    fn tenants_underway_come_first_and_those_without_users_of_default_profiles_last() {
        check(&[(SlotRequestWithoutUsers, 1), (SlotRequest, 39)], &[1]);
        check(
            &[(SlotRequest, 20), (Underway, 1), (SlotRequest, 19)],
            &[20],
        );
        check(&[(Settling, 1), (SlotRequestWithoutUsers, 3)], &[]);
        check(&[(SlotRequestWithoutUsers, 3)], &[0, 1, 2]);
        check(
            &[
                (SlotRequestWithoutUsers, 100),
                (Settled, 1),
                (SlotRequest, 19),
            ],
            &[101],
        );
    }

    #[test]
    fn a_tenant_requests_a_slot_while_it_lacks_newer_profiles_and_can_be_served() {
        let requesting = [Underway, SlotRequest, SlotRequestWithoutUsers];
        let others = [Settled, Settling, Away];
        assert!(requesting.into_iter().all(ParticipantState::requests_slot));
        assert!(!others.into_iter().any(ParticipantState::requests_slot));
    }

    #[test]
    fn only_failures_that_a_profile_can_cause_count_against_it() {
        assert!(PROFILES_FAULTS.into_iter().all(is_profiles_fault));
        for reason in [
            Reason::CallFailed,
            Reason::NameTaken,
            Reason::SettingsRefused,
        ] {
            assert!(!is_profiles_fault(reason), "{reason}");
        }
    }

    #[test]
    fn no_slot_is_granted_while_more_machine_deployments_fail_than_allowed() {
        for (failed, tried, is_paused) in [
            (0, 0, false),
            (0, 10, false),
            (1, 10, false),
            (2, 10, true),
            (1, 1, true),
            (100, 1_000, false),
            (101, 1_000, true),
        ] {
            let mut fleet = a_fleet(&[(Settled, 1), (SlotRequest, 1)]);
            if let Some(tenant) = fleet.first_mut() {
                (tenant.failed, tenant.tried) = (failed, tried);
            }
            let expected = if is_paused {
                Decision::Paused { failed, tried }
            } else {
                Decision::Granted(vec![1])
            };
            assert_eq!(decide(&fleet, &Pace::default()), expected);
        }
    }
}
