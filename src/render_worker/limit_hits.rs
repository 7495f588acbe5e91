//! Remembers which tenants' renders recently hit a limit.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::tenant::id::TenantId;

/// How long a tenant is remembered after its last hit.
const REMEMBERED: Duration = Duration::from_mins(10);

/// The tenants whose renders recently hit a limit.
#[derive(Default)]
pub(super) struct LimitHits(Mutex<HashMap<TenantId, Instant>>);

impl LimitHits {
    /// Whether a render of the tenant recently hit a limit.
    pub(super) fn contains(&self, tenant: &TenantId) -> bool {
        let last_hits = self.0.lock();
        let last_hit = last_hits.get(tenant);
        last_hit.is_some_and(|last_hit| last_hit.elapsed() < REMEMBERED)
    }

    /// Records that a render of the tenant hit a limit, and drops expired entries.
    pub(super) fn record(&self, tenant: &TenantId) {
        let mut last_hits = self.0.lock();
        last_hits.retain(|_, last_hit| last_hit.elapsed() < REMEMBERED);
        last_hits.insert(tenant.clone(), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn limit_hits_expire() {
        let (hits, berlin, lisbon) = (
            LimitHits::default(),
            TenantId::new("tenant-berlin"),
            TenantId::new("tenant-lisbon"),
        );
        hits.record(&berlin);
        assert_eq!(
            (hits.contains(&berlin), hits.contains(&lisbon)),
            (true, false)
        );
        tokio::time::advance(REMEMBERED).await;
        assert!(!hits.contains(&berlin));
        hits.record(&lisbon);
        assert_eq!(hits.0.lock().len(), 1, "expired entries are dropped");
    }
}
