//! Asks a cluster that is in doubt. Everybody else waits until it is well.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use crate::api::names::KUBE_SYSTEM;
use crate::fleet::{connect::Clients, health::Health};

/// Asks the cluster for what the manager may always read, whenever a call must show how it is.
pub async fn keep_asking(health: &Health, worker: &Clients) {
    loop {
        health.call_due().await;
        let namespaces: Api<Namespace> = Api::all(worker.client());
        // The outcome is observed where it passes.
        drop(Box::pin(namespaces.get_metadata(KUBE_SYSTEM)).await);
    }
}
