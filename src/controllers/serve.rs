//! Serves one engaged cluster: the initial sync, then watches and reconciles until it is
//! disengaged.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{StreamExt, stream};
use kube::{
    Api, Client,
    api::ListParams,
    runtime::{
        Controller,
        controller::{self, Config},
        reflector::{self, ObjectRef},
    },
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

use super::{
    adoption,
    context::{Context, Rules},
    default_contents::DefaultContents,
    event_writer::EventWriter,
    initial_sync, join,
    machine_deployment::{self, credentials},
    machine_deployment_index::MachineDeploymentIndex,
    machine_rollout,
    object_cache::ObjectCache,
    orphans, profile,
    profile_store::{self, ProfileStore, Quotas},
    registry_credentials,
    state::{
        self, foreign_writes::ForeignWrites, join_queue::JoinQueue, known_machines::KnownMachines,
        node_credentials::NodeCredentials, registry_credentials::Refreshed,
        rollout_slots::RolloutSlots, tokens::Tokens, wanted_profiles::WantedProfiles,
    },
    subscriptions::{Subscriber, Subscriptions},
    tokens,
    watch::{self as watches, Watchers},
};
use crate::api::{
    condition::ConditionType, machine_deployment::MachineDeployment, reason::Reason,
    worker_cluster::WorkerCluster,
};
use crate::client::{
    memory::Memory, memory::Reservation, pages::is_not_served, retry_delay::RetryDelay,
    watch::Scope,
};
use crate::controllers::queue::{
    held_back::HeldBack,
    resync::ResyncQueue,
    triggers::{Affected, Destinations, TriggerRouter},
};
use crate::fleet::engagement::{Engagement, HomeWatches};
use crate::plan::{default_profile::DefaultProfile, digest::DigestKey};
use crate::telemetry::{chain::chain, metrics::Trigger};
use crate::tenant::{policies::TenantPolicies, policy::ProfileReach, report::ConditionState};

/// The state that serving needs besides the engaged cluster. It is the same for all tenants.
#[derive(Clone, Debug)]
pub struct Controllers {
    /// The profiles of the fleet.
    pub profiles: Arc<ProfileStore>,
    /// The subscriptions to events of the management cluster.
    pub subscriptions: Arc<Subscriptions>,
    /// The default profiles.
    pub defaults: Arc<[DefaultProfile]>,
    /// The default profiles as worker clusters store them that are their tenants' homes, once there
    /// is one.
    older_defaults: Arc<OnceLock<Arc<[DefaultProfile]>>>,
    /// The contents that default profiles in tenants' namespaces name; `None` if they are whole.
    contents: Option<Arc<DefaultContents>>,
    /// The tenants that may install newer default profiles now.
    pub rollout_slots: Arc<RolloutSlots>,
    /// The settings that all tenants share.
    pub rules: Rules,
}

impl Controllers {
    /// Creates the state. `scope` has the namespaces of profiles.
    pub fn new(
        scope: &Scope,
        defaults: Arc<[DefaultProfile]>,
        (policies, memory): (Arc<TenantPolicies>, Arc<Memory>),
        rules: Rules,
    ) -> Self {
        let quotas = Quotas::new(policies, &defaults, memory);
        let profiles = ProfileStore::new(scope.count(), quotas);
        profiles.hold_all(&defaults);
        Self {
            profiles: Arc::new(profiles),
            subscriptions: Arc::default(),
            defaults,
            older_defaults: Arc::default(),
            contents: None,
            rollout_slots: Arc::default(),
            rules,
        }
    }

    /// Has default profiles name their contents in the manager's namespace.
    #[must_use]
    pub fn with_contents_in(self, place: (Client, &str)) -> Self {
        let contents = DefaultContents::new(place, &self.defaults);
        Self {
            contents: Some(Arc::new(contents)),
            ..self
        }
    }

    /// Serves an engaged cluster until it is disengaged.
    pub async fn serve(&self, engagement: Engagement) {
        let Some(watches) = engagement.home.watches.clone() else {
            return self.serve_from_home(engagement).await;
        };
        let own = self.for_home(&engagement, &watches);
        let client = engagement.home.clients.client();
        tokio::select! {
            biased;
            () = Box::pin(own.serve_from_home(engagement)) => {}
            () = Box::pin(own.follow(client, watches)) => {}
        }
    }

    /// Returns these controllers with a store for the profiles of the engaged tenant's home alone.
    fn for_home(&self, engagement: &Engagement, watches: &HomeWatches) -> Self {
        let policies = TenantPolicies {
            rules: Vec::new(),
            default: Arc::clone(&engagement.policy),
        };
        let memory = Arc::clone(&engagement.shared.memory);
        let quotas = Quotas {
            home: Some(Arc::clone(&engagement.home.namespace)),
            ..Quotas::new(Arc::new(policies), &self.defaults, memory)
        };
        let older = || profile::as_older_definitions_store(&self.defaults);
        Self {
            defaults: Arc::clone(self.older_defaults.get_or_init(older)),
            profiles: Arc::new(self.profiles.beside(watches.profiles.count(), quotas)),
            subscriptions: Arc::default(),
            contents: None,
            ..self.clone()
        }
    }

    /// Watches configs and profiles, each in a scope of its own, until cancelled.
    pub async fn follow(&self, client: Client, watches: HomeWatches) {
        let HomeWatches {
            configs,
            profiles,
            health,
        } = watches;
        let subscriptions = &self.subscriptions;
        let reached = || (client.clone(), health.clone());
        let follow_configs = watches::follow_configs(reached(), configs, Arc::clone(subscriptions));
        let known = (Arc::clone(&self.profiles), self.contents.clone());
        let follow_profiles =
            profile_store::follow(reached(), profiles, known, Arc::clone(subscriptions));
        tokio::join!(follow_configs, follow_profiles);
    }

    /// Serves an engaged cluster until it is disengaged, while its home is watched.
    async fn serve_from_home(&self, engagement: Engagement) {
        let cancel = engagement.cancel.clone();
        let (store, writer) = reflector::store();
        let triggers = Arc::new(TriggerRouter::default());
        let context = Arc::new(self.context(engagement, store, &triggers));
        let subscriber = Subscriber {
            triggers,
            configs: Arc::clone(&context.configs),
        };
        let subscriber = Arc::new(subscriber);
        let _others = self.subscribe(&context, &subscriber);
        self.profiles.resize(
            &context.engagement.home.namespace,
            context.engagement.policy.profiles,
        );
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = Box::pin(self.prepare(&context)) => Box::pin(self.watch(context, writer)).await,
        }
    }

    fn context(
        &self,
        engagement: Engagement,
        machine_deployments: reflector::Store<MachineDeployment>,
        triggers: &Arc<TriggerRouter>,
    ) -> Context {
        let cluster_info = engagement.cluster_info.borrow().clone();
        let key = DigestKey::derive(&cluster_info.fetch_token);
        let policy = Arc::clone(&engagement.policy);
        let tenant_status = Arc::clone(&engagement.tenant_status);
        let tokens = Tokens::of(&engagement);
        let memory = Arc::clone(&engagement.shared.memory);
        let bytes_max = policy.metadata_bytes_max();
        let cache = || ObjectCache::within(bytes_max, Reservation::for_cache(&memory));
        Context {
            recorder: EventWriter::new(&engagement),
            engagement,
            rules: self.rules.clone(),
            defaults: Arc::clone(&self.defaults),
            contents: self.contents.clone(),
            rollout_slots: Arc::clone(&self.rollout_slots),
            profiles: Arc::clone(&self.profiles),
            wanted_profiles: WantedProfiles::default(),
            index: Arc::new(MachineDeploymentIndex::new(
                machine_deployments.clone(),
                policy.machine_deployments_max,
            )),
            machine_deployments,
            configs: Arc::new(cache()),
            secrets: cache(),
            tokens,
            node_credentials: NodeCredentials::within(&memory),
            registry_credentials: state::registry_credentials::CredentialsCache::default(),
            backoff: Arc::default(),
            held_back: HeldBack::default(),
            resync: Arc::new(ResyncQueue::new(&policy, tenant_status)),
            queue_latency: Arc::default(),
            machines: KnownMachines::default(),
            foreign_writes: ForeignWrites::default(),
            join_checks: JoinQueue::default(),
            triggers: Arc::clone(triggers),
            key: Mutex::new((cluster_info, key)),
        }
    }

    /// Subscribes to the configs and profiles of the tenant's home, and to the profiles of
    /// the namespaces that the operator allows. The caller keeps the subscriber for those.
    fn subscribe(&self, context: &Context, subscriber: &Arc<Subscriber>) -> Arc<Subscriber> {
        let home = &*context.engagement.home.namespace;
        self.subscriptions.subscribe(home, subscriber);
        let memory = &context.engagement.shared.memory;
        let of_others = Arc::new(Subscriber {
            triggers: Arc::clone(&subscriber.triggers),
            configs: Arc::new(ObjectCache::within(0, Reservation::surplus(memory))),
        });
        if context.engagement.policy.profile_reach == ProfileReach::Everywhere {
            self.subscriptions.subscribe_everywhere(&of_others);
        }
        for namespace in &context.engagement.policy.profile_namespaces {
            if namespace != home {
                self.subscriptions.subscribe(namespace, &of_others);
            }
        }
        of_others
    }

    /// Prepares everything that a reconcile relies on. Repeats this until it succeeds.
    async fn prepare(&self, context: &Context) {
        let mut delay = RetryDelay::default();
        let tenant_status = &context.engagement.tenant_status;
        while let Err(finding) = self.try_prepare(context).await {
            let (condition, finding) = *finding;
            tenant_status.cannot_engage(condition, finding);
            tokio::time::sleep(delay.next().unwrap_or_default()).await;
            context.engagement.health.well().await;
        }
        tenant_status.engaged();
    }

    async fn try_prepare(
        &self,
        context: &Context,
    ) -> Result<(), Box<(ConditionType, ConditionState)>> {
        let failed = |error: kube::Error| {
            let message = chain(&error).to_string();
            Box::new((
                ConditionType::Prepared,
                ConditionState::retried(Reason::InventoryFailed, message),
            ))
        };
        if !initial_sync::home_is_served(context)
            .await
            .map_err(failed)?
        {
            let message = "the cluster of the tenant's profiles and configs does not serve \
                           OperatingSystemProfile and OperatingSystemConfig \
                           (operatingsystemmanager.k8c.io/v1alpha1); waiting for the CRDs";
            let finding = ConditionState::wrong(Reason::ProfileNotServed, message);
            return Err(Box::new((ConditionType::Prepared, finding)));
        }
        self.profiles.ready().await;
        let all: Api<MachineDeployment> = Api::all(context.engagement.worker.client());
        match all.list_metadata(&ListParams::default().limit(1)).await {
            Err(error) if is_not_served(&error) => {
                let message = "the worker cluster does not serve MachineDeployment \
                               (cluster.k8s.io/v1alpha1); waiting for machine-controller's CRDs";
                let finding = ConditionState::wrong(Reason::MachineDeploymentNotServed, message);
                return Err(Box::new((ConditionType::Prepared, finding)));
            }
            listed => listed.map(drop).map_err(failed)?,
        }
        adoption::take_profiles(context).await.map_err(failed)?;
        initial_sync::run(context).await.map_err(failed)?;
        tokens::list(context).await.map_err(failed)?;
        if registry_credentials::refresh(context).await == Refreshed::Unknown {
            let message = context.registry_credentials.get().err().unwrap_or_default();
            let finding = ConditionState::retried(Reason::InventoryFailed, message);
            return Err(Box::new((ConditionType::Prepared, finding)));
        }
        credentials::report_setting(context);
        let kept = join::keep_fetcher(context).await;
        kept.map_err(|error| Box::new((ConditionType::Prepared, error.finding())))
    }

    /// Watches and reconciles until the cluster is disengaged.
    ///
    /// All these futures exist for each tenant and are idle most of the time. The work of one that
    /// wakes up is boxed, so that it takes memory only while it lasts.
    async fn watch(
        &self,
        context: Arc<Context>,
        writer: reflector::store::Writer<MachineDeployment>,
    ) {
        let engagement = &context.engagement;
        let (listed_sender, listed) = watch::channel(0);
        let watchers = Watchers {
            tenant_status: Arc::clone(&engagement.tenant_status),
            triggers: Arc::clone(&context.triggers),
            index: Arc::clone(&context.index),
            listed: listed_sender,
            bytes_max: engagement.policy.machine_deployment_bytes_max(),
            memory: Arc::clone(&engagement.shared.memory),
        };
        let (resyncs, due) = (
            Arc::clone(&context.resync),
            Arc::clone(&context.queue_latency),
        );
        // One client for both watches: it exists for as long as they do.
        let worker = engagement.worker.client();
        let health = &engagement.health;
        let changes = watches::machine_deployments(worker.clone(), health, writer, watchers)
            .inspect(move |changed| {
                let reference = ObjectRef::from_obj(changed);
                resyncs.changed(&reference);
                due.now(&reference, Trigger::Change);
            })
            .map(Ok);
        let (resyncs, due) = (&context.resync, &context.queue_latency);
        let destinations = Destinations {
            machine_deployments: context.machine_deployments.clone(),
            index: Arc::clone(&context.index),
            resync: Arc::clone(resyncs),
            queue_latency: Arc::clone(due),
            backoff: Arc::clone(&context.backoff),
        };
        let home = Arc::clone(&engagement.home.namespace);
        let references = Arc::clone(&context.triggers).stream(home, destinations);
        let references = stream::select(references, Arc::clone(resyncs).stream());
        let concurrency = u16::try_from(engagement.policy.reconciles_max).unwrap_or(u16::MAX);
        let reconciles = Controller::for_stream(changes, context.machine_deployments.clone())
            .with_config(Config::default().concurrency(concurrency))
            .reconcile_on(references)
            .graceful_shutdown_on(engagement.cancel.clone().cancelled_owned())
            .run(
                machine_deployment::reconcile,
                |_, never, _| match *never {},
                Arc::clone(&context),
            )
            .for_each(|done| {
                // An object that is gone before its reconcile begins needs nothing.
                if let Err(controller::Error::ObjectNotFound(gone)) = done {
                    resyncs.gone(&gone.name, gone.namespace.as_deref());
                    due.gone(&gone.name, gone.namespace.as_deref());
                }
                std::future::ready(())
            });
        let others = Box::pin(async {
            tokio::join!(
                watches::follow_secrets(worker, Arc::clone(&context)),
                self.keep_profiles(&context),
                follow_settings(&context),
                follow_cluster_info(&context),
                follow_held_back(&context),
                join::keep(&context),
                remove_orphans(&context, listed),
                machine_rollout::follow(&context),
            )
        });
        // Once the cluster is disengaged, the controller ends by itself after the running
        // reconciles.
        tokio::select! {
            () = reconciles => {}
            _ = others => {}
        }
    }

    async fn keep_profiles(&self, context: &Context) {
        let changed = Notify::new();
        let follow = async {
            let mut worker_cluster = context.engagement.worker_cluster.clone();
            let mut profiles = self.profiles.changes(&context.engagement.home.namespace);
            loop {
                tokio::select! {
                    Ok(()) = worker_cluster.changed() => {}
                    () = profiles.changed() => {}
                }
                changed.notify_one();
            }
        };
        tokio::join!(profile::keep(context, &self.defaults, &changed), follow);
    }
}

