//! The claim on a worker cluster: an annotation on its namespace `cloud-init-settings` that names
//! the tenant that it is served for. It is set by compare-and-swap. An existing claim is never
//! overwritten by a newer one.

pub mod lease;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::DeserializeGuard,
};
use serde_json::json;

use super::{registry::Registry, worker_clusters::is_removed};
use crate::api::{
    names::{CLAIM, CLOUD_INIT_SETTINGS},
    worker_cluster::WorkerCluster,
};
use crate::client::pages;
use crate::tenant::id::TenantId;

/// The claimant of a worker cluster: a tenant of a management cluster.
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

/// The reason why a worker cluster could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another claimant holds it.
    #[error(
        "the worker cluster is served for `{holder}` (annotation {CLAIM} of namespace \
         {CLOUD_INIT_SETTINGS} there); remove that registration first, or the annotation if it \
         is a leftover"
    )]
    Held {
        /// The claimant that holds it.
        holder: String,
    },
    /// It could not be read whether the cluster is still registered for the holder.
    #[error("cannot read whether the cluster is registered for the tenant that holds the claim")]
    Holder(#[source] kube::Error),
    /// The call failed, or another client wrote the namespace first.
    #[error("cannot write the claim on namespace {CLOUD_INIT_SETTINGS}")]
    Write(#[source] kube::Error),
}

/// The registrations of this management cluster, of this fleet and of others.
#[derive(Clone, Copy)]
pub struct Registrations<'a> {
    /// The registrations of this fleet.
    pub registry: &'a Registry,
    /// The management API, for the registrations of other fleets.
    pub management: &'a Client,
    /// The uids of management clusters that this one was restored from.
    pub former: &'a [String],
}

