//! Collects everything that the decision about a machine deployment needs.
//!
//! After the initial sync, that is in memory. An object that another program wrote costs one read,
//! and so does a token whose renewal is due.

use std::sync::Arc;

use kube::ResourceExt;
use rand::Rng;

use super::{account_token, error::Error};
use crate::api::{machine_deployment::MachineDeployment, names::DerivedNames};
use crate::controllers::{
    context::Context,
    initial_sync,
    profile_store::{Compiled, SharedProfile},
    state::tokens::{self, KnownToken},
};
use crate::plan::{
    bootstrap::{Randomness, Token, renewal},
    found::{NotServed, ProfileName, find_profile},
    invalid::Invalid,
    observed::{Observed, Seen},
    validate::{Found, Profile},
};
use crate::tenant::settings::{SettingsError, TenantSettings};

/// The highest number of taken token IDs that are skipped. The chance of a second is 1 in 387
/// million.
const TOKEN_ATTEMPTS_MAX: u8 = 3;

/// Collects everything that the decision needs.
///
/// # Errors
///
/// A read fails, the registry credentials cannot be used, or compiling the profile panics.
pub async fn dereference(
    context: &Context,
    machine_deployment: Arc<MachineDeployment>,
    profile_name: Result<ProfileName, Invalid>,
) -> Result<Found, Error> {
    let namespace = machine_deployment.namespace().unwrap_or_default();
    let names = DerivedNames::new(&namespace, &machine_deployment.name_any());
    let observed = observe(context, &names).await?;
    let token = token(context, &names).await?;
    let registry_credentials = context
        .registry_credentials
        .get()
        .map_err(Error::RegistryCredentials)?;
    let mut random = [0; 64];
    rand::rng().fill_bytes(&mut random);
    Ok(Found {
        name_conflicts: context.index.conflicts(&machine_deployment),
        quota: context.index.quota(&machine_deployment),
        profile: profile(context, profile_name).await?,
        settings: settings(context),
        cluster_info: context.cluster_info(),
        kubeconfig_ca: Arc::clone(&context.engagement.kubeconfig_ca),
        registry_credentials,
        token,
        token_attempt: token_attempt(context, &names),
        random: Randomness(random),
        observed,
        now: context.engagement.health.server_time(),
        machine_deployment,
    })
}

/// Returns the profile that the machine deployment names, compiled.
async fn profile(
    context: &Context,
    named: Result<ProfileName, Invalid>,
) -> Result<Result<Profile, NotServed>, Error> {
    let named = match named {
        Ok(named) => named,
        Err(invalid) => return Ok(Err(invalid.into())),
    };
    tracing::Span::current().record("profile", &named.name);
    let is_own = *named.namespace == *context.engagement.home.namespace;
    let settings = context.default_profile_settings();
    let awaits = |name: &str| {
        let is_installed = is_own && settings.installs(name, &context.defaults);
        if is_installed {
            context.wanted_profiles.add(name);
        }
        is_installed
    };
    let shared = match find_profile(&named, &*context.profiles, awaits) {
        Ok(shared) => shared,
        Err(not_served) => return Ok(Err(not_served)),
    };
    Ok(match compile(context, shared).await? {
        Ok(compiled) => Ok(Profile {
            name: named.name,
            compiled,
        }),
        Err(error) => Err(Invalid::unusable(&named, error).into()),
    })
}

/// Compiles a content at its first use, on a blocking thread.
async fn compile(context: &Context, shared: Arc<SharedProfile>) -> Result<Compiled, Error> {
    let renderer = context.rules.renderer.clone();
    tokio::task::spawn_blocking(move || shared.compile(&renderer))
        .await
        .map_err(|_| Error::RenderPanicked)
}

/// Returns the tenant's settings, merged over the defaults.
///
/// # Errors
///
/// If a setting is invalid.
pub fn settings(context: &Context) -> Result<Arc<TenantSettings>, SettingsError> {
    let own = context.engagement.worker_cluster.borrow().clone();
    let defaults = &context.engagement.defaults.settings;
    match own {
        Some(own) => defaults.with(&own.spec).map(Arc::new),
        None => Ok(Arc::clone(defaults)),
    }
}

async fn observe(context: &Context, names: &DerivedNames) -> Result<Observed, Error> {
    Ok(Observed {
        config: observe_config(context, &names.config).await?,
        provisioning: observe_secret(context, &names.provisioning).await?,
        bootstrap: observe_secret(context, &names.bootstrap).await?,
        kubelet_kubeconfig: observe_secret(context, &names.kubelet_kubeconfig).await?,
        edge_script: observe_secret(context, &names.edge_script).await?,
    })
}

async fn observe_secret(context: &Context, name: &str) -> Result<Option<Seen>, Error> {
    // Reading the key drops digests that were made with another key.
    context.digest_key();
    if context
        .secrets
        .get(name)
        .is_some_and(|entry| entry.content.is_none())
    {
        initial_sync::verify_secret(context, name)
            .await
            .map_err(Error::call(format!("read Secret {name}")))?;
    }
    Ok(context.secrets.get(name).and_then(|entry| {
        Some(Seen {
            metadata: entry.metadata,
            content: entry.content?,
        })
    }))
}

async fn observe_config(context: &Context, name: &str) -> Result<Option<Seen>, Error> {
    context.digest_key();
    if context
        .configs
        .get(name)
        .is_some_and(|entry| entry.content.is_none())
    {
        initial_sync::verify_config(context, name)
            .await
            .map_err(Error::call(format!("read OperatingSystemConfig {name}")))?;
    }
    Ok(context.configs.get(name).and_then(|entry| {
        Some(Seen {
            metadata: entry.metadata,
            content: entry.content?,
        })
    }))
}

/// Returns the existing token. If its renewal is due, it is read again: it may have been deleted,
/// or renewed by another program.
async fn token(context: &Context, names: &DerivedNames) -> Result<Option<Token>, Error> {
    if let Some(account) = &context.engagement.defaults.bootstrap_account {
        return account_token::read(context, account).await.map(Some);
    }
    let Some(known) = context.tokens.get(&names.key) else {
        return Ok(None);
    };
    let now = context.engagement.health.server_time();
    if renewal(&known.token, context.rules.token_lifetime) > now {
        return Ok(Some(known.token));
    }
    let name = tokens::secret_name(&known.token);
    let secret = tokens::api(&context.engagement.worker.client())
        .get_opt(&name)
        .await
        .map_err(Error::call(format!("read the bootstrap token {name}")))?;
    let Some(found) = secret.as_ref().and_then(tokens::read) else {
        context.tokens.remove(&names.key);
        return Ok(None);
    };
    context.tokens.set(&names.key, KnownToken::clone(&found));
    Ok(Some(found.token))
}

/// Returns how many token IDs belong to others, as far as attempts to create one have shown.
fn token_attempt(context: &Context, names: &DerivedNames) -> u8 {
    context.tokens.taken(&names.key).min(TOKEN_ATTEMPTS_MAX)
}
