//! The watches of a tenant's reconciles: two in the worker cluster, and that of configs in the
//! cluster of the tenant's home.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::PartialObjectMeta,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        reflector::store::Writer,
        watcher::{self, Event},
    },
};
use tokio::sync::watch;

use super::{
    context::Context, machine_deployment_index::MachineDeploymentIndex, object_cache::News,
    subscriptions::Subscriptions,
};
use crate::api::{
    config::OperatingSystemConfig,
    machine_deployment::MachineDeployment,
    names::{CLOUD_INIT_SETTINGS, DerivedNames, FETCHER_TOKEN, MADE_FOR},
};
use crate::client::{
    account::Account,
    health::Health,
    memory::{Memory, Reservation},
    tenant_status::TenantStatus,
    watch::{RELIST, Scope, Watched, interpret, list_of_at_most, relisted},
};
use crate::controllers::{
    queue::triggers::{Affected, TriggerRouter},
    state::foreign_writes::ForeignWrite,
};

/// The page size of machine deployments. Each has about 5 KiB.
const PAGE: u32 = 100;
/// The page size of metadata. Each object has about 1 KiB.
const PAGE_OF_METADATA: u32 = 500;

/// The highest number of Secrets, or of configs, in a list of a worker cluster. A thousand machine
/// deployments have two thousand Secrets.
const OBJECTS_MAX: usize = 10_000;

/// Returns the machine deployments of the worker cluster, each whenever it changes. A list of all
/// of them enqueues a trigger instead, because changes have a higher priority.
pub fn machine_deployments(
    worker: Client,
    health: &Arc<Health>,
    writer: Writer<MachineDeployment>,
    watchers: Watchers,
) -> impl Stream<Item = MachineDeployment> + Send + use<> {
    let api: Api<DeserializeGuard<MachineDeployment>> = Api::all(worker);
    let watched = Watched::of("machine deployments", Some(health));
    let reservation = Reservation::guaranteed(&watchers.memory);
    let mut account = Account::of(watchers.bytes_max, reservation);
    let watch = move |page| {
        let config = watcher::Config::default().page_size(page);
        watcher::watcher(api.clone(), config).map_ok(readable)
    };
    let events = relisted(RELIST, PAGE, watch, move |event| account.keep(event)).reflect(writer);
    let (index, mut listed) = (Arc::clone(&watchers.index), BTreeSet::new());
    let events = events.inspect(move |event| {
        if let Ok(event) = event {
            index.follow(event);
        }
    });
    interpret(watched, events, move |event| match event {
        Event::Init => {
            listed.clear();
            None
        }
        Event::InitApply(found) => {
            listed.insert(full_name(&found));
            None
        }
        Event::InitDone => {
            let existing = std::mem::take(&mut listed);
            watchers.tenant_status.update(|report| {
                let outcomes = report.outcomes.len();
                report.outcomes.retain(|name, _| existing.contains(name));
                let before = report.existing.replace(existing);
                report.outcomes.len() != outcomes || before != report.existing
            });
            watchers.listed.send_modify(|lists| *lists += 1);
            watchers.triggers.enqueue(Affected::Listed);
            None
        }
        Event::Apply(found) => {
            let name = full_name(&found);
            watchers.tenant_status.update(|report| {
                let existing = report.existing.as_mut();
                existing.is_some_and(|existing| existing.insert(name))
            });
            Some(found)
        }
        Event::Delete(gone) => {
            watchers.gone(&gone);
            None
        }
    })
}

/// Converts an event. A machine deployment that cannot be decoded is passed on as such, because it
/// must not hide the others.
fn readable(event: Event<DeserializeGuard<MachineDeployment>>) -> Event<MachineDeployment> {
    let readable = |found: DeserializeGuard<MachineDeployment>| {
        found
            .0
            .unwrap_or_else(|unreadable| unreadable.metadata.into())
    };
    match event {
        Event::Apply(found) => Event::Apply(readable(found)),
        Event::Delete(found) => Event::Delete(readable(found)),
        Event::Init => Event::Init,
        Event::InitApply(found) => Event::InitApply(readable(found)),
        Event::InitDone => Event::InitDone,
    }
}

/// The consumers of the watch of machine deployments.
#[derive(Clone, Debug)]
pub struct Watchers {
    /// The tenant's status.
    pub tenant_status: Arc<TenantStatus>,
    /// The tenant's triggers.
    pub triggers: Arc<TriggerRouter>,
    /// The index of the tenant's machine deployments.
    pub index: Arc<MachineDeploymentIndex>,
    /// Counts completed lists of machine deployments, and deletions after the first list. It
    /// replaces the store's own `wait_until_ready`, which wakes only one of several waiters.
    pub listed: watch::Sender<u64>,
    /// The memory limit of all machine deployments, in bytes.
    pub bytes_max: usize,
    /// The memory that all tenants share.
    pub memory: Arc<Memory>,
}

impl Watchers {
    /// Handles a deletion. It may end a name conflict of other machine deployments.
    fn gone(&self, gone: &MachineDeployment) {
        let name = full_name(gone);
        self.tenant_status.update(|report| {
            let existing = report.existing.as_mut();
            let existed = existing.is_some_and(|existing| existing.remove(&name));
            report.outcomes.remove(&name).is_some() || existed
        });
        let namespace = gone.namespace().unwrap_or_default();
        let names = DerivedNames::new(&namespace, &gone.name_any());
        self.triggers.enqueue(Affected::Overlapping(names));
        // Orphans are possible: another program may have removed our finalizer.
        self.listed
            .send_modify(|lists| *lists += u64::from(*lists > 0));
    }
}

