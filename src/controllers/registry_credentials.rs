//! Reads the registry credentials: a Secret in the tenant's namespace that its WorkerCluster names,
//! or else the Secret that a flag names.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde::Deserialize;

use super::{
    context::Context,
    state::registry_credentials::{CredentialsError, Refreshed},
};
use crate::render::input::RegistryCredential;
use crate::tenant::{mode::NamespacedName, secret_text::SecretText};

/// The type of a Secret that contains a configuration file of Docker's client.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
/// The data key of such a Secret.
const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// Reads the tenant's credentials again. If the call fails, those that were read from the same
/// Secret before are kept.
pub async fn refresh(context: &Context) -> Refreshed {
    let secret = context.registry_credentials_secret();
    let read = match &secret {
        None => Ok(BTreeMap::new()),
        Some((clients, NamespacedName { namespace, name })) => {
            read(&clients.client(), namespace, name).await
        }
    };
    let secret = secret.map(|(_, named)| named);
    let registration = &context.engagement.registration;
    let read = read.map(Arc::new);
    context.registry_credentials.set(registration, secret, read)
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

/// Reads the credentials in a Secret, by registry.
///
/// # Errors
///
/// If the call fails, or if the Secret is missing or malformed.
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

/// Returns the host of a key that is a URL, and any other key as it is.
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
