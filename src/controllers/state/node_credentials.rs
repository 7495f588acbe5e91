//! The known node credentials of machine deployments.

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::charged_map::{ChargedMap, Weight};
use crate::api::{names::DerivedNames, worker_cluster};
use crate::client::memory::Memory;
use crate::tenant::{secret_text::SecretText, settings::TenantSettings};

/// The known node credentials of one tenant's machine deployments.
#[derive(Debug)]
pub struct NodeCredentials {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// By the key of the machine deployment.
    known: ChargedMap<CachedToken>,
    refused_until: Option<Timestamp>,
}

/// A token, and the object that it was read from.
#[derive(Clone, Debug)]
pub struct CachedToken {
    /// The token.
    pub token: SecretText,
    /// The uid of its Secret.
    pub uid: Option<String>,
    /// The version of its Secret.
    pub resource_version: Option<String>,
    /// The Secrets that it may read.
    pub secrets: Vec<String>,
    /// The time when its rights were checked.
    pub checked: Timestamp,
}

impl Weight for CachedToken {
    fn weight(&self) -> usize {
        let of_secret = [&self.uid, &self.resource_version].into_iter().flatten();
        let texts = of_secret.chain(&self.secrets).map(String::len);
        self.token.expose().len() + texts.sum::<usize>()
    }
}

impl NodeCredentials {
    /// Creates an empty collection.
    pub fn within(memory: &Arc<Memory>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                known: ChargedMap::within(memory),
                refused_until: None,
            }),
        }
    }

    /// Returns the machine deployment's own token; `Some(None)` if its machines share the
    /// fetcher's. Returns `None` if that is not known yet.
    pub fn own_token(
        &self,
        settings: &TenantSettings,
        names: &DerivedNames,
    ) -> Option<Option<SecretText>> {
        if settings.node_credentials == worker_cluster::NodeCredentials::Shared {
            return Some(None);
        }
        let inner = self.inner.lock();
        match inner.known.entries().get(&names.key) {
            Some(known) => Some(Some(known.token.clone())),
            None => inner.refused_until.map(|_| None),
        }
    }

    /// Returns until when the rights are considered missing.
    pub fn refused_until(&self) -> Option<Timestamp> {
        self.inner.lock().refused_until
    }

    /// Forgets the credentials of a machine deployment.
    pub fn forget(&self, key: &str) {
        self.inner.lock().known.remove(key);
    }

    /// Forgets the credentials whose key is not in use.
    pub fn keep(&self, is_in_use: impl Fn(&str) -> bool) {
        self.inner.lock().known.keep(is_in_use);
    }

    /// Returns the credentials of a machine deployment, if they are known.
    pub fn get(&self, key: &str) -> Option<CachedToken> {
        self.inner.lock().known.entries().get(key).cloned()
    }

    /// Records the credentials of a machine deployment.
    pub fn set(&self, key: &str, known: CachedToken) {
        self.inner.lock().known.insert(key, known);
    }

    /// Considers the rights missing until then; `None` ends that.
    pub fn refused(&self, until: Option<Timestamp>) {
        self.inner.lock().refused_until = until;
    }
}
