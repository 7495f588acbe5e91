//! Lets one of several fleets serve a tenant: the one that its status names.
//!
//! A fleet that comes later asks for the tenant, in another field of the status. The fleet that
//! serves the tenant removes the question. If it does not, nobody serves the tenant, and the fleet
//! that asked writes its name. This needs no permission to see what else runs.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::EngageError;
use crate::api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{FleetId, WorkerCluster, WorkerClusterStatus},
};
use crate::client::{clock::Clock, connect::Clients, retry_delay::RetryDelay};
use crate::fleet::{
    engagement::Shared,
    events::{self, Occurrence},
    registry::RegisteredCluster,
    worker_clusters::{holder, is_let_go, request},
};
use crate::telemetry::chain::chain;

const API_VERSION: &str = "operatingsystemmanager.k8c.io/v1alpha1";
/// How long to wait before asking again, at first and at most. An operator who moves tenants
/// changes one fleet shortly after the other. Each time costs two writes and an Event.
const AGAIN: Duration = Duration::from_mins(1);
const AGAIN_MAX: Duration = Duration::from_mins(10);

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
#[derive(Debug)]
pub struct Asking(Mutex<(Option<Instant>, RetryDelay)>);

impl Default for Asking {
    fn default() -> Self {
        let delay = RetryDelay::new(AGAIN, AGAIN_MAX);
        Self(Mutex::new((None, delay)))
    }
}

impl Asking {
    fn later(&self) {
        let (again, delay) = &mut *self.0.lock();
        *again = delay.next().map(|delay| Instant::now() + delay);
    }

    fn again(&self) -> Option<Instant> {
        self.0.lock().0
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
        let named = self.own().and_then(|own| holder(&own));
        if let Some(named) = named.filter(|named| named.may_be(&self.shared.fleet)) {
            self.serves_as(named);
        }
    }

    /// Returns once this fleet may serve the tenant. If another fleet serves it, this asks for the
    /// tenant first, and waits for an answer. A tenant without a WorkerCluster is not held yet.
    ///
    /// # Errors
    ///
    /// Another fleet serves it, or a call fails.
    pub async fn hold(self, asking: &Asking) -> Result<(), EngageError> {
        if let Some(again) = asking.again() {
            self.until_free(again).await;
        }
        let Some(own) = self.own() else {
            return Ok(());
        };
        let Holder::Other(other) = self.holder(&own) else {
            return self.take(&own).await;
        };
        self.yields();
        if !self.has_asked(&own) {
            self.ask(&own).await?;
        }
        self.until_free(Instant::now() + self.shared.handover_timeout)
            .await;
        let Some(own) = self.own() else {
            return Ok(());
        };
        match self.holder(&own) {
            Holder::Other(_) if !self.has_asked(&own) => {
                asking.later();
                return Err(self.served_by(&other));
            }
            Holder::Other(_) => {
                let registration = &self.registered.id;
                tracing::warn!(%registration, %other, "takes over from a fleet that does not answer");
            }
            Holder::Us | Holder::Nobody => {}
        }
        self.write(&own).await
    }

    /// Makes this fleet serve a tenant that no other fleet serves.
    ///
    /// # Errors
    ///
    /// Another fleet serves it, or a call fails.
    pub async fn take(self, own: &WorkerCluster) -> Result<(), EngageError> {
        match self.holder(own) {
            Holder::Us => {
                self.serves_as(self.shared.fleet.clone());
                Ok(())
            }
            Holder::Nobody => self.write(own).await,
            Holder::Other(other) => {
                self.yields();
                Err(self.served_by(&other))
            }
        }
    }

    /// Returns true if another fleet has taken over the tenant. Its name stays in the status.
    pub fn has_lost(self, own: &WorkerCluster, asking: &Asking) -> bool {
        let us = &self.shared.fleet;
        let Some(other) = holder(own).filter(|named| !named.may_be(us)) else {
            return false;
        };
        let registration = &self.registered.id;
        tracing::warn!(%registration, %other, "another fleet has taken over the tenant");
        asking.later();
        self.yields();
        true
    }

