//! Where machines get credentials for images: a Secret, or programs that the kubelet asks.

use std::collections::BTreeMap;

use kube_derive::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits;

/// A Secret with registry credentials.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct RegistryCredentialsReference {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The Secret's namespace in the worker cluster. Only for `spec.home: Worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
}

/// A program that a kubelet asks for credentials as it pulls an image that matches: an entry of
/// its `CredentialProviderConfig`, with where the program is downloaded from.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageCredentialProvider {
    /// The name of the program's file.
    #[schemars(length(max = 63), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"))]
    pub name: String,
    /// The program, by the architecture of a machine's processor.
    pub binaries: Binaries,
    /// Hosts of registries, with or without a port and a path. A `*` stands for a part of a name
    /// between dots, or for some of its characters.
    #[schemars(
        length(min = 1, max = limits::REGISTRIES_MAX),
        inner(length(max = limits::HOST_CHARACTERS_MAX), regex(pattern = limits::MATCHED_IMAGES))
    )]
    pub match_images: Vec<String>,
    /// How long the kubelet keeps credentials for which the program names no duration, such as
    /// `12h`.
    #[schemars(regex(pattern = r"^(0|([0-9]{1,5}[hms])+)$"), length(max = 20))]
    pub default_cache_duration: String,
    /// Arguments of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = limits::LINE_CHARACTERS_MAX)))]
    pub args: Vec<String>,
    /// Environment variables of the program, beside those of the kubelet. They are not stored as
    /// secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub env: Vec<EnvironmentVariable>,
    /// Says that the program gets a token of the ServiceAccount of the pod for which the image is
    /// pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_attributes: Option<TokenAttributes>,
}

/// A program by architecture. Machines of another one do not become nodes.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(extend("minProperties" = 1))]
pub struct Binaries {
    /// For x86-64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amd64: Option<Binary>,
    /// For 64-bit ARM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm64: Option<Binary>,
}

impl Binaries {
    /// Returns those that exist, with the names of their architectures.
    pub fn existing(&self) -> BTreeMap<&'static str, &Binary> {
        [("amd64", &self.amd64), ("arm64", &self.arm64)]
            .into_iter()
            .filter_map(|(name, binary)| Some((name, binary.as_ref()?)))
            .collect()
    }
}

/// A program to download.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct Binary {
    /// Its URL, without a user or a password. A machine downloads it through the tenant's proxy.
    #[schemars(length(max = limits::LINE_CHARACTERS_MAX), regex(pattern = limits::DOWNLOAD))]
    pub url: String,
    /// The SHA-256 of the file, in hexadecimal digits. A machine runs no other one.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    pub sha256: String,
}

/// An environment variable.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct EnvironmentVariable {
    /// Its name.
    #[schemars(length(max = 253), regex(pattern = r"^[^=\s]+$"))]
    pub name: String,
    /// Its value.
    #[schemars(length(max = limits::LINE_CHARACTERS_MAX))]
    pub value: String,
}

/// What a program gets of a pod's ServiceAccount, from Kubernetes 1.34 on.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = limits::token_annotations())]
pub struct TokenAttributes {
    /// The audience of the token.
    #[schemars(length(min = 1, max = limits::LINE_CHARACTERS_MAX))]
    pub service_account_token_audience: String,
    /// Whom credentials are kept for.
    pub cache_type: TokenCache,
    /// If true, the program is not asked for pods without a ServiceAccount.
    pub require_service_account: bool,
    /// Annotations that the ServiceAccount must have, and the program gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "limits::annotation_keys_schema")]
    pub required_service_account_annotation_keys: Vec<String>,
    /// Annotations that the program gets if the ServiceAccount has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "limits::annotation_keys_schema")]
    pub optional_service_account_annotation_keys: Vec<String>,
}

/// Whom credentials are kept for.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum TokenCache {
    /// For one token, that is, one pod.
    #[default]
    Token,
    /// For all pods of a ServiceAccount.
    ServiceAccount,
}
