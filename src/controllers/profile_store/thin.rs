//! Thin profiles: each counts as the whole default profile whose content it names. Contents are
//! those of this release, and those in the manager's namespace.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::sleep;

use super::{
    Aged, Inner, Key, ProfileStore, SharedProfile, content_digest, content_id, key, notify,
};
use crate::api::{
    names::INSTALLED_CONTENT,
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
};
use crate::client::recurring::Recurring;
use crate::controllers::{default_contents::DefaultContents, subscriptions::Subscriptions};
use crate::plan::default_profile::DefaultProfile;
use crate::render::thin::{content_name, is_thin, thin};
use crate::telemetry::chain::chain;
use kube::ResourceExt;

/// The least time between two lookups. A tenant can name contents that do not exist.
const LOOKUP_PAUSE: Duration = Duration::from_mins(1);
/// How long a content that was not found waits for the next lookup.
const LOOKUP_RETRY: Duration = Duration::from_mins(10);

/// The content of a default profile.
#[derive(Debug)]
pub(super) struct DefaultContent {
    thin: OperatingSystemProfileSpec,
    thin_digest: String,
    whole: Arc<SharedProfile>,
}

/// Whether contents must be looked up in the manager's namespace, and whether that was done before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lookup {
    pub(super) is_wanted: bool,
    pub(super) was_done: bool,
}

impl Inner {
    fn content(&self, spec: &OperatingSystemProfileSpec) -> Option<&DefaultContent> {
        let content = self.default_contents.get(spec.extends.as_deref()?)?;
        (content.thin == *spec).then_some(content)
    }

    /// Returns the content of a default profile by its name.
    pub(super) fn default_content(&self, name: &str) -> Option<&Arc<SharedProfile>> {
        self.default_contents
            .get(name)
            .map(|content| &content.whole)
    }

    /// Returns true if a profile is thin, and its content not known.
    fn lacks_content(&self, spec: &OperatingSystemProfileSpec) -> bool {
        let is_known = |name: &String| self.default_contents.contains_key(name);
        is_thin(spec) && !spec.extends.as_ref().is_some_and(is_known)
    }

    /// Returns the profiles that extend what has this name.
    fn on(&self, name: &str) -> Vec<Key> {
        let overlays = self.overlays.iter().filter(|((_, base), _)| base == name);
        let keys = overlays.flat_map(|((namespace, _), names)| {
            let names = names.iter();
            names.map(|name| (namespace.clone(), name.clone()))
        });
        keys.collect()
    }

    /// Records the digest that we installed a thin profile with as that of its content, so that it
    /// counts as unchanged.
    fn count_as_whole(&mut self, key: &Key, (thin_digest, whole): (&str, &SharedProfile)) {
        if let Some(installed) = self.installed.get_mut(key)
            && **installed == *thin_digest
        {
            *installed = whole.content().into();
        }
        self.thin.insert(key.clone());
    }
}

impl ProfileStore {
    /// Learns the contents of the default profiles of this release.
    pub fn hold_all(&self, defaults: &[DefaultProfile]) {
        for default in defaults {
            self.hold(&default.name, default.spec.clone());
        }
    }

    /// Learns the content of a default profile. Returns the profiles that name it, each with the
    /// names of the profiles whose content changes.
    pub fn hold(
        &self,
        name: &str,
        spec: OperatingSystemProfileSpec,
    ) -> Vec<(Key, BTreeSet<String>)> {
        let content_name = content_name(name, &spec.version);
        let thin = thin(name, &spec);
        let mut inner = self.inner.write();
        if inner.default_contents.contains_key(&content_name) {
            return Vec::new();
        }
        let content = DefaultContent {
            thin_digest: content_digest(&thin),
            whole: inner.contents.intern(content_id(&spec), spec),
            thin,
        };
        let waiting = inner.on(&content_name);
        inner.default_contents.insert(content_name, content);
        drop(inner);
        let changed = waiting.into_iter().filter_map(|key| {
            let spec = Arc::clone(&self.get(&key.0, &key.1)?.spec);
            let changed = match self.expand(&key, &spec) {
                Some(shared) => self.insert(&key, self.aged_as_before(&key, shared)),
                None => self.resolve_again(&key),
            };
            Some((key, changed))
        });
        changed.collect()
    }

    fn aged_as_before(&self, (namespace, name): &Key, shared: Arc<SharedProfile>) -> Aged {
        let inner = self.inner.read();
        let ledger = inner.ledgers.get(namespace);
        let created = ledger.and_then(|ledger| ledger.created(name));
        Aged {
            created: created.unwrap_or(Timestamp::UNIX_EPOCH),
            shared,
        }
    }