    /// Answers fleets that ask for the tenant while this one serves it. Never completes.
    pub async fn answer(self, clock: &Clock) {
        let mut seen = self.registered.worker_cluster.subscribe();
        let is_asked =
            |own: &WorkerCluster| request(own).is_some() && matches!(self.holder(own), Holder::Us);
        let mut delay = RetryDelay::default();
        loop {
            let own = seen.borrow_and_update().clone();
            let mut again = None;
            if let Some(own) = own.filter(|own| is_asked(own)) {
                match Box::pin(self.refuse(&own, clock)).await {
                    Ok(()) => delay = RetryDelay::default(),
                    Err(error) => {
                        let registration = &self.registered.id;
                        tracing::debug!(%registration, error = %chain(&error), "cannot answer a fleet");
                        again = delay.next();
                    }
                }
            }
            tokio::select! {
                _ = seen.changed() => {}
                () = sleep(again.unwrap_or_default()), if again.is_some() => {}
            }
        }
    }

    /// Removes the request of a fleet. One of our own is left over if this fleet has taken over.
    async fn refuse(self, own: &WorkerCluster, clock: &Clock) -> Result<(), kube::Error> {
        let asks = request(own).filter(|asks| **asks != self.shared.fleet.mark());
        let patch = json!({"status": {"requestedByFleet": null}});
        let answer = (&PatchParams::default(), &Patch::Merge(&patch));
        self.patch(own, answer).await?;
        if let Some(asks) = asks {
            let note = format!(
                "fleet {asks} watches this namespace, too, and waits: let only one of the two \
                 watch it (--namespace, --except-namespace)"
            );
            let occurrence = Occurrence {
                action: "Serve",
                reason: Reason::AnotherFleet,
                note: &note,
            };
            let known = (&*self.registered.status, clock);
            events::publish(self.management, known, (own, occurrence)).await;
        }
        Ok(())
    }

    /// Stops writing the tenant's status.
    fn yields(self) {
        let status = &self.registered.status;
        status.set(|report| &mut report.fleet, None);
    }

    fn serves_as(self, us: FleetId) {
        self.registered.status.update(|report| {
            let registered = report.findings.get(&ConditionType::Registered);
            if registered.is_some_and(|it| it.reason == Reason::AnotherFleet) {
                report.findings.remove(&ConditionType::Registered);
            }
            let before = report.fleet.replace(us);
            before != report.fleet
        });
    }

    fn own(self) -> Option<Arc<WorkerCluster>> {
        self.registered.worker_cluster.borrow().clone()
    }

    fn holder(self, own: &WorkerCluster) -> Holder {
        let us = &self.shared.fleet;
        match holder(own) {
            Some(fleet) if fleet == *us => Holder::Us,
            Some(fleet) if !fleet.may_be(us) && !is_let_go(own) => Holder::Other(fleet),
            // Or a status of an earlier release, which names no namespace.
            _ => Holder::Nobody,
        }
    }

    /// Waits until this time, or until the other fleet has let go of the tenant. Where somebody has
    /// deleted what names that fleet, it has a while to write it again.
    async fn until_free(self, at: Instant) {
        let is_free =
            |own: &WorkerCluster| is_let_go(own) || matches!(self.holder(own), Holder::Us);
        let is_unnamed = |own: &WorkerCluster| holder(own).is_none();
        let mut seen = self.registered.worker_cluster.subscribe();
        let mut seen_unnamed = seen.clone();
        let free = seen.wait_for(|own| own.as_deref().is_some_and(is_free));
        let unnamed = async {
            let unnamed = seen_unnamed.wait_for(|own| own.as_deref().is_none_or(is_unnamed));
            drop(unnamed.await);
            sleep(self.shared.handover_timeout).await;
        };
        // What has become of it is looked up then.
        tokio::select! {
            _ = timeout_at(at, free) => {}
            () = unnamed => {}
        }
    }

