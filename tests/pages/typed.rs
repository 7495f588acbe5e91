//! The commands that a page tells people to type, and what takes the place of those that cannot run
//! where it is tested.

use super::shell;

pub const MANAGEMENT: &str = "management";
pub const WORKER: &str = "worker";
/// What stands behind a command that something else takes the place of.
const NOT_TESTED: &str = "# not tested";

/// One command.
#[derive(Debug)]
pub struct Typed {
    /// In one line and without the comment.
    pub line: String,
    /// Whether the page says that it runs.
    pub is_tested: bool,
}

/// What takes the place of a command that cannot run here.
#[derive(Clone, Copy, Debug)]
pub enum StandIn {
    /// A control plane of a cluster, in place of one with nodes.
    Cluster(&'static str),
    /// The worker cluster's control plane, and the management cluster's where that one runs.
    NextCluster,
    /// The administrator's kubeconfig of the worker cluster, as a file.
    WorkerKubeconfig,
    /// The same, with the address that other machines reach.
    WorkerKubeconfigOutside,
    /// The administrator's kubeconfig of the management cluster, as a file.
    ManagementKubeconfig,
    /// The image's root folder, in place of a runtime's store.
    Import,
    /// A process in namespaces, in place of a pod of a kubelet.
    Pod,
    /// What a backup of that name has of a namespace and these kinds: no status, and nothing of the
    /// cluster's own.
    Backup(&'static str, &'static str, &'static [&'static str]),
    /// Another management cluster, in place of the one that is there.
    AnotherManagement,
    /// What the backup of that name has is created again.
    Restore(&'static str),
    /// Nothing: the test of the chart takes Helm's way.
    AnotherTest,
}

/// The only commands that a page may call not tested.
pub const STAND_INS: [(&str, StandIn); 21] = [
    (
        "kind create cluster --name management",
        StandIn::Cluster(MANAGEMENT),
    ),
    (
        "kind create cluster --name berlin",
        StandIn::Cluster(WORKER),
    ),
    (
        "kind load image-archive target/image/osm.oci.tar --name management",
        StandIn::Import,
    ),
    (
        "kubectl --context kind-management -n operating-system-manager \
         rollout status deployment/operating-system-manager",
        StandIn::Pod,
    ),
    (
        "kind get kubeconfig --name berlin > berlin.kubeconfig",
        StandIn::WorkerKubeconfig,
    ),
    (
        "sudo sed 's/127.0.0.1/192.0.2.20/' /etc/rancher/k3s/k3s.yaml > berlin.kubeconfig",
        StandIn::WorkerKubeconfigOutside,
    ),
    (
        "sudo cat /etc/rancher/k3s/k3s.yaml > management.kubeconfig",
        StandIn::ManagementKubeconfig,
    ),
    (
        "sudo k3s ctr images import target/image/osm.oci.tar",
        StandIn::Import,
    ),
    (
        "kubectl -n operating-system-manager rollout status deployment/operating-system-manager",
        StandIn::Pod,
    ),
    (
        "kubectl -n operating-system-manager rollout undo deployment/operating-system-manager",
        StandIn::Pod,
    ),
    (
        "velero backup create osm --include-namespaces tenant-berlin",
        StandIn::Backup(
            "osm",
            "tenant-berlin",
            &[
                "namespaces/tenant-berlin",
                "secrets",
                "workerclusters",
                "operatingsystemprofiles",
                "operatingsystemconfigs",
            ],
        ),
    ),
    (
        "velero backup create osm-profiles --include-namespaces operating-system-manager \
         --include-resources operatingsystemprofiles",
        StandIn::Backup(
            "osm-profiles",
            "operating-system-manager",
            &["operatingsystemprofiles"],
        ),
    ),
    (
        "kubectl config use-context new-management",
        StandIn::AnotherManagement,
    ),
    (
        "velero restore create --from-backup osm",
        StandIn::Restore("osm"),
    ),
    (
        "velero restore create --from-backup osm-profiles",
        StandIn::Restore("osm-profiles"),
    ),
    (
        "kubectl config use-context other-management",
        StandIn::AnotherManagement,
    ),
    ("curl -sfL https://get.k3s.io | sh -", StandIn::NextCluster),
    (
        "helm upgrade osm-crds manifests/helm/osm-crds -n operating-system-manager",
        StandIn::AnotherTest,
    ),
    (
        "helm upgrade osm manifests/helm/osm -n operating-system-manager \
         --reset-then-reuse-values",
        StandIn::AnotherTest,
    ),
    (
        "helm upgrade osm manifests/helm/osm -n operating-system-manager \
         --reset-then-reuse-values --set tenantDefaults.defaultProfileContent=Whole",
        StandIn::AnotherTest,
    ),
    (
        "helm rollback osm REVISION -n operating-system-manager",
        StandIn::AnotherTest,
    ),
];

/// The commands of a page's `sh` blocks, in order.
pub fn commands(page: &str) -> Vec<Typed> {
    let lines = shell::lines(page);
    let lines = lines.iter().filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let command = line.strip_suffix(NOT_TESTED);
            let words = command.unwrap_or(line).split_whitespace();
            Typed {
                is_tested: command.is_none(),
                line: words.collect::<Vec<_>>().join(" "),
            }
        })
        .collect()
}

/// What takes the place of a command.
pub fn stand_in(line: &str) -> Option<StandIn> {
    let known = STAND_INS.iter().find(|(it, _)| *it == line);
    known.map(|(_, stand_in)| *stand_in)
}