/// Reconciles all machine deployments when the spec of the WorkerCluster or the registry
/// credentials change. The credentials are read again with each new spec and periodically: soon if
/// they could not be read or used, otherwise as often as the cluster info.
async fn follow_settings(context: &Context) {
    let mut worker_cluster = context.engagement.worker_cluster.clone();
    let spec = |own: &Option<Arc<WorkerCluster>>| own.as_ref().map(|own| own.spec.clone());
    let mut before = spec(&worker_cluster.borrow_and_update());
    let mut delay = RetryDelay::default();
    let mut is_due = false;
    let mut next = Instant::now() + pause(context, Refreshed::Same, &mut delay);
    loop {
        tokio::select! {
            Ok(()) = worker_cluster.changed() => {
                let now = spec(&worker_cluster.borrow_and_update());
                if now == before {
                    continue;
                }
                before = now;
                is_due = true;
                credentials::report_setting(context);
            }
            () = sleep_until(next) => {}
        }
        let refreshed = Box::pin(registry_credentials::refresh(context)).await;
        is_due |= refreshed == Refreshed::Changed;
        // No machine deployment can be served without its credentials, so wait for them.
        if is_due && refreshed != Refreshed::Unknown {
            is_due = false;
            context.triggers.enqueue(Affected::Everywhere);
        }
        next = Instant::now() + pause(context, refreshed, &mut delay);
    }
}

