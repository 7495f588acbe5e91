//! What an inventory has, and which of it is served. Reads no kubeconfig, and sends no request to
//! worker clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Serialize;

use super::{
    cluster_client::{ClusterClient, KubeconfigSource},
    selection::{Selection, bare_secret},
    tenants,
};
use crate::client::pages;
use crate::fleet::discovery::{
    Settings,
    kkp::{DEPLOYMENT, Manager, ReadSettings, SECRET, UserCluster, cluster_in},
};
use crate::fleet::registry::CONSIDERED_MAX;
use crate::settings::drop_in::deployed::spec_of;
use crate::tenant::inventory::{Inventory, SecretRule};

/// One worker cluster of an inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The namespace of its Secret.
    pub tenant: String,
    /// Its name in the inventory.
    pub cluster: String,
    /// The number of replicas that KKP's manager should have. `None` if there is none, or the
    /// inventory is another.
    pub replicas: Option<i32>,
    /// `LeftOut`, `Waiting` if it is to be served and has no WorkerCluster yet, `SettingsRefused`,
    /// or else the state of its WorkerCluster.
    pub state: String,
    /// A sentence about the state.
    pub message: String,
}

/// Returns the user clusters of a KKP seed, in the order of their namespaces. `manager` is the
/// namespace of the manager.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn kkp(
    source: &KubeconfigSource,
    selection: &Selection,
    manager: &str,
) -> anyhow::Result<Vec<Row>> {
    let seed = ClusterClient::management(source).await?;
    let clusters = user_clusters(&seed.client, selection).await?;
    let served = tenants::list(source, selection, manager).await?.rows;
    let states: BTreeMap<_, _> = served
        .iter()
        .map(|row| (row.tenant.as_str(), row))
        .collect();
    let read: ReadSettings = Arc::new(spec_of);
    let rows = clusters.into_iter().filter_map(|cluster| {
        let state = states.get(cluster.namespace.as_str()).copied();
        row(cluster, state, &read)
    });
    Ok(rows.collect())
}

/// Returns the worker clusters whose Secrets a rule matches, in the order of their namespaces.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn of_rule(
    (source, manager): (&KubeconfigSource, &str),
    selection: &Selection,
    rule: &Arc<SecretRule>,
) -> anyhow::Result<Vec<Row>> {
    let management = ClusterClient::management(source).await?;
    let served = tenants::list(source, selection, manager).await?.rows;
    let served: BTreeMap<_, _> = served
        .iter()
        .map(|row| ((row.tenant.as_str(), row.name.as_str()), row))
        .collect();
    let inventory = Inventory::Rule(Arc::clone(rule));
    let mut rows = Vec::new();
    for secrets in names_of_secrets(&management.client, selection) {
        let listed = secrets.list_metadata(&selected_by(rule)).await;
        let listed = listed.context("cannot list the names of Secrets")?;
        let youngest = youngest_considered(&listed.items, &inventory);
        rows.extend(listed.items.into_iter().filter_map(|secret| {
            let tenant = secret.namespace()?;
            let cluster = rule.cluster(&secret.name_any())?.to_owned();
            let name = secret.name_any();
            let (state, message) = if inventory.has(&name, secret.labels().keys()) {
                let served = served.get(&(tenant.as_str(), cluster.as_str())).copied();
                let youngest = youngest.get(&tenant);
                match served {
                    None if youngest.is_some_and(|it| *it < age(&secret)) => too_many(),
                    served => state(served, &rule.name),
                }
            } else {
                let why = format!("its Secret {name} has the label of a registration");
                ("LeftOut".to_owned(), why)
            };
            Some(Row {
                tenant,
                cluster,
                replicas: None,
                state,
                message,
            })
        }));
    }
    rows.sort_by(|a, b| (&a.tenant, &a.cluster).cmp(&(&b.tenant, &b.cluster)));
    Ok(rows)
}

/// Returns the Secrets that a rule matches, in these namespaces.
pub(super) async fn matching(
    client: &Client,
    selection: &Selection,
    rule: &Arc<SecretRule>,
) -> anyhow::Result<Vec<Secret>> {
    let inventory = Inventory::Rule(Arc::clone(rule));
    let mut found = all(client, selection, &selected_by(rule)).await?;
    found.retain(|it| inventory.has(&it.name_any(), it.labels().keys()));
    Ok(found)
}

/// Returns the Secrets that the API server selects, in these namespaces.
pub(super) async fn all(
    client: &Client,
    selection: &Selection,
    selected: &ListParams,
) -> anyhow::Result<Vec<Secret>> {
    let mut found = Vec::new();
    for (limit, secrets) in selection.apis::<Secret>(client) {
        let listed = pages::all(&secrets, selected.clone()).await;
        let place = limit.as_deref().unwrap_or("all namespaces");
        let listed = listed.with_context(|| format!("cannot list the registrations of {place}"))?;
        found.extend(listed.into_all(bare_secret));
    }
    Ok(found)
}

