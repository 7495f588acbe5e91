//! What a tenant is served with unless its WorkerCluster says otherwise.

use std::sync::Arc;

use super::{mode::NamespacedName, settings::TenantSettings};

/// What a tenant is served with unless its WorkerCluster says otherwise.
#[derive(Clone, Debug, Default)]
pub struct TenantDefaults {
    /// The settings that documents are rendered with.
    pub settings: Arc<TenantSettings>,
    /// The Secret with credentials of registries, in the cluster of the tenant's home.
    pub registry_credentials: Option<NamespacedName>,
    /// The ServiceAccount of the worker cluster whose token kubelets bootstrap with, instead of
    /// bootstrap tokens.
    pub bootstrap_account: Option<NamespacedName>,
}

impl From<Arc<TenantSettings>> for TenantDefaults {
    fn from(settings: Arc<TenantSettings>) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }
}
