//! Profiles: those of the management cluster in one store, and in a store of its own those of each
//! worker cluster that is its tenant's home. Each distinct content is stored and compiled once, no
//! matter how many tenants and stores have it.
//!
//! A profile that extends another is merged with it on request, and the result is a content like
//! any other. Since it can be computed again, each namespace keeps only the newest results.

mod marks;
mod overlays;
mod room;
mod shared;
mod thin;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::{
    Client, ResourceExt,
    core::DeserializeGuard,
    runtime::{watcher, watcher::Event},
};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};

use self::shared::Contents;
use self::thin::{DefaultContent, Lookup, look_up};
use self::{overlays::Overlays, room::fetch_wanted};
pub use self::{
    room::Quotas,
    shared::{Compiled, SharedProfile},
};
use super::{
    default_contents::DefaultContents,
    profile_quota::{Ledger, Size},
    subscriptions::Subscriptions,
};
use crate::api::{
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    weight,
};
use crate::client::{
    health::Health,
    memory::Memory,
    watch::{RELIST_PROFILES, Scope, Watched, covers, interpret, list_of_at_most, relisted},
};
use crate::render::{
    overlay::{self, OverlayError},
    thin::parse_content_name,
};

type ContentId = [u8; 32];
type Key = (String, String);

/// The highest number of steps to the root. No valid chain of overlays is longer.
const ROOT_STEPS_MAX: usize = 16;
/// The highest number of profiles in a list of a worker cluster.
const PROFILES_MAX: usize = 1_000;

/// A profile merged with its bases, or the reason why that is impossible.
pub type Resolved = Result<Arc<SharedProfile>, OverlayError>;

#[derive(Debug, Default)]
struct Inner {
    profiles: HashMap<Key, Arc<SharedProfile>>,
    /// The contents that we installed, for profiles with that annotation.
    installed: HashMap<Key, Box<str>>,
    /// The pinned profiles, which no default replaces.
    pinned: HashSet<Key>,
    /// The thin profiles that stand for their contents in `profiles`.
    thin: HashSet<Key>,
    /// The contents of default profiles, by the names that thin profiles extend.
    default_contents: HashMap<String, DefaultContent>,
    /// The profiles that cannot be decoded.
    unreadable: HashSet<Key>,
    /// The overlays of each profile in its namespace. The profile need not exist.
    overlays: HashMap<Key, BTreeSet<String>>,
    /// The merged overlays that have been requested, by namespace and name.
    resolved: HashMap<String, Overlays>,
    contents: Contents,
    /// The memory that tenants share.
    memory: Arc<Memory>,
    /// Notify the subscribers of a namespace.
    senders: HashMap<String, watch::Sender<()>>,
    /// The ledgers, by namespace, decide which profiles are kept. Default profiles do not count.
    ledgers: HashMap<String, Ledger>,
    /// The profiles that have room now, but whose content must be read.
    wanted: BTreeSet<Key>,
}

/// A subscription to the changes of one namespace's profiles.
#[derive(Debug)]
pub struct ProfileChanges {
    receiver: watch::Receiver<()>,
}

