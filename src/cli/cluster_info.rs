//! The cluster info of a worker cluster, read from a file. Missing values get a placeholder. No
//! value is ever quoted, because some are tokens.

use std::{collections::BTreeMap, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value as Json, json};

use super::input::{documents_without_quotes, refuse_shape};
use crate::render::input::RegistryCredential;
use crate::rules::document::Document;
use crate::tenant::{cluster_info::ClusterInfo, secret_text::SecretText};

const API_SERVER: &str = "https://kubernetes.example:6443";
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nplaceholder\n-----END CERTIFICATE-----\n";
const FETCH_TOKEN: &str = "placeholder-fetch-token";

/// The contents of the file.
pub(super) struct ClusterInfoFile {
    pub(super) cluster: ClusterInfo,
    pub(super) certificate: String,
    /// If `None`, one with a placeholder for its token is generated.
    pub(super) bootstrap_kubeconfig: Option<SecretText>,
    pub(super) registry_credentials: BTreeMap<String, RegistryCredential>,
    /// The fields that have a placeholder.
    pub(super) placeholders: Vec<&'static str>,
}

impl ClusterInfoFile {
    /// Reads a file. Without a file, every value is a placeholder.
    pub(super) fn load(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self::from_json(&Json::Null));
        };
        let documents = documents_without_quotes(path)?;
        let [document] = documents.as_slice() else {
            anyhow::bail!("{}: it must be one YAML document", path.display());
        };
        check(path, document)?;
        Ok(Self::from_json(&document.value))
    }

    fn from_json(value: &Json) -> Self {
        let mut placeholders = Vec::new();
        let mut text = |name: &'static str, placeholder: &str| {
            let given = value.get(name).and_then(Json::as_str);
            if given.is_none() {
                placeholders.push(name);
            }
            given.unwrap_or(placeholder).to_owned()
        };
        let api_server = text("apiServer", API_SERVER);
        let certificate = text("kubernetesCA", CERTIFICATE);
        let fetch_token = SecretText::new(text("fetchToken", FETCH_TOKEN));
        let bootstrap_kubeconfig = SecretText::new(text("bootstrapKubeconfig", ""));
        let is_given = !bootstrap_kubeconfig.expose().is_empty();
        Self {
            cluster: ClusterInfo {
                api_server,
                certificate_authority_data: STANDARD.encode(&certificate),
                fetch_token,
            },
            certificate,
            bootstrap_kubeconfig: is_given.then_some(bootstrap_kubeconfig),
            registry_credentials: credentials(value),
            placeholders,
        }
    }
}

fn check(path: &Path, document: &Document) -> anyhow::Result<()> {
    let text = json!({"type": "string"});
    let credential = ["username", "password", "auth", "identitytoken"].map(|name| (name, &text));
    let schema = json!({
        "type": "object",
        "properties": {
            "apiServer": text,
            "kubernetesCA": text,
            "fetchToken": text,
            "bootstrapKubeconfig": text,
            "registryCredentials": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "properties": credential.into_iter().collect::<BTreeMap<_, _>>(),
                },
            },
        },
    });
    refuse_shape(path, document, &schema)
}

fn credentials(value: &Json) -> BTreeMap<String, RegistryCredential> {
    let given = value.get("registryCredentials").and_then(Json::as_object);
    let credential = |value: &Json| {
        let secret =
            |name| SecretText::new(value.get(name).and_then(Json::as_str).unwrap_or_default());
        RegistryCredential {
            username: secret("username"),
            password: secret("password"),
            auth: secret("auth"),
            identity_token: secret("identitytoken"),
        }
    };
    given
        .into_iter()
        .flatten()
        .map(|(registry, value)| (registry.clone(), credential(value)))
        .collect()
}
