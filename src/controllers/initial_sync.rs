//! What stands in the clusters when a tenant is engaged: one paged list of each place, whose bodies
//! are hashed and dropped. After that the watches tell, and reconciles read nothing.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, api::ListParams, core::DeserializeGuard};

use super::context::Context;
use crate::api::{
    config::OperatingSystemConfig,
    names::{
        CLOUD_CONFIG_KEY, CLOUD_INIT_SETTINGS, EDGE_SCRIPT_KEY, KUBECONFIG_KEY, is_name_alone,
    },
};
use crate::fleet::pages::Pages;
use crate::plan::{
    desired::{config_digest, secret_digest},
    digest::{Digest, DigestKey},
};

/// A page of Secrets or configs: 25 KiB each, so that a page stays near a megabyte.
const PAGE: u32 = 50;

/// Lists and verifies what was made for the tenant's machine deployments.
pub async fn run(context: &Context) -> Result<(), kube::Error> {
    let key = context.digest_key();
    let secrets: Api<Secret> =
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
        // One of which the name alone was read exists; the watch tells what is known of it.
        for secret in page.into_iter().filter(|it| !is_name_alone(&it.metadata)) {
            weigh(context, &secret);
            let digest = digest_of(&key, &secret);
            context.secrets.verified(secret.metadata, digest, asked);
        }
    }
    read_configs(context, &key).await
}

async fn read_configs(context: &Context, key: &DigestKey) -> Result<(), kube::Error> {
    let tenant = context.engagement.tenant();
    let configs: Api<DeserializeGuard<OperatingSystemConfig>> =
        Api::namespaced(context.engagement.management.client(), tenant.namespace());
    let mut pages = Pages::of(ListParams::default(), PAGE);
    let asked = context.configs.now();
    while let Some(page) = pages.next(&configs).await? {
        // One that cannot be read exists; the watch tells what is known of it.
        for config in page.into_iter().filter_map(|config| config.0.ok()) {
            let digest = config_digest(key, &config.spec);
            context.configs.verified(config.metadata, digest, asked);
        }
    }
    Ok(())
}

/// Verifies one Secret that is known by its metadata alone.
pub async fn verify_secret(context: &Context, name: &str) -> Result<(), kube::Error> {
    let secrets: Api<Secret> =
        Api::namespaced(context.engagement.worker.client(), CLOUD_INIT_SETTINGS);
    let asked = context.secrets.now();
    match secrets.get_opt(name).await? {
        Some(secret) => {
            weigh(context, &secret);
            let key = context.digest_key();
            let digest = digest_of(&key, &secret);
            context.secrets.verified(secret.metadata, digest, asked);
        }
        None => context.secrets.deleted(name),
    }
    Ok(())
}

/// Verifies one config that is known by its metadata alone.
pub async fn verify_config(context: &Context, name: &str) -> Result<(), kube::Error> {
    let tenant = context.engagement.tenant();
    let configs: Api<OperatingSystemConfig> =
        Api::namespaced(context.engagement.management.client(), tenant.namespace());
    let asked = context.configs.now();
    match configs.get_opt(name).await? {
        Some(config) => {
            let digest = config_digest(&context.digest_key(), &config.spec);
            context.configs.verified(config.metadata, digest, asked);
        }
        None => context.configs.deleted(name),
    }
    Ok(())
}

/// Takes note of how large a document is; a kubeconfig is none.
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

/// Returns the digest of a Secret's value. A Secret without one of our keys has the digest of an
/// empty value, which no Secret that we write has.
fn digest_of(key: &DigestKey, secret: &Secret) -> Digest {
    let data = secret.data.as_ref();
    let ours = data.and_then(|data| {
        [CLOUD_CONFIG_KEY, KUBECONFIG_KEY, EDGE_SCRIPT_KEY]
            .iter()
            .find_map(|key| data.get(*key))
    });
    secret_digest(key, ours.map_or(&[], |ByteString(bytes)| bytes))
}
