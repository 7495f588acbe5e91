//! Access to a worker cluster: the part of a kubeconfig that a tenant may choose.
//!
//! A kubeconfig can do far more than name a server. It can run commands, read files of the process
//! that loads it, choose proxies and disable verification. So this is an allow-list: an https
//! server, its certificate authority, and a token or a client certificate, all of them inline.
//! Everything else is refused with the name of the field. The YAML is used only in this module. We
//! build connections from the parsed values, and never use a kubeconfig loader.

use std::{collections::BTreeMap, fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::ByteString;
use rustls::{RootCertStore, pki_types::ServerName};
use sha2::{Digest, Sha256};

use super::{address::AddressRules, egress::EgressProxy, secret_text::SecretText};

mod credential;
mod document;
mod error;
pub mod expiry;
mod pem;
mod principal;
pub mod renewal;
mod server;

pub use credential::{ClientCertificate, Credential};
use document::Node;
pub use error::AccessError;
pub use principal::Principal;
pub use server::Server;

/// A kubeconfig with both certificates and a token has about 10 KiB; a Secret may have 1 MiB.
pub const KUBECONFIG_BYTES_MAX: usize = 256 * 1024;

/// The number of hexadecimal digits of the digest, enough to tell two kubeconfigs apart.
const FINGERPRINT_DIGITS: usize = 16;

/// Returns which of these keys has a Secret's kubeconfig: the first one with a text, or the first
/// existing one if all are blank.
pub fn kubeconfig_key<'a>(
    data: &BTreeMap<String, ByteString>,
    keys: &[&'a str],
) -> Option<&'a str> {
    let is_blank = |ByteString(bytes): &ByteString| bytes.trim_ascii().is_empty();
    let keys = keys.iter().copied();
    let present = || keys.clone().filter(|key| data.contains_key(*key));
    let filled = present().find(|key| data.get(*key).is_some_and(|bytes| !is_blank(bytes)));
    filled.or_else(|| present().next())
}

/// Returns a fingerprint of a Secret's uid and its kubeconfig. It reveals nothing else about them.
pub fn fingerprint(uid: &str, kubeconfig: &[u8]) -> String {
    let digest = Sha256::new()
        .chain_update(uid)
        .chain_update([0])
        .chain_update(kubeconfig)
        .finalize();
    let mut digits = hex::encode(digest);
    digits.truncate(FINGERPRINT_DIGITS);
    digits
}

/// The operator's rules for kubeconfigs, and how servers are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRules {
    /// The rules for the server's address. The connector needs the same rules.
    pub addresses: AddressRules,
    /// The proxy through which the connector reaches servers; `None` to connect directly.
    pub egress_proxy: Option<Arc<EgressProxy>>,
    /// The maximum size of a kubeconfig.
    pub kubeconfig_bytes_max: usize,
}

impl Default for AccessRules {
    fn default() -> Self {
        Self {
            addresses: AddressRules::default(),
            egress_proxy: None,
            kubeconfig_bytes_max: KUBECONFIG_BYTES_MAX,
        }
    }
}

/// Access to a worker cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterAccess {
    /// The API server.
    pub server: Server,
    /// The certificates of the authorities that may sign the server's certificate, in PEM, byte for
    /// byte as given.
    pub certificate_authority: Vec<u8>,
    /// The name that the server's certificate must have, if it is not the server's host.
    pub tls_server_name: Option<String>,
    /// The credential with which we authenticate.
    pub credential: Credential,
}

impl ClusterAccess {
    /// Parses a kubeconfig. Everything that is not on the allow-list is refused.
    ///
    /// # Errors
    ///
    /// The kubeconfig is malformed, or has a field that is not allowed.
    pub fn parse(bytes: &[u8], rules: &AccessRules) -> Result<Self, AccessError> {
        Self::parse_context(bytes, None, rules)
    }

    /// Does the same as [`Self::parse`], for the named context instead of the current one.
    ///
    /// # Errors
    ///
    /// As for [`Self::parse`], or the context does not exist.
    pub fn parse_context(
        bytes: &[u8],
        context: Option<&str>,
        rules: &AccessRules,
    ) -> Result<Self, AccessError> {
        Self::parse_with(bytes, context, rules, Credential::parse)
    }

