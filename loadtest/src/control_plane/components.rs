//! What each component is told on its command line, and the objects that kubeadm would create.
//! The flags follow kubeadm where a test could see the difference, and save memory elsewhere.

use std::path::PathBuf;

use kube::api::DynamicObject;
use serde_json::json;

use super::slot::Slot;
use super::{Issuer, Params};

pub(super) const CA_CERTIFICATE: &str = "ca.crt";
pub(super) const CA_KEY: &str = "ca.key";
pub(super) const KUBELET_CLIENT_CERTIFICATE: &str = "kubelet-client.crt";
pub(super) const KUBELET_CLIENT_KEY: &str = "kubelet-client.key";
pub(super) const SERVING_CERTIFICATE: &str = "apiserver.crt";
pub(super) const SERVING_KEY: &str = "apiserver.key";
pub(super) const SIGNING_KEY: &str = "sa.key";
pub(super) const SIGNING_PUBLIC_KEY: &str = "sa.pub";
pub(super) const MANAGER_KUBECONFIG: &str = "controller-manager.conf";
pub(super) const ETCD_DATA: &str = "etcd";
pub(super) const AUDIT_POLICY: &str = "audit-policy.yaml";
const AUDIT_LOG: &str = "audit.log";

/// Where the addresses of Services come from; the first one is `default/kubernetes`.
const SERVICES: &str = "10.96.0.0/16";

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Admission plugins for things that these clusters do not have: volumes, ingresses, runtimes.
/// Each would hold a cache of its objects.
const ADMISSION_WITHOUT_USE: &str = "DefaultIngressClass,DefaultStorageClass,\
    PersistentVolumeClaimResize,RuntimeClass,StorageObjectInUseProtection";

/// The controllers whose work a client of the API can see. Nothing here runs workloads.
const CONTROLLERS: &str = "serviceaccount-token-controller,serviceaccount-controller,\
    root-ca-certificate-publisher-controller,namespace-controller,garbage-collector-controller,\
    clusterrole-aggregation-controller,bootstrap-signer-controller,token-cleaner-controller";

/// What a cluster with nodes runs besides.
const NODE_CONTROLLERS: &str = "certificatesigningrequest-approving-controller,\
    certificatesigningrequest-signing-controller,node-lifecycle-controller";

/// A program and its flags. Files are named relative to the cluster's folder, in which it runs.
pub(crate) struct Component {
    pub(crate) name: &'static str,
    pub(crate) flags: Vec<String>,
}

/// Where the API server writes its audit events, one JSON object a line.
pub(super) fn audit_log(slot: &Slot) -> PathBuf {
    slot.folder().join(AUDIT_LOG)
}