    fn resolve_again(&self, key: &Key) -> BTreeSet<String> {
        let mut inner = self.inner.write();
        let changed = inner.on_top_of(key);
        inner.forget_resolved(&key.0, &changed);
        changed
    }

    /// Returns the content of a profile whose annotations are recorded.
    pub(super) fn aged(&self, profile: OperatingSystemProfile) -> Aged {
        let created = profile.creation_timestamp();
        let expanded = self.expand(&key(&profile), &profile.spec);
        let shared = expanded.unwrap_or_else(|| self.intern(profile.spec));
        Aged {
            created: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            shared,
        }
    }

    pub(super) fn intern(&self, spec: OperatingSystemProfileSpec) -> Arc<SharedProfile> {
        let contents = self.inner.read().contents.clone();
        contents.intern(content_id(&spec), spec)
    }

    /// Returns the content of a thin profile, whose annotations are recorded already. `None` if it
    /// is not thin, or its content is not known.
    fn expand(&self, key: &Key, spec: &OperatingSystemProfileSpec) -> Option<Arc<SharedProfile>> {
        let mut inner = self.inner.write();
        inner.thin.remove(key);
        let Some(content) = inner.content(spec) else {
            if inner.lacks_content(spec) {
                self.lookup.send_modify(|it| it.is_wanted = true);
            }
            return None;
        };
        let (thin_digest, whole) = (content.thin_digest.clone(), Arc::clone(&content.whole));
        inner.count_as_whole(key, (&thin_digest, &whole));
        Some(whole)
    }

    /// Returns the digest of what a profile's spec means, which for a thin one is its content's.
    pub fn digest(&self, spec: &OperatingSystemProfileSpec) -> String {
        let inner = self.inner.read();
        let content = inner.content(spec).map(|content| content.whole.content());
        content.unwrap_or_else(|| content_digest(spec))
    }

    /// Returns true if a profile is thin, and its content not known.
    pub fn lacks_content(&self, spec: &OperatingSystemProfileSpec) -> bool {
        self.inner.read().lacks_content(spec)
    }

    fn is_lacking(&self) -> bool {
        let inner = self.inner.read();
        let mut profiles = inner.profiles.values();
        profiles.any(|it| inner.lacks_content(&it.spec))
    }

    /// Replaces the spec of a thin profile with its content, if that is known.
    pub fn make_whole(&self, profile: &mut OperatingSystemProfile) {
        let inner = self.inner.read();
        let Some(content) = inner.content(&profile.spec) else {
            return;
        };
        if let Some(installed) = profile.annotations_mut().get_mut(INSTALLED_CONTENT)
            && *installed == content.thin_digest
        {
            *installed = content.whole.content();
        }
        profile.spec = content.whole.spec().clone();
    }

    /// Returns true if a profile is thin, and its content known.
    pub fn is_thin(&self, namespace: &str, name: &str) -> bool {
        let inner = self.inner.read();
        let key = (namespace.to_owned(), name.to_owned());
        inner.thin.contains(&key)
    }
}

/// Looks contents up in the manager's namespace while a thin profile names an unknown one, until
/// cancelled.
pub(super) async fn look_up(
    contents: Option<&DefaultContents>,
    store: &ProfileStore,
    subscriptions: &Subscriptions,
) {
    let mut failure = Recurring::default();
    let mut lookup = store.lookup.subscribe();
    loop {
        tokio::select! {
            // The sender is part of the store, so it cannot be dropped.
            _ = lookup.wait_for(|it| it.is_wanted) => {}
            () = sleep(LOOKUP_RETRY), if store.is_lacking() => {}
        }
        if let Some(contents) = contents {
            match contents.list().await {
                Ok(found) => {
                    let held = found
                        .into_iter()
                        .map(|(name, spec)| store.hold(&name, spec));
                    for (key, changed) in held.flatten() {
                        notify(subscriptions, &key, &changed);
                    }
                }
                Err(error) => {
                    let (namespace, error) = (&contents.namespace, chain(&error).to_string());
                    if failure.is_news(&error) {
                        tracing::warn!(namespace, error, "cannot read default profiles' contents");
                    }
                }
            }
        }
        store.lookup.send_modify(|it| {
            it.is_wanted = false;
            it.was_done = true;
        });
        sleep(LOOKUP_PAUSE).await;
    }
}
