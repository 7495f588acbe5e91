//! Watches the metadata of what a user cluster consists of, and says which clusters to read.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
    mem,
};

use futures::{StreamExt, stream, stream::BoxStream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::Deployment, core::v1::Secret},
};
use kube::{
    Client, Resource, ResourceExt,
    api::{ObjectMeta, PartialObjectMeta},
    runtime::watcher::{self, Event},
};

use super::{DEPLOYMENT, SECRET, cluster_in};
use crate::client::watch::{self, Scope};

/// The page size of lists of metadata: 1 KiB each.
const PAGE: u32 = 500;

/// A part of a user cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Part {
    Deployment,
    Secret,
}

/// What a watch has seen.
#[derive(Debug)]
pub(super) enum Hint {
    /// A part is there, in this version.
    Seen(Part, String, String),
    /// A part was deleted.
    Deleted(Part, String),
    /// A list is complete, in one namespace or in all: these namespaces have the part.
    Listed(Part, Option<String>, BTreeSet<String>),
}

/// The versions that were seen last.
#[derive(Debug)]
pub(super) struct Hints {
    seen: HashMap<(Part, String), String>,
    /// The number of lists, and those that were complete once.
    lists: usize,
    listed: BTreeSet<(Part, Option<String>)>,
}

impl Hints {
    pub(super) fn new(scope: &Scope) -> Self {
        Self {
            seen: HashMap::new(),
            lists: 2 * scope.count(),
            listed: BTreeSet::new(),
        }
    }

    /// Returns true if each list was complete once.
    pub(super) fn are_complete(&self) -> bool {
        self.listed.len() == self.lists
    }

    /// Returns true if a namespace has both parts.
    pub(super) fn has_both(&self, namespace: &str) -> bool {
        let parts = [Part::Deployment, Part::Secret];
        let has = |part| self.seen.contains_key(&(part, namespace.to_owned()));
        parts.into_iter().all(has)
    }

    /// Returns the namespaces of the clusters that have changed.
    pub(super) fn changed(&mut self, hint: Hint) -> Vec<String> {
        match hint {
            Hint::Seen(part, namespace, version) => {
                let before = self.seen.insert((part, namespace.clone()), version.clone());
                let is_news = before != Some(version);
                is_news.then_some(namespace).into_iter().collect()
            }
            Hint::Deleted(part, namespace) => {
                self.seen.remove(&(part, namespace.clone()));
                vec![namespace]
            }
            Hint::Listed(part, limit, listed) => {
                let mut missing = Vec::new();
                self.seen.retain(|(of, namespace), _| {
                    let is_missing = *of == part
                        && watch::covers(limit.as_ref(), namespace)
                        && !listed.contains(namespace);
                    if is_missing {
                        missing.push(namespace.clone());
                    }
                    !is_missing
                });
                self.listed.insert((part, limit));
                missing
            }
        }
    }
}

/// Watches both parts of all user clusters.
pub(super) fn watch(management: &Client, scope: &Scope) -> BoxStream<'static, Hint> {
    // A Deployment's status changes with each replica; its generation does not.
    let deployments = watch_part::<Deployment>(
        (Part::Deployment, DEPLOYMENT, "Deployments"),
        (management, scope),
        |metadata| metadata.generation.unwrap_or_default().to_string(),
    );
    let secrets = watch_part::<Secret>(
        (Part::Secret, SECRET, "kubeconfigs of KKP"),
        (management, scope),
        |metadata| metadata.resource_version.clone().unwrap_or_default(),
    );
    stream::select(deployments, secrets).boxed()
}

fn watch_part<K>(
    (part, name, what): (Part, &str, &'static str),
    (management, scope): (&Client, &Scope),
    version: fn(&ObjectMeta) -> String,
) -> BoxStream<'static, Hint>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + 'static,
{
    let apis = scope.apis::<PartialObjectMeta<K>>(management).into_iter();
    let watches = apis.map(|(limit, api)| {
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let watch = move |page| watcher::watcher(api.clone(), config.clone().page_size(page));
        let events = watch::relisted(watch::RELIST, PAGE, watch, Ok);
        let mut listed = BTreeSet::new();
        watch::interpret(what, events, move |event| match event {
            Event::Init => {
                listed.clear();
                None
            }
            Event::InitApply(found) => {
                let namespace = of_user_cluster(&found)?;
                listed.insert(namespace.clone());
                Some(seen(part, namespace, (&found.metadata, version)))
            }
            Event::InitDone => Some(Hint::Listed(part, limit.clone(), mem::take(&mut listed))),
            Event::Apply(found) => {
                let namespace = of_user_cluster(&found)?;
                Some(seen(part, namespace, (&found.metadata, version)))
            }
            Event::Delete(found) => Some(Hint::Deleted(part, of_user_cluster(&found)?)),
        })
        .boxed()
    });
    stream::select_all(watches).boxed()
}

fn of_user_cluster(found: &impl ResourceExt) -> Option<String> {
    let namespace = found.namespace()?;
    cluster_in(&namespace).is_some().then_some(namespace)
}

fn seen(
    part: Part,
    namespace: String,
    (metadata, version): (&ObjectMeta, fn(&ObjectMeta) -> String),
) -> Hint {
    let uid = metadata.uid.as_deref().unwrap_or_default();
    Hint::Seen(part, namespace, format!("{uid} {}", version(metadata)))
}
