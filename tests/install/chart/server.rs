//! What the chart renders, asked of a real API server.

use super::*;

/// A cluster with the namespaces and the kinds that the values of `each.yaml` need.
async fn a_cluster_for_everything() -> ControlPlane {
    let cluster = a_cluster("management").await;
    make_the_tenants_namespaces(&cluster).await;
    let namespace = format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}, labels: {{
            pod-security.kubernetes.io/enforce: restricted,
            pod-security.kubernetes.io/warn: restricted}}}}}}"
    );
    let kinds = ["ServiceMonitor", "PrometheusRule"].map(definition);
    let kinds = format!("{}---{}", kinds.join("---"), webhooks::CERT_MANAGER);
    for objects in [&namespace, &kinds] {
        let applied = cluster.apply_yaml(objects).await;
        applied.expect("the objects are taken");
    }
    let wait = ["wait", "--for=condition=Established", "crd", "--all"];
    kubectl(&cluster, &wait).await;
    cluster
}

/// Has the API server validate what is rendered, with unknown fields as errors. Returns how many
/// objects there are.
async fn assert_accepted(cluster: &ControlPlane, values: &Value) -> usize {
    let path = cluster.folder().join("rendered.yaml");
    std::fs::write(&path, template(values)).expect("the folder is ours");
    let path = path.to_str().expect("our paths are text");
    let apply = ["apply", "--dry-run=server", "--validate=strict", "-f", path];
    let printed = kubectl(cluster, &apply).await;
    let is_created = |line: &&str| line.ends_with("created (server dry run)");
    let created = printed.lines().filter(is_created).count();
    assert_eq!(created, printed.lines().count(), "{printed}");
    created
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_api_server_accepts_the_chart_by_default_and_with_everything() {
    let cluster = a_cluster_for_everything().await;
    let by_default = assert_accepted(&cluster, &nothing()).await;
    let webhook = json!({"webhook": {"enabled": true}});
    let with_webhook = assert_accepted(&cluster, &webhook).await;
    let with_everything = assert_accepted(&cluster, &everything()).await;
    assert!(by_default < with_webhook, "{by_default}, {with_webhook}");
    assert!(with_webhook < with_everything, "{with_everything}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_value_alone_is_accepted_by_a_real_api_server() {
    let cluster = a_cluster_for_everything().await;
    for entry in entries() {
        assert_accepted(&cluster, &merged(&[&entry.with, &entry.set])).await;
    }
}
