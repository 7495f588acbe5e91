//! The registrations that a plan is about. The user clusters of a KKP seed are among them before
//! they are handed over, so that a plan says what would be written then.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt};

use super::Question;
use crate::api::{names::WORKER_CLUSTER_LABEL, worker_cluster::WorkerCluster};
use crate::client::pages;
use crate::commands::{inventory, selection::bare_secret};
use crate::fleet::{
    discovery::{
        kkp::{ReadSettings, SECRET},
        with_settings_of,
    },
    worker_clusters::with_defaults,
};
use crate::settings::drop_in::deployed::spec_of;
use crate::tenant::{id::RegistrationId, inventory::Inventory};

/// A registration.
pub(super) struct Registered {
    /// The Secret with the kubeconfig.
    pub(super) secret: Secret,
    /// The inventory that it comes from.
    pub(super) inventory: Inventory,
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
            (None, None) if self.inventory != Inventory::Label => {
                let namespace = self.secret.namespace().unwrap_or_default();
                let id = RegistrationId::new(&namespace, &self.secret.name_any());
                Some(with_defaults(&id, &self.inventory))
            }
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
                    inventory: inventory.clone(),
                    derived: None,
                }));
            }
            Inventory::Kkp => all.extend(of_kkp(client, question).await?),
            Inventory::Rule(rule) => {
                let found = inventory::matching(client, &question.selection, rule).await?;
                ensure!(
                    !found.is_empty(),
                    "no Secret matches the rule {}",
                    rule.name
                );
                all.extend(found.into_iter().map(|secret| Registered {
                    secret,
                    inventory: inventory.clone(),
                    derived: None,
                }));
            }
        }
    }
    Ok(all)
}

async fn of_kkp(client: &Client, question: &Question) -> anyhow::Result<Vec<Registered>> {
    let mut managers = inventory::managers(client, &question.selection).await?;
    let read: ReadSettings = Arc::new(spec_of);
    let mut all = Vec::new();
    for (_, secrets) in question.selection.apis::<Secret>(client) {
        let listed = pages::all(&secrets, inventory::named(SECRET)).await;
        let listed = listed.context("cannot list the kubeconfigs of KKP")?;
        for secret in listed.into_all(bare_secret) {
            let namespace = secret.namespace().unwrap_or_default();
            if secret.labels().contains_key(WORKER_CLUSTER_LABEL) {
                continue;
            }
            if let Some(manager) = managers.remove(&namespace) {
                all.push(Registered {
                    secret,
                    inventory: Inventory::Kkp,
                    derived: Some(manager.worker_cluster(&namespace, &read)),
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