impl ProfileChanges {
    /// Waits for a change since the last wait.
    pub async fn changed(&mut self) {
        // The store outlives its subscribers. If it is gone, the process is about to end.
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Inner {
    fn send_change(&self, (namespace, _): &Key) {
        if let Some(sender) = self.senders.get(namespace) {
            sender.send_replace(());
        }
    }

    /// Inserts, replaces or removes a profile. Returns the names of the profiles whose content
    /// changes: its own, and those of all overlays on it.
    fn put(&mut self, key: &Key, shared: Option<Arc<SharedProfile>>) -> BTreeSet<String> {
        let (namespace, name) = key;
        let base_of = |shared: &SharedProfile| {
            let base = shared.spec.extends.clone();
            base.map(|base| (namespace.clone(), base))
        };
        let base = shared.as_deref().and_then(base_of);
        let before = match shared {
            Some(shared) => self.profiles.insert(key.clone(), shared),
            None => self.profiles.remove(key),
        };
        if let Some(base) = before.as_deref().and_then(base_of)
            && let Some(overlays) = self.overlays.get_mut(&base)
        {
            overlays.remove(name);
            if overlays.is_empty() {
                self.overlays.remove(&base);
            }
        }
        if let Some(base) = base {
            self.overlays.entry(base).or_default().insert(name.clone());
        }
        if let Some(before) = before {
            self.contents.release(before);
        }
        let changed = self.on_top_of(key);
        self.forget_resolved(namespace, &changed);
        self.send_change(key);
        changed
    }

    fn forget_resolved(&mut self, namespace: &str, names: &BTreeSet<String>) {
        let Some(resolved) = self.resolved.get_mut(namespace) else {
            return;
        };
        let gone: Vec<_> = names.iter().filter_map(|it| resolved.remove(it)).collect();
        if resolved.is_empty() {
            self.resolved.remove(namespace);
        }
        for shared in gone.into_iter().flatten() {
            self.contents.release(shared);
        }
    }

    /// Returns a profile and every profile that extends it, directly or indirectly.
    fn on_top_of(&self, (namespace, name): &Key) -> BTreeSet<String> {
        let mut found = BTreeSet::from([name.clone()]);
        let mut open = vec![name.clone()];
        while let Some(name) = open.pop() {
            let overlays = self.overlays.get(&(namespace.clone(), name));
            for overlay in overlays.into_iter().flatten() {
                if found.insert(overlay.clone()) {
                    open.push(overlay.clone());
                }
            }
        }
        found
    }

    /// Merges a profile with its bases, and keeps the result while there is room.
    fn resolve(&mut self, key: Key, spec: &OperatingSystemProfileSpec) -> Resolved {
        let resolved = self.lay(&key, spec);
        let (namespace, name) = key;
        let kept = self.resolved.entry(namespace);
        let kept = kept.or_insert_with(|| Overlays::new(&self.memory));
        let gone = kept.put(name, resolved.clone());
        for shared in gone.into_iter().flatten() {
            self.contents.release(shared);
        }
        resolved
    }

    fn lay(&mut self, (namespace, name): &Key, spec: &OperatingSystemProfileSpec) -> Resolved {
        let merged = overlay::resolve(name, spec, |base| {
            let found = self.profiles.get(&(namespace.clone(), base.to_owned()));
            found
                .or_else(|| self.default_content(base))
                .map(|found| Arc::clone(&found.spec))
        })?;
        Ok(self.contents.intern(content_id(&merged), merged))
    }
}

/// The profiles of one cluster.
#[derive(Debug)]
pub struct ProfileStore {
    inner: RwLock<Inner>,
    quotas: Quotas,
    /// Notified when a content is wanted.
    wanted: Notify,
    /// The number of watches that have not completed their first list.
    incomplete: watch::Sender<usize>,
    lookup: watch::Sender<Lookup>,
}

impl ProfileStore {
    /// Creates an empty store that will be filled by this many watches.
    pub fn new(watches: usize, quotas: Quotas) -> Self {
        Self::with(Contents::default(), watches, quotas)
    }

    /// Creates another empty store. The two have one copy of each content.
    #[must_use]
    pub fn beside(&self, watches: usize, quotas: Quotas) -> Self {
        let contents = self.inner.read().contents.clone();
        Self::with(contents, watches, quotas)
    }

    fn with(contents: Contents, watches: usize, quotas: Quotas) -> Self {
        Self {
            inner: RwLock::new(Inner {
                contents,
                memory: Arc::clone(&quotas.memory),
                ..Inner::default()
            }),
            quotas,
            wanted: Notify::new(),
            incomplete: watch::Sender::new(watches),
            lookup: watch::Sender::default(),
        }
    }

    /// Returns a profile as its author wrote it, if it exists.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<SharedProfile>> {
        let key = (namespace.to_owned(), name.to_owned());
        let inner = self.inner.read();
        inner.profiles.get(&key).cloned()
    }

    /// Returns the root of a chain of overlays: the profile itself, if it extends none, or only a
    /// content.
    pub fn root(&self, namespace: &str, name: &str) -> Option<(String, Arc<SharedProfile>)> {
        let mut name = name.to_owned();
        for _ in 0..ROOT_STEPS_MAX {
            let shared = self.get(namespace, &name)?;
            match &shared.spec.extends {
                Some(base) if parse_content_name(base).is_none() => name.clone_from(base),
                _ => return Some((name, shared)),
            }
        }
        None
    }

    /// Returns a profile merged with its bases, if it exists.
    fn resolved(&self, namespace: &str, name: &str) -> Option<Resolved> {
        let key = (namespace.to_owned(), name.to_owned());
        let inner = self.inner.read();
        let shared = inner.profiles.get(&key)?;
        if shared.spec.extends.is_none() {
            return Some(Ok(Arc::clone(shared)));
        }
        let known = inner.resolved.get(namespace);
        if let Some(resolved) = known.and_then(|known| known.get(&key.1)) {
            return Some(resolved.clone());
        }
        drop(inner);
        // Under one lock, because a base must not change between merging and storing the result.
        let mut inner = self.inner.write();
        let spec = Arc::clone(&inner.profiles.get(&key)?.spec);
        Some(inner.resolve(key, &spec))
    }

    /// Subscribes to the changes of one namespace's profiles.
    pub fn changes(&self, namespace: &str) -> ProfileChanges {
        let mut inner = self.inner.write();
        inner.make_room_for_senders();
        let sender = inner.senders.entry(namespace.to_owned()).or_default();
        ProfileChanges {
            receiver: sender.subscribe(),
        }
    }

    /// Waits until every watch has completed its first list, and contents that are not known were
    /// looked up.
    pub async fn ready(&self) {
        // The senders are parts of `self`, so they cannot be dropped.
        let mut incomplete = self.incomplete.subscribe();
        let _ = incomplete.wait_for(|count| *count == 0).await;
        let mut lookup = self.lookup.subscribe();
        let _ = lookup.wait_for(|it| !it.is_first_due()).await;
    }

    /// Inserts or replaces a profile. Returns the names of the profiles whose content changes.
    fn insert(&self, key: &Key, profile: Aged) -> BTreeSet<String> {
        let Aged { created, shared } = profile;
        let (namespace, name) = key;
        let mut inner = self.inner.write();
        let known = inner.profiles.get(key);
        if known.is_some_and(|known| known.id == shared.id) {
            return BTreeSet::new();
        }
        inner.wanted.remove(key);
        let mut changed = BTreeSet::new();
        if !self.quotas.has_room(key) {
            let ledger = self.ledger(&mut inner, namespace);
            let moves = ledger.put(name, created, shared.size);
            let is_kept = ledger.keeps(name);
            changed = inner.moved(namespace, moves);
            if !is_kept {
                changed.extend(inner.put(key, None));
                inner.contents.release(shared);
                self.wanted.notify_one();
                return changed;
            }
        }
        changed.extend(inner.put(key, Some(shared)));
        self.wanted.notify_one();
        changed
    }

    /// Removes a profile. Returns the names of the profiles whose content changes.
    fn remove(&self, key: &Key) -> BTreeSet<String> {
        self.mark(key, &BTreeMap::new());
        self.clear_unreadable(key);
        let (namespace, name) = key;
        let mut inner = self.inner.write();
        inner.wanted.remove(key);
        let mut changed = inner.put(key, None);
        if let Some(ledger) = inner.ledgers.get_mut(namespace) {
            let moves = ledger.remove(name);
            changed.extend(inner.moved(namespace, moves));
            self.wanted.notify_one();
        }
        changed
    }

    /// Returns the keys of all profiles, with room or without.
    fn keys(&self) -> BTreeSet<Key> {
        let inner = self.inner.read();
        let refused = inner.ledgers.iter().flat_map(|(namespace, ledger)| {
            let names = ledger.names().cloned();
            names.map(|name| (namespace.clone(), name))
        });
        let unreadable = inner.unreadable.iter().cloned();
        let known = inner.profiles.keys().cloned();
        refused.chain(unreadable).chain(known).collect()
    }
}

/// The content of a profile, and the time when the profile was created.
struct Aged {
    created: Timestamp,
    shared: Arc<SharedProfile>,
}

/// Returns the digest of a profile's content, in hex.
pub fn content_digest(spec: &OperatingSystemProfileSpec) -> String {
    hex::encode(content_id(spec).0)
}

/// Returns the size of a profile's content as JSON in bytes, which quotas count.
pub fn size(spec: &OperatingSystemProfileSpec) -> usize {
    content_id(spec).1.bytes
}

/// Returns the digest and the size of a profile's content. A spec consists of plain values, so that
/// equal specs have equal JSON.
fn content_id(spec: &OperatingSystemProfileSpec) -> (ContentId, Size) {
    let json = serde_json::to_vec(spec).expect("a profile's spec is plain values");
    let size = Size {
        bytes: json.len(),
        weight: weight::of(&json),
    };
    (Sha256::digest(&json).into(), size)
}

/// Watches the profiles of a cluster until cancelled. `health` is that of a worker cluster, and
/// `contents` are those that thin profiles may name.
pub async fn follow(
    (client, health): (Client, Option<Arc<Health>>),
    scope: Scope,
    (store, contents): (Arc<ProfileStore>, Option<Arc<DefaultContents>>),
    subscriptions: Arc<Subscriptions>,
) {
    let apis = scope
        .apis::<DeserializeGuard<OperatingSystemProfile>>(&client)
        .into_iter();
    let watches = apis.map(|(limit, api)| {
        // A thin default profile has about a kibibyte, and a whole one 40: a page has at most half
        // of what is read of one.
        let watch = move |page| watcher(api.clone(), watcher::Config::default().page_size(page));
        let objects_max = health.as_ref().map(|_| PROFILES_MAX);
        let events = relisted(RELIST_PROFILES, 100, watch, list_of_at_most(objects_max));
        let mut follower = Follower {
            store: Arc::clone(&store),
            subscriptions: Arc::clone(&subscriptions),
            limit,
            contents: contents.clone(),
            listed: BTreeSet::new(),
            is_complete: false,
        };
        interpret(
            Watched::of("profiles", health.as_ref()),
            events,
            move |event| {
                follower.event(event);
                Some(())
            },
        )
        .boxed()
    });
    let watches = stream::select_all(watches).collect::<()>();
    tokio::join!(
        watches,
        fetch_wanted(client, &store, &subscriptions),
        look_up(contents.as_deref(), &store, &subscriptions),
    );
}

fn notify(subscriptions: &Subscriptions, (namespace, _): &Key, changed: &BTreeSet<String>) {
    for name in changed {
        subscriptions.profile_changed(namespace, name);
    }
}

/// The state of one watch.
struct Follower {
    store: Arc<ProfileStore>,
    subscriptions: Arc<Subscriptions>,
    limit: Option<String>,
    /// Its objects belong to no tenant, and would be charged to the manager's namespace.
    contents: Option<Arc<DefaultContents>>,
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

    /// Inserts a profile. One that cannot be decoded does not hide the others.
    fn insert(&self, profile: DeserializeGuard<OperatingSystemProfile>) {
        let key = key(&profile);
        let contents = self.contents.as_ref();
        if contents.is_some_and(|it| it.has(&profile)) {
            return;
        }
        let changed = match profile.0 {
            Ok(profile) => self.store.put(profile),
            Err(unreadable) => {
                tracing::warn!(namespace = key.0, name = key.1, "a profile cannot be read");
                self.store.put_unreadable(&unreadable.metadata)
            }
        };
        notify(&self.subscriptions, &key, &changed);
    }

    fn remove(&self, key: &Key) {
        notify(&self.subscriptions, key, &self.store.remove(key));
    }
}

fn key(profile: &impl ResourceExt) -> Key {
    (profile.namespace().unwrap_or_default(), profile.name_any())
}

#[cfg(test)]
mod tests;