/// Returns how long to wait before the registry credentials are read again.
fn pause(context: &Context, refreshed: Refreshed, delay: &mut RetryDelay) -> Duration {
    let was_read = matches!(refreshed, Refreshed::Same | Refreshed::Changed);
    if was_read && context.registry_credentials.get().is_ok() {
        *delay = RetryDelay::default();
        context.engagement.shared.cluster_info_interval
    } else {
        delay.next().unwrap_or_default()
    }
}

/// Reconciles all machine deployments when the cluster info changes, because it is part of their
/// documents.
async fn follow_cluster_info(context: &Context) {
    let mut cluster_info = context.engagement.cluster_info.clone();
    while cluster_info.changed().await.is_ok() {
        context.triggers.enqueue(Affected::Everywhere);
    }
    std::future::pending::<()>().await;
}

/// Reconciles the machine deployments that were held back, once the cluster is healthy.
async fn follow_held_back(context: &Context) {
    loop {
        context.held_back.added().await;
        context.engagement.health.well().await;
        let waiting = context.held_back.take();
        for reference in &waiting {
            context.queue_latency.now(reference, Trigger::Retry);
        }
        context.resync.add(waiting);
    }
}

/// Removes orphans each time the machine deployments have been listed.
async fn remove_orphans(context: &Context, mut listed: watch::Receiver<u64>) {
    while listed.changed().await.is_ok() {
        let mut delay = RetryDelay::new(Duration::from_secs(1), Duration::from_mins(1));
        while let Err(error) = Box::pin(orphans::remove(context)).await {
            tracing::warn!(
                registration = %context.engagement.registration,
                error = %chain(&error),
                "cannot remove what was made for machine deployments that are gone"
            );
            tokio::time::sleep(delay.next().unwrap_or_default()).await;
        }
    }
    std::future::pending::<()>().await;
}
