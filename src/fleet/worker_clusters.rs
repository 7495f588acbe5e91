//! Follows the WorkerClusters of the fleet, and creates one for a registration that has none.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures::{StreamExt, stream};
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef},
        watcher,
    },
};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    index::Index,
    registry::{RegisteredCluster, Registry},
};
use crate::api::{
    condition::ConditionType,
    names::{PERMITTED, SETTINGS_RESTORED},
    reason::Reason,
    worker_cluster::{
        FleetId, SecretReference, WorkerCluster, WorkerClusterSpec, WorkerClusterStatus,
    },
};
use crate::client::watch::{RELIST, Scope, covers, interpret, relisted};
use crate::tenant::{
    id::{RegistrationId, TenantId},
    inventory::Inventory,
};

/// The number of registered clusters that are notified of a list before other tasks run. Notifying
/// ten thousand at once would block the thread.
const NOTIFIED_AT_ONCE: usize = 100;

/// The last known WorkerClusters of the fleet.
#[derive(Clone, Debug)]
pub struct WorkerClusters {
    /// One watch of all namespaces, or one watch for each.
    watches: Arc<HashMap<Option<String>, Watched>>,
    /// The WorkerClusters that cannot be decoded.
    unreadable: Arc<Mutex<BTreeSet<RegistrationId>>>,
    /// The number of watches that have not completed their first list. The readiness of the stores
    /// wakes only one waiter, but every tenant waits here.
    incomplete: watch::Sender<usize>,
}

/// The state of one watch.
#[derive(Debug)]
struct Watched {
    store: reflector::Store<WorkerCluster>,
    by_registration: Index<WorkerCluster, RegistrationId>,
}

impl WorkerClusters {
    /// Returns the WorkerCluster that names the registration's Secret. If there are several,
    /// returns the oldest.
    pub fn of(&self, id: &RegistrationId) -> Option<Arc<WorkerCluster>> {
        let watched = self.watch_of(id.tenant.namespace())?;
        let found = watched.by_registration.of(id).into_iter();
        found.min_by_key(|found| (found.creation_timestamp().map(|time| time.0), found.uid()))
    }

    /// Returns the WorkerCluster of this name.
    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<WorkerCluster>> {
        let watched = self.watch_of(namespace)?;
        watched.store.get(&ObjectRef::new(name).within(namespace))
    }

    /// Returns the registrations with a status from this fleet, in one namespace or in all, except
    /// for those that are reported as removed. A status without a fleet was written by an earlier
    /// release, and counts for every fleet.
    pub fn registered_in(&self, fleet: &FleetId, limit: Option<&str>) -> Vec<RegistrationId> {
        let is_registered = |found: &WorkerCluster| {
            if holder(found).is_some_and(|holder| !holder.may_be(fleet)) {
                return false;
            }
            found.condition(ConditionType::Registered).is_some() && !is_removed(found)
        };
        let watches: Vec<&Watched> = match limit {
            Some(namespace) => self.watch_of(namespace).into_iter().collect(),
            None => self.watches.values().collect(),
        };
        let registered = watches
            .iter()
            .flat_map(|watched| watched.store.state_filter(is_registered));
        registered.map(|found| registration_of(&found)).collect()
    }

    /// Returns the name of a WorkerCluster of the tenant that cannot be decoded, if there is one.
    /// It may belong to any of the tenant's registrations.
    pub fn unreadable_in(&self, tenant: &TenantId) -> Option<String> {
        let unreadable = self.unreadable.lock();
        let found = unreadable.iter().find(|it| it.tenant == *tenant);
        found.map(|it| it.name.to_string())
    }

    /// Returns the watch that sees a namespace.
    fn watch_of(&self, namespace: &str) -> Option<&Watched> {
        let everywhere = self.watches.get(&None);
        everywhere.or_else(|| self.watches.get(&Some(namespace.to_owned())))
    }

    /// Waits until all WorkerClusters have been listed once.
    pub async fn ready(&self) {
        // The sender is part of `self`, so it cannot be gone.
        let _ = self
            .incomplete
            .subscribe()
            .wait_for(|watches| *watches == 0)
            .await;
    }
}

/// Returns the registration that a WorkerCluster names.
fn registration_of(worker_cluster: &WorkerCluster) -> RegistrationId {
    #[cfg(test)]
    super::index::visits::count();
    RegistrationId::new(
        &worker_cluster.namespace().unwrap_or_default(),
        &worker_cluster.spec.kubeconfig_secret_ref.name,
    )
}

