//! The state that the reconciles of one tenant share. Reconciles of other tenants cannot reach it.

use std::{fmt, sync::Arc, time::Duration};

use kube::runtime::reflector::{ObjectRef, Store};
use parking_lot::Mutex;

use super::{
    default_contents::DefaultContents,
    event_writer::EventWriter,
    machine_deployment_index::MachineDeploymentIndex,
    object_cache::ObjectCache,
    profile_store::ProfileStore,
    state::{
        foreign_writes::ForeignWrites, join_queue::JoinQueue, known_machines::KnownMachines,
        node_credentials::NodeCredentials, registry_credentials, rollout_slots::RolloutSlots,
        tokens::Tokens, wanted_profiles::WantedProfiles,
    },
};
use crate::api::machine_deployment::MachineDeployment;
use crate::client::connect::Clients;
use crate::controllers::queue::{
    backoff::Backoff, held_back::HeldBack, queue_latency::QueueLatency, resync::ResyncQueue,
    triggers::TriggerRouter,
};
use crate::fleet::engagement::Engagement;
use crate::plan::{
    default_profile::{DefaultProfile, DefaultProfileSettings},
    digest::DigestKey,
};
use crate::render::Limits;
use crate::render_worker::Renderer;
use crate::tenant::{
    cluster_info::ClusterInfo,
    mode::NamespacedName,
    registry_credentials::{Place, named_by},
};

/// The settings that the reconciles of all tenants share.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How long a bootstrap token is valid.
    pub token_lifetime: Duration,
    /// True if it is checked that machines can join.
    pub join_check: bool,
    /// The limits of a render.
    pub limits: Limits,
    /// Renders the templates that tenants write.
    pub renderer: Renderer,
}

/// The state that the reconciles of one tenant share.
pub struct Context {
    /// The engaged cluster.
    pub engagement: Engagement,
    /// The settings that all tenants share.
    pub rules: Rules,
    /// The default profiles.
    pub defaults: Arc<[DefaultProfile]>,
    /// The contents that default profiles in the tenant's namespace name; `None` if they are whole.
    pub contents: Option<Arc<DefaultContents>>,
    /// The tenants that may install newer default profiles now.
    pub rollout_slots: Arc<RolloutSlots>,
    /// The profiles of the fleet. Each reconcile decides which of them this tenant may use.
    pub profiles: Arc<ProfileStore>,
    /// The default profiles that machine deployments wait for.
    pub wanted_profiles: WantedProfiles,
    /// The machine deployments of the worker cluster.
    pub machine_deployments: Store<MachineDeployment>,
    /// The same machine deployments, by derived name and by age.
    pub index: Arc<MachineDeploymentIndex>,
    /// The configs of the tenant's namespace.
    pub configs: Arc<ObjectCache>,
    /// The Secrets of `cloud-init-settings`.
    pub secrets: ObjectCache,
    /// The bootstrap tokens.
    pub tokens: Tokens,
    /// The machine deployments' own credentials.
    pub node_credentials: NodeCredentials,
    /// The registry credentials as they were last read, or why they cannot be used.
    pub registry_credentials: registry_credentials::CredentialsCache,
    /// Delays of machine deployments that failed.
    pub backoff: Arc<Backoff>,
    /// Machine deployments that wait until their worker cluster is healthy.
    pub held_back: HeldBack,
    /// Machine deployments that are reconciled although they did not change themselves.
    pub resync: Arc<ResyncQueue>,
    /// The times since when machine deployments are due.
    pub queue_latency: Arc<QueueLatency>,
    /// The documents that the machines of machine deployments were created from.
    pub machines: KnownMachines,
    /// Documents that another client has deleted or changed.
    pub foreign_writes: ForeignWrites,
    /// The order in which machine deployments are checked.
    pub join_checks: JoinQueue,
    /// The triggers of reconciles.
    pub triggers: Arc<TriggerRouter>,
    /// Writes Events in the worker cluster.
    pub recorder: EventWriter,
    /// The key of the digests, derived from the cluster info.
    pub key: Mutex<(Arc<ClusterInfo>, DigestKey)>,
}

impl Context {
    /// Engages the worker cluster again, because it was restored from a backup: only lists show its
    /// current tokens and machine deployments.
    pub fn was_restored(&self) {
        let registration = &self.engagement.registration;
        tracing::warn!(%registration, "the worker cluster was restored; it is read again");
        self.engagement.cancel.cancel();
    }

    /// Forgets what is kept of machine deployments that do not exist any more. What reconciles
    /// record about one after it has gone would otherwise stay.
    pub fn forget_gone(&self) {
        let exists = |reference: &ObjectRef<MachineDeployment>| {
            self.machine_deployments.get(reference).is_some()
        };
        let is_in_use = |key: &str| !self.index.of_token(key).is_empty();
        self.backoff.keep(exists);
        self.queue_latency.keep(exists);
        self.held_back.keep(exists);
        self.node_credentials.keep(is_in_use);
        self.join_checks.keep(is_in_use);
        self.tokens.keep_attempts(is_in_use);
        self.engagement.tenant_status.update(|report| {
            let Some(existing) = &report.existing else {
                return false;
            };
            self.machines.keep(|name| existing.contains(name));
            let before = (report.ignored.len(), report.outcomes.len());
            report.ignored.retain(|name| existing.contains(name));
            report.outcomes.retain(|name, _| existing.contains(name));
            before != (report.ignored.len(), report.outcomes.len())
        });
    }

    /// Returns the tenant's settings for default profiles.
    pub fn default_profile_settings(&self) -> DefaultProfileSettings {
        let own = self.engagement.worker_cluster.borrow();
        DefaultProfileSettings::new(&self.engagement.defaults.settings, own.as_deref())
    }

    /// Returns the Secret with registry credentials, if any, and the cluster that it is in: the
    /// management cluster if the WorkerCluster names it without a namespace, else that of the
    /// tenant's home.
    pub fn registry_credentials_secret(&self) -> Option<(&Clients, NamespacedName)> {
        let engagement = &self.engagement;
        let own = engagement.worker_cluster.borrow();
        let tenant = engagement.tenant();
        let named = own.as_deref();
        let named = named.and_then(|own| named_by(&own.spec, tenant.namespace()));
        let default = || {
            engagement
                .defaults
                .registry_credentials
                .clone()
                .map(Place::Home)
        };
        Some(match named.or_else(default)? {
            Place::Management(named) => (&engagement.management, named),
            Place::Home(named) => (&engagement.home.clients, named),
        })
    }

    /// Returns the cluster info that was read last.
    pub fn cluster_info(&self) -> Arc<ClusterInfo> {
        self.engagement.cluster_info.borrow().clone()
    }

    /// Returns the key of the worker cluster's digests, which depends on the fetch token. If that
    /// has changed, all digests are dropped.
    pub fn digest_key(&self) -> DigestKey {
        let cluster_info = self.cluster_info();
        let mut known = self.key.lock();
        if known.0.fetch_token != cluster_info.fetch_token {
            *known = (
                Arc::clone(&cluster_info),
                DigestKey::derive(&cluster_info.fetch_token),
            );
            self.secrets.forget_contents();
            self.configs.forget_contents();
        }
        known.1.clone()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Context")
            .field(&self.engagement.registration)
            .finish()
    }
}
