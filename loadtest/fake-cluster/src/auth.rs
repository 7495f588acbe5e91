//! Who is asking: users, the tokens of users and service accounts, and client certificates. Token
//! signatures are a keyed hash, enough to tell a token of this cluster from a made-up one and no
//! more; nothing here is a secret worth keeping.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::LazyLock,
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use regex::Regex;
use serde_json::{Value, json};

use crate::{
    meta::{set, text},
    store::Store,
};

/// A user and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name that RBAC and audits see.
    pub name: String,
    /// The groups, without `system:authenticated`, which is added by itself.
    pub groups: Vec<String>,
}

impl User {
    /// A user with no groups but `system:authenticated`.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            groups: vec!["system:authenticated".to_owned()],
        }
    }

    /// The super user: RBAC does not apply.
    pub fn admin() -> Self {
        Self::named("admin").in_group("system:masters")
    }

    /// A service account, whether or not the object exists.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::named(&format!("system:serviceaccount:{namespace}:{name}"))
            .in_group("system:serviceaccounts")
            .in_group(&format!("system:serviceaccounts:{namespace}"))
    }

    /// The user with this name, in the groups that a server gives a user who is impersonated.
    pub(crate) fn impersonated(name: &str) -> Self {
        let account = name.strip_prefix("system:serviceaccount:");
        match account.and_then(|it| it.split_once(':')) {
            Some((namespace, account)) => Self::service_account(namespace, account),
            None => Self::named(name),
        }
    }

    /// The user of a request without credentials.
    pub fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }

    /// The same user in one more group.
    #[must_use]
    pub fn in_group(mut self, group: &str) -> Self {
        self.groups.push(group.to_owned());
        self
    }

    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == "system:masters")
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.groups
            .iter()
            .any(|group| group == "system:authenticated")
    }
}

/// What proves who someone is.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    key: u64,
    tokens: HashMap<String, User>,
    /// How many were ever made: no two are the same.
    issued: u64,
    certificates: HashMap<Vec<u8>, User>,
    trusted: Vec<Trusted>,
}

/// Another cluster whose tokens are accepted.
#[derive(Debug)]
struct Trusted {
    key: u64,
    audience: String,
    /// What its users' names begin with here.
    prefix: String,
}

/// A token of a service account, before it is signed.
pub(crate) struct TokenClaims<'a> {
    pub namespace: &'a str,
    pub account: &'a str,
    pub uid: &'a str,
    /// The Secret that must still hold the token, or "".
    pub secret: &'a str,
    /// When it begins and ends, if it ends.
    pub validity: Option<(Timestamp, Timestamp)>,
    /// Whom it is for, if not for the cluster itself.
    pub audiences: Vec<&'a str>,
}

impl Credentials {
    pub(crate) fn new(key: u64) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    /// A lasting token for a user; the same one each time.
    pub(crate) fn token_for(&mut self, user: &User) -> String {
        if let Some((token, _)) = self.tokens.iter().find(|(_, known)| *known == user) {
            return token.clone();
        }
        let token = format!("user-{}-{:016x}", self.issued, self.hash(&user.name));
        self.issued += 1;
        self.tokens.insert(token.clone(), user.clone());
        token
    }

    /// Makes a token worthless.
    pub(crate) fn revoke(&mut self, token: &str) -> bool {
        self.tokens.remove(token).is_some()
    }

    pub(crate) fn remember_certificate(&mut self, der: Vec<u8>, user: User) {
        self.certificates.insert(der, user);
    }

    pub(crate) fn by_certificate(&self, der: &[u8]) -> Option<User> {
        self.certificates.get(der).cloned()
    }

    /// Accepts another cluster's tokens for this audience.
    pub(crate) fn trust(&mut self, issuer: &Self, (audience, prefix): (&str, &str)) {
        self.trusted.push(Trusted {
            key: issuer.key,
            audience: audience.to_owned(),
            prefix: prefix.to_owned(),
        });
    }

    fn hash(&self, text: &str) -> u64 {
        hash(self.key, text)
    }

    /// A signed token in the shape of a JWT.
    pub(crate) fn sign(&self, claims: &TokenClaims<'_>) -> String {
        let header = URL_SAFE_NO_PAD.encode(json!({ "alg": "RS256", "kid": "fake" }).to_string());
        let mut payload = json!({
            "iss": "kubernetes/serviceaccount",
            "kubernetes.io/serviceaccount/namespace": claims.namespace,
            "kubernetes.io/serviceaccount/secret.name": claims.secret,
            "kubernetes.io/serviceaccount/service-account.name": claims.account,
            "kubernetes.io/serviceaccount/service-account.uid": claims.uid,
            "sub": format!("system:serviceaccount:{}:{}", claims.namespace, claims.account),
        });
        if let Some((begins, ends)) = claims.validity {
            set(&mut payload, &["iat"], json!(begins.as_second()));
            set(&mut payload, &["exp"], json!(ends.as_second()));
        }
        if !claims.audiences.is_empty() {
            set(&mut payload, &["aud"], json!(claims.audiences));
        }
        let body = format!("{header}.{}", URL_SAFE_NO_PAD.encode(payload.to_string()));
        let signature = URL_SAFE_NO_PAD.encode(self.hash(&body).to_be_bytes());
        format!("{body}.{signature}")
    }

