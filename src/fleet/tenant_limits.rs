//! Determines the policy of a tenant, by the operator's rules, and by the labels of the tenant's
//! namespace if a rule needs them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};

use super::engagement::Shared;
use crate::client::{connect::Clients, jitter, retry_delay::RetryDelay};
use crate::telemetry::chain::chain;
use crate::tenant::{id::TenantId, policy::TenantPolicy};

/// Returns the policy of a tenant. The namespace is read only if the policy depends on its labels.
pub async fn policy_of(
    shared: &Shared,
    management: &Client,
    tenant: &TenantId,
) -> Result<Arc<TenantPolicy>, kube::Error> {
    if let Ok(policy) = shared.policies.of(tenant, None) {
        return Ok(Arc::clone(policy));
    }
    let namespaces: Api<Namespace> = Api::all(management.clone());
    let namespace = namespaces.get_metadata(tenant.namespace()).await?;
    let policy = shared.policies.of(tenant, Some(namespace.labels()));
    Ok(Arc::clone(policy.unwrap_or(&shared.policies.default)))
}

/// Waits until another policy applies to the tenant. The labels are read as often as the cluster
/// info.
pub async fn changed(
    shared: &Shared,
    management: &Clients,
    tenant: &TenantId,
    policy: &Arc<TenantPolicy>,
) {
    if shared.policies.of(tenant, None).is_ok() {
        std::future::pending::<()>().await;
    }
    let mut delay = RetryDelay::default();
    let mut wait = jitter::around(shared.cluster_info_interval);
    loop {
        tokio::time::sleep(wait).await;
        let management = management.client();
        match Box::pin(policy_of(shared, &management, tenant)).await {
            Ok(now) if now != *policy => return,
            Ok(_) => {
                delay = RetryDelay::default();
                wait = jitter::around(shared.cluster_info_interval);
            }
            // The previous labels apply until they can be read again.
            Err(error) => {
                tracing::warn!(
                    tenant = %tenant,
                    error = %chain(&error),
                    "cannot read the labels of the tenant's namespace again"
                );
                wait = delay.next().unwrap_or(wait);
            }
        }
    }
}
