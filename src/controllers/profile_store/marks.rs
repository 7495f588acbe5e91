//! The marks of profiles: the content that we installed and the pin, both from annotations, and
//! whether a profile cannot be decoded.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::{ResourceExt, api::ObjectMeta};

use super::{Key, ProfileStore, Resolved, SharedProfile, key};
use crate::api::{
    names::{INSTALLED_CONTENT, PINNED},
    profile::OperatingSystemProfile,
};
use crate::plan::{found::Profiles, invalid::Shortage};

/// The length of a digest in hex.
const DIGEST_CHARACTERS: usize = 64;

impl ProfileStore {
    /// Returns the digest of the content that we installed as this profile, if an annotation
    /// contains it.
    pub fn installed_content(&self, namespace: &str, name: &str) -> Option<String> {
        let key = (namespace.to_owned(), name.to_owned());
        let inner = self.inner.read();
        inner.installed.get(&key).map(ToString::to_string)
    }

    /// Records the annotations of a profile.
    pub(super) fn mark(&self, key: &Key, annotations: &BTreeMap<String, String>) {
        let mut inner = self.inner.write();
        let content = annotations.get(INSTALLED_CONTENT);
        match content.filter(|content| content.len() == DIGEST_CHARACTERS) {
            Some(content) => {
                let digest = inner.installed_digest(content);
                inner.installed.insert(key.clone(), digest)
            }
            None => inner.installed.remove(key),
        };
        if annotations.contains_key(PINNED) {
            inner.pinned.insert(key.clone());
        } else {
            inner.pinned.remove(key);
        }
        inner.thin.remove(key);
    }

    /// Returns true if the profile exists and cannot be decoded.
    pub fn is_unreadable(&self, namespace: &str, name: &str) -> bool {
        let inner = self.inner.read();
        let key = (namespace.to_owned(), name.to_owned());
        inner.unreadable.contains(&key)
    }

    /// Records that a profile exists and cannot be decoded.
    pub(super) fn set_unreadable(&self, key: &Key) {
        let mut inner = self.inner.write();
        inner.unreadable.insert(key.clone());
    }

    /// Records that a profile can be decoded, or does not exist.
    pub(super) fn clear_unreadable(&self, key: &Key) {
        let mut inner = self.inner.write();
        inner.unreadable.remove(key);
    }

    /// Returns true if no default may replace the profile.
    pub fn is_pinned(&self, namespace: &str, name: &str) -> bool {
        let inner = self.inner.read();
        let key = (namespace.to_owned(), name.to_owned());
        inner.pinned.contains(&key)
    }

    /// Inserts or replaces a profile. Returns the names of the profiles whose content changes.
    pub fn put(&self, profile: OperatingSystemProfile) -> BTreeSet<String> {
        let key = key(&profile);
        self.mark(&key, profile.annotations());
        self.clear_unreadable(&key);
        let aged = self.aged(profile);
        self.insert(&key, aged)
    }

    /// Inserts or replaces a profile that cannot be decoded. Its annotations are used, but not its
    /// content. Returns the names of the profiles whose content changes.
    pub fn put_unreadable(&self, metadata: &ObjectMeta) -> BTreeSet<String> {
        let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
        let key = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let mut changed = self.remove(&key);
        self.mark(&key, &metadata.annotations.clone().unwrap_or_default());
        self.set_unreadable(&key);
        changed.insert(key.1);
        changed
    }
}

impl Profiles for ProfileStore {
    type Profile = Arc<SharedProfile>;

    fn resolved(&self, namespace: &str, name: &str) -> Option<Resolved> {
        Self::resolved(self, namespace, name)
    }

    fn is_unreadable(&self, namespace: &str, name: &str) -> bool {
        Self::is_unreadable(self, namespace, name)
    }

    fn shortage(&self, namespace: &str, name: &str) -> Option<Shortage> {
        Self::shortage(self, namespace, name)
    }
}
