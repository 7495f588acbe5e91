//! The reasons why a kubeconfig is refused: the field, and what to write instead. They never
//! contain a value, except for the host of the server.

use super::super::address::AddressRefused;

/// The reason why a kubeconfig is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// It is larger than a kubeconfig needs to be.
    #[error("the kubeconfig has {bytes} bytes; at most {max} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest size that is read.
        max: usize,
    },
    /// It is empty.
    #[error("the kubeconfig is empty")]
    Empty,
    /// It is the base64 of a kubeconfig.
    #[error(
        "the kubeconfig is base64 inside, encoded once too often; decode it once, or put it under \
         `stringData` of the Secret"
    )]
    EncodedTwice,
    /// kubectl has replaced a value with a placeholder.
    #[error("{field}: kubectl left the value out; use the output of kubectl config view --raw")]
    Omitted {
        /// The field.
        field: String,
    },
    /// It is not UTF-8.
    #[error("the kubeconfig is not text in UTF-8")]
    NotText,
    /// It is not YAML.
    #[error("the kubeconfig is not YAML, from line {line}, column {column} on")]
    NotYaml {
        /// The line.
        line: u64,
        /// The column.
        column: u64,
    },
    /// It contains a key twice. Parsers disagree on which of the two counts.
    #[error("line {line} of the kubeconfig repeats a key; keep one of the two")]
    DuplicateKey {
        /// The line.
        line: u64,
    },
    /// It refers to parts of itself, which lets a small text expand to a large one.
    #[error("line {line} of the kubeconfig has an anchor, an alias or a merge key; write it out")]
    Alias {
        /// The line.
        line: u64,
    },
    /// It is nested too deeply, or has too many parts.
    #[error("the kubeconfig has too many parts, from line {line} on; keep one context only")]
    TooComplex {
        /// The line.
        line: u64,
    },
    /// It has more than one YAML document.
    #[error("the kubeconfig has more than one YAML document; keep the first one only")]
    SeveralDocuments,
    /// It is another kind of object.
    #[error("{field}: it must be `{expected}`: this is not a kubeconfig")]
    NotAKubeconfig {
        /// The field.
        field: String,
        /// The value in a kubeconfig.
        expected: &'static str,
    },
    /// A field has the wrong type.
    #[error("{field}: it must be {expected}")]
    WrongType {
        /// The field.
        field: String,
        /// The expected type.
        expected: &'static str,
    },
    /// A field that decides how the cluster is reached is unknown.
    #[error("{field}: this field is unknown; remove it")]
    UnknownField {
        /// The field.
        field: String,
    },
    /// Two entries have the same name.
    #[error("{field}: an earlier entry has the same name; keep one of the two")]
    DuplicateName {
        /// The field.
        field: String,
    },
    /// A field is missing.
    #[error("{field}: it is missing")]
    Missing {
        /// The field.
        field: String,
    },
    /// A field refers to an entry that does not exist.
    #[error("{field}: no entry of `{list}` has this name")]
    Dangling {
        /// The field.
        field: String,
        /// The list in which the entry should be.
        list: &'static str,
    },
    /// It has several contexts, and selects none of them.
    #[error("current-context: it is missing, and there is not exactly one context to take")]
    NoCurrentContext,
    /// It requires a command to be run.
    #[error("{field}: no command is run for a credential; use `token` or a client certificate")]
    Exec {
        /// The field.
        field: String,
    },
    /// It requires an authentication plugin.
    #[error("{field}: plugins are not supported; use `token` or a client certificate")]
    AuthProvider {
        /// The field.
        field: String,
    },
    /// It refers to a file, which would be read from this process's file system.
    #[error("{field}: files are not read; use `{instead}`")]
    File {
        /// The field.
        field: String,
        /// The inline field to use.
        instead: &'static str,
    },
    /// It has a user name or a password.
    #[error("{field}: passwords are not supported; use `token` or a client certificate")]
    Password {
        /// The field.
        field: String,
    },
    /// It requests impersonation.
    #[error("{field}: impersonation is not supported; use the credential of that user")]
    Impersonation {
        /// The field.
        field: String,
    },
    /// It disables the verification of the server's certificate.
    #[error("{field}: certificates are always verified; use `certificate-authority-data`")]
    InsecureTls {
        /// The field.
        field: String,
    },
    /// It specifies a proxy.
    #[error("{field}: the operator decides about proxies; remove it")]
    Proxy {
        /// The field.
        field: String,
    },
    /// The server's URL does not start with https.
    #[error("{field}: it must start with https://")]
    ServerNotHttps {
        /// The field.
        field: String,
    },
    /// The server's URL has a user name or a password.
    #[error("{field}: a user name does not belong in the URL; use `token`")]
    ServerUserInfo {
        /// The field.
        field: String,
    },
    /// The server's URL has a query or a fragment.
    #[error("{field}: the URL may not have a query or a fragment")]
    ServerQuery {
        /// The field.
        field: String,
    },
    /// The server's host is neither an address nor a name.
    #[error("{field}: the URL needs a host: a DNS name or an IP address in its usual form")]
    ServerHost {
        /// The field.
        field: String,
    },
    /// The server's port is invalid.
    #[error("{field}: the port of the URL must be a number from 1 to 65535")]
    ServerPort {
        /// The field.
        field: String,
    },
    /// The server's path has more than plain segments.
    #[error(
        "{field}: the path of the URL may have letters, digits and -._~:/ only, and no dots alone"
    )]
    ServerPath {
        /// The field.
        field: String,
    },
    /// Connections to the server are not allowed.
    #[error("{field}: `{host}` may not be connected to")]
    ServerRefused {
        /// The field.
        field: String,
        /// The server's host.
        host: String,
        /// The reason.
        source: AddressRefused,
    },
    /// The expected name in the server's certificate is invalid.
    #[error("{field}: it must be a DNS name or an IP address")]
    TlsServerName {
        /// The field.
        field: String,
    },
    /// A field is not base64.
    #[error("{field}: it is not base64")]
    NotBase64 {
        /// The field.
        field: String,
    },
    /// A field is not PEM, or contains PEM sections that do not belong there.
    #[error("{field}: it must be {expected} in PEM, and nothing else, in base64")]
    NotPem {
        /// The field.
        field: String,
        /// The expected content.
        expected: &'static str,
    },
    /// A section that is marked as a certificate is not one.
    #[error("{field}: a certificate in it cannot be read")]
    NotACertificate {
        /// The field.
        field: String,
    },
    /// A section that is marked as a key is not one that TLS can use.
    #[error("{field}: the key is of no supported kind (RSA, ECDSA P-256 or P-384, Ed25519)")]
    NotAKey {
        /// The field.
        field: String,
    },
    /// The key belongs to another certificate.
    #[error("{field}: the key does not belong to `client-certificate-data`")]
    ForeignKey {
        /// The field.
        field: String,
    },
    /// The token cannot be sent in a header.
    #[error("{field}: a token has visible ASCII characters only, and no spaces or line ends")]
    NotAToken {
        /// The field.
        field: String,
    },
    /// The user has no credential.
    #[error(
        "{field}: it needs `token`, or `client-certificate-data` with `client-key-data`; only the \
         manager itself does without, where spec.credentials is Federated"
    )]
    NoCredential {
        /// The field.
        field: String,
    },
    /// The credential comes from elsewhere.
    #[error(
        "{field}: spec.credentials is Federated, which uses no credential of the kubeconfig; \
         leave it out"
    )]
    CredentialUnused {
        /// The field.
        field: String,
    },
}