impl Registrations<'_> {
    /// Returns true if the holder is the same tenant in a management cluster that no longer exists.
    fn is_former(&self, claimant: &Claimant, holder: &str) -> bool {
        holder.split_once('/').is_some_and(|(uid, tenant)| {
            tenant == claimant.tenant.namespace() && self.former.iter().any(|it| it == uid)
        })
    }

    /// Returns true if this cluster is registered for a tenant of this management cluster, in any
    /// fleet. The registry knows what this process has engaged, so this asks the API server as
    /// well. Whether the tenant has registrations of other clusters makes no difference, so that a
    /// worker cluster whose claim was edited learns nothing of tenants that are served.
    async fn are_of(&self, tenant: &TenantId, cluster_uid: &str) -> Result<bool, kube::Error> {
        let namespace = tenant.namespace();
        let mut known = self.registry.within(Some(namespace)).into_iter();
        if known.any(|registered| registered.is_of(cluster_uid)) {
            return Ok(true);
        }
        // The worker cluster chooses the name, and nobody registers in a namespace that cannot be.
        if !is_label(namespace) {
            return Ok(false);
        }
        let management = || self.management.clone();
        let secrets: Api<Secret> = Api::namespaced(management(), namespace);
        let worker_clusters: Api<DeserializeGuard<WorkerCluster>> =
            Api::namespaced(management(), namespace);
        let listed = match pages::all(&worker_clusters, ListParams::default()).await {
            // A namespace of another manager's.
            Err(error) if pages::is_forbidden(&error) => return Ok(true),
            listed => listed?,
        };
        let living = listed
            .objects
            .iter()
            .filter(|own| may_be_of(own, cluster_uid) && !is_removed(own));
        let named = living.map(|own| &own.spec.kubeconfig_secret_ref.name);
        // A WorkerCluster that cannot be decoded has the name of its Secret if we created it.
        let unreadable = listed.unreadable.iter().filter_map(|it| it.name.as_ref());
        for name in named.chain(unreadable) {
            if secrets.get_metadata_opt(name).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns true if a WorkerCluster was engaged with this cluster, or its status does not say with
/// which: the uid is written after the claim, and a status may have been lost.
fn may_be_of(own: &WorkerCluster, cluster_uid: &str) -> bool {
    let status = own.status.as_ref();
    let uid = status.and_then(|it| it.cluster_uid.as_deref());
    uid.is_none_or(|uid| uid == cluster_uid)
}

/// Returns true for a name that a namespace can have.
fn is_label(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(is_part)
}

/// Claims the cluster with this uid, whose namespace was just read. A claim is taken over if its
/// tenant has no registration of this cluster in this management cluster, or if it is the same
/// tenant's from a former one.
///
/// # Errors
///
/// Another tenant or management cluster has the cluster, or a call fails.
pub async fn claim(
    client: &Client,
    claimant: &Claimant,
    (cluster_uid, namespace): (&str, &Namespace),
    registrations: Registrations<'_>,
) -> Result<(), ClaimError> {
    let ours = claimant.text();
    if let Some(holder) = namespace.annotations().get(CLAIM) {
        if *holder == ours {
            return Ok(());
        }
        let tenant = holder.strip_prefix(&format!("{}/", claimant.management_uid));
        let is_leftover = match tenant {
            Some(tenant) => {
                let tenant = TenantId::new(tenant);
                let are_of = registrations.are_of(&tenant, cluster_uid).await;
                are_of.map(|are_of| !are_of)
            }
            None => Ok(registrations.is_former(claimant, holder)),
        };
        if !is_leftover.map_err(ClaimError::Holder)? {
            return Err(ClaimError::Held {
                holder: holder.clone(),
            });
        }
    }
    write(client, namespace.resource_version(), Some(&ours))
        .await
        .map_err(ClaimError::Write)
}

/// Returns true if we still hold the claim, or if it cannot be read.
pub async fn is_ours(client: &Client, claimant: &Claimant) -> bool {
    is_held(client, claimant).await.unwrap_or(true)
}

/// Returns true if we hold the claim.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn is_held(client: &Client, claimant: &Claimant) -> Result<bool, kube::Error> {
    Ok(holder(client).await? == Some(claimant.text()))
}

/// Returns true if somebody else holds the claim.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn is_anothers(client: &Client, claimant: &Claimant) -> Result<bool, kube::Error> {
    let holder = holder(client).await?;
    Ok(holder.is_some_and(|holder| holder != claimant.text()))
}

async fn holder(client: &Client) -> Result<Option<String>, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces.get_metadata_opt(CLOUD_INIT_SETTINGS).await?;
    Ok(found.and_then(|mut found| found.annotations_mut().remove(CLAIM)))
}

/// Removes the claim if we hold it.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn release(client: &Client, claimant: &Claimant) -> Result<(), kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.get(CLOUD_INIT_SETTINGS).await?;
    if namespace.annotations().get(CLAIM) == Some(&claimant.text()) {
        write(client, namespace.resource_version(), None).await?;
    }
    Ok(())
}

