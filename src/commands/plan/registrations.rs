//! The registrations that a plan is about. The user clusters of a KKP seed are among them before
//! they are handed over, so that a plan says what would be written then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use anyhow::{bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, ResourceExt, api::ListParams};

use super::{Answer, Question, Verdict};
use crate::api::{reason::Reason, worker_cluster::WorkerCluster};
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
    /// The Secret that registers the namespace's worker cluster, if that is another one.
    pub(super) owner: Option<String>,
    /// What its inventory says about its WorkerCluster, or why that cannot be used. `None` if the
    /// operator writes it.
    derived: Option<Result<WorkerCluster, String>>,
}

impl Registered {
    /// Returns the answer for a registration that is not served, because its namespace has an older
    /// one.
    pub(super) fn is_second(&self) -> Option<Answer> {
        let (owner, name) = (self.owner.as_ref()?, self.secret.name_any());
        let namespace = self.secret.namespace().unwrap_or_default();
        let message = format!(
            "Secret {name} is not served: Secret {owner} registers a worker cluster in this \
             namespace already; one namespace is one tenant"
        );
        Some(Answer {
            reason: Some(Reason::NamespaceTaken),
            message: Some(message),
            ..Answer::new(&namespace, None, Verdict::Refused)
        })
    }

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
            owner: None,
            derived: None,
        }));
    }
    all.retain(|it| !selection.excepts(it.secret.metadata.namespace.as_ref()));
    name_owners(&mut all);
    let absent = || {
        let all = inventories.iter().map(|inventory| match inventory {
            Inventory::Label => format!("no Secret has the label {label}"),
            Inventory::Kkp => "no user cluster has a Deployment and a Secret of KKP".to_owned(),
            Inventory::Rule(rule) => format!("no Secret matches the rule {}", rule.name),
        });
        all.collect::<Vec<_>>().join(", and ")
    };
    let named = selection.namespaces.iter();
    for namespace in named.filter(|_| !selection.is_watched) {
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

/// Names the oldest registration of each namespace, which is the one that is served.
fn name_owners(all: &mut [Registered]) {
    let mut oldest = BTreeMap::new();
    for Registered { secret, .. } in &*all {
        let entry = (inventory::age(secret), secret.name_any());
        let kept = oldest.entry(secret.namespace()).or_insert(entry.clone());
        *kept = entry.min(kept.clone());
    }
    for Registered { secret, owner, .. } in all {
        let found = oldest.get(&secret.namespace()).map(|(_, name)| name);
        *owner = found.filter(|name| **name != secret.name_any()).cloned();
    }
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
            owner: None,
            derived: Some(manager.worker_cluster(&namespace, &read)),
        })
    });
    Ok(of_kkp.collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn the_oldest_registration_of_a_namespace_is_the_one_that_is_served() {
        let registered = |(namespace, name, second): (&str, &str, i64)| {
            let mut secret = Secret::default();
            secret.metadata.namespace = Some(namespace.to_owned());
            secret.metadata.name = Some(name.to_owned());
            let time = jiff::Timestamp::from_second(second).unwrap();
            secret.metadata.creation_timestamp = Some(Time(time));
            Registered {
                secret,
                inventory: Inventory::Label,
                owner: None,
                derived: None,
            }
        };
        let all = [("a", "young", 9), ("a", "old", 3), ("b", "alone", 9)];
        let mut all = all.map(registered);
        name_owners(&mut all);
        let owners = all.map(|it| it.owner);
        assert_eq!(owners, [Some("old".to_owned()), None, None]);
    }
}