    fn has_asked(self, own: &WorkerCluster) -> bool {
        request(own) == Some(&self.shared.fleet.mark())
    }

    /// Asks, as a field manager of its own: other fields of the status stay.
    async fn ask(self, own: &WorkerCluster) -> Result<(), EngageError> {
        let patch = json!({
            "apiVersion": API_VERSION,
            "kind": "WorkerCluster",
            "status": {"requestedByFleet": self.shared.fleet.mark()},
        });
        let params = PatchParams::apply("osm-request").force();
        let asked = self.patch(own, (&params, &Patch::Apply(&patch))).await;
        asked.map_err(|error| {
            let why = format!("cannot ask for the tenant: {}", chain(&error));
            failed(Reason::NoWorkerCluster, why)
        })
    }

    async fn patch(
        self,
        own: &WorkerCluster,
        (params, patch): (&PatchParams, &Patch<&Value>),
    ) -> Result<(), kube::Error> {
        let namespace = self.registered.id.tenant.namespace();
        let api: Api<WorkerCluster> = Api::namespaced(self.management.client(), namespace);
        let patched = api.patch_status(&own.name_any(), params, patch).await;
        patched.map(drop)
    }

    fn served_by(self, other: &FleetId) -> EngageError {
        let us = &self.shared.fleet;
        let why = format!(
            "fleet {other} serves this tenant, so fleet {us} does not: let only one of them watch \
             this namespace (--namespace, --except-namespace)"
        );
        failed(Reason::AnotherFleet, why)
    }

    /// Writes this fleet into the status that was read, and waits until that is seen.
    async fn write(self, own: &WorkerCluster) -> Result<(), EngageError> {
        let us = &self.shared.fleet;
        let status = WorkerClusterStatus {
            fleet: Some(us.name.clone()),
            fleet_namespace: us.namespace.clone(),
            requested_by_fleet: None,
            ..own.status.clone().unwrap_or_default()
        };
        let patch = json!({
            "apiVersion": API_VERSION,
            "kind": "WorkerCluster",
            "metadata": {"resourceVersion": own.resource_version()},
            "status": status,
        });
        let params = PatchParams::apply("osm").force();
        match self.patch(own, (&params, &Patch::Apply(&patch))).await {
            Ok(()) => {}
            // It is served as by the release that the definition is of.
            Err(error) if is_of_an_older_definition(&error) => {
                let us = FleetId {
                    namespace: None,
                    ..us.clone()
                };
                self.serves_as(us);
                return Ok(());
            }
            Err(error) => {
                let why = format!("cannot write the fleet into the status: {}", chain(&error));
                return Err(failed(Reason::NoWorkerCluster, why));
            }
        }
        let mut seen = self.registered.worker_cluster.subscribe();
        let is_us = |own: &WorkerCluster| holder(own).is_some_and(|it| it.may_be(us));
        let shown = seen.wait_for(|own| own.as_deref().is_some_and(is_us));
        let shown = timeout(self.shared.request_timeout, shown).await;
        if !matches!(shown, Ok(Ok(_))) {
            let why = "the status that was written is not seen yet".to_owned();
            return Err(failed(Reason::NoWorkerCluster, why));
        }
        self.serves_as(us.clone());
        Ok(())
    }
}

/// Returns true if a field of a server-side apply is not in the definition of its kind.
pub fn is_of_an_older_definition(error: &kube::Error) -> bool {
    let is_it = |message: &str| message.contains("field not declared in schema");
    matches!(error, kube::Error::Api(status) if is_it(&status.message))
}

fn failed(reason: Reason, message: String) -> EngageError {
    EngageError::failed(ConditionType::Registered, reason, message)
}