impl AccessError {
    /// Returns the error's category in one word, for metrics and conditions.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } | Self::TooComplex { .. } => "kubeconfig_too_large",
            Self::NotText
            | Self::EncodedTwice
            | Self::NotYaml { .. }
            | Self::DuplicateKey { .. }
            | Self::Alias { .. }
            | Self::SeveralDocuments
            | Self::NotAKubeconfig { .. }
            | Self::WrongType { .. } => "kubeconfig_unreadable",
            Self::Empty
            | Self::DuplicateName { .. }
            | Self::Missing { .. }
            | Self::Dangling { .. }
            | Self::NoCurrentContext
            | Self::NoCredential { .. } => "kubeconfig_incomplete",
            Self::CredentialUnused { .. } => "kubeconfig_credential_unused",
            Self::UnknownField { .. }
            | Self::Exec { .. }
            | Self::AuthProvider { .. }
            | Self::File { .. }
            | Self::Password { .. }
            | Self::Impersonation { .. }
            | Self::InsecureTls { .. }
            | Self::Proxy { .. } => "kubeconfig_field_refused",
            Self::ServerNotHttps { .. }
            | Self::ServerUserInfo { .. }
            | Self::ServerQuery { .. }
            | Self::ServerHost { .. }
            | Self::ServerPort { .. }
            | Self::ServerPath { .. }
            | Self::TlsServerName { .. } => "kubeconfig_server_invalid",
            Self::ServerRefused { .. } => "kubeconfig_server_refused",
            Self::Omitted { .. }
            | Self::NotBase64 { .. }
            | Self::NotPem { .. }
            | Self::NotACertificate { .. }
            | Self::NotAKey { .. }
            | Self::ForeignKey { .. }
            | Self::NotAToken { .. } => "kubeconfig_credential_invalid",
        }
    }
}