/// The page size for lists of WorkerClusters: 5 KiB each.
const PAGE: u32 = 100;

/// Watches the WorkerClusters and updates each registered cluster with its own. Returns the stores,
/// and a future that polls the watches and never completes.
pub fn follow(
    management: &Client,
    scope: &Scope,
    registry: &Arc<Registry>,
) -> (WorkerClusters, impl Future<Output = ()> + Send + use<>) {
    let (mut by_limit, mut watches) = (HashMap::new(), Vec::new());
    for (limit, api) in scope.apis::<DeserializeGuard<WorkerCluster>>(management) {
        let (store, writer) = reflector::store();
        let known = Watched {
            store,
            by_registration: Index::new(|found| vec![registration_of(found)]),
        };
        by_limit.insert(limit.clone(), known);
        watches.push((limit, api, writer));
    }
    let incomplete = watch::Sender::new(by_limit.len());
    let clusters = WorkerClusters {
        watches: Arc::new(by_limit),
        unreadable: Arc::default(),
        incomplete,
    };
    let watches = watches.into_iter().map(|(limit, api, writer)| {
        let reader = clusters.clone();
        let known = writer.as_reader();
        let (seen_by, seen_in) = (clusters.clone(), limit.clone());
        let config = watcher::Config::default();
        let watch = move |page| watcher(api.clone(), config.clone().page_size(page));
        let events = relisted(RELIST, PAGE, watch, Ok)
            .filter_map(move |event| {
                let event = readable(event, (&seen_by, seen_in.as_ref()), &known);
                std::future::ready(event)
            })
            .reflect(writer);
        let mut is_complete = false;
        interpret("WorkerClusters", events, move |event| {
            if let Some(watched) = reader.watches.get(&limit) {
                watched.by_registration.follow(&event, &watched.store);
            }
            let is_list = matches!(event, watcher::Event::InitDone);
            let is_first_list = is_list && !std::mem::replace(&mut is_complete, true);
            Some((event, limit.clone(), is_first_list))
        })
        .boxed()
    });
    let (reader, registry) = (clusters.clone(), Arc::clone(registry));
    let watches = stream::select_all(watches).for_each(move |(event, limit, is_first_list)| {
        let (reader, registry) = (reader.clone(), Arc::clone(&registry));
        async move {
            notify_registrations(&reader, &registry, (event, limit.as_deref())).await;
            // Tenants that wait for the list find their own WorkerCluster.
            if is_first_list {
                reader
                    .incomplete
                    .send_modify(|watches| *watches = watches.saturating_sub(1));
            }
        }
    });
    (clusters, watches)
}

/// Decodes the objects of an event. An object that cannot be decoded must not hide the others: it
/// is kept as it was when it could be decoded, or else treated as absent.
fn readable(
    event: watcher::Result<watcher::Event<DeserializeGuard<WorkerCluster>>>,
    (clusters, limit): (&WorkerClusters, Option<&String>),
    known: &reflector::Store<WorkerCluster>,
) -> Option<watcher::Result<watcher::Event<WorkerCluster>>> {
    use watcher::Event;
    let readable = |found: DeserializeGuard<WorkerCluster>| {
        let reference = ObjectRef::new(&found.name_any());
        let reference = reference.within(&found.namespace().unwrap_or_default());
        if found.0.is_err() {
            clusters.unreadable.lock().insert(id(&found));
        } else {
            clusters.unreadable.lock().remove(&id(&found));
        }
        found.0.ok().or_else(|| {
            tracing::warn!(worker_cluster = %reference, "a WorkerCluster cannot be read");
            known.get(&reference).as_deref().cloned()
        })
    };
    let event = match event {
        Ok(event) => event,
        Err(error) => return Some(Err(error)),
    };
    Some(Ok(match event {
        Event::Apply(found) => Event::Apply(readable(found)?),
        Event::Delete(found) => {
            let gone = id(&found);
            let deleted = readable(found);
            clusters.unreadable.lock().remove(&gone);
            Event::Delete(deleted?)
        }
        Event::InitApply(found) => Event::InitApply(readable(found)?),
        Event::Init => {
            // Objects that the list lacks do not exist any more.
            let mut unreadable = clusters.unreadable.lock();
            unreadable.retain(|it| !covers(limit, it.tenant.namespace()));
            Event::Init
        }
        Event::InitDone => Event::InitDone,
    }))
}

/// Returns the namespace and the name of a WorkerCluster.
fn id(found: &impl ResourceExt) -> RegistrationId {
    RegistrationId::new(&found.namespace().unwrap_or_default(), &found.name_any())
}

