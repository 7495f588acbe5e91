//! The flags of `osm-controller`, as they are typed.

use super::go_flags::{Flag, Place};
use crate::telemetry::logs::LogFormat;

/// The flags of `osm-controller`, as they are typed. Empty texts are flags that were not given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "the usage of each flag stands in the table below"
)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct ControllerFlags {
    pub kubeconfig: String,
    pub worker_cluster_kubeconfig: String,
    pub worker_count: i64,
    pub namespace: String,
    pub container_runtime: String,
    pub external_cloud_provider: bool,
    pub cluster_dns: String,
    pub pause_image: String,
    pub initial_taints: String,
    pub disable_default_osps: bool,
    pub node_kubelet_feature_gates: String,
    pub node_http_proxy: String,
    pub node_no_proxy: String,
    pub node_insecure_registries: String,
    pub node_registry_mirrors: String,
    /// By registry, in the order of the command line.
    pub node_containerd_registry_mirrors: Vec<(String, String)>,
    pub node_registry_credentials_secret: String,
    pub device_ownership_from_security_context: bool,
    pub health_probe_address: String,
    pub metrics_address: String,
    pub worker_health_probe_address: String,
    pub worker_metrics_address: String,
    pub leader_elect: bool,
    pub override_bootstrap_kubelet_apiserver: String,
    pub bootstrap_token_service_account_name: String,
    pub kubernetes_ca_bundle: String,
    pub host_ca_bundle: String,
    pub ca_bundle: String,
    pub log_debug: bool,
    pub log_format: LogFormat,
}

impl Default for ControllerFlags {
    fn default() -> Self {
        Self {
            kubeconfig: String::new(),
            worker_cluster_kubeconfig: String::new(),
            worker_count: 10,
            namespace: String::new(),
            container_runtime: "containerd".to_owned(),
            external_cloud_provider: false,
            cluster_dns: "10.10.10.10".to_owned(),
            pause_image: String::new(),
            initial_taints: String::new(),
            disable_default_osps: false,
            node_kubelet_feature_gates: "RotateKubeletServerCertificate=true".to_owned(),
            node_http_proxy: String::new(),
            node_no_proxy: ".svc,.cluster.local,localhost,127.0.0.1".to_owned(),
            node_insecure_registries: String::new(),
            node_registry_mirrors: String::new(),
            node_containerd_registry_mirrors: Vec::new(),
            node_registry_credentials_secret: String::new(),
            device_ownership_from_security_context: false,
            health_probe_address: "127.0.0.1:8085".to_owned(),
            metrics_address: "127.0.0.1:8080".to_owned(),
            worker_health_probe_address: "127.0.0.1:8086".to_owned(),
            worker_metrics_address: "127.0.0.1:8081".to_owned(),
            leader_elect: true,
            override_bootstrap_kubelet_apiserver: String::new(),
            bootstrap_token_service_account_name: String::new(),
            kubernetes_ca_bundle: String::new(),
            host_ca_bundle: String::new(),
            ca_bundle: String::new(),
            log_debug: false,
            log_format: LogFormat::Json,
        }
    }
}

const fn text(
    name: &'static str,
    place: fn(&mut ControllerFlags) -> &mut String,
    usage: &'static str,
) -> Flag<ControllerFlags> {
    let place = Place::Text(place);
    Flag { name, usage, place }
}

const fn switch(
    name: &'static str,
    place: fn(&mut ControllerFlags) -> &mut bool,
    usage: &'static str,
) -> Flag<ControllerFlags> {
    let place = Place::Switch(place);
    Flag { name, usage, place }
}