/// Writes the claim. The resource version in the patch makes it a compare-and-swap.
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
    use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;
    use crate::api::{names::WORKER_CLUSTER_LABEL, reason::Reason};
    use crate::tenant::inventory::Inventory;

    /// The uid of the worker cluster.
    const UID: &str = "w";

    pub(super) fn a_claimant(tenant: &str) -> Claimant {
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

    /// Creates a management cluster in which these tenants have registered the worker cluster, with
    /// any fleet.
    fn a_management_cluster(tenants: &[&str]) -> Cluster {
        let cluster = Cluster::default();
        let definition = include_str!("../../manifests/crds/workerclusters.yaml");
        cluster.apply_yaml(definition).unwrap();
        for tenant in tenants {
            put_worker_cluster(&cluster, tenant, (UID, "Accepted"));
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {
                    "name": "worker", "namespace": tenant, "labels": {WORKER_CLUSTER_LABEL: "true"},
                },
            });
            cluster.put_raw(secret).unwrap();
        }
        cluster
    }

    /// Creates the WorkerCluster of the registration, with this cluster's uid if it is known, and
    /// with this reason in the condition `Registered`.
    fn put_worker_cluster(management: &Cluster, tenant: &str, (uid, reason): (&str, &str)) {
        let uid = (!uid.is_empty()).then_some(uid);
        let own = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": {"name": "worker", "namespace": tenant},
            "spec": {"kubeconfigSecretRef": {"name": "worker"}},
            "status": {"clusterUid": uid, "conditions": [{
                "type": "Registered", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        management.put_raw(own).unwrap();
    }

    async fn claim_beside(
        management: &Cluster,
        (cluster, claimant, before): (&Cluster, &Claimant, &Namespace),
    ) -> Result<(), ClaimError> {
        restored(management, (cluster, claimant, before), &[]).await
    }

    async fn restored(
        management: &Cluster,
        (cluster, claimant, before): (&Cluster, &Claimant, &Namespace),
        former: &[String],
    ) -> Result<(), ClaimError> {
        // This fleet knows of no registration.
        let registry = Registry::new(&[Inventory::Label].into());
        registry.listed(Inventory::Label, None);
        let registrations = Registrations {
            registry: &registry,
            management: &management.client(),
            former,
        };
        claim(&cluster.client(), claimant, (UID, before), registrations).await
    }

    async fn claim_as(cluster: &Cluster, claimant: &Claimant) -> Result<(), ClaimError> {
        let management = a_management_cluster(&["berlin"]);
        let before = namespace(cluster).await;
        claim_beside(&management, (cluster, claimant, &before)).await
    }

    fn holder(cluster: &Cluster) -> Option<String> {
        let namespace = cluster.get(object("namespaces", "", CLOUD_INIT_SETTINGS))?;
        let holder = namespace.get("metadata")?.get("annotations")?.get(CLAIM)?;
        Some(holder.as_str()?.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_gone_with_its_namespace_and_not_with_a_failed_call() {
        let (cluster, claimant) = (a_cluster(), a_claimant("berlin"));
        claim_as(&cluster, &claimant).await.unwrap();
        for code in [403, 500] {
            let fault = Fault::Status {
                code,
                retry_after: None,
            };
            let id = cluster.inject(Matcher::on(&[Verb::Get], "namespaces"), fault);
            assert!(is_ours(&cluster.client(), &claimant).await, "{code}");
            cluster.clear_fault(id);
        }
        assert!(!is_ours(&cluster.client(), &a_claimant("lisbon")).await);
        assert!(cluster.delete_raw(object("namespaces", "", CLOUD_INIT_SETTINGS)));
        assert!(!is_ours(&cluster.client(), &claimant).await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_older_claim_never_suffers_from_the_younger() {
        let cluster = a_cluster();
        claim_as(&cluster, &a_claimant("berlin")).await.unwrap();
        assert_eq!(holder(&cluster).as_deref(), Some("m/berlin"));
        let refused = claim_as(&cluster, &a_claimant("lisbon")).await.unwrap_err();
        assert!(matches!(refused, ClaimError::Held { holder } if holder == "m/berlin"));
        // A tenant of the same name in another management cluster is a different claimant.
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
    async fn a_claim_of_a_former_management_cluster_is_taken_over_by_the_same_tenant_alone() {
        let cluster = a_cluster();
        claim_as(&cluster, &a_claimant("berlin")).await.unwrap();
        let management = a_management_cluster(&["berlin", "lisbon"]);
        let of_new = |tenant: &str| Claimant {
            management_uid: "new".to_owned(),
            ..a_claimant(tenant)
        };
        let before = namespace(&cluster).await;
        for (tenant, former) in [("berlin", "other"), ("lisbon", "m")] {
            let claimant = of_new(tenant);
            let attempt = (&cluster, &claimant, &before);
            let refused = restored(&management, attempt, &[former.to_owned()]).await;
            assert!(refused.is_err(), "{tenant} {former}");
        }
        let claimant = of_new("berlin");
        let attempt = (&cluster, &claimant, &before);
        let former = ["other".to_owned(), "m".to_owned()];
        restored(&management, attempt, &former).await.unwrap();
        assert_eq!(holder(&cluster).as_deref(), Some("new/berlin"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leftover_of_a_tenant_that_is_gone_is_taken_over() {
        let cluster = a_cluster();
        claim_as(&cluster, &a_claimant("gone")).await.unwrap();
        claim_as(&cluster, &a_claimant("lisbon")).await.unwrap();
        assert_eq!(holder(&cluster).as_deref(), Some("m/lisbon"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_no_leftover_while_any_fleet_has_the_registration() {
        let cluster = a_cluster();
        claim_as(&cluster, &a_claimant("berlin")).await.unwrap();
        let before = namespace(&cluster).await;
        let management = a_management_cluster(&["berlin"]);
        let lisbon = a_claimant("lisbon");
        let claiming = || claim_beside(&management, (&cluster, &lisbon, &before));
        let refused = claiming().await;
        assert!(
            matches!(refused, Err(ClaimError::Held { .. })),
            "{refused:?}"
        );
        // It was claimed a moment ago, and its status does not say yet of which cluster it is.
        put_worker_cluster(&management, "berlin", ("", "Accepted"));
        let refused = claiming().await;
        assert!(
            matches!(refused, Err(ClaimError::Held { .. })),
            "{refused:?}"
        );
        // The label was removed, and the fleet reports it.
        let removed = Reason::RegistrationRemoved.as_str();
        put_worker_cluster(&management, "berlin", (UID, removed));
        claiming().await.unwrap();
        assert_eq!(holder(&cluster).as_deref(), Some("m/lisbon"));
    }

    /// A worker cluster in which somebody edits the claim does not learn who is registered.
    #[tokio::test(start_paused = true)]
    async fn a_registration_of_another_cluster_holds_no_claim() {
        let elsewhere = a_management_cluster(&["berlin"]);
        put_worker_cluster(&elsewhere, "berlin", ("another", "Accepted"));
        for management in [elsewhere, a_management_cluster(&[])] {
            let cluster = a_cluster();
            claim_as(&cluster, &a_claimant("berlin")).await.unwrap();
            let before = namespace(&cluster).await;
            let lisbon = a_claimant("lisbon");
            claim_beside(&management, (&cluster, &lisbon, &before))
                .await
                .unwrap();
            assert_eq!(holder(&cluster).as_deref(), Some("m/lisbon"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_cannot_be_read_is_not_taken_for_gone() {
        let cluster = a_cluster();
        claim_as(&cluster, &a_claimant("gone")).await.unwrap();
        let before = namespace(&cluster).await;
        let management = a_management_cluster(&[]);
        let lisbon = a_claimant("lisbon");
        for (code, is_held) in [(500, false), (403, true)] {
            let lists = Matcher::on(&[Verb::List], "workerclusters");
            let fault = management.inject(lists, Fault::status(code));
            let failed = claim_beside(&management, (&cluster, &lisbon, &before)).await;
            let held = matches!(failed, Err(ClaimError::Held { .. }));
            let unread = matches!(failed, Err(ClaimError::Holder(_)));
            assert_eq!([held, unread], [is_held, !is_held], "{failed:?}");
            management.clear_fault(fault);
        }
        assert_eq!(holder(&cluster).as_deref(), Some("m/gone"));
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_at_once_one_is_refused() {
        let cluster = a_cluster();
        let before = namespace(&cluster).await;
        let management = a_management_cluster(&[]);
        let (berlin, lisbon) = (a_claimant("berlin"), a_claimant("lisbon"));
        claim_beside(&management, (&cluster, &berlin, &before))
            .await
            .unwrap();
        let late = claim_beside(&management, (&cluster, &lisbon, &before)).await;
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
