//! The registrations that a plan is about. The user clusters of a KKP seed are among them before
//! they are handed over, so that a plan says what would be written then.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt, api::ListParams};

use super::Question;
use crate::api::worker_cluster::WorkerCluster;
use crate::commands::{
    cluster_client::ensure_namespace,
    inventory,
    selection::{Selection, registration_of},
};
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
    ) -> anyhow::Result<WorkerCluster> {
        Ok(match (&self.derived, found) {
            (None, None) => {
                let namespace = self.secret.namespace().unwrap_or_default();
                let id = RegistrationId::new(&namespace, &self.secret.name_any());
                with_defaults(&id, &self.inventory)
            }
            (None | Some(Err(_)), Some(own)) => own,
            (Some(Ok(derived)), None) => derived.clone(),
            (Some(Ok(derived)), Some(own)) => WorkerCluster {
                spec: with_settings_of(&own.spec, &derived.spec),
                ..own
            },
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
/// Returns an error if they cannot be listed, or if there are none: in a namespace in question, or
/// in all.
pub(super) async fn registrations(
    client: &Client,
    question: &Question,
) -> anyhow::Result<Vec<Registered>> {
    let (inventories, selection) = (&question.settings.inventories, &question.selection);
    let label = &question.settings.registration_selector;
    let mut all = Vec::new();
    for inventory in inventories {
        let secrets = match inventory {
            Inventory::Kkp => {
                all.extend(of_kkp(client, selection).await?);
                continue;
            }
            Inventory::Label => {
                inventory::all(client, selection, &ListParams::default().labels(label)).await?
            }
            Inventory::Rule(rule) => inventory::matching(client, selection, rule).await?,
        };
        all.extend(secrets.into_iter().map(|secret| Registered {
            secret,
            inventory: inventory.clone(),
            derived: None,
        }));
    }
    let absent = || {
        let all = inventories.iter().map(|inventory| match inventory {
            Inventory::Label => format!("no Secret has the label {label}"),
            Inventory::Kkp => "no user cluster has a Deployment and a Secret of KKP".to_owned(),
            Inventory::Rule(rule) => format!("no Secret matches the rule {}", rule.name),
        });
        all.collect::<Vec<_>>().join(", and ")
    };
    for namespace in &selection.namespaces {
        let is_there = |it: &&Registered| it.secret.namespace().as_ref() == Some(namespace);
        if all.iter().find(is_there).is_none() {
            ensure_namespace(client, namespace).await?;
            bail!("nothing is registered in {namespace}: {}", absent());
        }
    }
    if all.is_empty() {
        // Missing CRDs have an error of their own.
        selection.worker_clusters(client).await?;
        bail!("nothing is registered: {}", absent());
    }
    if let Some(labels) = &selection.labels {
        let owns = selection.worker_clusters(client).await?.objects;
        let selected: BTreeSet<_> = owns.iter().map(registration_of).collect();
        all.retain(|it| selected.contains(&(it.secret.namespace(), it.secret.name_any())));
        ensure!(
            !all.is_empty(),
            "no WorkerCluster of a registration has the labels {labels}"
        );
    }
    Ok(all)
}

async fn of_kkp(client: &Client, selection: &Selection) -> anyhow::Result<Vec<Registered>> {
    let mut managers = inventory::managers(client, selection).await?;
    let read: ReadSettings = Arc::new(spec_of);
    let secrets = inventory::all(client, selection, &inventory::named(SECRET)).await?;
    let of_kkp = secrets.into_iter().filter_map(|secret| {
        let namespace = secret.namespace()?;
        let manager = managers.remove(&namespace)?;
        let is_in = Inventory::Kkp.has(SECRET, secret.labels().keys());
        is_in.then(|| Registered {
            secret,
            inventory: Inventory::Kkp,
            derived: Some(manager.worker_cluster(&namespace, &read)),
        })
    });
    Ok(of_kkp.collect())
}