    /// Does the same as [`Self::parse`], for a kubeconfig without a credential, and a token from
    /// elsewhere.
    ///
    /// # Errors
    ///
    /// As for [`Self::parse`], or the kubeconfig has a credential.
    pub fn parse_federated(
        bytes: &[u8],
        rules: &AccessRules,
        token: SecretText,
    ) -> Result<Self, AccessError> {
        Self::parse_with(bytes, None, rules, |user| match Credential::parse(user) {
            Err(AccessError::NoCredential { .. }) => Ok(Credential::Token(token)),
            _ => Err(AccessError::CredentialUnused {
                field: user.path.clone(),
            }),
        })
    }

    fn parse_with(
        bytes: &[u8],
        context: Option<&str>,
        rules: &AccessRules,
        credential: impl FnOnce(&Node<'_>) -> Result<Credential, AccessError>,
    ) -> Result<Self, AccessError> {
        let document = document::read(bytes, rules.kubeconfig_bytes_max)?;
        let root = Node::root(&document)?;
        check_kind(&root)?;
        let clusters = entries(&root, "clusters", "cluster")?;
        let users = entries(&root, "users", "user")?;
        let contexts = entries(&root, "contexts", "context")?;
        for user in &users {
            refuse_programs(&user.body)?;
        }
        let current = match context {
            Some(name) => Some((name, name)),
            None => root
                .text("current-context")?
                .map(|name| ("current-context", name)),
        };
        let (cluster, user) = choose(current, &contexts, &clusters, &users)?;
        check_cluster(cluster)?;
        Credential::check_fields(user)?;
        let field = cluster.path_of("server");
        let server = Server::parse(cluster.required_text("server")?, &field)?;
        rules
            .addresses
            .check_host(&server.host, server.port)
            .map_err(|source| AccessError::ServerRefused {
                field,
                host: server.host.to_string(),
                source,
            })?;
        Ok(Self {
            server,
            certificate_authority: parse_certificate_authority(cluster)?,
            tls_server_name: parse_tls_server_name(cluster)?,
            credential: credential(user)?,
        })
    }
}

impl fmt::Debug for ClusterAccess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ClusterAccess")
            .field("server", &self.server.url())
            .field("credential", &self.credential)
            .finish_non_exhaustive()
    }
}

/// An entry of `clusters`, `users` or `contexts`.
struct Entry<'a> {
    name: &'a str,
    body: Node<'a>,
}

fn check_kind(root: &Node<'_>) -> Result<(), AccessError> {
    for (key, expected) in [("apiVersion", "v1"), ("kind", "Config")] {
        if root.text(key)?.is_some_and(|value| value != expected) {
            return Err(AccessError::NotAKubeconfig {
                field: key.to_owned(),
                expected,
            });
        }
    }
    Ok(())
}

/// Returns the entries of a list. An entry without a body is omitted.
fn entries<'a>(root: &Node<'a>, list: &str, body: &str) -> Result<Vec<Entry<'a>>, AccessError> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    let mut names = std::collections::HashSet::new();
    for item in root.list(list)? {
        let name = item.text("name")?.unwrap_or_default();
        if !names.insert(name) {
            return Err(AccessError::DuplicateName {
                field: item.path_of("name"),
            });
        }
        if let Some(body) = item.mapping(body)? {
            entries.push(Entry { name, body });
        }
    }
    Ok(entries)
}

/// Refuses commands and plugins in any user, used or not. Otherwise, a person could register a
/// kubeconfig that runs something when it is tried by hand.
fn refuse_programs(user: &Node<'_>) -> Result<(), AccessError> {
    if let Some(exec) = user.get("exec") {
        return Err(AccessError::Exec { field: exec.path });
    }
    if let Some(provider) = user.get("auth-provider") {
        return Err(AccessError::AuthProvider {
            field: provider.path,
        });
    }
    Ok(())
}

