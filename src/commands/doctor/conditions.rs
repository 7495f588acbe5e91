//! Checks the conditions that the manager has set on a WorkerCluster. Reads nothing itself.

use std::cmp::Reverse;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{Check, State};
use crate::api::{
    condition::ConditionType,
    reason::{Reason, Severity},
    worker_cluster::WorkerCluster,
};

/// The reasons of conditions that are unknown only because another condition is false.
const FOLLOWING: [Reason; 3] = [
    Reason::NotRegistered,
    Reason::NotConnected,
    Reason::NotEngaged,
];

/// Returns a check for each condition that a person should read. The condition that explains
/// `Ready` is the first one. If there is none, returns one check that says so.
pub(super) fn run_checks(place: &str, own: &WorkerCluster) -> Vec<Check> {
    let what = "state";
    let Some(status) = &own.status else {
        let message = format!(
            "no manager has written the status of WorkerCluster {}",
            own.metadata.name.as_deref().unwrap_or_default()
        );
        let fix = "see the check of replicas above; the manager must also watch this namespace \
                   (its flag --namespace)";
        return vec![Check::doubtful(place, what, (message, fix))];
    };
    let ready = ConditionType::Ready.find_in(&status.conditions);
    let others = status.conditions.iter();
    let others = others.filter(|it| it.type_ != ConditionType::Ready.as_str());
    let mut found: Vec<(bool, Check)> = others
        .filter_map(|it| {
            let explains = it.status == "False" && ready.is_some_and(|all| all.reason == it.reason);
            Some((explains, check(place, it)?))
        })
        .collect();
    let is_explained = found.iter().any(|(explains, _)| *explains);
    // A condition of another release may be the cause, or something is not known yet.
    let unexplained = ready.filter(|it| it.status != "True" && !is_explained);
    found.extend(unexplained.map(|it| (true, of_condition(place, it, state_of_false(it)))));
    if found.is_empty() {
        if ready.is_some() {
            return vec![Check::ok(place, what, "every condition holds")];
        }
        let message = "the status has no condition Ready".to_owned();
        let fix = "see the check of replicas above";
        return vec![Check::doubtful(place, what, (message, fix))];
    }
    found.sort_by_key(|(explains, check)| (!explains, Reverse(check.state)));
    found.into_iter().map(|(_, check)| check).collect()
}

/// Returns the check of a condition; `None` if nobody has to read it.
fn check(place: &str, condition: &Condition) -> Option<Check> {
    let reason = Reason::named(&condition.reason);
    let state = match (condition.status.as_str(), reason) {
        ("False", _) => state_of_false(condition),
        ("Unknown", Some(reason)) if FOLLOWING.contains(&reason) => return None,
        ("Unknown", _) => State::Warn,
        // It holds, and has a remark.
        (_, Some(reason)) if reason.severity() >= Severity::Warning => State::Warn,
        _ => return None,
    };
    Some(of_condition(place, condition, state))
}

/// Returns how bad it is that a condition is not met. A reason of another release may be anything.
fn state_of_false(condition: &Condition) -> State {
    match Reason::named(&condition.reason).map(Reason::severity) {
        Some(Severity::Error) | None => State::Fail,
        Some(Severity::Normal | Severity::Pending | Severity::Warning) => State::Warn,
    }
}

fn of_condition(place: &str, condition: &Condition, state: State) -> Check {
    let Condition {
        reason, message, ..
    } = condition;
    let text = match message.as_str() {
        "" => reason.clone(),
        message => format!("{reason}: {message}"),
    };
    let check = Check::new(place, condition.type_.clone(), state, text);
    match Reason::named(reason).and_then(Reason::remediation) {
        Some(fix) => check.mended(fix),
        None => check,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checks(conditions: &[(&str, &str, &str, &str)]) -> Vec<Check> {
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|(kind, status, reason, message)| {
                json!({
                    "type": kind, "status": status, "reason": reason, "message": message,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            })
            .collect();
        let own = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "name": "worker" },
            "spec": { "kubeconfigSecretRef": { "name": "worker" } },
            "status": { "conditions": conditions },
        });
        run_checks("tenant", &serde_json::from_value(own).unwrap())
    }

    fn listed(conditions: &[(&str, &str, &str, &str)]) -> Vec<(String, State)> {
        let checks = checks(conditions).into_iter();
        checks.map(|it| (it.what.into_owned(), it.state)).collect()
    }

    fn one(what: &str, state: State) -> (String, State) {
        (what.to_owned(), state)
    }

    #[test]
    fn what_explains_ready_comes_first_and_a_remark_hides_nothing() {
        let found = checks(&[
            ("Registered", "True", "SettingsRestored", "somebody"),
            ("MachinesCanJoin", "False", "BootstrapTokenRefused", "401"),
            ("Ready", "False", "BootstrapTokenRefused", "401"),
        ]);
        let [first, second] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(first.what, "MachinesCanJoin");
        assert_eq!(first.state, State::Fail);
        assert_eq!(first.message, "BootstrapTokenRefused: 401");
        assert_eq!(first.fix, Reason::BootstrapTokenRefused.remediation());
        assert_eq!(second.what, "Registered");
        assert_eq!(second.state, State::Warn);
    }

    #[test]
    fn each_false_condition_is_as_bad_as_its_reason() {
        for (kind, reason, state) in [
            ("Claimed", "ClaimedByOther", State::Fail),
            ("Registered", "NamespaceTaken", State::Fail),
            ("Registered", "Paused", State::Warn),
            ("CredentialValid", "ExpiresSoon", State::Warn),
            ("CredentialValid", "Expired", State::Fail),
            ("Prepared", "OfANewerRelease", State::Fail),
        ] {
            let found = listed(&[(kind, "False", reason, ""), ("Ready", "False", reason, "")]);
            assert_eq!(found, [one(kind, state)], "{reason}");
        }
        let both = listed(&[
            ("Claimed", "False", "ClaimedByOther", ""),
            ("CredentialValid", "False", "ExpiresSoon", ""),
            ("MachinesCurrent", "False", "MachinesHeldUp", ""),
            ("Ready", "False", "ClaimedByOther", ""),
        ]);
        let expected = [
            one("Claimed", State::Fail),
            one("MachinesCurrent", State::Fail),
            one("CredentialValid", State::Warn),
        ];
        assert_eq!(both, expected);
    }

    #[test]
    fn what_is_unknown_because_of_another_is_not_listed() {
        let found = listed(&[
            ("Connected", "False", "Unreachable", "no answer"),
            ("Claimed", "Unknown", "NotConnected", ""),
            ("Prepared", "Unknown", "NotRegistered", ""),
            ("MachinesCanJoin", "Unknown", "NotEngaged", ""),
            ("Ready", "False", "Unreachable", "no answer"),
        ]);
        assert_eq!(found, [one("Connected", State::Fail)]);
        let unchecked = listed(&[
            ("MachinesCanJoin", "Unknown", "NotChecked", ""),
            ("Ready", "True", "Ready", ""),
        ]);
        assert_eq!(unchecked, [one("MachinesCanJoin", State::Warn)]);
    }

    #[test]
    fn a_tenant_that_is_not_ready_is_never_called_well() {
        let engaging = listed(&[("Ready", "Unknown", "Engaging", "Claimed is not known yet")]);
        assert_eq!(engaging, [one("Ready", State::Warn)]);
        assert_eq!(listed(&[]), [one("state", State::Warn)]);
        let well = listed(&[
            ("Registered", "True", "Accepted", ""),
            ("Ready", "True", "Ready", ""),
        ]);
        assert_eq!(well, [one("state", State::Ok)]);
    }
}
