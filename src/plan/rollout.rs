//! Whose turn it is to get newer default profiles: a few tenants first, then more, and nobody
//! while too many machine deployments fail with them.
//!
//! Nothing is remembered: who has had a turn is told by what stands in the namespaces.

use crate::tenant::waves::Pace;

/// Reasons that a profile is to blame for.
const PROFILES_FAULTS: [&str; 9] = [
    "OperatingSystemProfileError",
    "OverlayCycle",
    "OverlayMismatch",
    "OverlayTooDeep",
    "ProfileBaseNotFound",
    "ProfileUnusable",
    "RenderFailed",
    "RenderPanicked",
    "UserDataTooLarge",
];

/// Whether a machine deployment that is not served for this reason may owe it to its profile.
pub fn is_profiles_fault(reason: &str) -> bool {
    PROFILES_FAULTS.contains(&reason)
}

/// Where a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has the newer profiles, and every machine deployment has been looked at with them.
    Settled,
    /// It has the newer profiles, and machine deployments are still to be looked at.
    Settling,
    /// It asks for its turn, and has a part of the newer profiles already.
    Underway,
    /// It asks for its turn.
    Asking,
    /// It asks for its turn, and no machine deployment of its own uses a default profile: it
    /// proves nothing.
    AskingWithoutUsers,
    /// It has older profiles, and cannot be served now.
    Away,
}

impl Standing {
    /// Whether it asks for its turn.
    pub const fn asks(self) -> bool {
        matches!(
            self,
            Self::Underway | Self::Asking | Self::AskingWithoutUsers
        )
    }
}

/// A tenant that takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant<Id> {
    /// The tenant.
    pub id: Id,
    /// Where it stands.
    pub standing: Standing,
    /// Its machine deployments that have been tried with a newer profile.
    pub tried: usize,
    /// How many of these fail, and may owe it to the profile.
    pub failed: usize,
}

/// Who has a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<Id> {
    /// These have.
    Granted(Vec<Id>),
    /// Nobody has: too many machine deployments fail.
    Paused {
        /// So many fail.
        failed: usize,
        /// Of so many.
        tried: usize,
    },
}

/// Decides who has a turn.
pub fn decide<Id: Ord + Clone>(participants: &[Participant<Id>], pace: &Pace) -> Decision<Id> {
    let tried: usize = participants.iter().map(|it| it.tried).sum();
    let failed: usize = participants.iter().map(|it| it.failed).sum();
    let bound = usize::from(pace.failures_percent_max).saturating_mul(tried);
    if failed.saturating_mul(100) > bound {
        return Decision::Paused { failed, tried };
    }
    let count = |standing| {
        let of_standing = participants.iter().filter(|it| it.standing == standing);
        of_standing.count()
    };
    let settled = count(Standing::Settled);
    let started = settled + count(Standing::Settling);
    let total = participants.len() - count(Standing::AskingWithoutUsers);
    let sizes = pace.waves.iter().map(|wave| wave.size(total));
    let size = sizes
        .into_iter()
        .find(|size| *size > settled)
        .unwrap_or(usize::MAX);
    let mut asking: Vec<(Standing, &Id)> = participants
        .iter()
        .filter(|it| [Standing::Underway, Standing::Asking].contains(&it.standing))
        .map(|it| (it.standing, &it.id))
        .collect();
    asking.sort();
    // Who proves nothing comes after all who do, and needs no waves.
    if asking.is_empty() && started == settled {
        let rest = participants
            .iter()
            .filter(|it| it.standing == Standing::AskingWithoutUsers);
        return Decision::Granted(rest.map(|it| it.id.clone()).collect());
    }
    let turns = asking.into_iter().take(size.saturating_sub(started));
    Decision::Granted(turns.map(|(_, id)| id.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::Standing::{Asking, AskingWithoutUsers, Away, Settled, Settling, Underway};
    use super::*;

    type Fleet<'a> = [(Standing, usize)];

    /// A fleet with so many tenants of each standing, numbered in this order.
    fn a_fleet(of: &Fleet<'_>) -> Vec<Participant<usize>> {
        let standings = of.iter().flat_map(|(it, count)| vec![*it; *count]);
        let tenant = |(id, standing)| Participant {
            id,
            standing,
            tried: 0,
            failed: 0,
        };
        standings.enumerate().map(tenant).collect()
    }

    fn check(of: &Fleet<'_>, expected: &[usize]) {
        let decided = decide(&a_fleet(of), &Pace::default());
        assert_eq!(decided, Decision::Granted(expected.to_vec()), "{of:?}");
    }

    #[test]
    fn a_wave_begins_when_everybody_of_the_one_before_is_settled() {
        check(&[(Asking, 40)], &[0]);
        check(&[(Settling, 1), (Asking, 39)], &[]);
        check(&[(Settled, 1), (Asking, 39)], &[1, 2, 3]);
        check(&[(Settled, 1), (Settling, 2), (Asking, 37)], &[3]);
        check(&[(Settled, 3), (Settling, 1), (Asking, 36)], &[]);
        let rest: Vec<usize> = (4..40).collect();
        check(&[(Settled, 4), (Asking, 36)], &rest);
    }

    #[test]
    fn who_cannot_be_served_counts_for_the_size_and_stops_nobody() {
        check(&[(Settled, 1), (Away, 30), (Asking, 9)], &[31, 32, 33]);
        check(&[(Settled, 4), (Away, 30), (Asking, 2)], &[34, 35]);
    }

    #[test]
    fn who_has_begun_goes_on_and_who_proves_nothing_comes_last() {
        check(&[(AskingWithoutUsers, 1), (Asking, 39)], &[1]);
        check(&[(Asking, 20), (Underway, 1), (Asking, 19)], &[20]);
        check(&[(Settling, 1), (AskingWithoutUsers, 3)], &[]);
        check(&[(AskingWithoutUsers, 3)], &[0, 1, 2]);
        check(
            &[(AskingWithoutUsers, 100), (Settled, 1), (Asking, 19)],
            &[101],
        );
    }

    #[test]
    fn a_tenant_asks_while_it_lacks_newer_profiles_and_can_be_served() {
        let asking = [Underway, Asking, AskingWithoutUsers];
        let others = [Settled, Settling, Away];
        assert!(asking.into_iter().all(Standing::asks));
        assert!(!others.into_iter().any(Standing::asks));
    }

    #[test]
    fn only_failures_that_a_profile_can_cause_count_against_it() {
        assert!(PROFILES_FAULTS.into_iter().all(is_profiles_fault));
        for reason in ["CallFailed", "NameTaken", "SettingsRefused", ""] {
            assert!(!is_profiles_fault(reason), "{reason}");
        }
    }

    #[test]
    fn nobody_has_a_turn_while_more_fail_than_may() {
        for (failed, tried, is_paused) in [
            (0, 0, false),
            (0, 10, false),
            (1, 10, false),
            (2, 10, true),
            (1, 1, true),
            (100, 1_000, false),
            (101, 1_000, true),
        ] {
            let mut fleet = a_fleet(&[(Settled, 1), (Asking, 1)]);
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