fn full_name(found: &MachineDeployment) -> String {
    format!(
        "{}/{}",
        found.namespace().unwrap_or_default(),
        found.name_any()
    )
}

/// Follows the Secrets of `cloud-init-settings`, by their metadata alone, until cancelled.
pub async fn follow_secrets(worker: Client, context: Arc<Context>) {
    let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(worker, CLOUD_INIT_SETTINGS);
    let watch = move |page| {
        let config = watcher::Config::default().page_size(page);
        watcher::watcher(api.clone(), config)
    };
    let events = relisted(
        RELIST,
        PAGE_OF_METADATA,
        watch,
        list_of_at_most(Some(OBJECTS_MAX)),
    );
    let mut listed = BTreeSet::new();
    let registration = context.engagement.registration.to_string();
    let watched = Watched::of("Secrets", Some(&context.engagement.health));
    interpret(watched, events, move |event| {
        match event {
            Event::Init => {
                listed.clear();
                context.secrets.list_begins();
            }
            Event::InitApply(found) => {
                listed.insert(found.name_any());
                on_secret_applied(&context, found);
            }
            Event::Apply(found) => {
                let document = is_document(&found).then(|| found.name_any());
                let news = on_secret_applied(&context, found);
                if let (Some(name), News::Yes) = (document, news) {
                    context.foreign_writes.record(&name, ForeignWrite::Changed);
                }
            }
            Event::Delete(gone) => {
                if context.secrets.watched_deletion(&gone.metadata) == News::Yes {
                    if is_document(&gone) {
                        let name = gone.name_any();
                        context.foreign_writes.record(&name, ForeignWrite::Deleted);
                    }
                    on_secret_deleted(&context, gone.name_any());
                }
            }
            Event::InitDone => {
                for gone in context.secrets.watched_all(&std::mem::take(&mut listed)) {
                    on_secret_deleted(&context, gone);
                }
            }
        }
        context.engagement.shared.metrics.set_cluster_objects(
            &registration,
            context.secrets.len() + context.machine_deployments.len(),
        );
        Some(())
    })
    .collect::<()>()
    .await;
}

/// Returns true if the Secret was created for a machine deployment.
fn is_document(secret: &PartialObjectMeta<Secret>) -> bool {
    secret.annotations().contains_key(MADE_FOR)
}

/// Without the fetcher's token, nodes cannot fetch their documents. Therefore the cluster is
/// engaged again, which recreates the token and reads it.
fn on_secret_deleted(context: &Context, name: String) {
    if name == FETCHER_TOKEN {
        context.engagement.cancel.cancel();
    }
    context.engagement.foreign_write.notify_one();
    context.triggers.enqueue(Affected::Made(name));
}

fn on_secret_applied(context: &Context, found: PartialObjectMeta<Secret>) -> News {
    let name = found.name_any();
    let news = context.secrets.watched(found.metadata);
    match news {
        News::No => return news,
        News::NoRoom => {
            let why = format!("there is no memory left for Secret {name}: delete some");
            context.engagement.health.watch_failed(why);
            return news;
        }
        News::Yes => {}
        News::Restored => context.was_restored(),
    }
    if name == FETCHER_TOKEN {
        context.engagement.cluster_info_notify.notify_one();
    }
    context.triggers.enqueue(Affected::Made(name));
    news
}

/// Follows the configs of a cluster, by their metadata alone, until cancelled. `health` is that of
/// a worker cluster.
pub async fn follow_configs(
    (client, health): (Client, Option<Arc<Health>>),
    scope: Scope,
    subscriptions: Arc<Subscriptions>,
) {
    let apis = scope
        .apis::<PartialObjectMeta<OperatingSystemConfig>>(&client)
        .into_iter();
    let watches = apis.map(|(limit, api)| {
        let subscriptions = Arc::clone(&subscriptions);
        let mut listed: HashMap<String, BTreeSet<String>> = HashMap::new();
        let watch = move |page| {
            let config = watcher::Config::default().page_size(page);
            watcher::watcher(api.clone(), config)
        };
        let objects_max = health.as_ref().map(|_| OBJECTS_MAX);
        let admit = list_of_at_most(objects_max);
        let events = relisted(RELIST, PAGE_OF_METADATA, watch, admit);
        interpret(
            Watched::of("configs", health.as_ref()),
            events,
            move |event| {
                match event {
                    Event::Init => {
                        listed.clear();
                        subscriptions.configs_list_begins(limit.as_ref());
                    }
                    Event::InitApply(found) => {
                        let namespace = found.namespace().unwrap_or_default();
                        listed
                            .entry(namespace)
                            .or_default()
                            .insert(found.name_any());
                        subscriptions.config_changed(&found.metadata);
                    }
                    Event::Apply(found) => subscriptions.config_changed(&found.metadata),
                    Event::Delete(gone) => subscriptions.config_deleted(&gone.metadata),
                    Event::InitDone => {
                        subscriptions.configs_listed(limit.as_ref(), &std::mem::take(&mut listed));
                    }
                }
                Some(())
            },
        )
        .boxed()
    });
    stream::select_all(watches).collect::<()>().await;
}
