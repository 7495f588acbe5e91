//! The profiles of the whole fleet, each distinct content kept and compiled once, however many
//! tenants have it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock, PoisonError, RwLock, Weak},
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use super::subscriptions::Subscriptions;
use crate::api::profile::{OperatingSystemProfile, OperatingSystemProfileSpec};
use crate::fleet::watch::interpret;
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
    is_complete: watch::Sender<bool>,
}

impl Default for ProfileStore {
    fn default() -> Self {
        Self {
            inner: RwLock::default(),
            is_complete: watch::Sender::new(false),
        }
    }
}

impl ProfileStore {
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
        let _ = self
            .is_complete
            .subscribe()
            .wait_for(|complete| *complete)
            .await;
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

/// Watches the profiles of the whole management cluster for ever.
pub async fn follow(
    management: Client,
    store: Arc<ProfileStore>,
    subscriptions: Arc<Subscriptions>,
) {
    let api: Api<OperatingSystemProfile> = Api::all(management);
    // A default profile has about 40 KiB; a page stays below a megabyte.
    let events = watcher(api, watcher::Config::default().page_size(20))
        .modify(|profile| profile.managed_fields_mut().clear());
    let mut listed = BTreeSet::new();
    interpret("profiles", events, |event| {
        follow_event(&store, &subscriptions, &mut listed, event);
        Some(())
    })
    .collect::<()>()
    .await;
}

fn follow_event(
    store: &ProfileStore,
    subscriptions: &Subscriptions,
    listed: &mut BTreeSet<Key>,
    event: Event<OperatingSystemProfile>,
) {
    let changed = |(namespace, name): &Key| subscriptions.profile_changed(namespace, name);
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(profile) => {
            let key = key(&profile);
            listed.insert(key.clone());
            if store.insert(key.clone(), profile.spec) {
                changed(&key);
            }
        }
        Event::Apply(profile) => {
            let key = key(&profile);
            if store.insert(key.clone(), profile.spec) {
                changed(&key);
            }
        }
        Event::Delete(profile) => {
            let key = key(&profile);
            store.remove(&key);
            changed(&key);
        }
        Event::InitDone => {
            for gone in store.keys().into_iter().filter(|key| !listed.contains(key)) {
                store.remove(&gone);
                changed(&gone);
            }
            listed.clear();
            store.is_complete.send_replace(true);
        }
    }
}

fn key(profile: &OperatingSystemProfile) -> Key {
    (profile.namespace().unwrap_or_default(), profile.name_any())
}