    /// The user of a token, if we issued it and it is still valid.
    pub(crate) fn by_token(&self, store: &Store, token: &str, now: Timestamp) -> Option<User> {
        if let Some(user) = self.tokens.get(token) {
            return Some(user.clone());
        }
        self.by_signed_token(store, token, now)
            .or_else(|| self.by_trusted_token(token, now))
            .or_else(|| by_bootstrap_token(store, token, now))
    }

    fn by_trusted_token(&self, token: &str, now: Timestamp) -> Option<User> {
        self.trusted.iter().find_map(|issuer| {
            let payload = verified(issuer.key, token, now)?;
            let audiences = payload.get("aud")?.as_array()?;
            let is_meant = audiences.iter().any(|it| *it == issuer.audience);
            let name = format!("{}{}", issuer.prefix, text(&payload, "/sub"));
            is_meant.then(|| User::named(&name))
        })
    }

    fn by_signed_token(&self, store: &Store, token: &str, now: Timestamp) -> Option<User> {
        let payload = verified(self.key, token, now)?;
        if payload.get("aud").is_some() {
            return None;
        }
        let claim = |name: &str| {
            payload
                .get(format!("kubernetes.io/serviceaccount/{name}"))
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (namespace, name) = (claim("namespace"), claim("service-account.name"));
        let account = store.find("/serviceaccounts", namespace, name)?;
        if text(account, "/metadata/uid") != claim("service-account.uid") {
            return None;
        }
        let secret = claim("secret.name");
        if !secret.is_empty() {
            let object = store.find("/secrets", namespace, secret)?;
            let held = STANDARD.decode(text(object, "/data/token")).ok()?;
            if held != token.as_bytes() {
                return None;
            }
        }
        Some(User::service_account(namespace, name))
    }
}

fn hash(key: u64, text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, text).hash(&mut hasher);
    hasher.finish()
}

/// What a token says, if it was signed with this key and has not ended.
fn verified(key: u64, token: &str, now: Timestamp) -> Option<Value> {
    let (body, signature) = token.rsplit_once('.')?;
    if signature != URL_SAFE_NO_PAD.encode(hash(key, body).to_be_bytes()) {
        return None;
    }
    let payload = URL_SAFE_NO_PAD.decode(body.split_once('.')?.1).ok()?;
    let payload: Value = serde_json::from_slice(&payload).ok()?;
    let ends = payload.get("exp").and_then(Value::as_i64);
    ends.is_none_or(|ends| ends > now.as_second())
        .then_some(payload)
}

static TOKEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"\A[a-z0-9]{6}\.[a-z0-9]{16}\z"));
static GROUP: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z"));
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"\A[0-9-]{10}T[0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})\z")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is valid")
}

/// `id.secret`, kept in a Secret of kube-system: the tokens with which nodes join.
fn by_bootstrap_token(store: &Store, token: &str, now: Timestamp) -> Option<User> {
    let (id, secret) = token.split_once('.')?;
    let object = store.find("/secrets", "kube-system", &format!("bootstrap-token-{id}"))?;
    let field = |name: &str| {
        let bytes = STANDARD.decode(text(object, &format!("/data/{name}")));
        String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
    };
    let expiration = field("expiration");
    let ends = TIME.is_match(&expiration).then(|| expiration.parse().ok());
    let is_over = |at: Option<Timestamp>| at.is_none_or(|at| at <= now);
    if !expiration.is_empty() && is_over(ends.flatten()) {
        return None;
    }
    let groups = field("auth-extra-groups");
    let groups: Vec<&str> = match &*groups {
        "" => Vec::new(),
        some => some.split(',').collect(),
    };
    let good = TOKEN.is_match(token)
        && text(object, "/type") == "bootstrap.kubernetes.io/token"
        && object.pointer("/metadata/deletionTimestamp").is_none()
        && field("token-id") == id
        && field("token-secret") == secret
        && field("usage-bootstrap-authentication") == "true"
        && groups.iter().all(|group| GROUP.is_match(group));
    good.then(|| {
        let user = User::named(&format!("system:bootstrap:{id}")).in_group("system:bootstrappers");
        groups.into_iter().fold(user, User::in_group)
    })
}
