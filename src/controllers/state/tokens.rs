//! The bootstrap tokens of one tenant, by the key of their machine deployment.

use std::{collections::HashMap, sync::LazyLock};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use regex::Regex;

use super::charged_map::{ChargedMap, Weight};
use crate::api::names::{KUBE_SYSTEM, LABEL_VALUE_BYTES_MAX, TOKEN_LABEL};
use crate::fleet::engagement::Engagement;
use crate::plan::bootstrap::{AUTH_GROUPS, Token};
use crate::telemetry::metrics::{Metrics, TokensKnown};
use crate::tenant::secret_text::SecretText;

/// The type of a token's Secret.
pub const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The most tokens that a list of them is kept of. A tenant has one for each machine deployment.
const TOKENS_MAX: usize = 10_000;

static TOKEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"\A[a-z0-9]{6}\.[a-z0-9]{16}\z"));
static GROUP: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z"));
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"\A[0-9-]{10}T[0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]+)?(Z|[+-][0-2][0-9]:[0-5][0-9])\z")
});

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

impl Weight for KnownToken {
    fn weight(&self) -> usize {
        let token = self.token.id.len() + self.token.secret.expose().len();
        token + self.uid.len() + self.resource_version.len()
    }
}

/// The bootstrap tokens of one tenant, by the key of their machine deployment.
#[derive(Debug)]
pub struct Tokens {
    metrics: Metrics,
    /// The registration of the worker cluster, which labels the metrics.
    cluster: String,
    known: Mutex<ChargedMap<KnownToken>>,
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
            known: Mutex::new(ChargedMap::within(&engagement.shared.memory)),
            taken: Mutex::default(),
        }
    }

    /// Returns the token of a machine deployment, if it is known.
    pub fn get(&self, key: &str) -> Option<KnownToken> {
        self.known.lock().entries().get(key).cloned()
    }

    /// Returns the keys and Secret names of the tokens whose key is not in use.
    pub fn unused(&self, is_in_use: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let known = self.known.lock();
        let unused = known.entries().iter();
        let unused = unused.filter(|(key, _)| !is_in_use(key));
        unused
            .map(|(key, token)| (key.clone(), secret_name(&token.token)))
            .collect()
    }

    /// Forgets the attempts of keys that are not in use.
    pub fn keep_attempts(&self, is_in_use: impl Fn(&str) -> bool) {
        self.taken.lock().retain(|key, _| is_in_use(key));
    }

    /// Returns all tokens, by the key of their machine deployment.
    pub fn all(&self) -> Vec<(String, KnownToken)> {
        let known = self.known.lock();
        let all = known.entries().iter();
        all.map(|(key, token)| (key.clone(), token.clone()))
            .collect()
    }

    /// Returns true if no more listed tokens are kept.
    pub fn is_full(&self) -> bool {
        self.known.lock().entries().len() >= TOKENS_MAX
    }

    /// Records a token.
    pub fn set(&self, key: &str, token: KnownToken) {
        let mut known = self.known.lock();
        known.insert(key, token);
        self.count(&known);
    }

    fn count(&self, known: &ChargedMap<KnownToken>) {
        let known = known.entries();
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
        let seen = known.entries().get(key);
        if seen.is_none_or(|token| token.uid != uid) {
            return;
        }
        match found {
            Some(found) => known.insert(key, found),
            None => known.remove(key),
        }
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

/// Returns the key of the machine deployment that a token is for. Others choose it as well, but for
/// its length.
pub fn key(secret: &Secret) -> Option<&str> {
    let key = secret.labels().get(TOKEN_LABEL)?;
    (key.len() <= LABEL_VALUE_BYTES_MAX).then_some(key)
}

/// Parses a token from its Secret. Returns `None` if no machine can join with it: the rules are
/// those of the API server's authenticator for bootstrap tokens (Kubernetes 1.36).
pub fn read(secret: &Secret) -> Option<KnownToken> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| std::str::from_utf8(&data.get(key)?.0).ok();
    let (id, part) = (text("token-id")?, text("token-secret")?);
    let groups = text("auth-extra-groups")?;
    let token = Token {
        id: id.to_owned(),
        secret: SecretText::new(part),
        // A token without an expiration time never expires.
        expires: match text("expiration").filter(|text| !text.is_empty()) {
            Some(text) => expiration(text)?,
            None => Timestamp::MAX,
        },
    };
    let authenticates = secret.type_.as_deref() == Some(TOKEN_TYPE)
        && secret.metadata.deletion_timestamp.is_none()
        && secret.metadata.name.as_ref() == Some(&secret_name(&token))
        && TOKEN.is_match(&format!("{id}.{part}"))
        && text("usage-bootstrap-authentication")? == "true"
        // One group that is invalid invalidates the token.
        && groups.split(',').all(|group| GROUP.is_match(group));
    let may_join = groups.split(',').any(|group| group == AUTH_GROUPS);
    (authenticates && may_join).then_some(KnownToken {
        token,
        uid: secret.uid()?,
        resource_version: secret.resource_version()?,
    })
}

