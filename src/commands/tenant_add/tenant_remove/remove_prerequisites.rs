//! Deletes in a worker cluster what `osm tenant add` created there.

use anyhow::Context as _;
use kube::{Api, ResourceExt, api::DynamicObject};

use super::by_uid;
use crate::api::worker_cluster::Credentials;
use crate::commands::{
    cluster_client::{self, ClusterClient},
    tenant_add::{
        apply::{MADE_BY, US, called},
        prerequisites::{Rights, documents, token_document},
    },
};

/// Deletes objects with our label, the token first. Objects that others created are kept.
pub(super) async fn remove_prerequisites(
    worker: &ClusterClient,
    progress: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<()> {
    let mut all = documents(&Rights::ALL, Credentials::Renewed)?;
    all.push(token_document());
    for document in all.iter().rev() {
        let is_namespace = document.get("kind").is_some_and(|kind| kind == "Namespace");
        if is_namespace {
            continue;
        }
        let what = called(document);
        let api: Api<DynamicObject> = cluster_client::api_of(&worker.client, document)?;
        let name = cluster_client::metadata(document, "name");
        let found = api.get_metadata_opt(name).await;
        let found = found.with_context(|| format!("cannot look for {what}"))?;
        let Some(found) = found else { continue };
        if found.labels().get(MADE_BY).is_none_or(|by| by != US) {
            progress(format!(
                "worker cluster: {what} stays; somebody else has made it"
            ));
            continue;
        }
        match api.delete(name, &by_uid(found.uid())).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted.with_context(|| format!("cannot delete {what}"))?),
        }
        progress(format!("worker cluster: deleted {what}"));
    }
    Ok(())
}
