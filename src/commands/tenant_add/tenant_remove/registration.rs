//! The Secret that registers the tenant to remove.

use anyhow::Context as _;
use kube::ResourceExt;

use super::{RemoveParams, TenantRemoval};
use crate::api::names::WORKER_CLUSTER_LABEL;

/// The Secret of a registration.
pub(super) struct Registration {
    pub(super) uid: Option<String>,
    /// True if it has the label of a registration. Otherwise, another program has made it.
    pub(super) is_ours: bool,
}

impl TenantRemoval {
    /// Returns the registration.
    pub(super) async fn registration(&self) -> anyhow::Result<Option<Registration>> {
        let name = &self.params.name;
        let found = self.secrets().get_metadata_opt(name).await;
        let found = found.with_context(|| format!("cannot look for Secret {name}"))?;
        Ok(found.map(|it| Registration {
            is_ours: it.labels().contains_key(WORKER_CLUSTER_LABEL),
            uid: it.uid(),
        }))
    }

    /// Says what to do about a Secret of another program.
    pub(super) fn anothers(&self) -> String {
        let RemoveParams {
            name, namespace, ..
        } = &self.params;
        format!(
            "Secret {namespace}/{name} does not have the label {WORKER_CLUSTER_LABEL}: the manager \
             takes it from an inventory, and would register the worker cluster again. Take the \
             inventory out of the manager's arguments, or remove the worker cluster with the \
             program that has made the Secret"
        )
    }
}
