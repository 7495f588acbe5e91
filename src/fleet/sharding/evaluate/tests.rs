//! Table-driven tests of the evaluation.

use super::*;
use crate::fleet::sharding::observed_leases::{LAST, LeaseRecord, Listed, ObservedLeases};

const DURATION: Duration = Duration::from_secs(16);
/// One lease duration plus the allowance for clock drift.
const OVER: Duration = Duration::from_secs(17);

fn a_view(replicas: &[&str]) -> View {
    View(replicas.iter().map(|it| Holder::parse(it)).collect())
}

/// Creates a Lease named after its holder's instance, first observed at 0.
fn held(holder: &str, view: &[&str]) -> (String, ObservedLease) {
    let observed = ObservedLease {
        lease: LeaseRecord {
            holder: Some(Holder::parse(holder)),
            view: a_view(view).digest(),
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            duration: DURATION,
        },
        since: Duration::ZERO,
        presence: Presence::Listed,
    };
    (Holder::parse(holder).instance, observed)
}

fn vanished((name, observed): (String, ObservedLease)) -> (String, ObservedLease) {
    let presence = Presence::Vanished;
    (
        name,
        ObservedLease {
            presence,
            ..observed
        },
    )
}

fn released((name, mut observed): (String, ObservedLease)) -> (String, ObservedLease) {
    observed.lease.holder = None;
    (name, observed)
}

/// Checks how `a_1` evaluates the Leases: replicas, agreement, expired Leases, pace.
fn check(
    acted_on: &[&str],
    leases: impl IntoIterator<Item = (String, ObservedLease)>,
    now: Duration,
    expected: (Option<&[&str]>, Agreement, &[&str], Pace),
) {
    let leases = leases.into_iter().collect();
    let me = Holder::parse("a_1");
    let found = evaluate(&me, &a_view(acted_on), &leases, now);
    let (replicas, agreement, over, pace) = expected;
    let wanted = ElectionResult {
        replicas: replicas.map(a_view),
        agreement,
        over: over.iter().map(|name| (*name).to_owned()).collect(),
        pace,
    };
    assert_eq!(found, wanted, "{leases:#?}");
}

use Agreement::{Pending, Reached};
use Pace::{Brisk, Calm};

const NOW: Duration = Duration::from_secs(1);
const LATE: Duration = Duration::from_secs(9);

#[test]
fn alone_it_agrees_with_itself_once_it_sees_its_own_lease() {
    let me = ["a_1"];
    check(&me, [], NOW, (None, Pending, &[], Brisk));
    check(
        &me,
        [held("a_1", &me)],
        NOW,
        (Some(&me), Reached, &[], Calm),
    );
    // A replica never considers its own Lease expired. Only others can, by removing it.
    check(
        &me,
        [held("a_1", &me)],
        OVER,
        (Some(&me), Reached, &[], Calm),
    );
    let before = [held("a_0", &["a_0"])];
    check(&me, before, NOW, (None, Pending, &[], Brisk));
    check(
        &me,
        [vanished(held("a_1", &me))],
        NOW,
        (None, Pending, &[], Brisk),
    );
}

#[test]
fn all_must_have_published_the_same_set() {
    let (one, two) = (["a_1"], ["a_1", "b_1"]);
    let came = [held("a_1", &one), held("b_1", &two)];
    check(&one, came.clone(), NOW, (Some(&two), Pending, &[], Brisk));
    // It has published the set, and the list does not show that yet.
    check(&two, came, NOW, (Some(&two), Pending, &[], Brisk));
    let behind = [held("a_1", &two), held("b_1", &["b_1"])];
    check(&two, behind, NOW, (Some(&two), Pending, &[], Brisk));
    let both = [held("a_1", &two), held("b_1", &two)];
    check(&two, both.clone(), NOW, (Some(&two), Reached, &[], Calm));
    check(&two, both, LATE, (Some(&two), Reached, &[], Brisk));
    // Another run of the same replica is a different holder.
    let again = [held("a_1", &two), held("b_2", &["a_1", "b_2"])];
    let now = ["a_1", "b_2"];
    check(&two, again, NOW, (Some(&now), Pending, &[], Brisk));
}

#[test]
fn who_is_not_heard_of_is_a_member_until_its_lease_is_gone() {
    let (one, two) = (["a_1"], ["a_1", "b_1"]);
    let both = [held("a_1", &two), held("b_1", &two)];
    let almost = OVER.saturating_sub(Duration::from_millis(1));
    check(
        &two,
        both.clone(),
        almost,
        (Some(&two), Reached, &[], Brisk),
    );
    check(&two, both, OVER, (Some(&two), Reached, &["b"], Brisk));
    let alone = [held("a_1", &two)];
    check(&two, alone, OVER, (Some(&one), Pending, &[], Brisk));
}

#[test]
fn a_lease_that_somebody_removed_counts_until_its_holder_must_have_noticed() {
    let (one, two) = (["a_1"], ["a_1", "b_1"]);
    let removed = [held("a_1", &two), vanished(held("b_1", &two))];
    check(
        &two,
        removed.clone(),
        NOW,
        (Some(&two), Pending, &[], Brisk),
    );
    check(&two, removed, OVER, (Some(&one), Pending, &[], Brisk));
}

#[test]
fn nobody_is_settled_while_the_last_members_lease_stands() {
    let one = ["a_1"];
    let (name, mut observed) = released(held("b_1", &["b_1"]));
    observed.lease.view = LAST.to_owned();
    let leases = [held("a_1", &one), (name, observed)];
    check(
        &one,
        leases.clone(),
        NOW,
        (Some(&one), Pending, &["b"], Brisk),
    );
    let [_, last] = leases;
    check(&one, [last], NOW, (None, Pending, &[], Brisk));
}

#[test]
fn nobody_waits_for_a_lease_that_was_released_and_somebody_removes_it() {
    let (one, two) = (["a_1"], ["a_1", "b_1"]);
    let left = [held("a_1", &one), released(held("b_1", &two))];
    check(&one, left.clone(), NOW, (Some(&one), Reached, &[], Calm));
    check(&one, left, OVER, (Some(&one), Reached, &["b"], Calm));
}

/// Returns the Leases that are expired after lists at these seconds that all show the same.
fn over_after(seconds: &[u64]) -> Vec<String> {
    let two = ["a_1", "b_1"];
    let mut seen = ObservedLeases::new(DURATION);
    let mut now = Duration::ZERO;
    for (revision, second) in (1..).zip(seconds) {
        now = Duration::from_secs(*second);
        let leases = [held("a_1", &two), held("b_1", &two)];
        let leases = leases.map(|(name, observed)| (name, observed.lease)).into();
        seen.update(
            Listed {
                revision,
                leases,
                ..Listed::default()
            },
            now,
        );
    }
    let me = Holder::parse("a_1");
    evaluate(&me, &a_view(&two), seen.leases(), now).over
}

/// After a gap between its lists, a replica does not know who was silent and who could not write
/// either.
#[test]
fn after_a_gap_between_two_lists_nobodys_silence_counts() {
    let nobody: [&str; 0] = [];
    assert_eq!(over_after(&[0, 5, 10, 15, 16]), nobody);
    assert_eq!(over_after(&[0, 5, 10, 15, 17]), ["b"]);
    assert_eq!(over_after(&[0, 17]), nobody);
    assert_eq!(over_after(&[0, 5, 10, 60]), nobody);
    assert_eq!(over_after(&[0, 17, 22, 27, 32, 33]), nobody);
    assert_eq!(over_after(&[0, 17, 22, 27, 32, 34]), ["b"]);
}
