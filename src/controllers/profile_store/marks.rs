//! What annotations of profiles say of them: which content we installed, and which are pinned.

use std::{collections::BTreeMap, sync::PoisonError};

use super::{Key, ProfileStore};
use crate::api::names::{INSTALLED_CONTENT, PINNED};

impl ProfileStore {
    /// The content that we installed as this profile, if it says so.
    pub fn installed_content(&self, namespace: &str, name: &str) -> Option<String> {
        let key = (namespace.to_owned(), name.to_owned());
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        inner.installed.get(&key).map(ToString::to_string)
    }

    /// Takes note of them.
    pub(super) fn mark(&self, key: &Key, annotations: &BTreeMap<String, String>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        match annotations.get(INSTALLED_CONTENT) {
            Some(content) => inner.installed.insert(key.clone(), content.as_str().into()),
            None => inner.installed.remove(key),
        };
        if annotations.contains_key(PINNED) {
            inner.pinned.insert(key.clone());
        } else {
            inner.pinned.remove(key);
        }
    }

    /// Whether there is such a profile, and it cannot be decoded.
    pub fn is_unreadable(&self, namespace: &str, name: &str) -> bool {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        inner.unreadable.contains(&key)
    }

    /// Records that a profile exists and cannot be decoded.
    pub(super) fn set_unreadable(&self, key: &Key) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.unreadable.insert(key.clone());
    }

    /// Records that a profile can be decoded, or does not exist.
    pub(super) fn clear_unreadable(&self, key: &Key) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.unreadable.remove(key);
    }

    /// Whether no default may replace the profile.
    pub fn is_pinned(&self, namespace: &str, name: &str) -> bool {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        inner.pinned.contains(&key)
    }
}
