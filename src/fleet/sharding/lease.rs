//! The membership Leases: one per replica, in one namespace, found by a label. Every write is a
//! compare-and-swap.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions},
    core::DeserializeGuard,
};
use serde_json::{Value, json};

use super::{
    Holder, View,
    observed_leases::{LeaseRecord, Listed},
    suspicion::Record,
};
use crate::api::names::{CRASHES, FLEET_LABEL, RUNS_VERSION, RUNS_WITH, VIEW};
use crate::client::pages;
use crate::telemetry::build;

/// The Leases of one fleet, for one of its replicas.
#[derive(Clone, Debug)]
pub struct Leases {
    api: Api<Lease>,
    guarded: Api<DeserializeGuard<Lease>>,
    fleet: String,
    duration: Duration,
    me: Holder,
    settings: String,
}

/// The content that a replica publishes in its Lease.
#[derive(Clone, Debug, Default)]
pub struct Statement {
    /// The replica set that it follows.
    pub view: View,
    /// The replica's records about crashes.
    pub record: Record,
}

impl Statement {
    fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        [
            (VIEW, Some(self.view.digest())),
            (CRASHES, self.record.text()),
            (RUNS_VERSION, Some(build::VERSION.to_owned())),
        ]
        .into()
    }
}

/// The result of a compare-and-swap of a Lease that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// This replica changed it.
    Here,
    /// Its holder or a faster replica changed it.
    Elsewhere,
}

/// The reason why a Lease could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The call failed. The Lease may still be ours.
    #[error("cannot call the API server for Lease {name}")]
    Call {
        /// The Lease.
        name: String,
        /// The cause.
        source: kube::Error,
    },
    /// The Lease was removed or taken over.
    #[error(
        "Lease {name} is lost: {why}; other replicas serve this one's tenants, so the process ends"
    )]
    Lost {
        /// The Lease.
        name: String,
        /// What happened to it.
        why: String,
    },
}

impl Leases {
    /// Creates access to the Leases of a fleet in a namespace. A replica's own Lease says with
    /// which settings it runs, for commands.
    pub fn new(
        (client, namespace): (Client, &str),
        fleet: &str,
        me: (Holder, Duration),
        settings: String,
    ) -> Self {
        Self {
            settings,
            api: Api::namespaced(client.clone(), namespace),
            guarded: Api::namespaced(client, namespace),
            fleet: fleet.to_owned(),
            me: me.0,
            duration: me.1,
        }
    }

    fn name(&self) -> String {
        format!("{}-{}", self.fleet, self.me.instance)
    }

    fn failed(&self, source: kube::Error) -> LeaseError {
        LeaseError::Call {
            name: self.name(),
            source,
        }
    }

