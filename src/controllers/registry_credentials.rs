//! Credentials of registries: a Secret in the tenant's namespace that its WorkerCluster names.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde::Deserialize;

use super::context::Context;
use crate::render::input::RegistryCredential;
use crate::telemetry::chain::chain;
use crate::tenant::{mode::NamespacedName, secret_text::SecretText};

/// The type of a Secret that docker's client would write.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
/// The data key of such a Secret.
const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";
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

    fn set(
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

/// Reads the tenant's credentials again. A call that fails leaves those that were read from the
/// same Secret.
pub async fn refresh(context: &Context) -> Refreshed {
    let secret = context.registry_credentials_secret();
    let read = match &secret {
        None => Ok(BTreeMap::new()),
        Some(NamespacedName { namespace, name }) => {
            read(&context.engagement.management.client(), namespace, name).await
        }
    };
    context.registry_credentials.set(secret, read.map(Arc::new))
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
    fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call { source: kube::Error::Api(status), .. } if status.is_forbidden())
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, Credential>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Credential {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
}

/// Reads the credentials, by registry.
pub async fn read(
    management: &Client,
    namespace: &str,
    name: &str,
) -> Result<BTreeMap<String, RegistryCredential>, CredentialsError> {
    let api: Api<Secret> = Api::namespaced(management.clone(), namespace);
    let secret = api
        .get_opt(name)
        .await
        .map_err(|source| CredentialsError::Call {
            secret: name.to_owned(),
            source,
        })?
        .ok_or_else(|| CredentialsError::Missing(name.to_owned()))?;
    parse(name, secret)
}

fn parse(
    name: &str,
    secret: Secret,
) -> Result<BTreeMap<String, RegistryCredential>, CredentialsError> {
    let malformed = |key: &str| CredentialsError::Malformed {
        secret: name.to_owned(),
        key: key.to_owned(),
    };
    let data = secret.data.unwrap_or_default();
    let found: BTreeMap<String, Credential> = if secret.type_.as_deref() == Some(DOCKER_CONFIG) {
        let json = data
            .get(DOCKER_CONFIG_KEY)
            .ok_or_else(|| malformed(DOCKER_CONFIG_KEY))?;
        let config: DockerConfig =
            serde_json::from_slice(&json.0).map_err(|_| malformed(DOCKER_CONFIG_KEY))?;
        config.auths
    } else {
        let parse = |(key, json): (String, k8s_openapi::ByteString)| {
            let credential = serde_json::from_slice(&json.0).map_err(|_| malformed(&key))?;
            Ok((key, credential))
        };
        data.into_iter()
            .map(parse)
            .collect::<Result<_, CredentialsError>>()?
    };
    Ok(found
        .into_iter()
        .map(|(key, credential)| (host(&key), credential.into()))
        .collect())
}

/// A key that is a URL stands for its host.
fn host(key: &str) -> String {
    match key.parse::<http::Uri>() {
        Ok(uri) if uri.scheme().is_some() => uri.host().unwrap_or(key).to_owned(),
        _ => key.to_owned(),
    }
}

impl From<Credential> for RegistryCredential {
    fn from(credential: Credential) -> Self {
        Self {
            username: SecretText::new(credential.username),
            password: SecretText::new(credential.password),
            auth: SecretText::new(credential.auth),
            identity_token: SecretText::new(credential.identitytoken),
        }
    }
}