/// The flags of `osm-controller`.
pub const CONTROLLER_FLAGS: &[Flag<ControllerFlags>] = &[
    text(
        "kubeconfig",
        |flags| &mut flags.kubeconfig,
        "The kubeconfig of the cluster with profiles and configs. Without it: $KUBECONFIG, the pod's own credentials, ~/.kube/config.",
    ),
    text(
        "worker-cluster-kubeconfig",
        |flags| &mut flags.worker_cluster_kubeconfig,
        "The kubeconfig of the cluster with machine deployments, where that is another one.",
    ),
    Flag {
        name: "worker-count",
        usage: "Reconciles under way at once.",
        place: Place::Number(|flags| &mut flags.worker_count),
    },
    text(
        "namespace",
        |flags| &mut flags.namespace,
        "The namespace of profiles, configs and the leader's Lease. Required.",
    ),
    text(
        "container-runtime",
        |flags| &mut flags.container_runtime,
        "The container runtime of the nodes: containerd.",
    ),
    switch(
        "external-cloud-provider",
        |flags| &mut flags.external_cloud_provider,
        "Whether the cloud provider's controllers run outside of Kubernetes' own.",
    ),
    text(
        "cluster-dns",
        |flags| &mut flags.cluster_dns,
        "The cluster's DNS servers, with commas between them.",
    ),
    text(
        "pause-image",
        |flags| &mut flags.pause_image,
        "The sandbox image of containerd.",
    ),
    text(
        "initial-taints",
        |flags| &mut flags.initial_taints,
        "The taints that a kubelet registers its node with.",
    ),
    switch(
        "disable-default-osps",
        |flags| &mut flags.disable_default_osps,
        "Leave the default profiles as they are, there or not.",
    ),
    text(
        "node-kubelet-feature-gates",
        |flags| &mut flags.node_kubelet_feature_gates,
        "The kubelet's feature gates: Name=true, with commas between them.",
    ),
    text(
        "node-http-proxy",
        |flags| &mut flags.node_http_proxy,
        "The HTTP proxy of the nodes.",
    ),
    text(
        "node-no-proxy",
        |flags| &mut flags.node_no_proxy,
        "What the nodes reach without a proxy.",
    ),
    text(
        "node-insecure-registries",
        |flags| &mut flags.node_insecure_registries,
        "Registries without a verified certificate, with commas between them.",
    ),
    text(
        "node-registry-mirrors",
        |flags| &mut flags.node_registry_mirrors,
        "Mirrors of docker.io, or registry=mirror, with commas between them.",
    ),
    Flag {
        name: "node-containerd-registry-mirrors",
        usage: "A mirror, as registry=url. May be repeated; the order is kept.",
        place: Place::Func(add_mirror, ""),
    },
    text(
        "node-registry-credentials-secret",
        |flags| &mut flags.node_registry_credentials_secret,
        "The Secret with credentials of registries, as namespace/name.",
    ),
    switch(
        "device-ownership-from-security-context",
        |flags| &mut flags.device_ownership_from_security_context,
        "Devices belong to the user of the container's security context.",
    ),
    text(
        "health-probe-address",
        |flags| &mut flags.health_probe_address,
        "Where /healthz and /readyz are served; 0 is nowhere.",
    ),
    text(
        "metrics-address",
        |flags| &mut flags.metrics_address,
        "Where /metrics is served; 0 is nowhere.",
    ),
    text(
        "worker-health-probe-address",
        |flags| &mut flags.worker_health_probe_address,
        "As -health-probe-address, with -worker-cluster-kubeconfig only.",
    ),
    text(
        "worker-metrics-address",
        |flags| &mut flags.worker_metrics_address,
        "As -metrics-address, with -worker-cluster-kubeconfig only.",
    ),
    switch(
        "leader-elect",
        |flags| &mut flags.leader_elect,
        "Only the holder of a Lease serves.",
    ),
    text(
        "override-bootstrap-kubelet-apiserver",
        |flags| &mut flags.override_bootstrap_kubelet_apiserver,
        "The URL of the API server for nodes, in place of the one that was found.",
    ),
    text(
        "bootstrap-token-service-account-name",
        |flags| &mut flags.bootstrap_token_service_account_name,
        "The ServiceAccount whose token kubelets bootstrap with, as namespace/name, in place of bootstrap tokens.",
    ),
    text(
        "kubernetes-ca-bundle",
        |flags| &mut flags.kubernetes_ca_bundle,
        "The file of the API server's certificate authority, in place of the kubeconfig's.",
    ),
    text(
        "host-ca-bundle",
        |flags| &mut flags.host_ca_bundle,
        "The file of certificates that nodes trust besides their own.",
    ),
    text(
        "ca-bundle",
        |flags| &mut flags.ca_bundle,
        "Deprecated, and without effect.",
    ),
    switch("log-debug", |flags| &mut flags.log_debug, "Log more."),
    Flag {
        name: "log-format",
        usage: "The form of a log line: JSON or Console.",
        place: Place::Func(
            |flags, value| {
                flags.log_format = log_format(value)?;
                Ok(())
            },
            "JSON",
        ),
    },
];

fn add_mirror(flags: &mut ControllerFlags, value: &str) -> Result<(), String> {
    let (registry, url) = value.split_once('=').ok_or("should have exactly 1 =")?;
    flags
        .node_containerd_registry_mirrors
        .push((registry.to_owned(), url.to_owned()));
    Ok(())
}

/// The form of a log line by upstream's name of it.
pub(super) fn log_format(value: &str) -> Result<LogFormat, String> {
    match value.to_ascii_lowercase().as_str() {
        "json" => Ok(LogFormat::Json),
        "console" => Ok(LogFormat::Text),
        _ => Err(format!("invalid format '{value}'")),
    }
}
