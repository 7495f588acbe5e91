//! Tenants whose renders have hit a limit lately.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::tenant::id::TenantId;

/// For how long a tenant is remembered.
const REMEMBERED: Duration = Duration::from_mins(10);

/// Tenants whose renders have hit a limit lately.
#[derive(Default)]
pub(super) struct Slow(Mutex<HashMap<TenantId, Instant>>);

impl Slow {
    /// Whether a tenant is one of them.
    pub(super) fn has(&self, tenant: &TenantId) -> bool {
        let since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = since.get(tenant);
        since.is_some_and(|since| since.elapsed() < REMEMBERED)
    }

    /// A render of a tenant has hit a limit.
    pub(super) fn add(&self, tenant: &TenantId) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.retain(|_, since| since.elapsed() < REMEMBERED);
        since.insert(tenant.clone(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tenant_is_forgotten_that_hit_no_limit_for_a_while() {
        let (slow, berlin, lisbon) = (
            Slow::default(),
            TenantId::new("tenant-berlin"),
            TenantId::new("tenant-lisbon"),
        );
        slow.add(&berlin);
        assert_eq!((slow.has(&berlin), slow.has(&lisbon)), (true, false));
        tokio::time::advance(REMEMBERED).await;
        assert!(!slow.has(&berlin));
        slow.add(&lisbon);
        assert_eq!(slow.0.lock().unwrap().len(), 1, "those of before are gone");
    }
}
