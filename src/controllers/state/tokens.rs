//! The bootstrap tokens of one tenant, by the key of their machine deployment.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;

use crate::api::names::KUBE_SYSTEM;
use crate::fleet::engagement::Engagement;
use crate::plan::bootstrap::{AUTH_GROUPS, Token};
use crate::telemetry::metrics::{Metrics, TokensKnown};
use crate::tenant::secret_text::SecretText;

/// A token, and the object that holds it.
#[derive(Clone, Debug)]
pub struct KnownToken {
    /// The token.
    pub token: Token,
    /// The Secret's uid.
    pub uid: String,
    /// The Secret's resource version.
    pub resource_version: String,
}

/// The bootstrap tokens of one tenant, by the key of their machine deployment.
#[derive(Debug)]
pub struct Tokens {
    metrics: Metrics,
    /// The registration of the worker cluster, which labels the metrics.
    cluster: String,
    known: Mutex<HashMap<String, KnownToken>>,
    /// The number of token IDs that belong to others, by the key that they are derived from.
    taken: Mutex<HashMap<String, u8>>,
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.metrics.forget_tokens(&self.cluster);
    }
}

impl Tokens {
    /// Creates an empty collection for an engaged cluster.
    pub fn of(engagement: &Engagement) -> Self {
        Self {
            metrics: engagement.shared.metrics.clone(),
            cluster: engagement.registration.to_string(),
            known: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// Returns the token of a machine deployment, if it is known.
    pub fn get(&self, key: &str) -> Option<KnownToken> {
        self.known.lock().get(key).cloned()
    }

    /// Returns the keys and Secret names of the tokens whose key is not in use.
    pub fn unused(&self, is_in_use: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let known = self.known.lock();
        let unused = known.iter().filter(|(key, _)| !is_in_use(key));
        unused
            .map(|(key, token)| (key.clone(), secret_name(&token.token)))
            .collect()
    }

    /// Returns all tokens, by the key of their machine deployment.
    pub fn all(&self) -> Vec<(String, KnownToken)> {
        let known = self.known.lock();
        let all = known.iter();
        all.map(|(key, token)| (key.clone(), token.clone()))
            .collect()
    }

    /// Records a token.
    pub fn set(&self, key: &str, token: KnownToken) {
        let mut known = self.known.lock();
        known.insert(key.to_owned(), token);
        self.count(&known);
    }

    fn count(&self, known: &HashMap<String, KnownToken>) {
        let ends = known.values().map(|it| it.token.expires);
        let tokens = TokensKnown {
            count: known.len(),
            first_end: ends.filter(|end| *end != Timestamp::MAX).min(),
        };
        self.metrics.set_tokens(&self.cluster, tokens);
    }

    /// Records that an ID that is derived from the key belongs to a token of another program.
    pub fn take(&self, key: &str) {
        let mut taken = self.taken.lock();
        let count = taken.entry(key.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    /// Returns how many IDs that are derived from the key belong to others.
    pub fn taken(&self, key: &str) -> u8 {
        let taken = self.taken.lock();
        taken.get(key).copied().unwrap_or_default()
    }

    /// Records that a token was replaced or removed, unless another has taken its place.
    pub fn replace(&self, key: &str, uid: &str, found: Option<KnownToken>) {
        let mut known = self.known.lock();
        if known.get(key).is_none_or(|token| token.uid != uid) {
            return;
        }
        match found {
            Some(found) => known.insert(key.to_owned(), found),
            None => known.remove(key),
        };
        self.count(&known);
    }

    /// Forgets a token.
    pub fn remove(&self, key: &str) {
        let mut known = self.known.lock();
        known.remove(key);
        self.count(&known);
    }
}

/// Returns the API of bootstrap tokens.
pub fn api(worker: &Client) -> Api<Secret> {
    Api::namespaced(worker.clone(), KUBE_SYSTEM)
}

/// Returns the name of a token's Secret.
pub fn secret_name(token: &Token) -> String {
    format!("bootstrap-token-{}", token.id)
}

/// Parses a token from its Secret. Returns `None` if no machine can join with it.
pub fn read(secret: &Secret) -> Option<KnownToken> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let authenticates = text("usage-bootstrap-authentication")? == "true";
    let may_join = text("auth-extra-groups")?
        .split(',')
        .any(|group| group == AUTH_GROUPS);
    if !authenticates || !may_join {
        return None;
    }
    Some(KnownToken {
        token: Token {
            id: text("token-id")?,
            secret: SecretText::new(text("token-secret")?),
            // A token without an expiration time never expires.
            expires: match text("expiration") {
                Some(text) => text.parse().ok()?,
                None => Timestamp::MAX,
            },
        },
        uid: secret.uid()?,
        resource_version: secret.resource_version()?,
    })
}
