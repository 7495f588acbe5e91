//! Finds the user clusters of a KKP seed. In each namespace `cluster-<id>`, KKP keeps a Secret with
//! a kubeconfig, and a Deployment of an operating-system-manager with all settings in its command
//! line. A cluster is registered while that Deployment wants no replica.
//!
//! The watches see metadata alone. A change is read, with two requests.

mod hints;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use futures::{
    FutureExt, Stream, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream, FuturesUnordered},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{Api, Client, Resource as _, api::ObjectMeta, core::DeserializeGuard};
use tokio::{sync::Semaphore, time::sleep};

use self::hints::{Hint, Hints};
use super::{Discovered, Gone, Registration, Settings};
use crate::api::worker_cluster::{WorkerCluster, WorkerClusterSpec};
use crate::client::{retry_delay::RetryDelay, watch::Scope};
use crate::telemetry::chain::chain;
use crate::tenant::{id::RegistrationId, inventory::Inventory, report::counted};

/// What KKP calls the Deployment.
pub const DEPLOYMENT: &str = "operating-system-manager";
/// What KKP calls the Secret with its kubeconfig.
pub const SECRET: &str = "operatingsystemmanager-kubeconfig";
/// What the namespaces of user clusters begin with.
const PREFIX: &str = "cluster-";

/// The number of user clusters that are read at the same time.
const READS_MAX: usize = 16;

/// Returns the settings in a Deployment, for the Secret with this name, or why they cannot be used.
pub type ReadSettings =
    Arc<dyn Fn(&Deployment, &str) -> Result<WorkerClusterSpec, String> + Send + Sync>;

/// Returns KKP's name of the user cluster in a namespace.
pub fn cluster_in(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(PREFIX).filter(|id| !id.is_empty())
}

/// Returns the namespace of the user cluster with this name.
pub fn namespace_of(id: &str) -> String {
    format!("{PREFIX}{id}")
}

/// Why a user cluster is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// KKP runs no manager for it.
    #[error("it has no Deployment {DEPLOYMENT}")]
    NoManager,
    /// KKP's manager serves it.
    #[error("its Deployment {DEPLOYMENT} wants {0}")]
    Running(String),
    /// KKP has not made a kubeconfig for it.
    #[error("it has no Secret {SECRET}")]
    NoKubeconfig,
    /// An operator has registered it.
    #[error("its Secret {SECRET} has the label of a registration")]
    Labelled,
}

/// KKP's manager of a user cluster.
#[derive(Debug)]
pub enum Manager {
    /// There is no Deployment.
    None,
    /// The Deployment cannot be decoded. Nothing is concluded from that: a cluster that is served
    /// stays so, and the Lease keeps KKP's manager and ours apart.
    Undecodable,
    /// The Deployment.
    Deployed(Box<Deployment>),
}

impl Manager {
    /// Returns the number of replicas that it should have, if that is known.
    pub fn replicas(&self) -> Option<i32> {
        match self {
            Self::None | Self::Undecodable => None,
            // Kubernetes' default.
            Self::Deployed(it) => Some(it.spec.replicas.unwrap_or(1)),
        }
    }

    /// Returns the WorkerCluster with its settings, under KKP's name of the user cluster in this
    /// namespace.
    ///
    /// # Errors
    ///
    /// Why the settings cannot be used. The text is for operators.
    pub fn worker_cluster(
        &self,
        namespace: &str,
        read: &ReadSettings,
    ) -> Result<WorkerCluster, String> {
        let spec = match self {
            Self::None => return Err(LeftOut::NoManager.to_string()),
            Self::Undecodable => {
                return Err(format!("its Deployment {DEPLOYMENT} cannot be decoded"));
            }
            Self::Deployed(deployment) => read(deployment, SECRET)?,
        };
        let mut derived = WorkerCluster::new(cluster_in(namespace).unwrap_or(namespace), spec);
        derived.metadata.namespace = Some(namespace.to_owned());
        Ok(derived)
    }
}

/// A user cluster: what is known of its parts.
#[derive(Debug)]
pub struct UserCluster {
    /// Its namespace.
    pub namespace: String,
    /// Its manager.
    pub manager: Manager,
    /// The metadata of the Secret with its kubeconfig.
    pub secret: Option<ObjectMeta>,
}

impl UserCluster {
    /// Returns the settings with which it is served.
    ///
    /// # Errors
    ///
    /// [`LeftOut`] if it is not served.
    pub fn settings(&self, read: &ReadSettings) -> Result<Settings, LeftOut> {
        let replicas = match &self.manager {
            Manager::None => return Err(LeftOut::NoManager),
            Manager::Undecodable => 0,
            Manager::Deployed(_) => self.manager.replicas().unwrap_or(1),
        };
        let replicas = usize::try_from(replicas).unwrap_or_default();
        if replicas > 0 {
            return Err(LeftOut::Running(counted(replicas, "replica", "replicas")));
        }
        let secret = self.secret.as_ref().ok_or(LeftOut::NoKubeconfig)?;
        let labels = secret.labels.iter().flat_map(|labels| labels.keys());
        if !Inventory::Kkp.has(SECRET, labels) {
            return Err(LeftOut::Labelled);
        }
        Ok(match self.manager.worker_cluster(&self.namespace, read) {
            Ok(derived) => Settings::Inventory(Arc::new(derived)),
            Err(why) => Settings::Unusable(why),
        })
    }
}

