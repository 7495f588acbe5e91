//! Creates every watch, here or in a caller of this module, with its stages in one order: watcher,
//! prune, reflect, interpret, backoff last.
//!
//! A watch that loses an event does not report that, and resumes after it. So each watch starts
//! over with a list from time to time ([`relisted`]), which finds what was lost.
//!
//! The order matters: a watcher that fails to list yields an event between two errors. A backoff
//! that sees that event starts again from its first delay, about once a second without end.

use std::{
    collections::HashSet,
    error::Error,
    hash::{BuildHasher as _, RandomState},
    io,
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::{
    utils::Backoff,
    watcher::{self, Event},
};
use kube::{Api, Client, Resource};
use tokio::time::{Instant, timeout_at};

use crate::client::{
    account, forbidden::denied, health::Health, jitter, pages, response_filter,
    retry_delay::RetryDelay,
};
use crate::telemetry::chain::chain;

/// The first delay of a watch that failed.
const FIRST: Duration = Duration::from_millis(500);
/// The longest delay. A cluster that recovers is watched again within half a minute.
const CAP: Duration = Duration::from_secs(15);

/// A watch starts over with a list after between two and four thirds of this time. A lost event is
/// found within the hour, for two short lists per worker cluster: 0.0008 requests per second.
pub const RELIST: Duration = Duration::from_mins(45);
/// As [`RELIST`], for profiles: a list for a thousand tenants has 400 MiB.
pub const RELIST_PROFILES: Duration = Duration::from_hours(6);

/// The part of the management cluster that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces, with one watch for each kind.
    All,
    /// These namespaces, with one watch for each kind and namespace. For processes that may not
    /// read others.
    Namespaces(Vec<String>),
}

impl Scope {
    /// Returns the APIs to watch, each with the namespace that it is limited to.
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

    /// Returns the number of watches for each kind.
    pub fn count(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Namespaces(namespaces) => namespaces.len(),
        }
    }
}

/// Returns true if a watch with this limit sees a namespace.
pub fn covers(limit: Option<&String>, namespace: &str) -> bool {
    limit.is_none_or(|limit| limit == namespace)
}

/// Returns a watch with `page` objects per page. It starts over with a list from time to time,
/// immediately with smaller pages if a page of the list is too large, and as soon as `admit`
/// refuses an event: a list that lacks an object must not end.
///
/// This is one state machine instead of a chain of adaptors, each of which would hold an event.
pub fn relisted<K, W>(
    interval: Duration,
    page: u32,
    watch: impl Fn(u32) -> W + Send + Sync,
    admit: impl FnMut(Event<K>) -> watcher::Result<Event<K>> + Send,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Send,
    W: Stream<Item = watcher::Result<Event<K>>> + Send,
{
    let begin = move |page| {
        let lasts = jitter::part(interval, 2.0 / 3.0, 4.0 / 3.0);
        (Box::pin(watch(page)), Instant::now() + lasts, page)
    };
    let first = (begin(page), begin, admit);
    stream::unfold(first, |(mut current, begin, mut admit)| async move {
        loop {
            let (watch, ends, page) = &mut current;
            let (next, page) = (timeout_at(*ends, watch.next()), *page);
            let event = match next.await {
                Ok(Some(Ok(event))) => admit(event).inspect_err(|_| current = begin(page)),
                // A page of one object is never too large.
                Ok(Some(Err(error))) if response_filter::is_page_too_large(&error) && page > 1 => {
                    current = begin(page / 2);
                    continue;
                }
                Ok(Some(failed)) => failed,
                Ok(None) | Err(_) => {
                    current = begin(page);
                    continue;
                }
            };
            return Some((event, (current, begin, admit)));
        }
    })
}

/// The error for more objects than are kept.
#[derive(Debug, thiserror::Error)]
#[error("there are more than {0} objects")]
struct ListTooLong(usize);

/// Returns a function for [`relisted`] that refuses more objects than this, in a list and in the
/// events after it. It keeps a digest of each name, or nothing without a limit.
pub fn list_of_at_most<K: Resource>(
    objects_max: Option<usize>,
) -> impl FnMut(Event<K>) -> watcher::Result<Event<K>> + Send {
    let digests = RandomState::new();
    let mut known = HashSet::new();
    move |event| {
        let Some(objects_max) = objects_max else {
            return Ok(event);
        };
        let digest = |object: &K| {
            let meta = object.meta();
            digests.hash_one((&meta.namespace, &meta.name))
        };
        match &event {
            Event::Init => known.clear(),
            Event::InitApply(object) | Event::Apply(object) => {
                known.insert(digest(object));
            }
            Event::Delete(object) => {
                known.remove(&digest(object));
            }
            Event::InitDone => {}
        }
        if known.len() > objects_max {
            let too_long = kube::Error::Service(ListTooLong(objects_max).into());
            return Err(watcher::Error::InitialListFailed(too_long));
        }
        Ok(event)
    }
}

/// A description of what is watched.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The name in the log.
    what: &'static str,
    /// The health of the cluster; `None` for the management cluster.
    health: Option<Arc<Health>>,
}

