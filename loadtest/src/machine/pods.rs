//! A pod on a node, without a scheduler.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, LogParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

/// The first pod of an emulated node takes half a minute.
const TIMEOUT: Duration = Duration::from_mins(5);
const NAMESPACE: &str = "default";

/// Runs a program that ends by itself, and returns its log, which the API server fetches from the
/// kubelet.
///
/// # Errors
///
/// When the pod does not succeed in time, or the kubelet does not give the log.
pub async fn log_of(client: Client, node: &str, name: &str, image: &str) -> anyhow::Result<String> {
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": node, "restartPolicy": "Never",
            // There is no scheduler that would look at them, and kubelets do.
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": name, "image": image }],
        },
    }))
    .context("a pod")?;
    pods.create(&PostParams::default(), &pod)
        .await
        .context("creating a pod")?;
    let succeeded = await_condition(pods.clone(), name, |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        status.and_then(|it| it.phase.as_deref()) == Some("Succeeded")
    });
    if tokio::time::timeout(TIMEOUT, succeeded).await.is_err() {
        let last = pods.get_status(name).await.context("reading the pod")?;
        let status = serde_json::to_string(&last.status).unwrap_or_default();
        anyhow::bail!(
            "pod {name} did not succeed within {} s: {status}",
            TIMEOUT.as_secs()
        );
    }
    pods.logs(name, &LogParams::default())
        .await
        .context("reading the pod's log through the kubelet")
}
