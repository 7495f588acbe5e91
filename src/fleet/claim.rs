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

#[cfg(test)]
mod tests {
    use fake_cluster::{Cluster, object};
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    fn a_claimant(tenant: &str) -> Claimant {
        Claimant {
            management_uid: "m".to_owned(),
            tenant: TenantId::new(tenant),
        }
    }

    fn a_cluster() -> Cluster {
        let cluster = Cluster::default();
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CLOUD_INIT_SETTINGS},
        });
        cluster.put_raw(namespace).unwrap();
        cluster
    }

    async fn namespace(cluster: &Cluster) -> Namespace {
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        namespaces.get(CLOUD_INIT_SETTINGS).await.unwrap()
    }

    async fn claim_as(cluster: &Cluster, claimant: &Claimant) -> Result<(), ClaimError> {
        let namespace = namespace(cluster).await;
        claim(&cluster.client(), claimant, &namespace, |tenant| {
            *tenant == TenantId::new("gone")
        })
        .await
    }

    fn holder(cluster: &Cluster) -> Option<String> {
        let namespace = cluster.get(object("namespaces", "", CLOUD_INIT_SETTINGS))?;
        let holder = namespace.get("metadata")?.get("annotations")?.get(CLAIM)?;
        Some(holder.as_str()?.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn the_older_claim_never_suffers_from_the_younger() {
        let cluster = a_cluster();
        claim_as(&cluster, &a_claimant("berlin")).await.unwrap();
        assert_eq!(holder(&cluster).as_deref(), Some("m/berlin"));
        let refused = claim_as(&cluster, &a_claimant("lisbon")).await.unwrap_err();
        assert!(matches!(refused, ClaimError::Held { holder } if holder == "m/berlin"));
        // Another management cluster's tenant of the same name is another.
        let foreign = Claimant {
            management_uid: "n".to_owned(),
            ..a_claimant("berlin")
        };
        assert!(claim_as(&cluster, &foreign).await.is_err());
        cluster.clear_audit();
        claim_as(&cluster, &a_claimant("berlin")).await.unwrap();
        assert_eq!(cluster.writes().len(), 0, "what is held is not written");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leftover_of_a_tenant_that_is_gone_is_taken_over() {
        let cluster = a_cluster();
        claim_as(&cluster, &a_claimant("gone")).await.unwrap();
        claim_as(&cluster, &a_claimant("lisbon")).await.unwrap();
        assert_eq!(holder(&cluster).as_deref(), Some("m/lisbon"));
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_at_once_one_is_refused() {
        let cluster = a_cluster();
        let before = namespace(&cluster).await;
        let nobody = |_: &TenantId| false;
        let client = cluster.client();
        claim(&client, &a_claimant("berlin"), &before, nobody)
            .await
            .unwrap();
        let late = claim(&client, &a_claimant("lisbon"), &before, nobody).await;
        assert!(matches!(late, Err(ClaimError::Write(_))), "{late:?}");
        assert_eq!(holder(&cluster).as_deref(), Some("m/berlin"));
    }

    #[tokio::test(start_paused = true)]
    async fn only_ones_own_claim_is_given_back() {
        let cluster = a_cluster();
        claim_as(&cluster, &a_claimant("berlin")).await.unwrap();
        let client = cluster.client();
        release(&client, &a_claimant("lisbon")).await.unwrap();
        assert!(holder(&cluster).is_some());
        release(&client, &a_claimant("berlin")).await.unwrap();
        assert_eq!(holder(&cluster), None);
    }
}
