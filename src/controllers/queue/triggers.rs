//! The trigger router collects what must be reconciled again. Equal triggers are merged until they
//! are taken, so that a thousand events of one kind cost one pass, and the queue cannot grow.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use futures::{Stream, StreamExt, stream};
use kube::{
    ResourceExt,
    runtime::reflector::{ObjectRef, Store},
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::{
    machine_deployment::MachineDeployment,
    names::{DerivedNames, KUBE_SYSTEM, PROFILE, PROFILE_NAMESPACE},
};
use crate::controllers::{
    machine_deployment_index::MachineDeploymentIndex,
    queue::{backoff::Backoff, queue_latency::QueueLatency, resync::ResyncQueue},
};
use crate::telemetry::metrics::Trigger;

/// The machine deployments that a trigger affects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Affected {
    /// All machine deployments of the tenant, because something changed that concerns them all.
    Everywhere,
    /// All machine deployments of the tenant, because they were listed.
    Listed,
    /// The machine deployments that use a profile.
    Profile {
        /// The profile's namespace.
        namespace: String,
        /// The profile's name.
        name: String,
    },
    /// The machine deployment that a config or Secret of this name was created for.
    Made(String),
    /// The machine deployment whose bootstrap token has this key.
    Token(String),
    /// The machine deployments whose derived names overlap with these.
    Overlapping(DerivedNames),
}

/// Collects the triggers of one tenant.
#[derive(Debug, Default)]
pub struct TriggerRouter {
    pending: Mutex<HashSet<Affected>>,
    notify: Notify,
}

/// The state that the trigger router needs to enqueue the affected machine deployments.
#[derive(Clone, Debug)]
pub struct Destinations {
    /// The existing machine deployments.
    pub machine_deployments: Store<MachineDeployment>,
    /// The same machine deployments, by derived name.
    pub index: Arc<MachineDeploymentIndex>,
    /// The queue of machine deployments that wait for a resync.
    pub resync: Arc<ResyncQueue>,
    /// Records when machine deployments are due.
    pub queue_latency: Arc<QueueLatency>,
    /// The retry delays, which end when the cause of the failure may have changed.
    pub backoff: Arc<Backoff>,
}

impl TriggerRouter {
    /// Adds a trigger.
    pub fn enqueue(&self, affected: Affected) {
        self.pending.lock().insert(affected);
        self.notify.notify_one();
    }

    /// Returns an endless stream of the machine deployments to reconcile now. `home` is the
    /// namespace of the tenant's profiles.
    pub fn stream(
        self: Arc<Self>,
        home: Arc<str>,
        destinations: Destinations,
    ) -> impl Stream<Item = ObjectRef<MachineDeployment>> + Send {
        stream::unfold(self, |triggers| async move {
            triggers.notify.notified().await;
            let pending = triggers.take();
            Some((pending, triggers))
        })
        .flat_map(move |pending| stream::iter(destinations.now(&pending, &home)))
    }

    fn take(&self) -> HashSet<Affected> {
        std::mem::take(&mut *self.pending.lock())
    }
}

impl Affected {
    /// Returns the trigger that metrics count for the reconcile.
    const fn trigger(&self) -> Trigger {
        match self {
            Self::Everywhere => Trigger::Everywhere,
            Self::Listed => Trigger::Listed,
            Self::Profile { .. } => Trigger::Profile,
            Self::Made(_) | Self::Token(_) => Trigger::Made,
            Self::Overlapping(_) => Trigger::Overlap,
        }
    }

    /// Returns true if the affected machine deployments wait for a resync: there may be many, and
    /// they did not change themselves. For example, a release changes a profile of the whole fleet.
    const fn is_resync(&self) -> bool {
        matches!(self, Self::Everywhere | Self::Listed | Self::Profile { .. })
    }

    /// Returns true if a resync for this trigger includes the machine deployment.
    fn includes(&self, machine_deployment: &MachineDeployment, home: &str) -> bool {
        match self {
            Self::Everywhere | Self::Listed => true,
            Self::Profile { namespace, name } => {
                let annotations = machine_deployment.annotations();
                let from = annotations
                    .get(PROFILE_NAMESPACE)
                    .map_or(home, String::as_str);
                // In an adopted cluster, its own kube-system stands for the tenant's home.
                let is_there = from == namespace || (from == KUBE_SYSTEM && namespace == home);
                is_there && annotations.get(PROFILE).is_none_or(|named| named == name)
            }
            Self::Made(_) | Self::Token(_) | Self::Overlapping(_) => false,
        }
    }

    /// Returns the machine deployments that it affects by a derived name.
    fn finds(&self, index: &MachineDeploymentIndex) -> Vec<Arc<MachineDeployment>> {
        match self {
            Self::Everywhere | Self::Listed | Self::Profile { .. } => Vec::new(),
            Self::Made(name) => index.made(name),
            Self::Token(key) => index.of_token(key),
            Self::Overlapping(names) => index.overlapping(names),
        }
    }

    /// Returns the rank of a trigger. If several affect a machine deployment, the lowest rank
    /// counts.
    const fn order(&self) -> u8 {
        match self {
            Self::Made(_) | Self::Token(_) | Self::Overlapping(_) => 0,
            Self::Profile { .. } => 1,
            Self::Everywhere => 2,
            Self::Listed => 3,
        }
    }
}

impl Destinations {
    /// Returns the machine deployments to reconcile now. The others wait for a resync.
    fn now(&self, pending: &HashSet<Affected>, home: &str) -> Vec<ObjectRef<MachineDeployment>> {
        let mut found = BTreeMap::new();
        let mut concerns = |it: Arc<MachineDeployment>, affected| {
            let name = (it.namespace(), it.name_any());
            let (_, first) = found.entry(name).or_insert((it, affected));
            if Affected::order(affected) < first.order() {
                *first = affected;
            }
        };
        let resync: Vec<&Affected> = pending
            .iter()
            .filter(|affected| affected.is_resync())
            .collect();
        if !resync.is_empty() {
            for it in self.machine_deployments.state() {
                let of_it = resync.iter().copied();
                let of_it = of_it.filter(|affected| affected.includes(&it, home));
                if let Some(affected) = of_it.min_by_key(|affected| affected.order()) {
                    concerns(it, affected);
                }
            }
        }
        for affected in pending {
            for it in affected.finds(&self.index) {
                concerns(it, affected);
            }
        }
        let (mut at_once, mut later) = (Vec::new(), Vec::new());
        for (found, affected) in found.into_values() {
            let reference = ObjectRef::from_obj(&*found);
            if *affected != Affected::Listed {
                self.backoff.reset(&reference);
            }
            self.queue_latency.now(&reference, affected.trigger());
            if affected.is_resync() {
                later.push(reference);
            } else {
                self.resync.changed(&reference);
                at_once.push(reference);
            }
        }
        self.resync.add(later);
        at_once
    }
}
