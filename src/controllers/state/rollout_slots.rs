//! Who asks to install newer default profiles, and whose turn has come.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, watch};

use crate::tenant::id::TenantId;

/// Whether a tenant's turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has.
    Come,
    /// It has not yet.
    Awaited,
    /// Nobody's has, for this reason.
    Paused(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::controllers) struct Decided {
    /// The tenants that have a turn.
    pub(in crate::controllers) granted: BTreeSet<TenantId>,
    /// Why nobody has one.
    pub(in crate::controllers) paused: Option<String>,
}

/// Who asks for a turn, and who has one.
#[derive(Debug, Default)]
pub struct RolloutSlots {
    asking: Mutex<BTreeSet<TenantId>>,
    pub(in crate::controllers) bell: Notify,
    pub(in crate::controllers) decided: watch::Sender<Decided>,
}

/// A tenant that asks for its turn, until it is dropped.
#[derive(Debug)]
pub struct SlotRequest {
    turns: Arc<RolloutSlots>,
    tenant: TenantId,
    decided: watch::Receiver<Decided>,
}

impl RolloutSlots {
    /// Asks for a turn.
    pub fn ask(self: &Arc<Self>, tenant: &TenantId) -> SlotRequest {
        self.asking().insert(tenant.clone());
        self.bell.notify_one();
        SlotRequest {
            turns: Arc::clone(self),
            tenant: tenant.clone(),
            decided: self.decided.subscribe(),
        }
    }

    pub(in crate::controllers) fn asking(&self) -> MutexGuard<'_, BTreeSet<TenantId>> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotRequest {
    /// Whether the turn has come.
    pub fn turn(&self) -> Turn {
        let decided = self.decided.borrow();
        match &decided.paused {
            _ if decided.granted.contains(&self.tenant) => Turn::Come,
            Some(why) => Turn::Paused(why.clone()),
            None => Turn::Awaited,
        }
    }

    /// Waits until the answer is another than `before`; it may be already.
    pub async fn changed(&mut self, before: &Turn) {
        // The sender is part of the turns: it cannot be gone.
        while self.turn() == *before && self.decided.changed().await.is_ok() {}
    }
}

impl Drop for SlotRequest {
    fn drop(&mut self) {
        self.turns.asking().remove(&self.tenant);
    }
}
