//! A pod on a node, without a scheduler.

use std::time::Duration;

use anyhow::{Context as _, bail};
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
/// When the pod fails or does not end within five minutes, or the kubelet does not give the log.
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
    let has_ended =
        |pod: Option<&Pod>| phase(pod).is_some_and(|phase| matches!(phase, "Succeeded" | "Failed"));
    let ended = await_condition(pods.clone(), name, has_ended);
    let last = match tokio::time::timeout(TIMEOUT, ended).await {
        Ok(last) => last.context("watching the pod")?,
        Err(_) => pods.get_opt(name).await.context("reading the pod")?,
    };
    if phase(last.as_ref()) != Some("Succeeded") {
        let status = last.and_then(|pod| pod.status);
        let status = serde_json::to_string(&status).unwrap_or_default();
        bail!("pod {name} has not succeeded: {status}");
    }
    pods.logs(name, &LogParams::default())
        .await
        .context("reading the pod's log through the kubelet")
}

fn phase(pod: Option<&Pod>) -> Option<&str> {
    pod?.status.as_ref()?.phase.as_deref()
}
