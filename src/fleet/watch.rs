//! Every watch is made here or by a caller of this, in one order: watcher, prune, reflect,
//! interpret, backoff last.
//!
//! A watch that loses an event does not tell, and resumes behind it. So each begins anew with a
//! list from time to time ([`relisted`]): what was lost is found then.
//!
//! The order matters: a watcher that fails to list yields an event between two errors, and a
//! backoff that sees that event starts again from its first delay, about once a second for ever.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::{
    utils::Backoff,
    watcher::{self, Event},
};
use kube::{Api, Client, Resource};

use super::{health::Health, jitter, retry_delay::RetryDelay};
use crate::telemetry::logs::chain;

/// The first delay of a watch that failed.
const FIRST: Duration = Duration::from_millis(500);
/// The cap: a cluster that comes back is seen within half a minute.
const CAP: Duration = Duration::from_secs(15);

/// A watch begins anew with a list after between two and four thirds of this: a lost event heals
/// within the hour, for two short lists per worker cluster, 0.0008 requests a second.
pub const RELIST: Duration = Duration::from_mins(45);
/// As [`RELIST`], for profiles: a list of a thousand tenants' has 400 MiB.
pub const RELIST_PROFILES: Duration = Duration::from_hours(6);

/// Where the management cluster is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere: one watch for each kind.
    All,
    /// In these namespaces: one watch for each kind and namespace, for a process that may see no
    /// others.
    Namespaces(Vec<String>),
}

impl Scope {
    /// The APIs to watch, each with the namespace that it is limited to.
    pub fn apis<K>(&self, client: &Client) -> Vec<(Option<String>, Api<K>)>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match self {
            Self::All => vec![(None, Api::all(client.clone()))],
            Self::Namespaces(namespaces) => namespaces
                .iter()
                .map(|namespace| {
                    (
                        Some(namespace.clone()),
                        Api::namespaced(client.clone(), namespace),
                    )
                })
                .collect(),
        }
    }

    /// How many watches each kind takes.
    pub fn count(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Namespaces(namespaces) => namespaces.len(),
        }
    }
}

/// Whether a watch that is limited like this sees a namespace.
pub fn covers(limit: Option<&String>, namespace: &str) -> bool {
    limit.is_none_or(|limit| limit == namespace)
}

/// A watch that begins anew with a list from time to time, for ever.
pub fn relisted<K, W>(
    interval: Duration,
    watch: impl FnMut() -> W + Send,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Send,
    W: Stream<Item = watcher::Result<Event<K>>> + Send,
{
    stream::repeat_with(watch).flat_map(move |watch| {
        watch.take_until(tokio::time::sleep(jitter::part(
            interval,
            2.0 / 3.0,
            4.0 / 3.0,
        )))
    })
}

/// What is watched.
#[derive(Clone, Debug)]
pub struct Watched {
    /// A word for the log.
    what: &'static str,
    /// How the cluster is doing; the management cluster has none.
    health: Option<Arc<Health>>,
}

impl Watched {
    /// In a worker cluster.
    pub fn there(what: &'static str, health: &Arc<Health>) -> Self {
        Self {
            what,
            health: Some(Arc::clone(health)),
        }
    }
}

impl From<&'static str> for Watched {
    fn from(what: &'static str) -> Self {
        Self { what, health: None }
    }
}

/// Interprets a watch's events for ever. Failures are logged when they begin, and retried.
pub fn interpret<K, T>(
    watched: impl Into<Watched>,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    mut interpret: impl FnMut(Event<K>) -> Option<T> + Send,
) -> impl Stream<Item = T> + Send
where
    T: Send,
{
    let Watched { what, health } = watched.into();
    let mut is_failing = false;
    let events = events.filter_map(move |event| {
        std::future::ready(match event {
            // The beginning of a list that may fail is no success: the backoff must not see it.
            Ok(event @ Event::Init) => {
                interpret(event);
                None
            }
            Ok(event) => interpret(event).map(Ok),
            Err(error) => Some(Err(error)),
        })
    });
    paced(events, health).filter_map(move |item| {
        let item = item
            .inspect_err(|error| {
                if !is_failing {
                    tracing::warn!(what, error = %chain(error), "a watch failed");
                }
            })
            .ok();
        is_failing = item.is_none();
        std::future::ready(item)
    })
}

/// Waits after each error: for the cluster to be well, where that is known not to be the case, else
/// for a delay that grows until something comes.
fn paced<T: Send, E: Send>(
    events: impl Stream<Item = Result<T, E>> + Send,
    health: Option<Arc<Health>>,
) -> impl Stream<Item = Result<T, E>> + Send {
    let pace = (Box::pin(events), RetryDelay::new(FIRST, CAP), None);
    futures::stream::unfold(pace, move |(mut events, mut delay, wait)| {
        let health = health.clone();
        async move {
            if let Some(wait) = wait {
                match health.filter(|health| health.holds_back()) {
                    Some(health) => health.well().await,
                    None => tokio::time::sleep(wait).await,
                }
            }
            let event = events.next().await?;
            let wait = if event.is_err() {
                delay.next()
            } else {
                delay.reset();
                None
            };
            Some((event, (events, delay, wait)))
        }
    })
}
