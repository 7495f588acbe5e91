//! Rollout slots: which tenants request one to install newer default profiles, and which have one.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::tenant::id::TenantId;

/// The state of a tenant's request for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// The tenant has a slot.
    Granted,
    /// It has none yet.
    Awaited,
    /// No tenant gets one, for this reason.
    Paused(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::controllers) struct Decided {
    /// The tenants that have a slot.
    pub(in crate::controllers) granted: BTreeSet<TenantId>,
    /// The reason why no tenant gets one; `None` unless the rollout is paused.
    pub(in crate::controllers) paused: Option<String>,
}

/// The requests for slots, and the decision.
#[derive(Debug, Default)]
pub struct RolloutSlots {
    pub(in crate::controllers) requests: Mutex<BTreeSet<TenantId>>,
    pub(in crate::controllers) notify: Notify,
    pub(in crate::controllers) decided: watch::Sender<Decided>,
}

/// A tenant's request for a slot. Dropping it withdraws the request.
#[derive(Debug)]
pub struct SlotRequest {
    slots: Arc<RolloutSlots>,
    tenant: TenantId,
    decided: watch::Receiver<Decided>,
}

impl RolloutSlots {
    /// Requests a slot.
    pub fn request(self: &Arc<Self>, tenant: &TenantId) -> SlotRequest {
        self.requests.lock().insert(tenant.clone());
        self.notify.notify_one();
        SlotRequest {
            slots: Arc::clone(self),
            tenant: tenant.clone(),
            decided: self.decided.subscribe(),
        }
    }
}

impl SlotRequest {
    /// Returns the state of the request.
    pub fn state(&self) -> SlotState {
        let decided = self.decided.borrow();
        match &decided.paused {
            _ if decided.granted.contains(&self.tenant) => SlotState::Granted,
            Some(why) => SlotState::Paused(why.clone()),
            None => SlotState::Awaited,
        }
    }

    /// Waits until the state differs from `before`.
    pub async fn changed(&mut self, before: &SlotState) {
        // The sender is part of the slots, so it cannot be dropped.
        while self.state() == *before && self.decided.changed().await.is_ok() {}
    }
}

impl Drop for SlotRequest {
    fn drop(&mut self) {
        self.slots.requests.lock().remove(&self.tenant);
    }
}
