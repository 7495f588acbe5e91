//! The bootstrap tokens of one tenant, kept in memory between their renewals.
//!
//! Tokens stand in `kube-system` and are not watched: they are listed when the cluster is engaged
//! and as often as the cluster info is read. A list of their metadata shows which were deleted or
//! changed, and only the latter are read.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::{context::Context, triggers::Affected};
use crate::api::names::{KUBE_SYSTEM, TOKEN_LABEL};
use crate::fleet::{
    engagement::Engagement, pages::Pages, prerequisites::PrerequisiteError, removal,
};
use crate::plan::bootstrap::{AUTH_GROUPS, Token};
use crate::telemetry::metrics::{Metrics, TokensKnown};
use crate::tenant::{mode::Right, secret_text::SecretText};

/// A page of tokens; each has about 600 bytes.
const PAGE: u32 = 500;

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
    /// The cluster that they are for.
    cluster: String,
    known: Mutex<HashMap<String, KnownToken>>,
    /// How many ids that a key draws are held by tokens of others.
    taken: Mutex<HashMap<String, u8>>,
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.metrics.forget_tokens(&self.cluster);
    }
}

impl Tokens {
    /// None yet, of an engaged cluster.
    pub fn of(engagement: &Engagement) -> Self {
        Self {
            metrics: engagement.shared.metrics.clone(),
            cluster: engagement.registration.to_string(),
            known: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// The token of a machine deployment, if there is one.
    pub fn get(&self, key: &str) -> Option<KnownToken> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned()
    }

    /// The keys, and the names of the Secrets, of the tokens whose key is not in use.
    pub fn unused(&self, is_in_use: impl Fn(&str) -> bool) -> Vec<(String, String)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = known.iter().filter(|(key, _)| !is_in_use(key));
        unused
            .map(|(key, token)| (key.clone(), secret_name(&token.token)))
            .collect()
    }

    /// All tokens, by the key of their machine deployment.
    fn all(&self) -> Vec<(String, KnownToken)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let all = known.iter();
        all.map(|(key, token)| (key.clone(), token.clone()))
            .collect()
    }

    /// Takes note of a token.
    pub fn set(&self, key: &str, token: KnownToken) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// An id that the key draws is held by a token of somebody else.
    pub fn take(&self, key: &str) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(key.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    /// How many ids that the key draws are held by tokens of others.
    pub fn taken(&self, key: &str) -> u8 {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.get(key).copied().unwrap_or_default()
    }

    /// Takes note of what became of a token, unless another has taken its place.
    fn replace(&self, key: &str, uid: &str, found: Option<KnownToken>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(key);
        self.count(&known);
    }
}

/// The API of bootstrap tokens.
pub fn api(worker: &Client) -> Api<Secret> {
    Api::namespaced(worker.clone(), KUBE_SYSTEM)
}

/// Lists the tokens of all machine deployments. Of two for one machine deployment the one that is
/// valid for longer is kept, and the other deleted where that is allowed.
pub async fn list(context: &Context) -> Result<(), kube::Error> {
    let worker = context.engagement.worker.client();
    let guarded: Api<DeserializeGuard<Secret>> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    let api = api(&worker);
    let mut pages = Pages::of(ListParams::default().labels(TOKEN_LABEL), PAGE);
    while let Some(page) = pages.next(&guarded).await? {
        for secret in page.objects {
            keep_newest(context, &api, &secret).await?;
        }
    }
    Ok(())
}

async fn keep_newest(
    context: &Context,
    api: &Api<Secret>,
    secret: &Secret,
) -> Result<(), kube::Error> {
    let tokens = &context.tokens;
    let Some(key) = secret.labels().get(TOKEN_LABEL) else {
        return Ok(());
    };
    // What cannot be read as a token is not ours to judge.
    let Some(found) = read(secret) else {
        return Ok(());
    };
    let older = match tokens.get(key) {
        None => {
            tokens.set(key, found);
            return Ok(());
        }
        Some(known) if known.uid == found.uid => return Ok(()),
        Some(known) if known.token.expires >= found.token.expires => found,
        Some(known) => {
            tokens.set(key, found);
            known
        }
    };
    if !context.rules.mode.has(Right::DeleteTokens) {
        return Ok(());
    }
    let metadata = ObjectMeta {
        name: Some(secret_name(&older.token)),
        uid: Some(older.uid),
        ..ObjectMeta::default()
    };
    removal::delete(api, &metadata).await
}

/// Lists the metadata of all tokens again: one that somebody deleted or broke is replaced by
/// another, and one that somebody changed is used as it is now. A list that is older than a token
/// is that of a cluster that was restored from a backup.
///
/// # Errors
///
/// When a call fails or is forbidden.
pub async fn check(context: &Context) -> Result<(), PrerequisiteError> {
    list_again(context).await.map_err(|source| {
        let kind = Secret::kind(&()).into_owned();
        PrerequisiteError::of(source, (kind, format!("{KUBE_SYSTEM}/bootstrap-token-*")))
    })
}

async fn list_again(context: &Context) -> Result<(), kube::Error> {
    let tokens = &context.tokens;
    // Before the list: one that is created meanwhile is not missed in it.
    let known = tokens.all();
    if known.is_empty() {
        return Ok(());
    }
    let api = api(&context.engagement.worker.client());
    let mut listed = HashMap::new();
    let mut pages = Pages::of(ListParams::default().labels(TOKEN_LABEL), PAGE);
    while let Some(page) = pages.next_metadata(&api).await? {
        for found in page {
            listed.insert(found.uid(), found.resource_version());
        }
    }
    let number = |version: &str| version.parse::<u128>().ok();
    let listed_at = pages.version().and_then(number);
    for (key, token) in known {
        if listed_at.is_some_and(|at| number(&token.resource_version) > Some(at)) {
            context.was_restored();
            return Ok(());
        }
        let found = match listed.get(&Some(token.uid.clone())) {
            Some(version) if version.as_ref() == Some(&token.resource_version) => continue,
            Some(_) => api.get_opt(&secret_name(&token.token)).await?,
            None => None,
        };
        tokens.replace(&key, &token.uid, found.as_ref().and_then(read));
        context.triggers.enqueue(Affected::Token(key));
    }
    Ok(())
}

/// The name of a token's Secret.
pub fn secret_name(token: &Token) -> String {
    format!("bootstrap-token-{}", token.id)
}

/// Reads a token from its Secret; none if no machine can join with it.
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
            // A token without an end never expires.
            expires: match text("expiration") {
                Some(text) => text.parse().ok()?,
                None => Timestamp::MAX,
            },
        },
        uid: secret.uid()?,
        resource_version: secret.resource_version()?,
    })
}
