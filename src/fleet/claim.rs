//! The claim on a worker cluster: an annotation on its `cloud-init-settings` that names who serves
//! it, set by compare-and-swap. The older claim never suffers from the younger.

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::api::names::{CLAIM, CLOUD_INIT_SETTINGS};
use crate::tenant::id::TenantId;

/// Who claims a worker cluster: a tenant of a management cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// The uid of the management cluster's kube-system namespace.
    pub management_uid: String,
    /// The tenant.
    pub tenant: TenantId,
}

impl Claimant {
    fn text(&self) -> String {
        format!("{}/{}", self.management_uid, self.tenant)
    }
}

/// Why a worker cluster could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody else holds it.
    #[error(
        "the worker cluster is served for `{holder}` (annotation {CLAIM} of namespace \
         {CLOUD_INIT_SETTINGS} there); remove that registration first, or the annotation if it \
         is a leftover"
    )]
    Held {
        /// Who holds it.
        holder: String,
    },
    /// The call failed, or somebody was faster.
    #[error("cannot write the claim on namespace {CLOUD_INIT_SETTINGS}")]
    Write(#[source] kube::Error),
}

/// Claims the cluster whose namespace was just read. `is_gone` tells whether a tenant of this
/// management cluster has no registration any more.
pub async fn claim(
    client: &Client,
    claimant: &Claimant,
    namespace: &Namespace,
    is_gone: impl Fn(&TenantId) -> bool,
) -> Result<(), ClaimError> {
    let ours = claimant.text();
    if let Some(holder) = namespace.annotations().get(CLAIM) {
        if *holder == ours {
            return Ok(());
        }
        let leftover = holder
            .strip_prefix(&format!("{}/", claimant.management_uid))
            .is_some_and(|tenant| is_gone(&TenantId::new(tenant)));
        if !leftover {
            return Err(ClaimError::Held {
                holder: holder.clone(),
            });
        }
    }
    write(client, namespace.resource_version(), Some(&ours))
        .await
        .map_err(ClaimError::Write)
}

/// Whether the claim is still ours. Where that cannot be read it is taken to be.
pub async fn is_ours(client: &Client, claimant: &Claimant) -> bool {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_metadata(CLOUD_INIT_SETTINGS).await {
        Ok(found) => found.annotations().get(CLAIM) == Some(&claimant.text()),
        Err(_) => true,
    }
}

/// Gives the claim back, if it is ours.
pub async fn release(client: &Client, claimant: &Claimant) -> Result<(), kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.get(CLOUD_INIT_SETTINGS).await?;
    if namespace.annotations().get(CLAIM) == Some(&claimant.text()) {
        write(client, namespace.resource_version(), None).await?;
    }
    Ok(())
}

/// The resourceVersion in the patch makes it a compare-and-swap.
async fn write(
    client: &Client,
    resource_version: Option<String>,
    claim: Option<&str>,
) -> Result<(), kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let patch = json!({
        "metadata": {"resourceVersion": resource_version, "annotations": {CLAIM: claim}}
    });
    namespaces
        .patch_metadata(
            CLOUD_INIT_SETTINGS,
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await
        .map(drop)
}