pub(super) fn etcd(slot: &Slot) -> Component {
    let client = format!("http://127.0.0.1:{}", slot.ports().etcd);
    let peer = format!("http://127.0.0.1:{}", slot.ports().etcd_peer);
    let flags = vec![
        "--name=default".to_owned(),
        format!("--data-dir={}", slot.folder().join(ETCD_DATA).display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data need to outlive a process and never the machine.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Component {
        name: "etcd",
        flags,
    }
}

pub(super) fn api_server(params: &Params, slot: &Slot) -> Component {
    let ports = slot.ports();
    let own = format!("https://127.0.0.1:{}", ports.api_server);
    let issuer = match params.issuer {
        Issuer::Usual => ISSUER,
        Issuer::Itself => &own,
    };
    let mut flags = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", ports.api_server),
        format!("--client-ca-file={CA_CERTIFICATE}"),
        format!("--tls-cert-file={SERVING_CERTIFICATE}"),
        format!("--tls-private-key-file={SERVING_KEY}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--disable-admission-plugins={ADMISSION_WITHOUT_USE}"),
        "--enable-bootstrap-token-auth".to_owned(),
        format!("--service-account-issuer={issuer}"),
        format!("--service-account-key-file={SIGNING_PUBLIC_KEY}"),
        format!("--service-account-signing-key-file={SIGNING_KEY}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        format!("--audit-policy-file={AUDIT_POLICY}"),
        format!("--audit-log-path={}", audit_log(slot).display()),
        // A rotated log would lose its oldest events to the reader.
        "--audit-log-maxsize=0".to_owned(),
        // One queue for all in place of a cache of flow schemas and its controllers.
        "--enable-priority-and-fairness=false".to_owned(),
        "--max-requests-inflight=400".to_owned(),
        "--max-mutating-requests-inflight=200".to_owned(),
        "--etcd-count-metric-poll-period=0".to_owned(),
        "--profiling=false".to_owned(),
        // Kubernetes refuses loopback in the `EndpointSlice` of the API server: there is none. The
        // address must be given all the same, or the server looks for a default route.
        "--endpoint-reconciler-type=none".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
    ];
    if params.machines_reach.is_some() {
        flags.extend([
            format!("--kubelet-client-certificate={KUBELET_CLIENT_CERTIFICATE}"),
            format!("--kubelet-client-key={KUBELET_CLIENT_KEY}"),
            format!("--kubelet-certificate-authority={CA_CERTIFICATE}"),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ]);
    }
    if params.issuer == Issuer::Itself {
        flags.push(format!("--service-account-jwks-uri={own}/openid/v1/jwks"));
    }
    flags.extend_from_slice(&params.api_server_flags);
    Component {
        name: "kube-apiserver",
        flags,
    }
}

/// The names and addresses in the API server's certificate.
pub(super) fn server_names(params: &Params) -> Vec<String> {
    let mut names = [
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default.svc",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend(params.machines_reach.map(|it| it.to_string()));
    names.extend_from_slice(&params.server_names);
    names
}

pub(super) fn controller_manager(params: &Params, slot: &Slot) -> Component {
    let kubeconfig = slot.folder().join(MANAGER_KUBECONFIG);
    let with_nodes = params.machines_reach.is_some();
    let controllers = if with_nodes {
        format!("{CONTROLLERS},{NODE_CONTROLLERS}")
    } else {
        CONTROLLERS.to_owned()
    };
    let mut flags = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--controllers={controllers}"),
        format!("--service-account-private-key-file={SIGNING_KEY}"),
        format!("--root-ca-file={CA_CERTIFICATE}"),
        format!("--service-cluster-ip-range={SERVICES}"),
        // There is one of them; an outage of the API server must not end it.
        "--leader-elect=false".to_owned(),
        // Nobody asks it anything.
        "--secure-port=0".to_owned(),
        "--profiling=false".to_owned(),
    ];
    if with_nodes {
        flags.extend([
            format!("--cluster-signing-cert-file={CA_CERTIFICATE}"),
            format!("--cluster-signing-key-file={CA_KEY}"),
        ]);
    }
    Component {
        name: "kube-controller-manager",
        flags,
    }
}

/// `kube-public/cluster-info`, and the right of everybody to read it, as kubeadm creates them.
pub(super) fn cluster_info(kubeconfig: &str) -> Vec<DynamicObject> {
    let name = "kubeadm:bootstrap-signer-clusterinfo";
    let metadata = json!({ "name": name, "namespace": "kube-public" });
    let objects = [
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "cluster-info", "namespace": "kube-public" },
            "data": { "kubeconfig": kubeconfig },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
            "rules": [{
                "apiGroups": [""], "resources": ["configmaps"],
                "resourceNames": ["cluster-info"], "verbs": ["get"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{
                "apiGroup": "rbac.authorization.k8s.io", "kind": "User",
                "name": "system:anonymous",
            }],
        }),
    ];
    // The literals above are objects, so that nothing is dropped here.
    objects
        .into_iter()
        .filter_map(|object| serde_json::from_value(object).ok())
        .collect()
}
