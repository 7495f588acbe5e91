//! Reads the registry credentials: a Secret in the tenant's namespace that its WorkerCluster names,
//! or else the Secret that a flag names.

use std::{collections::BTreeMap, sync::Arc};

use http::uri::Scheme;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde::Deserialize;

use super::{
    context::Context,
    state::registry_credentials::{CREDENTIALS_KIB_MAX, CredentialsError, Refreshed},
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
    let bytes: usize = data.values().map(|value| value.0.len()).sum();
    if bytes > CREDENTIALS_KIB_MAX << 10 {
        return Err(CredentialsError::TooLarge(name.to_owned()));
    }
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

/// Returns the host of a key that is a URL, with its port, and any other key as it is.
fn host(key: &str) -> String {
    let uri = key.parse::<http::Uri>().ok();
    let uri = uri.filter(|uri| uri.scheme().is_some());
    let Some((host, uri)) = uri.as_ref().and_then(|uri| Some((uri.host()?, uri))) else {
        return key.to_owned();
    };
    // Images are named without the port of HTTPS.
    let usual = (uri.scheme() == Some(&Scheme::HTTPS)).then_some(443);
    match uri.port_u16().filter(|port| Some(*port) != usual) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
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

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn registries(key: &str, json: &serde_json::Value) -> Result<Vec<String>, CredentialsError> {
        let json = ByteString(json.to_string().into_bytes());
        let secret = Secret {
            type_: Some(DOCKER_CONFIG.to_owned()),
            data: Some([(key.to_owned(), json)].into()),
            ..Secret::default()
        };
        Ok(parse("pull", secret)?.into_keys().collect())
    }

    #[test]
    fn a_registry_is_the_host_and_port_of_a_url() {
        for (key, expected) in [
            ("https://index.docker.io/v1/", "index.docker.io"),
            ("https://own.example:5000", "own.example:5000"),
            ("http://user@own.example:5000/v2/", "own.example:5000"),
            ("https://[fd00::a]:5000", "[fd00::a]:5000"),
            ("https://own.example:443/v2/", "own.example"),
            ("http://own.example:443/v2/", "own.example:443"),
            ("own.example:5000", "own.example:5000"),
            ("ghcr.io", "ghcr.io"),
        ] {
            let config = json!({"auths": {key: {"auth": "dTpw"}}});
            assert_eq!(registries(DOCKER_CONFIG_KEY, &config).unwrap(), [expected]);
        }
    }

    #[test]
    fn more_credentials_than_documents_can_have_are_refused() {
        let many = |bytes| json!({"auths": {"r.example": {"auth": "a".repeat(bytes)}}});
        assert!(registries(DOCKER_CONFIG_KEY, &many(200 << 10)).is_ok());
        let refused = registries(DOCKER_CONFIG_KEY, &many(256 << 10)).unwrap_err();
        let message = refused.to_string();
        assert_eq!(
            message,
            "Secret pull: it has more than 256 KiB of credentials"
        );
    }
}
