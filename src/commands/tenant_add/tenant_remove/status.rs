//! What the status of a WorkerCluster says to somebody who removes its tenant.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::{condition::ConditionType, reason::Reason, worker_cluster::WorkerCluster};
use crate::tenant::report::Removal;

/// Returns the condition that says that the worker cluster does not answer, if it does not.
pub(super) fn silent(own: &WorkerCluster) -> Option<&Condition> {
    let connected = own.condition(ConditionType::Connected)?;
    let is = |reason: Reason| connected.reason == reason.as_str();
    let mut silent = [
        Reason::Unreachable,
        Reason::CredentialRefused,
        Reason::Degraded,
    ]
    .into_iter();
    let is_silent = silent.any(is);
    (connected.status == "False" && is_silent).then_some(connected)
}

/// Returns what happened to the cluster after the registration was removed, according to its
/// conditions.
pub(super) fn removed(found: &WorkerCluster) -> Option<(Removal, &str)> {
    let registered = found.condition(ConditionType::Registered)?;
    let released = found.condition(ConditionType::Released)?;
    let removal = Removal::of(&released.reason)?;
    (registered.reason == Reason::RegistrationRemoved)
        .then_some((removal, released.message.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn a_worker_cluster(registered: &str, released: &[&str]) -> WorkerCluster {
        let condition = |kind: &str, reason: &str| {
            json!({
                "type": kind, "status": "False", "reason": reason,
                // The message is not parsed.
                "message": "it could not be given back; 1 machine deployment was released",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let mut conditions = vec![condition("Registered", registered)];
        conditions.extend(released.iter().map(|reason| condition("Released", reason)));
        serde_json::from_value(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": {"name": "berlin"},
            "spec": {"kubeconfigSecretRef": {"name": "berlin"}},
            "status": {"conditions": conditions},
        }))
        .expect("it is well formed")
    }

    #[test]
    fn what_became_of_a_cluster_is_read_from_the_reason_whatever_the_message_says() {
        for (reason, is_released, is_final) in [
            ("Released", true, true),
            ("Purged", true, true),
            ("NeverEngaged", true, true),
            ("Kept", false, true),
            ("ReleaseFailed", false, false),
            ("KubeconfigGone", false, true),
        ] {
            let found = a_worker_cluster("RegistrationRemoved", &[reason]);
            let (removal, _) = removed(&found).expect("the reason is known");
            assert_eq!(removal.is_released(), is_released, "{reason}");
            assert_eq!(removal.is_final(), is_final, "{reason}");
        }
        for found in [
            a_worker_cluster("Accepted", &["Released"]),
            a_worker_cluster("RegistrationRemoved", &[]),
            a_worker_cluster("RegistrationRemoved", &["OfAnotherRelease"]),
        ] {
            assert!(removed(&found).is_none());
        }
    }
}