/// Watches the user clusters. Each change is read with a client of its own, so that many changes do
/// not wait for the budget of the watches. Returns an endless stream of changes.
pub fn discover(
    management: &Client,
    scope: &Scope,
    (reads, read): (Client, ReadSettings),
) -> impl Stream<Item = Discovered> + Send + use<> {
    let finder = Finder {
        management: reads,
        read,
        permits: Arc::new(Semaphore::new(READS_MAX)),
        hints: Hints::new(scope),
        changes: hints::watch(management, scope),
        reads: FuturesUnordered::new(),
        reading: HashMap::new(),
        registered: BTreeSet::new(),
        unlisted: Some(scope.clone()),
        found: VecDeque::new(),
    };
    stream::unfold(finder, |mut finder| async move {
        let discovered = finder.next().await?;
        Some((discovered, finder))
    })
}

/// What was read.
type Read = (UserCluster, Option<DeserializeGuard<Secret>>);

/// Whether a user cluster has changed while it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HasChanged {
    Yes,
    No,
}

/// Reads the user clusters that changed.
struct Finder {
    management: Client,
    read: ReadSettings,
    permits: Arc<Semaphore>,
    hints: Hints,
    changes: BoxStream<'static, Hint>,
    reads: FuturesUnordered<BoxFuture<'static, Read>>,
    /// The namespaces that are being read, each once at a time, and whether they have changed since
    /// that read began.
    reading: HashMap<String, HasChanged>,
    /// The namespaces whose cluster is registered.
    registered: BTreeSet<String>,
    /// The scope, until everything in it has been read once.
    unlisted: Option<Scope>,
    found: VecDeque<Discovered>,
}

impl Finder {
    async fn next(&mut self) -> Option<Discovered> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Some(found);
            }
            tokio::select! {
                Some(read) = self.reads.next() => self.was_read(read),
                change = self.changes.next() => self.changed(change?),
            }
            self.announce();
        }
    }

    fn changed(&mut self, hint: Hint) {
        for namespace in self.hints.changed(hint) {
            if let Some(has_changed) = self.reading.get_mut(&namespace) {
                *has_changed = HasChanged::Yes;
            } else if self.registered.contains(&namespace) || self.hints.has_both(&namespace) {
                self.begin(namespace);
            }
        }
    }

    fn begin(&mut self, namespace: String) {
        self.reading.insert(namespace.clone(), HasChanged::No);
        let client = self.management.clone();
        let permits = Arc::clone(&self.permits);
        let read = async move { user_cluster(&client, &permits, namespace).await };
        self.reads.push(read.boxed());
    }

    fn was_read(&mut self, (cluster, secret): Read) {
        let namespace = cluster.namespace.clone();
        if self.reading.remove(&namespace) == Some(HasChanged::Yes) {
            return self.begin(namespace);
        }
        let settings = cluster.settings(&self.read);
        let settings = settings.and_then(|it| Ok((it, secret.ok_or(LeftOut::NoKubeconfig)?)));
        match settings {
            Ok((settings, secret)) => {
                if let Settings::Unusable(why) = &settings {
                    tracing::warn!(tenant = %namespace, %why, "the settings of KKP cannot be used");
                }
                self.registered.insert(namespace);
                let registration = Registration {
                    settings,
                    ..super::registration(&Inventory::Kkp, secret)
                };
                let present = Discovered::Present(Box::new(registration));
                self.found.push_back(present);
            }
            Err(why) => {
                tracing::debug!(tenant = %namespace, %why, "a user cluster is not served");
                if self.registered.remove(&namespace) {
                    let gone = Gone {
                        why: Some(why.to_string()),
                        ..Gone::new(&Inventory::Kkp, RegistrationId::new(&namespace, SECRET))
                    };
                    self.found.push_back(Discovered::Gone(gone));
                }
            }
        }
    }

    /// Says that everything was listed, once that is so. After that, each change is said by itself:
    /// what a later list lacks is looked for, and only what is not there is gone.
    fn announce(&mut self) {
        if !self.reads.is_empty() || !self.hints.are_complete() {
            return;
        }
        let limits = match self.unlisted.take() {
            None => return,
            Some(Scope::All) => vec![None],
            Some(Scope::Namespaces(names)) => names.into_iter().map(Some).collect(),
        };
        for limit in limits {
            let registered = self.registered.iter();
            let seen = registered.map(|namespace| RegistrationId::new(namespace, SECRET));
            self.found.push_back(Discovered::Complete {
                inventory: Inventory::Kkp,
                limit,
                seen: seen.collect(),
            });
        }
    }
}

/// Reads a user cluster. A failed read is tried again: it says nothing about the cluster.
async fn user_cluster(management: &Client, permits: &Semaphore, namespace: String) -> Read {
    let deployments: Api<DeserializeGuard<Deployment>> =
        Api::namespaced(management.clone(), &namespace);
    let secrets: Api<DeserializeGuard<Secret>> = Api::namespaced(management.clone(), &namespace);
    let mut delay = RetryDelay::default();
    loop {
        // Held for one attempt: one that cannot be read keeps no other waiting.
        let permit = permits.acquire().await;
        let both = tokio::try_join!(deployments.get_opt(DEPLOYMENT), secrets.get_opt(SECRET));
        drop(permit);
        match both {
            Ok((deployment, secret)) => {
                let manager = match deployment {
                    None => Manager::None,
                    Some(DeserializeGuard(Err(_))) => Manager::Undecodable,
                    Some(DeserializeGuard(Ok(found))) => Manager::Deployed(Box::new(found)),
                };
                let cluster = UserCluster {
                    namespace,
                    manager,
                    secret: secret.as_ref().map(|secret| secret.meta().clone()),
                };
                return (cluster, secret);
            }
            Err(error) => tracing::debug!(
                tenant = %namespace, error = %chain(&error), "cannot read a user cluster"
            ),
        }
        sleep(delay.next().unwrap_or_default()).await;
    }
}

#[cfg(test)]
mod tests;