/// Parses an expiration time. Other forms that jiff reads are expired to the API server.
fn expiration(text: &str) -> Option<Timestamp> {
    TIME.is_match(text).then(|| text.parse().ok())?
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is valid")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::Time};
    use kube::api::ObjectMeta;

    use super::*;

    fn a_secret() -> Secret {
        let data = [
            ("token-id", "abc234"),
            ("token-secret", "0123456789abcdef"),
            ("expiration", "2026-01-01T00:00:00Z"),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", AUTH_GROUPS),
        ];
        let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
        let data = data.map(|(key, text)| (key.to_owned(), bytes(text)));
        Secret {
            metadata: ObjectMeta {
                name: Some("bootstrap-token-abc234".to_owned()),
                uid: Some("u".to_owned()),
                resource_version: Some("7".to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data.into()),
            type_: Some(TOKEN_TYPE.to_owned()),
            ..Secret::default()
        }
    }

    fn with(key: &str, text: &str) -> Option<KnownToken> {
        let mut secret = a_secret();
        let data = secret.data.get_or_insert_default();
        data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
        read(&secret)
    }

    #[test]
    fn a_token_is_one_only_if_the_api_server_takes_it_as_one() {
        let known = read(&a_secret()).expect("it is a token");
        assert_eq!(known.token.id, "abc234");
        let long = "a".repeat(600 << 10);
        let groups = |group: &str| format!("{AUTH_GROUPS},{group}");
        for (key, text) in [
            ("token-id", "abc235"),
            ("token-id", "ABC234"),
            ("token-id", ""),
            ("token-secret", "0123456789abcde"),
            ("token-secret", "0123456789abcdef\n"),
            ("token-secret", &long),
            ("usage-bootstrap-authentication", "True"),
            ("auth-extra-groups", "system:bootstrappers:others"),
            ("auth-extra-groups", &groups("")),
            ("auth-extra-groups", &groups(" system:bootstrappers:a")),
            ("auth-extra-groups", &groups("system:bootstrappers:A")),
            ("auth-extra-groups", &groups("system:masters")),
            ("expiration", "2026-01-01"),
            ("expiration", "2026-01-01T00:00:00"),
            ("expiration", "2026-01-01 00:00:00Z"),
            ("expiration", "2026-01-01T00:00:00+01"),
            ("expiration", "2026-01-01T00:00:60Z"),
            ("expiration", "soon"),
        ] {
            assert!(with(key, text).is_none(), "{key}: {}", text.len());
        }
        for (key, text) in [
            ("auth-extra-groups", &*groups("system:bootstrappers:a")),
            ("expiration", ""),
            ("expiration", "2026-01-01T00:00:00.5+01:00"),
        ] {
            assert!(with(key, text).is_some(), "{key}: {text}");
        }
        let leaves = Secret {
            metadata: ObjectMeta {
                deletion_timestamp: Some(Time(Timestamp::UNIX_EPOCH)),
                ..a_secret().metadata
            },
            ..a_secret()
        };
        assert!(read(&leaves).is_none(), "it is being deleted");
        let opaque = Secret {
            type_: Some("Opaque".to_owned()),
            ..a_secret()
        };
        assert!(read(&opaque).is_none(), "it is of another type");
    }
}
