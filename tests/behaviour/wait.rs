//! Waits for what must become true, by watching. A deadline ends what never comes, and says what
//! was seen last; nothing here waits for luck.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use kube::runtime::{WatchStreamExt, watcher, watcher::Event};
use kube::{Api, Resource, ResourceExt};

/// What must come comes within this, or never: a busy machine needs some of it, and where two
/// replicas have crashed within ten minutes their tenants wait for a minute.
pub const DEADLINE: Duration = Duration::from_secs(90);
/// How often something is looked at that cannot be watched.
const POLL: Duration = Duration::from_millis(20);

/// What can be watched and shown.
pub trait Watched:
    Resource<DynamicType: Default + Clone + Debug + Eq + Hash>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<K> Watched for K where
    K: Resource<DynamicType: Default + Clone + Debug + Eq + Hash>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + 'static
{
}

/// What a watch has seen so far, by `namespace/name`.
struct Seen<K> {
    objects: BTreeMap<String, K>,
    is_complete: bool,
}

/// Waits until all objects, by `namespace/name`, satisfy the condition, and hands them out.
pub async fn for_objects<K: Watched>(
    api: &Api<K>,
    what: &str,
    condition: impl Fn(&BTreeMap<String, K>) -> bool,
) -> BTreeMap<String, K> {
    follow(api, watcher::Config::default(), what, condition).await
}

async fn follow<K: Watched>(
    api: &Api<K>,
    config: watcher::Config,
    what: &str,
    condition: impl Fn(&BTreeMap<String, K>) -> bool,
) -> BTreeMap<String, K> {
    let mut seen = Seen {
        objects: BTreeMap::new(),
        is_complete: false,
    };
    let watching = async {
        let mut events = pin!(watcher(api.clone(), config).default_backoff());
        loop {
            match events.try_next().await {
                Ok(Some(event)) => seen.note(event),
                Ok(None) => return,
                // An outage that a test has made: the watch goes on by itself.
                Err(_) => continue,
            }
            if seen.is_complete && condition(&seen.objects) {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(DEADLINE, watching).await.is_ok();
    let objects = seen.objects;
    assert!(
        in_time,
        "{what}: not within {DEADLINE:?}; {}",
        shown(&objects)
    );
    objects
}

impl<K: Watched> Seen<K> {
    fn note(&mut self, event: Event<K>) {
        match event {
            Event::Init => {
                self.objects.clear();
                self.is_complete = false;
            }
            Event::InitApply(object) | Event::Apply(object) => {
                self.objects.insert(key(&object), object);
            }
            Event::InitDone => self.is_complete = true,
            Event::Delete(object) => {
                self.objects.remove(&key(&object));
            }
        }
    }
}

/// Waits until an object satisfies the condition, and hands it out.
pub async fn for_object<K: Watched>(
    api: &Api<K>,
    name: &str,
    what: &str,
    condition: impl Fn(&K) -> bool,
) -> K {
    let holds = |seen: &BTreeMap<String, K>| seen.values().any(&condition);
    let seen = follow(api, only(name), &format!("{name}: {what}"), holds).await;
    let mut seen = seen.into_values();
    seen.next().expect("the condition held for an object")
}

/// Waits until an object is gone.
pub async fn for_absence<K: Watched>(api: &Api<K>, name: &str) {
    let what = format!("{name} is gone");
    drop(follow(api, only(name), &what, BTreeMap::is_empty).await);
}

/// Asks until the answer is there: for what cannot be watched, such as logs and metrics.
pub async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        let mut ticks = tokio::time::interval(POLL);
        loop {
            ticks.tick().await;
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    };
    let answer = tokio::time::timeout(DEADLINE, asking).await.ok();
    assert!(answer.is_some(), "{what}: not within {DEADLINE:?}");
    answer.expect("it was just asserted")
}

fn only(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

fn key<K: Watched>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

fn shown<K: Watched>(seen: &BTreeMap<String, K>) -> String {
    let mut seen = seen.clone();
    for object in seen.values_mut() {
        object.managed_fields_mut().clear();
    }
    let json = serde_json::to_string_pretty(&seen).unwrap_or_default();
    format!("{} objects were seen last: {:.6000}", seen.len(), json)
}

/// Waits until what is created is younger than what exists: creation is dated by the second.
pub async fn for_another_second() {
    let second = jiff::Timestamp::now().as_second();
    until("another second has begun", async || {
        let now = jiff::Timestamp::now().as_second();
        (now > second).then_some(())
    })
    .await;
}
