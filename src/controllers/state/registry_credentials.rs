//! The registry credentials of one tenant, as they were last read.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::render::input::RegistryCredential;
use crate::telemetry::chain::chain;
use crate::tenant::{id::RegistrationId, mode::NamespacedName};

/// The largest credentials that are read. Those of a registry have about 200 bytes; a token that a
/// cloud issues has up to 2 KiB.
pub const CREDENTIALS_KIB_MAX: usize = 256;
/// After this many refusals in a row, the right is missing. An API server that has just started may
/// refuse what it allows a moment later.
const REFUSALS: u32 = 3;

/// Credentials of registries, by registry.
pub type RegistryCredentials = Arc<BTreeMap<String, RegistryCredential>>;

/// The registry credentials of one tenant, as they were last read.
#[derive(Debug)]
pub struct CredentialsCache(Mutex<Entry>);

#[derive(Debug)]
struct Entry {
    /// The Secret that they were read from; `None` if no Secret is named.
    secret: Option<NamespacedName>,
    /// The credentials, or why they cannot be used.
    read: Result<RegistryCredentials, String>,
    /// The number of times in a row that reading was forbidden.
    refusals: u32,
}

/// The result of reading the credentials again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// They have not changed.
    Same,
    /// They have changed.
    Changed,
    /// They could not be read. The previous ones are kept.
    Kept,
    /// They could not be read, and there are no previous ones.
    Unknown,
}

impl Default for CredentialsCache {
    fn default() -> Self {
        Self(Mutex::new(Entry {
            secret: None,
            read: Ok(Arc::default()),
            refusals: 0,
        }))
    }
}

impl CredentialsCache {
    /// Returns the credentials.
    ///
    /// # Errors
    ///
    /// If they cannot be used. The reason contains no secrets.
    pub fn get(&self) -> Result<RegistryCredentials, String> {
        self.0.lock().read.clone()
    }

    /// Records what was read from a Secret.
    pub fn set(
        &self,
        registration: &RegistrationId,
        secret: Option<NamespacedName>,
        read: Result<RegistryCredentials, CredentialsError>,
    ) -> Refreshed {
        let mut known = self.0.lock();
        let is_usable = known.secret == secret && known.read.is_ok();
        if let Err(error @ CredentialsError::Call { .. }) = &read
            && is_usable
        {
            tracing::warn!(%registration, error = %chain(error), "keeping the registry credentials");
            return Refreshed::Kept;
        }
        let is_forbidden = read.as_ref().is_err_and(CredentialsError::is_forbidden);
        let refusals = if is_forbidden { known.refusals + 1 } else { 0 };
        // A right that is missing each time must be granted by a person. Any other call may succeed
        // next time.
        let is_unknown = matches!(read, Err(CredentialsError::Call { .. })) && refusals < REFUSALS;
        let cause = read.as_ref().err().map(|error| chain(error).to_string());
        let read = read.map_err(|error| error.reason());
        let is_changed = known.read != read;
        if let Some(error) = cause.filter(|_| is_changed) {
            tracing::warn!(%registration, error, "the registry credentials cannot be read");
        }
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
}

/// The reason why the credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The Secret does not exist.
    #[error("spec.registryCredentialsSecretRef: Secret {0} does not exist")]
    Missing(String),
    /// It is larger than what is kept.
    #[error("Secret {0}: it has more than {CREDENTIALS_KIB_MAX} KiB of credentials")]
    TooLarge(String),
    /// A value is malformed. It is not included in the error, because it may be a password.
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
        /// The cause.
        source: kube::Error,
    },
}

impl CredentialsError {
    /// Returns the reason for a status and for Events in the worker cluster, whose users need not
    /// learn who we are in the management cluster: an API server's own words say that.
    fn reason(&self) -> String {
        match self {
            Self::Call {
                source: kube::Error::Api(status),
                ..
            } => format!("{self}: {} ({})", status.reason, status.code),
            error => chain(error).to_string(),
        }
    }

    /// Returns true if the API server forbids reading the Secret.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call { source: kube::Error::Api(status), .. } if status.is_forbidden())
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refusal_is_told_without_the_words_that_name_our_rights() {
        let words = "secrets \"pull\" is forbidden: User \"operator\" cannot get resource";
        let refused = CredentialsError::Call {
            secret: "pull".to_owned(),
            source: kube::Error::Api(Status::failure(words, "Forbidden").with_code(403).boxed()),
        };
        assert_eq!(refused.reason(), "cannot read Secret pull: Forbidden (403)");
    }
}