/// Notifies the registered clusters that an event of a watch concerns, and lets other tasks run in
/// between.
async fn notify_registrations(
    clusters: &WorkerClusters,
    registry: &Registry,
    (event, limit): (watcher::Event<WorkerCluster>, Option<&str>),
) {
    match event {
        watcher::Event::Apply(found) | watcher::Event::Delete(found) => {
            if let Some(registered) = registry.get(&registration_of(&found)) {
                notify(clusters, &registered);
            }
        }
        watcher::Event::InitDone => {
            for registered in registry.within(limit).chunks(NOTIFIED_AT_ONCE) {
                for registered in registered {
                    notify(clusters, registered);
                }
                tokio::task::yield_now().await;
            }
        }
        watcher::Event::Init | watcher::Event::InitApply(_) => {}
    }
}

/// Returns the parts that matter to the tasks that serve the cluster.
fn matter(own: &WorkerCluster) -> (Option<&str>, &WorkerClusterSpec, [Option<&String>; 2]) {
    let said = [SETTINGS_RESTORED, PERMITTED].map(|key| own.annotations().get(key));
    (own.metadata.uid.as_deref(), &own.spec, said)
}

/// Returns which fleet serves the tenant and which one asks for it. Of the status, which we write
/// ourselves, nothing else matters.
fn fleets(own: &WorkerCluster) -> (Option<FleetId>, bool, Option<&String>) {
    (holder(own), is_let_go(own), request(own))
}

/// Returns true if the registration was removed from the fleet that served it, and that fleet does
/// not try any more to give the cluster back.
pub fn is_let_go(own: &WorkerCluster) -> bool {
    let released = own.condition(ConditionType::Released);
    is_removed(own) && released.is_some_and(|it| it.reason != Reason::ReleaseFailed)
}

/// Returns the fleet that asks for the tenant.
pub fn request(own: &WorkerCluster) -> Option<&String> {
    own.status.as_ref()?.requested_by_fleet.as_ref()
}

/// Returns the fleet that serves the tenant, by its status.
pub fn holder(own: &WorkerCluster) -> Option<FleetId> {
    own.status.as_ref()?.fleet()
}

/// Returns true if the fleet in which it was registered reports that the registration was removed.
pub fn is_removed(own: &WorkerCluster) -> bool {
    let registered = own.condition(ConditionType::Registered);
    registered.is_some_and(|it| it.reason == Reason::RegistrationRemoved)
}

/// Returns true if it was deleted and created again, and nobody has confirmed its settings yet.
pub fn is_restored(own: &WorkerCluster) -> bool {
    own.annotations().contains_key(SETTINGS_RESTORED)
}

fn status(own: &WorkerCluster) -> Option<&WorkerClusterStatus> {
    own.status.as_ref()
}

/// Updates a registered cluster with its WorkerCluster. A changed status does not wake the tasks
/// that serve the cluster, unless it names another fleet; it wakes the task that writes the status,
/// which compares it with the desired one.
pub fn notify(clusters: &WorkerClusters, registered: &RegisteredCluster) {
    let own = clusters.of(&registered.id);
    if let Some(own) = &own {
        registered.last.send_if_modified(|before| {
            let news = before.as_deref().map(matter) != Some(matter(own));
            *before = Some(Arc::clone(own));
            news
        });
    }
    let mut has_another_status = false;
    registered.worker_cluster.send_if_modified(|before| {
        let news = before.as_deref().map(matter) != own.as_deref().map(matter)
            || before.as_deref().map(fleets) != own.as_deref().map(fleets);
        has_another_status = before.as_deref().map(status) != own.as_deref().map(status);
        *before = own;
        news
    });
    if has_another_status {
        registered.status.compare();
    }
}

/// Creates a WorkerCluster, unless it exists.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn create(management: &Client, new: &WorkerCluster) -> Result<(), kube::Error> {
    let namespace = new.namespace().unwrap_or_default();
    let api: Api<WorkerCluster> = Api::namespaced(management.clone(), &namespace);
    match api.create(&PostParams::default(), new).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop),
    }
}

/// Returns a new WorkerCluster for a registration, with default settings and the name of its
/// worker cluster.
pub fn with_defaults(id: &RegistrationId, inventory: &Inventory) -> WorkerCluster {
    let (name, home) = inventory.worker_cluster(&id.name);
    let spec = WorkerClusterSpec {
        kubeconfig_secret_ref: SecretReference {
            name: id.name.to_string(),
        },
        home,
        ..WorkerClusterSpec::default()
    };
    let mut new = WorkerCluster::new(name, spec);
    new.metadata.namespace = Some(id.tenant.namespace().to_owned());
    new
}

