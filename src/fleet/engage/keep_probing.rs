//! Sends requests to a cluster whose health is in doubt, while all other calls wait.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use crate::api::names::KUBE_SYSTEM;
use crate::client::{connect::Clients, health::Health};

/// Reads an object that the manager may always read, whenever a call is due.
pub async fn keep_probing(health: &Health, worker: &Clients) {
    loop {
        health.call_due().await;
        let namespaces: Api<Namespace> = Api::all(worker.client());
        // The client observes the outcome.
        drop(Box::pin(namespaces.get_metadata(KUBE_SYSTEM)).await);
    }
}
