//! What is in a seed, and what of it is to be handed over.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, anyhow, bail};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::DeserializeGuard,
};

use super::{
    Action, Direction, HandOver, Step,
    kkp_cluster::{Cluster, patch},
};
use crate::api::worker_cluster::WorkerCluster;
use crate::client::pages;
use crate::commands::{
    cluster_client::ClusterClient,
    inventory,
    readiness::{Readiness, readiness},
};
use crate::fleet::discovery::kkp::{LeftOut, ReadSettings, UserCluster, cluster_in, namespace_of};
use crate::settings::drop_in::deployed::spec_of;

/// A seed.
pub(super) struct Seed {
    pub(super) client: Client,
    /// What KKP keeps for its managers, by the names of the user clusters.
    found: BTreeMap<String, UserCluster>,
    /// KKP's own objects.
    clusters: BTreeMap<String, Cluster>,
    /// The user clusters that are served from here.
    served: BTreeMap<String, Readiness>,
}

impl Seed {
    /// Reads a seed.
    pub(super) async fn read(hand_over: &HandOver) -> anyhow::Result<Self> {
        let (management, selection) = (
            &hand_over.question.management,
            &hand_over.question.selection,
        );
        let client = ClusterClient::management(management).await?.client;
        let all: Api<DeserializeGuard<Cluster>> = Api::all(client.clone());
        let listed = pages::all(&all, ListParams::default()).await;
        let listed = listed.map_err(|error| {
            if pages::is_not_served(&error) {
                return anyhow!(
                    "the cluster does not serve clusters.kubermatic.k8c.io: is it a seed of KKP? \
                     choose another --context"
                );
            }
            anyhow::Error::new(error).context("cannot list KKP's Clusters")
        })?;
        let found = inventory::user_clusters(&client, selection).await?;
        let found = found.into_iter().filter_map(|it| {
            let id = cluster_in(&it.namespace)?.to_owned();
            Some((id, it))
        });
        let own = selection.worker_clusters(&client).await?.objects;
        let served = own.iter().filter_map(|own| {
            let id = cluster_in(own.metadata.namespace.as_deref()?)?.to_owned();
            Some((id, readiness(own)))
        });
        let clusters = listed.objects.into_iter().map(|it| (it.name_any(), it));
        Ok(Self {
            found: found.collect(),
            clusters: clusters.collect(),
            served: served.collect(),
            client,
        })
    }

    /// Returns what is to happen with each user cluster that is meant.
    ///
    /// # Errors
    ///
    /// A user cluster does not exist.
    pub(super) fn steps(&self, hand_over: &HandOver) -> anyhow::Result<Vec<Step>> {
        let mut ids = hand_over.ids.clone();
        if ids.is_empty() {
            ids = self.found.keys().cloned().collect();
        }
        let steps = ids.into_iter().map(|id| {
            let Some(found) = self.found.get(&id) else {
                bail!(
                    "there is no user cluster {id}: namespace {} has neither a Deployment nor a \
                     Secret of KKP's manager",
                    namespace_of(&id)
                );
            };
            let action = self.action(&id, found, hand_over.direction);
            Ok(Step { id, action })
        });
        steps.collect()
    }

    fn action(&self, id: &str, found: &UserCluster, direction: Direction) -> Action {
        let Some(cluster) = self.clusters.get(id) else {
            return Action::Refuse("KKP has no Cluster of this name".to_owned());
        };
        if cluster.metadata.deletion_timestamp.is_some() {
            return Action::Refuse("KKP is deleting it".to_owned());
        }
        let read: ReadSettings = Arc::new(spec_of);
        let is_at_rest = match (direction, found.settings(&read)) {
            (Direction::ToUs, Err(why)) if !matches!(why, LeftOut::Running(_)) => {
                return Action::Refuse(why.to_string());
            }
            (Direction::ToUs, settings) => {
                let served = self.served.get(id);
                let is_served = served.is_some_and(|it| *it != Readiness::Not);
                settings.is_ok() && is_served && !cluster.wants_its_manager()
            }
            (Direction::Back, _) => {
                let runs = found.manager.replicas().is_some_and(|it| it > 0);
                runs && cluster.wants_its_manager()
            }
        };
        if is_at_rest {
            Action::Nothing
        } else {
            Action::HandOver
        }
    }

    /// Sets the field of KKP's Cluster by which the user cluster is handed over.
    pub(super) async fn patch(&self, id: &str, direction: Direction) -> anyhow::Result<()> {
        let clusters: Api<Cluster> = Api::all(self.client.clone());
        let patch = Patch::Merge(patch(direction));
        let patched = clusters
            .patch_metadata(id, &PatchParams::default(), &patch)
            .await;
        patched
            .map(drop)
            .with_context(|| format!("cannot patch KKP's Cluster {id}"))
    }

    /// Returns the WorkerCluster of a user cluster.
    pub(super) async fn own(&self, id: &str) -> anyhow::Result<Option<WorkerCluster>> {
        let api: Api<WorkerCluster> = Api::namespaced(self.client.clone(), &namespace_of(id));
        let found = api.get_opt(id).await;
        found.with_context(|| format!("cannot read the WorkerCluster of {id}"))
    }
}