/// Returns a new WorkerCluster with the same settings, labels and annotations as one that was
/// deleted, and an annotation that says so.
pub fn restored(deleted: &WorkerCluster) -> WorkerCluster {
    let mut restored = WorkerCluster::new(&deleted.name_any(), deleted.spec.clone());
    restored
        .metadata
        .namespace
        .clone_from(&deleted.metadata.namespace);
    restored
        .metadata
        .labels
        .clone_from(&deleted.metadata.labels);
    let mut annotations = deleted.annotations().clone();
    annotations.insert(SETTINGS_RESTORED.to_owned(), "true".to_owned());
    restored.metadata.annotations = Some(annotations);
    restored
}

#[cfg(test)]
mod tests {
    use fake_cluster::Cluster;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::fleet::{
        discovery::{KubeconfigText, Registration, Settings},
        index::visits,
    };
    use crate::tenant::inventory::Inventory;

    const REGISTRATIONS: usize = 10_000;

    fn id(index: usize) -> RegistrationId {
        RegistrationId::new(&format!("tenant-{index}"), "kubeconfig")
    }

    /// Creates a cluster with a WorkerCluster for each registration.
    fn a_cluster() -> Cluster {
        let cluster = Cluster::default();
        cluster
            .apply_yaml(include_str!("../../manifests/crds/workerclusters.yaml"))
            .expect("the definition applies");
        for index in 0..REGISTRATIONS {
            let id = id(index);
            let worker_cluster = json!({
                "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
                "kind": "WorkerCluster",
                "metadata": {"name": "own", "namespace": id.tenant.namespace()},
                "spec": {"kubeconfigSecretRef": {"name": &*id.name}},
            });
            cluster.put_raw(worker_cluster).expect("the kind is served");
        }
        cluster
    }

    fn a_registry() -> Arc<Registry> {
        let registry = Arc::new(Registry::new(&[Inventory::Label].into()));
        for index in 0..REGISTRATIONS {
            let registration = Registration {
                id: id(index),
                uid: index.to_string(),
                created: Timestamp::UNIX_EPOCH,
                version: String::new(),
                kubeconfig: KubeconfigText::Missing,
                inventory: Inventory::Label,
                settings: Settings::Operator,
            };
            registry.present(registration);
        }
        registry
    }

    /// Returns the number of registered clusters that know their WorkerCluster.
    fn notified(registry: &Registry) -> usize {
        let registered = registry.all();
        let is_notified =
            |registered: &&Arc<RegisteredCluster>| registered.worker_cluster.borrow().is_some();
        registered.iter().filter(is_notified).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_worker_clusters_lets_other_tasks_run_between_members() {
        let (cluster, registry) = (a_cluster(), a_registry());
        let (clusters, follow) = follow(&cluster.client(), &Scope::All, &registry);
        let mut follow = std::pin::pin!(follow);
        let (mut before, mut most) = (0, 0);
        let counted = std::future::poll_fn(|context| {
            let polled = follow.as_mut().poll(context);
            let now = notified(&registry);
            most = most.max(now - before);
            before = now;
            polled
        });
        tokio::select! {
            () = counted => panic!("it follows until it is dropped"),
            () = clusters.ready() => {}
        }
        assert_eq!(
            notified(&registry),
            REGISTRATIONS,
            "the first list is complete before it counts"
        );
        assert!(
            most <= NOTIFIED_AT_ONCE,
            "{most} registered clusters were notified in one poll"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_worker_clusters_visits_each_a_few_times() {
        let (cluster, registry) = (a_cluster(), a_registry());
        let (clusters, follow) = follow(&cluster.client(), &Scope::All, &registry);
        visits::take();
        let begun = std::time::Instant::now();
        tokio::select! {
            () = follow => panic!("it follows until it is dropped"),
            () = clusters.ready() => {}
        }
        println!("a list of {REGISTRATIONS} took {:?}", begun.elapsed());
        assert_eq!(notified(&registry), REGISTRATIONS);
        // One visit to compute the key. A lookup visits no other objects.
        assert!(clusters.of(&id(REGISTRATIONS / 2)).is_some());
        let visits = visits::take();
        assert!(
            visits <= 2 * REGISTRATIONS,
            "{visits} visits of {REGISTRATIONS} WorkerClusters"
        );
    }
}
