//! The initial sync: when a tenant is engaged, lists the objects in both clusters once, page by
//! page. Their bodies are hashed and dropped. Afterwards, watches report changes, and reconciles
//! read nothing.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource as _,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::context::Context;
use crate::api::{
    config::OperatingSystemConfig,
    names::{CLOUD_CONFIG_KEY, CLOUD_INIT_SETTINGS, EDGE_SCRIPT_KEY, is_name_alone},
    profile::OperatingSystemProfile,
};
use crate::client::pages::{Pages, is_not_served};
use crate::plan::{
    desired::{config_digest, secret_digest, stored_digest},
    digest::{Digest, DigestKey},
};

/// The page size of Secrets and configs. Each has about 25 KiB, so a page has about a megabyte.
const PAGE: u32 = 50;

/// Lists and verifies the objects that were created for the tenant's machine deployments.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn run(context: &Context) -> Result<(), kube::Error> {
    let key = context.digest_key();
    let secrets: Api<DeserializeGuard<Secret>> =
        Api::namespaced(context.engagement.worker.client(), CLOUD_INIT_SETTINGS);
    let mut pages = Pages::of(ListParams::default(), PAGE);
    context
        .engagement
        .tenant_status
        .statistics
        .forget_user_data();
    // Every page shows the state at the time of the first.
    let asked = context.secrets.now();
    while let Some(page) = pages.next(&secrets).await? {
        // A Secret of which only the name was read exists. The watch reports its metadata.
        let secrets = page.into_all(bare_secret).into_iter();
        for secret in secrets.filter(|it| !is_name_alone(&it.metadata)) {
            weigh(context, &secret);
            let digest = stored_digest(&key, &secret);
            context.secrets.verified(secret.metadata, digest, asked);
        }
    }
    read_configs(context, &key).await
}

/// Returns false if the tenant's home has no profiles and configs, because its cluster does not
/// serve their kinds. The management cluster was checked when the process started.
///
/// # Errors
///
/// They cannot be listed.
pub async fn home_is_served(context: &Context) -> Result<bool, kube::Error> {
    let home = &context.engagement.home;
    if home.watches.is_none() {
        return Ok(true);
    }
    let one = ListParams::default().limit(1);
    let profiles: Api<OperatingSystemProfile> = home.api();
    let configs: Api<OperatingSystemConfig> = home.api();
    for listed in [
        profiles.list_metadata(&one).await.map(drop),
        configs.list_metadata(&one).await.map(drop),
    ] {
        match listed {
            Err(error) if is_not_served(&error) => return Ok(false),
            listed => listed?,
        }
    }
    Ok(true)
}

async fn read_configs(context: &Context, key: &DigestKey) -> Result<(), kube::Error> {
    let configs: Api<DeserializeGuard<OperatingSystemConfig>> = context.engagement.home.api();
    let mut pages = Pages::of(ListParams::default(), PAGE);
    let asked = context.configs.now();
    while let Some(page) = pages.next(&configs).await? {
        for config in page.objects {
            let digest = config_digest(key, &config.spec);
            context.configs.verified(config.metadata, digest, asked);
        }
        for config in page.unreadable {
            let digest = other_content(key);
            context.configs.verified(config, digest, asked);
        }
    }
    Ok(())
}

/// Reads a Secret and records its metadata and digest, or that it is gone.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn verify_secret(context: &Context, name: &str) -> Result<(), kube::Error> {
    let secrets: Api<DeserializeGuard<Secret>> =
        Api::namespaced(context.engagement.worker.client(), CLOUD_INIT_SETTINGS);
    let asked = context.secrets.now();
    match secrets.get_opt(name).await? {
        Some(secret) => {
            let secret = secret.0.unwrap_or_else(|it| bare_secret(it.metadata));
            weigh(context, &secret);
            let key = context.digest_key();
            let digest = stored_digest(&key, &secret);
            context.secrets.verified(secret.metadata, digest, asked);
        }
        None => context.secrets.deleted(name),
    }
    Ok(())
}

/// Reads a config and records its metadata and digest, or that it is gone.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn verify_config(context: &Context, name: &str) -> Result<(), kube::Error> {
    let configs: Api<DeserializeGuard<OperatingSystemConfig>> = context.engagement.home.api();
    let asked = context.configs.now();
    let key = context.digest_key();
    match configs.get_opt(name).await? {
        Some(config) => {
            let metadata = config.meta().clone();
            let spec = config.0.ok().map(|config| config.spec);
            let digest = spec.map_or_else(|| other_content(&key), |it| config_digest(&key, &it));
            context.configs.verified(metadata, digest, asked);
        }
        None => context.configs.deleted(name),
    }
    Ok(())
}

/// Returns a Secret that consists of metadata only, in place of one that cannot be decoded.
fn bare_secret(metadata: ObjectMeta) -> Secret {
    Secret {
        metadata,
        ..Secret::default()
    }
}

/// Returns a digest that no object has that we write.
fn other_content(key: &DigestKey) -> Digest {
    secret_digest(key, &[])
}

/// Records the size of a document. Kubeconfigs are not documents.
fn weigh(context: &Context, secret: &Secret) {
    let documents = [CLOUD_CONFIG_KEY, EDGE_SCRIPT_KEY].into_iter();
    let mut found = documents.filter_map(|key| secret.data.as_ref()?.get(key));
    if let Some(ByteString(bytes)) = found.next() {
        context
            .engagement
            .tenant_status
            .statistics
            .user_data(bytes.len());
    }
}