/// Returns the cluster and the user of the named context, or of the only one.
fn choose<'e, 'a>(
    named: Option<(&str, &str)>,
    contexts: &'e [Entry<'a>],
    clusters: &'e [Entry<'a>],
    users: &'e [Entry<'a>],
) -> Result<(&'e Node<'a>, &'e Node<'a>), AccessError> {
    let context = match (named, contexts) {
        (Some((field, name)), contexts) => {
            find(contexts, name).ok_or_else(|| dangling(field, "contexts"))?
        }
        (None, [only]) => &only.body,
        (None, []) => {
            return match (clusters, users) {
                ([cluster], [user]) => Ok((&cluster.body, &user.body)),
                _ => Err(AccessError::NoCurrentContext),
            };
        }
        (None, _) => return Err(AccessError::NoCurrentContext),
    };
    let cluster = find(clusters, context.required_text("cluster")?)
        .ok_or_else(|| dangling(&context.path_of("cluster"), "clusters"))?;
    let user = find(users, context.required_text("user")?)
        .ok_or_else(|| dangling(&context.path_of("user"), "users"))?;
    Ok((cluster, user))
}

fn find<'e, 'a>(entries: &'e [Entry<'a>], name: &str) -> Option<&'e Node<'a>> {
    let entry = entries.iter().find(|entry| entry.name == name)?;
    Some(&entry.body)
}

fn dangling(field: &str, list: &'static str) -> AccessError {
    AccessError::Dangling {
        field: field.to_owned(),
        list,
    }
}

/// Refuses every field of a cluster that is not on the allow-list.
fn check_cluster(cluster: &Node<'_>) -> Result<(), AccessError> {
    for key in cluster.keys() {
        let field = cluster.path_of(key);
        match key {
            "certificate-authority" if cluster.is_set(key) => {
                let instead = "certificate-authority-data";
                return Err(AccessError::File { field, instead });
            }
            "insecure-skip-tls-verify" if cluster.is_set(key) => {
                return Err(AccessError::InsecureTls { field });
            }
            "proxy-url" if cluster.is_set(key) => return Err(AccessError::Proxy { field }),
            // If they are empty or false, the refused fields have no effect.
            "certificate-authority"
            | "insecure-skip-tls-verify"
            | "proxy-url"
            | "server"
            | "certificate-authority-data"
            | "tls-server-name"
            | "extensions"
            | "disable-compression" => {}
            _ => return Err(AccessError::UnknownField { field }),
        }
    }
    Ok(())
}

/// Validates what a cluster announces about itself in a kubeconfig: the URL of its API server and
/// its certificate authority. Returns the latter in base64 on one line; clientcmd also accepts
/// several lines, for which a machine's kubeconfig has no place.
///
/// # Errors
///
/// Returns an error if a machine could not use them.
pub fn announced(server: &str, certificate_authority: &str) -> Result<String, AccessError> {
    let field = "clusters[0].cluster";
    Server::parse(server, &format!("{field}.server"))?;
    let field = format!("{field}.certificate-authority-data");
    let text = pem::decode(certificate_authority, &field)?;
    pem::certificates(&text, &field)?;
    Ok(STANDARD.encode(text))
}

fn parse_certificate_authority(cluster: &Node<'_>) -> Result<Vec<u8>, AccessError> {
    let key = "certificate-authority-data";
    let field = cluster.path_of(key);
    let text = pem::decode(cluster.required_text(key)?, &field)?;
    let mut roots = RootCertStore::empty();
    for certificate in pem::certificates(&text, &field)? {
        roots
            .add(certificate)
            .map_err(|_| AccessError::NotACertificate {
                field: field.clone(),
            })?;
    }
    Ok(text)
}

fn parse_tls_server_name(cluster: &Node<'_>) -> Result<Option<String>, AccessError> {
    let key = "tls-server-name";
    let Some(name) = cluster.text(key)? else {
        return Ok(None);
    };
    match ServerName::try_from(name) {
        Ok(_) => Ok(Some(name.to_owned())),
        Err(_) => Err(AccessError::TlsServerName {
            field: cluster.path_of(key),
        }),
    }
}

#[cfg(test)]
mod tests;
