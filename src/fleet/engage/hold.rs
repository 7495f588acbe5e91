//! Lets one of several fleets serve a tenant: the one that its status names.
//!
//! A fleet that runs corrects the statuses of its tenants within seconds. So a fleet that comes
//! later writes its name into the status, and looks whether it stays there. This needs no
//! permission to see what else runs, and an earlier release answers as well.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::EngageError;
use crate::api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{FleetId, WorkerCluster},
};
use crate::client::connect::Clients;
use crate::fleet::{
    engagement::Shared,
    registry::RegisteredCluster,
    worker_clusters::{holder, is_removed},
};
use crate::telemetry::chain::chain;

/// How long the fleet that a status names may take to correct it: it writes one at most once a
/// second, and its watch may have to be opened again. A replica that has lost its Lease has ended
/// by then.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait before asking again. Each time costs two writes and an Event.
const AGAIN: Duration = Duration::from_mins(10);

/// What it takes to let this fleet serve a tenant.
#[derive(Clone, Copy)]
pub struct Holding<'a> {
    /// The state that all tenants share.
    pub shared: &'a Shared,
    /// The tenant's registration.
    pub registered: &'a RegisteredCluster,
    /// The tenant's share of the management API.
    pub management: &'a Clients,
}

/// When another fleet may be asked for the tenant again.
#[derive(Debug, Default)]
pub struct Asking(Mutex<Option<Instant>>);

impl Asking {
    fn again_later(&self) {
        *self.0.lock() = Some(Instant::now() + AGAIN);
    }
}

/// The fleet that serves a tenant.
enum Holder {
    Us,
    Nobody,
    Other(FleetId),
}

impl Holding<'_> {
    /// Records that this fleet serves the tenant, if the status names it already.
    pub fn resume(self) {
        let own = self.own();
        if own.is_some_and(|own| matches!(self.holder(&own), Holder::Us)) {
            self.serves();
        }
    }

    /// Returns once this fleet may serve the tenant. If another fleet serves it, this asks for the
    /// tenant first, and waits for an answer. A tenant without a WorkerCluster is not held yet.
    ///
    /// # Errors
    ///
    /// Another fleet serves it, or a call fails.
    pub async fn hold(self, asking: &Asking) -> Result<(), EngageError> {
        let again = *asking.0.lock();
        if let Some(again) = again {
            let is_free = |own: &WorkerCluster| matches!(self.holder(own), Holder::Nobody);
            let mut seen = self.registered.worker_cluster.subscribe();
            let freed = seen.wait_for(|own| own.as_deref().is_none_or(is_free));
            // Whether it was freed is looked up below.
            let _ = timeout_at(again, freed).await;
        }
        let Some(own) = self.own() else {
            return Ok(());
        };
        let Holder::Other(other) = self.holder(&own) else {
            return self.take(&own).await;
        };
        self.yields();
        self.write(&own).await?;
        sleep(ANSWER_TIMEOUT).await;
        let Some(own) = self.own() else {
            return Ok(());
        };
        if let Holder::Other(other) = self.holder(&own) {
            asking.again_later();
            return Err(self.served_by(&other));
        }
        let registration = &self.registered.id;
        tracing::warn!(%registration, %other, "took over from a fleet that does not answer");
        self.take(&own).await
    }

    /// Returns true if another fleet serves the tenant, too, and this one leaves it to that one.
    /// `written` is when another fleet was last seen in the status. One that asks writes it once in
    /// ten minutes, so one that writes it again believes that it serves the tenant.
    pub fn leaves(
        self,
        own: &WorkerCluster,
        (asking, written): (&Asking, &mut Option<Instant>),
    ) -> bool {
        let Holder::Other(other) = self.holder(own) else {
            return false;
        };
        let before = written.replace(Instant::now());
        let is_repeated = before.is_some_and(|at| at.elapsed() < AGAIN);
        let leaves = is_repeated && self.shared.fleet > other;
        if leaves {
            let registration = &self.registered.id;
            tracing::warn!(%registration, %other, "another fleet serves the tenant, too");
            asking.again_later();
            self.yields();
        }
        leaves
    }

    /// Makes this fleet serve a tenant that no other fleet serves.
    ///
    /// # Errors
    ///
    /// Another fleet serves it, or a call fails.
    pub async fn take(self, own: &WorkerCluster) -> Result<(), EngageError> {
        match self.holder(own) {
            Holder::Us => {}
            Holder::Other(other) => return Err(self.served_by(&other)),
            Holder::Nobody => {
                self.write(own).await?;
                let mut seen = self.registered.worker_cluster.subscribe();
                let us = &self.shared.fleet;
                let is_us = |own: &WorkerCluster| holder(own).is_some_and(|it| it.may_be(us));
                let shown = seen.wait_for(|own| own.as_deref().is_some_and(is_us));
                let shown = timeout(self.shared.request_timeout, shown).await;
                if !matches!(shown, Ok(Ok(_))) {
                    let why = "the status that was written is not seen yet".to_owned();
                    return Err(failed(Reason::NoWorkerCluster, why));
                }
            }
        }
        self.serves();
        Ok(())
    }

    /// Stops writing the tenant's status, so that the other fleet's stays.
    fn yields(self) {
        let status = &self.registered.status;
        status.set(|report| &mut report.fleet, None);
    }

    fn serves(self) {
        let (status, us) = (&self.registered.status, self.shared.fleet.clone());
        status.set(|report| &mut report.fleet, Some(us));
    }

    fn own(self) -> Option<Arc<WorkerCluster>> {
        self.registered.worker_cluster.borrow().clone()
    }

    fn holder(self, own: &WorkerCluster) -> Holder {
        let us = &self.shared.fleet;
        match holder(own) {
            Some(fleet) if fleet == *us => Holder::Us,
            Some(fleet) if !fleet.may_be(us) && !is_removed(own) => Holder::Other(fleet),
            _ => Holder::Nobody,
        }
    }

    fn served_by(self, other: &FleetId) -> EngageError {
        let us = &self.shared.fleet;
        let why = format!(
            "fleet {other} serves this tenant, so fleet {us} does not: let only one of them watch \
             this namespace (--namespace, --except-namespace)"
        );
        failed(Reason::AnotherFleet, why)
    }

    /// Writes this fleet into the status that was read.
    async fn write(self, own: &WorkerCluster) -> Result<(), EngageError> {
        let namespace = self.registered.id.tenant.namespace();
        let api: Api<WorkerCluster> = Api::namespaced(self.management.client(), namespace);
        let us = &self.shared.fleet;
        let patch = json!({
            "metadata": {"resourceVersion": own.resource_version()},
            "status": {"fleet": us.name, "fleetNamespace": us.namespace},
        });
        let params = PatchParams {
            field_manager: Some("osm".to_owned()),
            ..PatchParams::default()
        };
        let name = own.name_any();
        let written = api
            .patch_status(&name, &params, &Patch::Merge(&patch))
            .await;
        written.map(drop).map_err(|error| {
            let why = format!("cannot write the fleet into the status: {}", chain(&error));
            failed(Reason::NoWorkerCluster, why)
        })
    }
}

fn failed(reason: Reason, message: String) -> EngageError {
    EngageError::failed(ConditionType::Registered, reason, message)
}
