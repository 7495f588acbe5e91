//! The profiles of the whole fleet, each distinct content kept and compiled once, however many
//! tenants have it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock, PoisonError, RwLock, Weak},
};

use futures::{StreamExt, stream};
use kube::{
    Client, ResourceExt,
    core::DeserializeGuard,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::subscriptions::Subscriptions;
use crate::api::profile::{OperatingSystemProfile, OperatingSystemProfileSpec};
use crate::fleet::watch::{Scope, covers, interpret};
use crate::render::{RenderError, template::CompiledProfile};

type ContentId = [u8; 32];
type Key = (String, String);

/// One content, compiled when it is first used.
#[derive(Debug)]
pub struct SharedProfile {
    id: ContentId,
    spec: OperatingSystemProfileSpec,
    compiled: OnceLock<Result<Arc<CompiledProfile>, Arc<RenderError>>>,
}

impl SharedProfile {
    /// The profile's spec.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        &self.spec
    }

    /// Compiles the profile, once. May take some milliseconds of a core.
    pub fn compile(&self) -> Result<Arc<CompiledProfile>, Arc<RenderError>> {
        self.compiled
            .get_or_init(|| {
                CompiledProfile::compile(&self.spec)
                    .map(Arc::new)
                    .map_err(Arc::new)
            })
            .clone()
    }
}

#[derive(Debug, Default)]
struct Inner {
    profiles: HashMap<Key, Arc<SharedProfile>>,
    contents: HashMap<ContentId, Weak<SharedProfile>>,
    bells: HashMap<String, watch::Sender<()>>,
}

/// The changes of one namespace's profiles.
#[derive(Debug)]
pub struct ProfileChanges {
    bell: watch::Receiver<()>,
}

impl ProfileChanges {
    /// Waits for a change since the last wait.
    pub async fn changed(&mut self) {
        // The store outlives its followers; without it the process is about to end.
        if self.bell.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Inner {
    fn ring(&self, (namespace, _): &Key) {
        if let Some(bell) = self.bells.get(namespace) {
            bell.send_replace(());
        }
    }
}

/// The profiles of the whole fleet.
#[derive(Debug)]
pub struct ProfileStore {
    inner: RwLock<Inner>,
    /// How many watches have not seen everything once.
    incomplete: watch::Sender<usize>,
}

impl ProfileStore {
    /// An empty store that so many watches will fill.
    pub fn new(watches: usize) -> Self {
        Self {
            inner: RwLock::default(),
            incomplete: watch::Sender::new(watches),
        }
    }

    /// A profile, if there is one.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<SharedProfile>> {
        let key = (namespace.to_owned(), name.to_owned());
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.profiles.get(&key).cloned()
    }

    /// Follows the changes of one namespace's profiles.
    pub fn changes(&self, namespace: &str) -> ProfileChanges {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let bell = inner.bells.entry(namespace.to_owned()).or_default();
        ProfileChanges {
            bell: bell.subscribe(),
        }
    }

    /// Waits until all profiles have been seen once.
    pub async fn ready(&self) {
        // The sender is part of this: it cannot be gone.
        let mut incomplete = self.incomplete.subscribe();
        let _ = incomplete.wait_for(|count| *count == 0).await;
    }

    fn insert(&self, key: Key, spec: OperatingSystemProfileSpec) -> bool {
        let id = content_id(&spec);
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.profiles.get(&key).is_some_and(|known| known.id == id) {
            return false;
        }
        let known = inner.contents.get(&id).and_then(Weak::upgrade);
        let shared = known.unwrap_or_else(|| {
            Arc::new(SharedProfile {
                id,
                spec,
                compiled: OnceLock::new(),
            })
        });
        inner.contents.insert(id, Arc::downgrade(&shared));
        inner.ring(&key);
        inner.profiles.insert(key, shared);
        true
    }

    fn remove(&self, key: &Key) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.ring(key);
        let removed = inner.profiles.remove(key);
        if let Some(id) = removed.as_ref().map(|profile| profile.id) {
            drop(removed);
            if inner
                .contents
                .get(&id)
                .is_some_and(|content| content.strong_count() == 0)
            {
                inner.contents.remove(&id);
            }
        }
    }

    fn keys(&self) -> Vec<Key> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.profiles.keys().cloned().collect()
    }
}

/// A spec is plain values; two that are equal have the same JSON.
fn content_id(spec: &OperatingSystemProfileSpec) -> ContentId {
    Sha256::digest(serde_json::to_vec(spec).expect("a profile's spec is plain values")).into()
}

/// Watches the profiles of the management cluster for ever.
pub async fn follow(
    management: Client,
    scope: Scope,
    store: Arc<ProfileStore>,
    subscriptions: Arc<Subscriptions>,
) {
    let apis = scope
        .apis::<DeserializeGuard<OperatingSystemProfile>>(&management)
        .into_iter();
    let watches = apis.map(|(limit, api)| {
        // A default profile has about 40 KiB; a page stays below a megabyte.
        let events = watcher(api, watcher::Config::default().page_size(20))
            .modify(|profile| profile.managed_fields_mut().clear());
        let mut follower = Follower {
            store: Arc::clone(&store),
            subscriptions: Arc::clone(&subscriptions),
            limit,
            listed: BTreeSet::new(),
            is_complete: false,
        };
        interpret("profiles", events, move |event| {
            follower.event(event);
            Some(())
        })
        .boxed()
    });
    stream::select_all(watches).collect::<()>().await;
}

/// What one watch has seen.
struct Follower {
    store: Arc<ProfileStore>,
    subscriptions: Arc<Subscriptions>,
    limit: Option<String>,
    listed: BTreeSet<Key>,
    is_complete: bool,
}

impl Follower {
    fn event(&mut self, event: Event<DeserializeGuard<OperatingSystemProfile>>) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(profile) => {
                self.listed.insert(key(&profile));
                self.insert(profile);
            }
            Event::Apply(profile) => self.insert(profile),
            Event::Delete(profile) => self.remove(&key(&profile)),
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                for known in self.store.keys() {
                    if covers(self.limit.as_ref(), &known.0) && !listed.contains(&known) {
                        self.remove(&known);
                    }
                }
                if !std::mem::replace(&mut self.is_complete, true) {
                    self.store
                        .incomplete
                        .send_modify(|count| *count = count.saturating_sub(1));
                }
            }
        }
    }

    /// One profile that cannot be read must not hide the others: it is as if it were not there.
    fn insert(&self, profile: DeserializeGuard<OperatingSystemProfile>) {
        let key = key(&profile);
        let Ok(profile) = profile.0 else {
            tracing::warn!(namespace = key.0, name = key.1, "a profile cannot be read");
            return self.remove(&key);
        };
        if self.store.insert(key.clone(), profile.spec) {
            self.subscriptions.profile_changed(&key.0, &key.1);
        }
    }

    fn remove(&self, key: &Key) {
        self.store.remove(key);
        self.subscriptions.profile_changed(&key.0, &key.1);
    }
}

fn key(profile: &DeserializeGuard<OperatingSystemProfile>) -> Key {
    (profile.namespace().unwrap_or_default(), profile.name_any())
}
