//! The trigger router collects what must be reconciled again. Equal triggers are merged until they
//! are taken, so that a thousand events of one kind cost one pass, and the queue cannot grow.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, StreamExt, stream};
use kube::{
    ResourceExt,
    runtime::reflector::{ObjectRef, Store},
};
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

/// What must be looked at again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Affected {
    /// Every machine deployment of the tenant, since something changed that concerns them all.
    Everywhere,
    /// Every machine deployment of the tenant, since they were all listed.
    Listed,
    /// The machine deployments that use a profile.
    Profile {
        /// The profile's namespace.
        namespace: String,
        /// The profile's name.
        name: String,
    },
    /// The machine deployment that a config or Secret of this name was made for.
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
    bell: Notify,
}

/// What the trigger router needs to find the machine deployments that a trigger concerns.
#[derive(Clone, Debug)]
pub struct Destinations {
    /// The machine deployments that there are.
    pub machine_deployments: Store<MachineDeployment>,
    /// The same by derived name.
    pub index: Arc<MachineDeploymentIndex>,
    /// What is looked at everywhere waits here.
    pub resync: Arc<ResyncQueue>,
    /// What is due stands here.
    pub queue_latency: Arc<QueueLatency>,
    /// The delays of failures, which end when what they failed by may have changed.
    pub backoff: Arc<Backoff>,
}

impl TriggerRouter {
    /// Something must be looked at again.
    pub fn enqueue(&self, look: Affected) {
        self.pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(look);
        self.bell.notify_one();
    }

    /// Returns an endless stream of the machine deployments to reconcile now.
    pub fn stream(
        self: Arc<Self>,
        tenant: String,
        led: Destinations,
    ) -> impl Stream<Item = ObjectRef<MachineDeployment>> + Send {
        stream::unfold(self, |triggers| async move {
            triggers.bell.notified().await;
            let looks = triggers.take();
            Some((looks, triggers))
        })
        .flat_map(move |looks| stream::iter(led.now(&looks, &tenant)))
    }

    fn take(&self) -> HashSet<Affected> {
        std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Affected {
    /// What a reconcile for it is counted by.
    const fn trigger(&self) -> Trigger {
        match self {
            Self::Everywhere => Trigger::Everywhere,
            Self::Listed => Trigger::Listed,
            Self::Profile { .. } => Trigger::Profile,
            Self::Made(_) | Self::Token(_) => Trigger::Made,
            Self::Overlapping(_) => Trigger::Overlap,
        }
    }

    /// Whether those that it concerns wait for a resync: there may be many, for no change of their
    /// own. A profile changes for a whole fleet where a release brings another one.
    const fn is_sweep(&self) -> bool {
        matches!(self, Self::Everywhere | Self::Listed | Self::Profile { .. })
    }

    /// Whether a resync for it includes a machine deployment.
    fn sweeps(&self, machine_deployment: &MachineDeployment, tenant: &str) -> bool {
        match self {
            Self::Everywhere | Self::Listed => true,
            Self::Profile { namespace, name } => {
                let annotations = machine_deployment.annotations();
                let from = annotations
                    .get(PROFILE_NAMESPACE)
                    .map_or(tenant, String::as_str);
                // An adopted cluster's own kube-system means the tenant's namespace.
                let is_there = from == namespace || (from == KUBE_SYSTEM && namespace == tenant);
                is_there && annotations.get(PROFILE).is_none_or(|named| named == name)
            }
            Self::Made(_) | Self::Token(_) | Self::Overlapping(_) => false,
        }
    }

    /// The machine deployments that it concerns by a derived name.
    fn finds(&self, index: &MachineDeploymentIndex) -> Vec<Arc<MachineDeployment>> {
        match self {
            Self::Everywhere | Self::Listed | Self::Profile { .. } => Vec::new(),
            Self::Made(name) => index.made(name),
            Self::Token(key) => index.of_token(key),
            Self::Overlapping(names) => index.overlapping(names),
        }
    }

    /// Of several looks at one machine deployment the first counts.
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
    /// Which machine deployments the triggers concern at once; the others wait for a resync.
    fn now(&self, looks: &HashSet<Affected>, tenant: &str) -> Vec<ObjectRef<MachineDeployment>> {
        let mut found = BTreeMap::new();
        let mut concerns = |it: Arc<MachineDeployment>, look| {
            let name = (it.namespace(), it.name_any());
            let (_, first) = found.entry(name).or_insert((it, look));
            if Affected::order(look) < first.order() {
                *first = look;
            }
        };
        let resync: Vec<&Affected> = looks.iter().filter(|look| look.is_sweep()).collect();
        if !resync.is_empty() {
            for it in self.machine_deployments.state() {
                let of_it = resync.iter().copied();
                let of_it = of_it.filter(|look| look.sweeps(&it, tenant));
                if let Some(look) = of_it.min_by_key(|look| look.order()) {
                    concerns(it, look);
                }
            }
        }
        for look in looks {
            for it in look.finds(&self.index) {
                concerns(it, look);
            }
        }
        let (mut at_once, mut later) = (Vec::new(), Vec::new());
        for (found, look) in found.into_values() {
            let reference = ObjectRef::from_obj(&*found);
            if *look != Affected::Listed {
                self.backoff.reset(&reference);
            }
            self.queue_latency.now(&reference, look.trigger());
            if look.is_sweep() {
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