    /// Lists all Leases of the fleet, from the store and not from a cache.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn list(&self) -> Result<Listed, LeaseError> {
        let params = ListParams::default().labels(&format!("{FLEET_LABEL}={}", self.fleet));
        let list = pages::all(&self.guarded, params)
            .await
            .map_err(|source| self.failed(source))?;
        let revision = list.version.clone();
        let leases = list.into_all(|metadata| self.undecoded(metadata));
        Ok(Listed {
            // A version that is not a number never counts as older.
            revision: revision.parse().unwrap_or(u64::MAX),
            leases: leases
                .iter()
                .map(|lease| (lease.name_any(), sighting(lease)))
                .collect(),
            records: leases
                .iter()
                .filter_map(|lease| Some((lease.name_any(), lease.annotations().get(CRASHES)?)))
                .map(|(name, text)| (name, Record::parse(text)))
                .collect(),
        })
    }

    /// Creates a Lease from its metadata if nothing else can be decoded. It counts as held by the
    /// replica that it is named after, for as long as its version changes. So the tenants of a
    /// living replica are never taken over.
    fn undecoded(&self, metadata: ObjectMeta) -> Lease {
        let name = metadata.name.as_deref().unwrap_or_default();
        let instance = name
            .strip_prefix(&self.fleet)
            .and_then(|rest| rest.strip_prefix('-'));
        let holder = Holder {
            instance: instance.unwrap_or(name).to_owned(),
            incarnation: String::new(),
        };
        Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_string()),
                lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
                ..LeaseSpec::default()
            }),
            metadata,
        }
    }

    /// Creates the replica's Lease with the set that it follows, or takes over the Lease in
    /// `listed` that an earlier process of its name left behind.
    ///
    /// # Errors
    ///
    /// Another process has a Lease of this name, or the call fails.
    pub async fn join(
        &self,
        statement: &Statement,
        listed: &Listed,
        now: Timestamp,
    ) -> Result<Lease, LeaseError> {
        let wanted = self.wanted(statement, now);
        let name = self.name();
        let Some(seen) = listed.leases.get(&name) else {
            let created = self.api.create(&PostParams::default(), &wanted).await;
            return created.map_err(|source| self.failed(source));
        };
        let found = self.api.get(&name).await;
        let mut found = found.map_err(|source| self.failed(source))?;
        found.metadata.resource_version = Some(seen.resource_version.clone());
        let spec = found.spec.clone().unwrap_or_default();
        let mut spec_wanted = wanted.spec.unwrap_or_default();
        spec_wanted.lease_transitions = Some(spec.lease_transitions.unwrap_or_default() + 1);
        let annotations = self.annotations(statement);
        let labels = wanted.metadata.labels;
        let change = json!({
            "metadata": {"annotations": annotations, "labels": labels},
            "spec": spec_wanted,
        });
        self.swap(&found, change).await
    }

    /// Renews the Lease.
    ///
    /// # Errors
    ///
    /// Somebody else wrote the Lease, or the call fails.
    pub async fn renew(
        &self,
        before: &Lease,
        statement: &Statement,
        now: Timestamp,
    ) -> Result<Lease, LeaseError> {
        let change = json!({
            "metadata": {"annotations": statement.annotations()},
            "spec": {"renewTime": MicroTime(now)},
        });
        self.swap_own(before, change).await
    }

    /// After a conflict, reads the Lease and tries once more if it is still ours: the response to
    /// our previous write may have been lost.
    async fn swap_own(&self, before: &Lease, change: Value) -> Result<Lease, LeaseError> {
        match self.swap(before, change.clone()).await {
            Err(LeaseError::Call { source, .. }) if is_conflict(&source) => {}
            swapped => return swapped,
        }
        let found = self.find().await?;
        self.swap(&found, change).await
    }

    /// Returns the replica's Lease if the replica still holds it.
    async fn find(&self) -> Result<Lease, LeaseError> {
        let found = match self.api.get_opt(&self.name()).await {
            Ok(Some(found)) => found,
            Ok(None) => return Err(self.lost("it was deleted".to_owned())),
            Err(source) => return Err(self.failed(source)),
        };
        let holder = sighting(&found).holder;
        if holder.as_ref() == Some(&self.me) {
            return Ok(found);
        }
        let holder = holder.map_or_else(|| "nobody".to_owned(), |holder| holder.to_string());
        Err(self.lost(format!("{holder} holds it; same --instance?")))
    }

    /// Takes an expired Lease from its holder, unless it was written since. The Lease then has no
    /// holder, which stays visible for one lease duration.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn evict(&self, name: &str, seen: &LeaseRecord) -> Result<Swapped, LeaseError> {
        if seen.holder.is_none() {
            return self.remove(name, seen).await;
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "annotations": {VIEW: ""},
                "resourceVersion": seen.resource_version,
                "uid": seen.uid,
            },
            "spec": {"holderIdentity": ""},
        }));
        let patched = self.api.patch(name, &PatchParams::default(), &patch).await;
        self.swapped(patched.map(drop))
    }

    /// Removes a Lease that nobody holds, unless it was written since.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn remove(&self, name: &str, seen: &LeaseRecord) -> Result<Swapped, LeaseError> {
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(seen.uid.clone()),
                resource_version: Some(seen.resource_version.clone()),
            }),
            ..DeleteParams::default()
        };
        let deleted = self.api.delete(name, &params).await;
        self.swapped(deleted.map(drop))
    }

    fn swapped(&self, outcome: Result<(), kube::Error>) -> Result<Swapped, LeaseError> {
        match outcome {
            Ok(()) => Ok(Swapped::Here),
            Err(source) if is_conflict(&source) || is_gone(&source) => Ok(Swapped::Elsewhere),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// Releases the Lease. No replica waits for a Lease without a holder, and the next one that
    /// sees it removes it. `text` is the mark that the last replica leaves, or empty.
    ///
    /// # Errors
    ///
    /// Somebody else wrote the Lease, or the call fails.
    pub async fn release(
        &self,
        before: &Lease,
        text: &str,
        now: Timestamp,
    ) -> Result<(), LeaseError> {
        let change = json!({
            "metadata": {"annotations": {VIEW: text}},
            "spec": {"holderIdentity": "", "renewTime": MicroTime(now)},
        });
        self.swap_own(before, change).await.map(drop)
    }

    /// Patches the Lease by compare-and-swap. An update would recreate a deleted Lease.
    async fn swap(&self, before: &Lease, mut change: Value) -> Result<Lease, LeaseError> {
        let swap = json!({"metadata": {
            "resourceVersion": before.resource_version(),
            "uid": before.uid(),
        }});
        json_patch::merge(&mut change, &swap);
        let patch = Patch::Merge(change);
        match self
            .api
            .patch(&self.name(), &PatchParams::default(), &patch)
            .await
        {
            Err(source) if is_gone(&source) => Err(self.lost("it was deleted".to_owned())),
            patched => patched.map_err(|source| self.failed(source)),
        }
    }

    fn lost(&self, why: String) -> LeaseError {
        LeaseError::Lost {
            name: self.name(),
            why,
        }
    }

    /// Returns what is said when joining. The settings do not change after that.
    fn annotations(&self, statement: &Statement) -> BTreeMap<&'static str, Option<String>> {
        let mut annotations = statement.annotations();
        annotations.insert(RUNS_WITH, Some(self.settings.clone()));
        annotations
    }

    fn wanted(&self, statement: &Statement, now: Timestamp) -> Lease {
        let seconds = self.duration.as_secs_f64().ceil();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "settings keep it below a day"
        )]
        let seconds = seconds as i32;
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name()),
                labels: Some(BTreeMap::from([(
                    FLEET_LABEL.to_owned(),
                    self.fleet.clone(),
                )])),
                annotations: Some(
                    self.annotations(statement)
                        .into_iter()
                        .filter_map(|(name, text)| Some((name.to_owned(), text?)))
                        .collect(),
                ),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.me.to_string()),
                lease_duration_seconds: Some(seconds),
                acquire_time: Some(MicroTime(now)),
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        }
    }
}

/// Returns the record of a Lease. A Lease without a duration is invalid, and counts as expired at
/// once.
fn sighting(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or_default();
    LeaseRecord {
        holder: spec
            .holder_identity
            .filter(|identity| !identity.is_empty())
            .map(|identity| Holder::parse(&identity)),
        view: lease.annotations().get(VIEW).cloned().unwrap_or_default(),
        uid: lease.uid().unwrap_or_default(),
        resource_version: lease.resource_version().unwrap_or_default(),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict())
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

#[cfg(test)]
mod tests;