/// Selects what the API server can select by a rule.
fn selected_by(rule: &SecretRule) -> ListParams {
    ListParams {
        label_selector: rule.label_selector.clone(),
        field_selector: rule.field_selector(),
        ..ListParams::default()
    }
}

fn names_of_secrets(client: &Client, selection: &Selection) -> Vec<Api<Secret>> {
    let limits = selection.apis::<Secret>(client).into_iter();
    let of = |(limit, _): (Option<String>, _)| match limit {
        Some(namespace) => Api::namespaced(client.clone(), &namespace),
        None => Api::all(client.clone()),
    };
    limits.map(of).collect()
}

/// Returns the state of a worker cluster that is to be served, and a sentence about it.
fn state(served: Option<&tenants::Row>, inventory: &str) -> (String, String) {
    let Some(served) = served else {
        let message = format!(
            "no manager has created its WorkerCluster yet: does it run with \
             --inventory={inventory}?"
        );
        return ("Waiting".to_owned(), message);
    };
    (served.state.clone(), served.message.clone())
}

/// Orders registrations by age, as the manager does.
pub(super) fn age(secret: &impl ResourceExt) -> (Option<Timestamp>, Option<String>) {
    (secret.creation_timestamp().map(|it| it.0), secret.uid())
}

/// Returns the age of the youngest registration that is considered, for each namespace that has as
/// many.
fn youngest_considered<K: ResourceExt>(
    secrets: &[K],
    inventory: &Inventory,
) -> BTreeMap<String, (Option<Timestamp>, Option<String>)> {
    let mut ages: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
    for secret in secrets {
        if inventory.has(&secret.name_any(), secret.labels().keys()) {
            let namespace = secret.namespace().unwrap_or_default();
            ages.entry(namespace).or_default().insert(age(secret));
        }
    }
    let youngest = ages.into_iter().filter_map(|(namespace, ages)| {
        let youngest = ages.into_iter().nth(CONSIDERED_MAX - 1)?;
        Some((namespace, youngest))
    });
    youngest.collect()
}

/// Returns the state and the message of a registration that is not considered.
fn too_many() -> (String, String) {
    let message = format!(
        "its namespace has {CONSIDERED_MAX} older registrations, and no more are considered"
    );
    ("LeftOut".to_owned(), message)
}

/// Returns KKP's managers in these namespaces, by the namespaces of their user clusters.
pub(super) async fn managers(
    client: &Client,
    selection: &Selection,
) -> anyhow::Result<BTreeMap<String, Manager>> {
    let mut managers = BTreeMap::new();
    for (_, deployments) in selection.apis::<Deployment>(client) {
        let listed = pages::all(&deployments, named(DEPLOYMENT)).await;
        let listed = listed.context("cannot list Deployments")?;
        let undecodable = listed.unreadable.into_iter();
        let undecodable = undecodable.map(|found| (found.namespace, Manager::Undecodable));
        let deployed = listed.objects.into_iter();
        let deployed = deployed.map(|it| (it.namespace(), Manager::Deployed(Box::new(it))));
        let all = undecodable.chain(deployed);
        managers.extend(all.filter_map(|(namespace, manager)| Some((namespace?, manager))));
    }
    managers.retain(|namespace, _| cluster_in(namespace).is_some());
    Ok(managers)
}

/// Returns what KKP keeps for its managers in these namespaces.
pub(super) async fn user_clusters(
    client: &Client,
    selection: &Selection,
) -> anyhow::Result<Vec<UserCluster>> {
    let mut managers = managers(client, selection).await?;
    let mut clusters = Vec::new();
    for secrets in names_of_secrets(client, selection) {
        let listed = secrets.list_metadata(&named(SECRET)).await;
        let listed = listed.context("cannot list the names of Secrets")?;
        for secret in listed.items {
            let namespace = secret.namespace().unwrap_or_default();
            if cluster_in(&namespace).is_some() {
                clusters.push(UserCluster {
                    manager: managers.remove(&namespace).unwrap_or(Manager::None),
                    secret: Some(secret.metadata),
                    namespace,
                });
            }
        }
    }
    clusters.extend(
        managers
            .into_iter()
            .map(|(namespace, manager)| UserCluster {
                namespace,
                manager,
                secret: None,
            }),
    );
    clusters.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    Ok(clusters)
}

/// Selects the objects of this name.
pub(super) fn named(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

fn row(cluster: UserCluster, served: Option<&tenants::Row>, read: &ReadSettings) -> Option<Row> {
    let id = cluster_in(&cluster.namespace)?.to_owned();
    let (state, message) = match (cluster.settings(read), served) {
        (Err(why), _) => ("LeftOut".to_owned(), why.to_string()),
        (Ok(Settings::Unusable(why)), None) => ("SettingsRefused".to_owned(), why),
        (Ok(Settings::Unusable(why)), Some(served)) => {
            let message = format!("it keeps its settings, because KKP's cannot be used: {why}");
            (served.state.clone(), message)
        }
        (Ok(_), served) => state(served, "kkp"),
    };
    Some(Row {
        replicas: cluster.manager.replicas(),
        tenant: cluster.namespace,
        cluster: id,
        state,
        message,
    })
}
