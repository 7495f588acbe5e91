//! Thin profiles: each counts as the whole default profile whose content it names. Contents are
//! those of this release, and those in the manager's namespace.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::sleep;

use super::{
    Aged, Inner, Key, ProfileStore, SharedProfile, content_digest, content_id, key, notify,
};
use crate::api::profile::{OperatingSystemProfile, OperatingSystemProfileSpec};
use crate::client::{pages, recurring::Recurring, retry_delay::RetryDelay};
use crate::controllers::{default_contents::DefaultContents, subscriptions::Subscriptions};
use crate::plan::default_profile::DefaultProfile;
use crate::render::thin::{content_name, is_thin, thin};
use crate::telemetry::chain::chain;

/// The least time between two lookups. A tenant can name contents that do not exist.
const LOOKUP_PAUSE: Duration = Duration::from_mins(1);
/// How long a content that was not found waits for the next lookup.
const LOOKUP_RETRY: Duration = Duration::from_mins(10);

/// The content of a default profile.
#[derive(Debug)]
pub(super) struct DefaultContent {
    thin: OperatingSystemProfileSpec,
    /// The digest of `thin`, with which we install it.
    thin_digest: String,
    whole: Arc<SharedProfile>,
}

/// How often contents were wanted from the manager's namespace, and up to which of these they were
/// looked up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lookup {
    wanted: u64,
    done: u64,
}

impl Lookup {
    fn want(&mut self) {
        self.wanted = self.wanted.saturating_add(1);
    }

    const fn is_due(&self) -> bool {
        self.wanted != self.done
    }

    /// Returns true before the first lookup, if there will be one.
    pub(super) const fn is_first_due(&self) -> bool {
        self.wanted > 0 && self.done == 0
    }
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

    /// Returns the digest of the content, if this is the digest of a thin profile. So one counts as
    /// unchanged that we installed.
    pub(super) fn installed_digest(&self, digest: &str) -> Box<str> {
        let mut contents = self.default_contents.values();
        let content = contents.find(|it| it.thin_digest == digest);
        content.map_or_else(|| digest.into(), |it| it.whole.content().into())
    }
}

impl ProfileStore {
    /// Learns the contents of the default profiles of this release.
    pub fn hold_all(&self, defaults: &[DefaultProfile]) {
        for default in defaults {
            let name = content_name(&default.name, &default.spec);
            self.hold(name, default.spec.clone());
        }
    }

    /// Learns the content of a default profile. Returns the profiles that name it, each with the
    /// names of the profiles whose content changes.
    pub fn hold(
        &self,
        content_name: String,
        spec: OperatingSystemProfileSpec,
    ) -> Vec<(Key, BTreeSet<String>)> {
        let thin = thin(content_name.clone(), &spec);
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
        let digests = (content.thin_digest.clone(), content.whole.content());
        inner.default_contents.insert(content_name, content);
        let installed = inner.installed.values_mut();
        for digest in installed.filter(|it| ***it == *digests.0) {
            *digest = digests.1.as_str().into();
        }
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

    /// Returns the content of a thin profile. `None` if it is not thin, or its content not known.
    fn expand(&self, key: &Key, spec: &OperatingSystemProfileSpec) -> Option<Arc<SharedProfile>> {
        let mut inner = self.inner.write();
        let Some(content) = inner.content(spec) else {
            if inner.lacks_content(spec) {
                self.lookup.send_modify(Lookup::want);
            }
            inner.thin.remove(key);
            return None;
        };
        let whole = Arc::clone(&content.whole);
        inner.thin.insert(key.clone());
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

    /// Returns what [`Self::installed_content`] returns for a profile with this annotation.
    pub fn installed_digest(&self, annotation: &str) -> String {
        self.inner.read().installed_digest(annotation).into()
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
    let (mut delay, mut failure) = (RetryDelay::default(), Recurring::default());
    let mut lookup = store.lookup.subscribe();
    loop {
        tokio::select! {
            // The sender is part of the store, so it cannot be dropped.
            _ = lookup.wait_for(Lookup::is_due) => {}
            () = sleep(LOOKUP_RETRY), if store.is_lacking() => {}
        }
        let asked = store.lookup.borrow().wanted;
        if let Some(contents) = contents {
            match contents.list().await {
                Ok(found) => {
                    (delay, failure) = (RetryDelay::default(), Recurring::default());
                    let held = found.into_iter().map(|(name, spec)| store.hold(name, spec));
                    for (key, changed) in held.flatten() {
                        notify(subscriptions, &key, &changed);
                    }
                }
                Err(error) => {
                    let (namespace, cause) = (&contents.namespace, chain(&error).to_string());
                    if failure.is_news(&cause) {
                        tracing::warn!(namespace, error = cause, "cannot list profiles");
                    }
                    // Only a person can grant a right. Any other call may succeed next time.
                    if !pages::is_forbidden(&error) {
                        sleep(delay.next().unwrap_or_default()).await;
                        continue;
                    }
                }
            }
        }
        store.lookup.send_modify(|it| it.done = asked);
        sleep(LOOKUP_PAUSE).await;
    }
}
