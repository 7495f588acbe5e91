//! Holds back tenants in quarantine.

use super::EngageError;
use crate::api::{condition::ConditionType, reason::Reason};
use crate::fleet::registry::RegisteredCluster;

/// Waits while the tenant is in quarantine, and reports the reason through `tell`.
pub async fn until_admitted(registered: &RegisteredCluster, report: impl Fn(&EngageError)) {
    let mut suspicions = registered.suspicion.subscribe();
    loop {
        let Some(suspicion) = *suspicions.borrow_and_update() else {
            return;
        };
        let message = format!(
            "replicas have crashed {} times while they served this tenant and others; it is \
             served again once it is known that it is not the cause, or alone",
            suspicion.crashes,
        );
        let condition = ConditionType::Connected;
        report(&EngageError::failed(
            condition,
            Reason::Quarantined,
            message,
        ));
        if suspicions.changed().await.is_err() {
            return;
        }
    }
}
