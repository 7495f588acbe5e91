//! The credentials of registries of one tenant, as they were read last.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::render::input::RegistryCredential;
use crate::telemetry::chain::chain;
use crate::tenant::mode::NamespacedName;

/// An API server that has just started forbids what it allows a moment later: only this many
/// refusals in a row mean that the right is missing.
const REFUSALS: u32 = 3;

/// Credentials of registries, by registry.
pub type RegistryCredentials = Arc<BTreeMap<String, RegistryCredential>>;

/// The credentials of one tenant as they were read last.
#[derive(Debug)]
pub struct Known(Mutex<Entry>);

#[derive(Debug)]
struct Entry {
    /// The Secret that they were read from; there are none where no Secret is named.
    secret: Option<NamespacedName>,
    /// What was read, or why it cannot be used.
    read: Result<RegistryCredentials, String>,
    /// How many times in a row it was forbidden to read it.
    refusals: u32,
}

/// What reading the credentials again came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// They are what they were.
    Same,
    /// They are others.
    Changed,
    /// They could not be read, and those that were read last stay.
    Kept,
    /// They could not be read, and there are none to go by.
    Unknown,
}

impl Default for Known {
    fn default() -> Self {
        Self(Mutex::new(Entry {
            secret: None,
            read: Ok(Arc::default()),
            refusals: 0,
        }))
    }
}

impl Known {
    /// Returns the credentials.
    ///
    /// # Errors
    ///
    /// Why they cannot be used, without secrets.
    pub fn get(&self) -> Result<RegistryCredentials, String> {
        self.lock().read.clone()
    }

    /// Takes note of what was read from a Secret.
    pub fn set(
        &self,
        secret: Option<NamespacedName>,
        read: Result<RegistryCredentials, CredentialsError>,
    ) -> Refreshed {
        let mut known = self.lock();
        let is_usable = known.secret == secret && known.read.is_ok();
        if let Err(error @ CredentialsError::Call { .. }) = &read
            && is_usable
        {
            tracing::warn!(error = %chain(error), "keeping the credentials of registries");
            return Refreshed::Kept;
        }
        let is_forbidden = read.as_ref().is_err_and(CredentialsError::is_forbidden);
        let refusals = if is_forbidden { known.refusals + 1 } else { 0 };
        // A right that lacks each time is given by a person; any other call may succeed the next
        // time.
        let is_unknown = matches!(read, Err(CredentialsError::Call { .. })) && refusals < REFUSALS;
        let read = read.map_err(|error| chain(&error).to_string());
        let is_changed = known.read != read;
        *known = Entry {
            secret,
            read,
            refusals,
        };
        match (is_unknown, is_changed) {
            (true, _) => Refreshed::Unknown,
            (false, true) => Refreshed::Changed,
            (false, false) => Refreshed::Same,
        }
    }

    /// Each write is one assignment, so a panic elsewhere does no harm here.
    fn lock(&self) -> MutexGuard<'_, Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why the credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The Secret is not there.
    #[error("spec.registryCredentialsSecretRef: Secret {0} does not exist")]
    Missing(String),
    /// A value is not what it should be. What it is instead is not told: it may be a password.
    #[error("Secret {secret}, key {key}: not a JSON object of credentials")]
    Malformed {
        /// The Secret.
        secret: String,
        /// The data key.
        key: String,
    },
    /// The call failed.
    #[error("cannot read Secret {secret}")]
    Call {
        /// The Secret.
        secret: String,
        /// Why it failed.
        source: kube::Error,
    },
}

impl CredentialsError {
    /// Returns whether the API server forbids to read the Secret.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call { source: kube::Error::Api(status), .. } if status.is_forbidden())
    }
}
