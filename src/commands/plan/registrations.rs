//! The registrations that a plan is about. The user clusters of a KKP seed are among them before
//! they are handed over, so that a plan says what would be written then.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt, api::ListParams};

use super::Question;
use crate::api::{names::WORKER_CLUSTER_LABEL, worker_cluster::WorkerCluster};
use crate::client::pages;
use crate::commands::{adopt_kkp, selection::bare_secret};
use crate::fleet::discovery::{kkp::SECRET, with_settings_of};
use crate::tenant::inventory::Inventory;

/// A registration.
pub(super) struct Registered {
    /// The Secret with the kubeconfig.
    pub(super) secret: Secret,
    /// What its inventory says about its WorkerCluster, or why that cannot be used. `None` if the
    /// operator writes it.
    derived: Option<Result<WorkerCluster, String>>,
}

impl Registered {
    /// Returns the WorkerCluster with which it is served.
    ///
    /// # Errors
    ///
    /// It has none, and the settings in the inventory cannot be used.
    pub(super) fn served_with(
        &self,
        found: Option<WorkerCluster>,
    ) -> anyhow::Result<Option<WorkerCluster>> {
        Ok(match (&self.derived, found) {
            (None, found) => found,
            (Some(Ok(derived)), None) => Some(derived.clone()),
            (Some(Ok(derived)), Some(own)) => Some(WorkerCluster {
                spec: with_settings_of(&own.spec, &derived.spec),
                ..own
            }),
            (Some(Err(_)), Some(own)) => Some(own),
            (Some(Err(why)), None) => {
                anyhow::bail!("the settings in the inventory cannot be used: {why}")
            }
        })
    }
}

/// Returns the registrations of the inventories in question.
///
/// # Errors
///
/// Returns an error if they cannot be listed, or if there are none.
pub(super) async fn registrations(
    client: &Client,
    question: &Question,
) -> anyhow::Result<Vec<Registered>> {
    let mut all = Vec::new();
    for inventory in &question.settings.inventories {
        match inventory {
            Inventory::Label => {
                let label = &question.settings.registration_selector;
                let found = question.selection.registrations(client, label).await?;
                all.extend(found.into_iter().map(|secret| Registered {
                    secret,
                    derived: None,
                }));
            }
            Inventory::Kkp => all.extend(of_kkp(client, question).await?),
        }
    }
    Ok(all)
}

async fn of_kkp(client: &Client, question: &Question) -> anyhow::Result<Vec<Registered>> {
    let clusters = adopt_kkp::user_clusters_in(client, &question.selection).await?;
    let mut derived: BTreeMap<String, _> = clusters
        .into_iter()
        .map(|cluster| (cluster.namespace, cluster.worker_cluster))
        .collect();
    let mut all = Vec::new();
    for (_, secrets) in question.selection.apis::<Secret>(client) {
        let named = ListParams::default().fields(&format!("metadata.name={SECRET}"));
        let listed = pages::all(&secrets, named).await;
        let listed = listed.context("cannot list the kubeconfigs of KKP")?;
        for secret in listed.into_all(bare_secret) {
            let namespace = secret.namespace().unwrap_or_default();
            if secret.labels().contains_key(WORKER_CLUSTER_LABEL) {
                continue;
            }
            if let Some(derived) = derived.remove(&namespace) {
                all.push(Registered {
                    secret,
                    derived: Some(derived),
                });
            }
        }
    }
    ensure!(
        !all.is_empty(),
        "no user cluster has a Deployment and a Secret of KKP"
    );
    Ok(all)
}