impl Watched {
    /// Creates the description of a watch in a cluster. Only worker clusters have a health.
    pub fn of(what: &'static str, health: Option<&Arc<Health>>) -> Self {
        Self {
            what,
            health: health.cloned(),
        }
    }
}

impl From<&'static str> for Watched {
    fn from(what: &'static str) -> Self {
        Self { what, health: None }
    }
}

/// Interprets a watch's events until cancelled. Failures are logged when they begin, and retried.
pub fn interpret<K, T>(
    watched: impl Into<Watched>,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    mut interpret: impl FnMut(Event<K>) -> Option<T> + Send,
) -> impl Stream<Item = T> + Send
where
    T: Send,
{
    let Watched { what, health } = watched.into();
    let reported_to = health.clone();
    let events = events.filter_map(move |event| {
        std::future::ready(match event {
            // The beginning of a list that may still fail is not a success. The backoff must not
            // see it.
            Ok(event @ Event::Init) => {
                interpret(event);
                None
            }
            Ok(event) => interpret(event).map(Ok),
            Err(error) => Some(Err(error)),
        })
    });
    paced(events, health).filter_map(move |item| {
        let item = item.inspect_err(|(error, failures)| {
            report(what, reported_to.as_deref(), (error, *failures));
        });
        std::future::ready(item.ok())
    })
}

/// Logs a failure when it begins, and reports failures that the cluster caused. A watch that ended
/// early is reported the second time, because a server that restarts ends each watch once. So is
/// one that is forbidden, because a server that has just started may refuse what it allows a moment
/// later.
fn report(what: &str, health: Option<&Health>, (error, failures): (&watcher::Error, u32)) {
    let why = refusal(error);
    let is_often_an_accident = |why| response_filter::has_ended(why) || is_denied(why);
    let first = if why.is_some_and(is_often_an_accident) {
        2
    } else {
        1
    };
    let cause = chain(error).to_string();
    match health {
        _ if failures != first => {}
        Some(health) => {
            let registration = health.registration();
            tracing::warn!(%registration, what, error = cause, "a watch failed");
        }
        None if is_not_served(error) => tracing::error!(
            what,
            "the management cluster does not serve them: install the custom resource definitions \
             (osm crds | kubectl apply --server-side -f -)"
        ),
        None => tracing::warn!(what, error = cause, "a watch failed"),
    }
    if let (Some(health), Some(why), true) = (health, why, failures >= first) {
        let failed = format!("the watch of {what} starts over");
        health.watch_failed(if is_denied(why) {
            denied(failed, why)
        } else {
            format!("{failed}: {why}")
        });
    }
}

fn is_not_served(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error) => pages::is_not_served(error),
        _ => false,
    }
}

/// Returns the reason why a watch failed if the data from the cluster caused it. Other failures go
/// away by themselves, or calls report them.
fn refusal(error: &watcher::Error) -> Option<&(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |&cause| cause.source());
    causes.find_map(|cause| {
        let held = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        let cause: &(dyn Error + 'static) = match held {
            Some(held) => held,
            None => cause,
        };
        is_refusal(cause).then_some(cause)
    })
}

