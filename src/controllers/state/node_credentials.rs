//! The machine deployments' own credentials, as far as they are known.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;

use crate::api::{names::DerivedNames, worker_cluster};
use crate::tenant::{secret_text::SecretText, settings::TenantSettings};

/// What is known of the credentials of one tenant's machine deployments.
#[derive(Debug, Default)]
pub struct NodeCredentials {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By the key of the machine deployment.
    known: HashMap<String, Known>,
    refused_until: Option<Timestamp>,
}

/// A token, and which object it was read from.
#[derive(Clone, Debug)]
pub struct Known {
    /// The token.
    pub token: SecretText,
    /// The uid of its Secret.
    pub uid: Option<String>,
    /// The version of its Secret.
    pub resource_version: Option<String>,
    /// The Secrets that it may read.
    pub secrets: Vec<String>,
    /// When its rights were looked at.
    pub checked: Timestamp,
}

impl NodeCredentials {
    /// Returns the machine deployment's own token, where its machines fetch with one. `None` if it
    /// is not known yet whether they do.
    pub fn own_token(
        &self,
        settings: &TenantSettings,
        names: &DerivedNames,
    ) -> Option<Option<SecretText>> {
        if settings.node_credentials == worker_cluster::NodeCredentials::Shared {
            return Some(None);
        }
        let inner = self.lock();
        match inner.known.get(&names.key) {
            Some(known) => Some(Some(known.token.clone())),
            None => inner.refused_until.map(|_| None),
        }
    }

    /// Until when the rights are taken for missing.
    pub fn refused_until(&self) -> Option<Timestamp> {
        self.lock().refused_until
    }

    /// Forgets those of a machine deployment.
    pub fn forget(&self, key: &str) {
        self.lock().known.remove(key);
    }

    /// Returns what is known of a machine deployment's.
    pub fn get(&self, key: &str) -> Option<Known> {
        self.lock().known.get(key).cloned()
    }

    /// Takes note of a machine deployment's.
    pub fn set(&self, key: &str, known: Known) {
        self.lock().known.insert(key.to_owned(), known);
    }

    /// Takes the rights for missing until then.
    pub fn refused(&self, until: Option<Timestamp>) {
        self.lock().refused_until = until;
    }

    /// Every write under the lock is one assignment, so a panic elsewhere does no harm here.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