fn is_refusal(cause: &(dyn Error + 'static)) -> bool {
    response_filter::is_refusal(cause)
        || account::is_full(cause)
        || cause.is::<ListTooLong>()
        || is_denied(cause)
}

/// Returns true if the kubeconfig's identity may not watch.
fn is_denied(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(pages::is_forbidden)
}

/// The number of failures of a watch, and the delay after the next failure.
struct Trouble {
    delay: RetryDelay,
    failures: u32,
    /// The time at which the delay after the last failure ended.
    last: Option<Instant>,
}

impl Trouble {
    /// Forgets failures if the watch has worked for a while since. An event between two failures is
    /// not enough.
    fn forget_old(&mut self) {
        if self.last.is_some_and(|last| last.elapsed() >= 2 * CAP) {
            self.last = None;
            self.failures = 0;
            self.delay.reset();
        }
    }

    fn failed(&mut self) -> Option<Duration> {
        self.forget_old();
        self.failures += 1;
        self.delay.next()
    }
}

/// Waits after each error: until the cluster is healthy if its calls are held back, and otherwise
/// for a delay that grows until the watch works. Each error is returned with the number of failures
/// so far.
fn paced<T: Send, E: Send>(
    events: impl Stream<Item = Result<T, E>> + Send,
    health: Option<Arc<Health>>,
) -> impl Stream<Item = Result<T, (E, u32)>> + Send {
    let trouble = Trouble {
        delay: RetryDelay::new(FIRST, CAP),
        failures: 0,
        last: None,
    };
    let pace = (Box::pin(events), trouble, None);
    futures::stream::unfold(pace, move |(mut events, mut trouble, wait)| {
        let health = health.clone();
        async move {
            if let Some(wait) = wait {
                match health.filter(|health| health.holds_back()) {
                    Some(health) => health.well().await,
                    None => tokio::time::sleep(wait).await,
                }
                // The watch may work from here on.
                trouble.last = Some(Instant::now());
            }
            let event = events.next().await?;
            let wait = match &event {
                Ok(_) => {
                    trouble.forget_old();
                    None
                }
                Err(_) => trouble.failed(),
            };
            let event = event.map_err(|error| (error, trouble.failures));
            Some((event, (events, trouble, wait)))
        }
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_pages_are_too_large_starts_over_with_fewer_objects_a_page() {
        let asked = Arc::<std::sync::Mutex<Vec<u32>>>::default();
        let reported = Arc::clone(&asked);
        let watch = move |page: u32| {
            reported.lock().unwrap().push(page);
            let answer = match page {
                0..20 => Ok(Event::InitDone),
                _ => Err(response_filter::page_too_large()),
            };
            stream::iter([Ok(Event::<ConfigMap>::Init), answer]).chain(stream::pending())
        };
        let events: Vec<_> = relisted(RELIST, 100, watch, Ok).take(5).collect().await;
        assert!(events.iter().all(Result::is_ok), "{events:?}");
        assert_eq!(*asked.lock().unwrap(), [100, 50, 25, 12]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_too_many_objects_starts_over_and_does_not_end() {
        let watch = |_| {
            let objects = ["a", "b", "c"].map(|name| Event::InitApply(named(name)));
            let list = std::iter::once(Event::Init).chain(objects);
            stream::iter(list.chain([Event::InitDone]).map(Ok))
        };
        let mut events = Box::pin(relisted(RELIST, 100, watch, list_of_at_most(Some(2))).skip(3));
        let refused = events.next().await.unwrap().unwrap_err();
        let why = refusal(&refused).map(ToString::to_string);
        assert_eq!(why.as_deref(), Some("there are more than 2 objects"));
        assert!(matches!(events.next().await, Some(Ok(Event::Init))));
    }

    #[test]
    fn objects_that_come_after_the_list_count_and_those_that_go_do_not() {
        let mut admit = list_of_at_most(Some(2));
        let mut is_admitted = |event| admit(event).is_ok();
        assert!(is_admitted(Event::Init));
        assert!(is_admitted(Event::InitApply(named("a"))));
        assert!(is_admitted(Event::InitDone));
        for _ in 0..3 {
            assert!(is_admitted(Event::Apply(named("a"))));
            assert!(is_admitted(Event::Apply(named("b"))));
            assert!(is_admitted(Event::Delete(named("b"))));
        }
        assert!(is_admitted(Event::Apply(named("b"))));
        assert!(!is_admitted(Event::Apply(named("c"))));
        assert!(is_admitted(Event::Init));
        assert!(is_admitted(Event::InitApply(named("d"))));
    }

    fn named(name: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_between_two_failures_does_not_make_a_watch_well() {
        let failed = || Err(watcher::Error::NoResourceVersion);
        let events =
            stream::repeat_with(move || [Ok(Event::Apply(ConfigMap::default())), failed()]);
        let events = interpret("things", events.flat_map(stream::iter), Some);
        let events = events.take_until(tokio::time::sleep(Duration::from_mins(10)));
        let count = events.count().await;
        // One event for each delay of at least half of `CAP`. With delays that do not grow, there
        // are a thousand.
        assert!(count < 120, "{count} events in ten minutes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_forgotten_when_a_watch_has_been_well_however_much_happens() {
        let trouble = std::iter::once(Err(()));
        let second = async |event| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            event
        };
        let well = stream::iter([Ok(()); 60]).then(second);
        let events = stream::iter(trouble.clone())
            .chain(well)
            .chain(stream::iter(trouble));
        let failures = paced(events, None).filter_map(async |event| event.err());
        let counts: Vec<u32> = failures.map(|((), count)| count).collect().await;
        assert_eq!(counts, [1, 1]);
    }

    #[test]
    fn a_failure_of_the_connection_is_no_refusal() {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let refused = std::io::Error::other(response_filter::refused_name());
        let why = |error| {
            let error = watcher::Error::WatchFailed(kube::Error::ReadEvents(error));
            refusal(&error).map(ToString::to_string)
        };
        assert_eq!(why(reset), None);
        let name = "an object of the answer has a name that no object can have";
        assert_eq!(why(refused).as_deref(), Some(name));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_too_large_by_itself_is_an_error() {
        let watch = |_| {
            let failed = Err(response_filter::page_too_large());
            stream::iter([failed]).chain(stream::pending::<watcher::Result<Event<ConfigMap>>>())
        };
        let mut events = Box::pin(relisted(RELIST, 1, watch, Ok));
        assert!(events.next().await.unwrap().is_err());
    }
}
