//! Names that other programs depend on: annotations, labels, finalizers, namespaces, data keys, and
//! the derived names of everything that is created for a machine deployment.

use std::collections::BTreeSet;

use kube_core::ObjectMeta;

/// The namespace in a worker cluster for the Secrets that nodes fetch.
pub const CLOUD_INIT_SETTINGS: &str = "cloud-init-settings";
/// The ServiceAccount (and Role, and RoleBinding) with which nodes fetch their provisioning Secret.
pub const FETCHER: &str = "cloud-init-getter";
/// The Secret with the fetcher's token.
pub const FETCHER_TOKEN: &str = "cloud-init-getter-token";
/// The namespace of bootstrap tokens.
pub const KUBE_SYSTEM: &str = "kube-system";

/// The data key of the bootstrap and provisioning Secrets.
pub const CLOUD_CONFIG_KEY: &str = "cloud-config";
/// The data key of the kubelet bootstrap kubeconfig's Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";

/// The data key of the edge script's Secret.
pub const EDGE_SCRIPT_KEY: &str = "fetch-bootstrap-script";

/// The kinds of objects with a profile's spec. Kubermatic Kubernetes Platform stores the profiles
/// of its users with the second, and copies them to the first.
pub const PROFILE_KINDS: [&str; 2] = ["OperatingSystemProfile", "CustomOperatingSystemProfile"];

/// Annotation of a machine deployment: the name of its profile.
pub const PROFILE: &str = "k8c.io/operating-system-profile";
/// Annotation of a machine deployment: the namespace of its profile.
pub const PROFILE_NAMESPACE: &str = "k8c.io/operating-system-profile-namespace";
/// Annotation of a machine deployment: its revision, which machine-controller increments.
pub const REVISION: &str = "machinedeployment.clusters.k8s.io/revision";
/// Finalizer of a machine deployment for which we created objects.
pub const FINALIZER: &str = "kubermatic.io/cleanup-operating-system-configs";

/// Annotation of objects that we create: the machine deployment's revision.
pub const MADE_FOR_REVISION: &str = "k8c.io/machine-deployment-revision";
/// Annotation of objects that we create: the hash of the machine deployment's annotations.
pub const MADE_FOR_ANNOTATIONS: &str = "k8c.io/mdannotations-hash";
/// Annotation of objects that we create: the profile's version.
pub const MADE_FOR_PROFILE_VERSION: &str = "k8c.io/osp-version";
/// Annotation of objects that we create: the digest of all inputs.
pub const INPUTS: &str = "operatingsystemmanager.k8c.io/inputs";
/// Annotation of provisioning Secrets: short keyed digests of single inputs, by name.
pub const INPUT_DIGESTS: &str = "operatingsystemmanager.k8c.io/input-digests";
/// Annotation of objects that we create: the keyed digest of the object's bytes.
pub const CONTENT: &str = "operatingsystemmanager.k8c.io/content";
/// Annotation of objects that we create: the document or object that is close to the maximum size
/// that a provider or Kubernetes accepts.
pub const NEAR_LIMIT: &str = "operatingsystemmanager.k8c.io/near-limit";
/// Annotation of documents: a digest of the template that they were rendered from.
pub const TEMPLATE: &str = "operatingsystemmanager.k8c.io/template";
/// Annotation of objects that we create: the machine deployment, as `namespace/name`.
pub const MADE_FOR: &str = "operatingsystemmanager.k8c.io/machine-deployment";

/// Annotation of a Node: what its machine reports, as the reason of the condition
/// `DocumentApplied`, and when it did.
pub const MACHINE_REPORT: &str = "operatingsystemmanager.k8c.io/machine-report";

/// Annotation of the kubelet's kubeconfig Secret: the document from which the machines were
/// created. A rotation does not delete this one.
pub const MACHINES_MADE_FROM: &str = "operatingsystemmanager.k8c.io/machines-made-from";
/// Annotation of the kubelet's kubeconfig Secret: what the changes of the document since then take
/// on machines that run.
pub const MACHINES_BEHIND: &str = "operatingsystemmanager.k8c.io/machines-behind";
/// Annotation of the machines in a machine deployment's template: the digest of the provisioning
/// document because of which they were replaced.
pub const REPLACED_FOR: &str = "operatingsystemmanager.k8c.io/replaced-for";

/// Annotation of a WorkerCluster: the digests of documents for which machines may be replaced even
/// if that takes more than `spec.rollout.machines.maxClass`.
pub const PERMITTED: &str = "operatingsystemmanager.k8c.io/permitted-documents";

/// Annotation of a default profile: the digest of the content that we installed. If the content has
/// another digest, the profile was edited.
pub const INSTALLED_CONTENT: &str = "operatingsystemmanager.k8c.io/installed-content";
/// Label of an object in the manager's namespace with the content of a default profile, which thin
/// profiles name: the default profile's name.
pub const DEFAULT_PROFILE: &str = "operatingsystemmanager.k8c.io/default-profile";
/// Annotation of such an object: the name of the content, as thin profiles have it.
pub const CONTENT_NAME: &str = "operatingsystemmanager.k8c.io/content-name";
/// Annotation of a Secret that another program created, and whose bytes are kept although they
/// differ from those that we render.
pub const KEPT: &str = "operatingsystemmanager.k8c.io/kept-as-found";
/// Annotation of a profile that no default profile replaces: it was adopted together with its
/// cluster.
pub const PINNED: &str = "operatingsystemmanager.k8c.io/pinned";

/// Annotation of a machine deployment: fields of its kubelets' configuration, as a JSON object.
pub const KUBELET_CONFIGURATION: &str = "operatingsystemmanager.k8c.io/kubelet-configuration";

/// Annotation of a machine deployment: what its machines do by themselves when they or their
/// document change, whatever the tenant's setting.
pub const MACHINE_UPDATES: &str = "operatingsystemmanager.k8c.io/machine-updates";

/// Condition of a Node whose machine reports: True if the machine is as its document says.
pub const DOCUMENT_APPLIED: &str = "DocumentApplied";
/// Reason of that condition: the document of new machines has what only a restart or a new machine
/// takes.
pub const BEHIND_DOCUMENT: &str = "Behind";

/// Annotation that is never stored. It marks what was read of an object that is too large, and
/// contains the object's weight in bytes.
pub const TOO_LARGE: &str = "operatingsystemmanager.k8c.io/too-large";

/// Label of a bootstrap token: the key of its machine deployment.
pub const TOKEN_LABEL: &str = "machinedeployment.k8s.io/name";
/// Label of a kubeconfig Secret that registers a worker cluster.
pub const WORKER_CLUSTER_LABEL: &str = "operatingsystemmanager.k8c.io/worker-cluster";
/// Annotation of the worker cluster's namespace `cloud-init-settings`: the tenant that the cluster
/// is served for.
pub const CLAIM: &str = "operatingsystemmanager.k8c.io/claimed-by";
/// Annotation of a WorkerCluster that was deleted while its registration existed, and was created
/// again with the same settings.
pub const SETTINGS_RESTORED: &str = "operatingsystemmanager.k8c.io/settings-restored";
/// Label of a replica's Lease: the replica's fleet.
pub const FLEET_LABEL: &str = "operatingsystemmanager.k8c.io/fleet";
/// Annotation of a replica's Lease: the digest of the replica set that it follows.
pub const VIEW: &str = "operatingsystemmanager.k8c.io/members";
/// Annotation of a replica's Lease: the crashes that it has heard of, and the current trial.
pub const CRASHES: &str = "operatingsystemmanager.k8c.io/crashes";
/// Annotation of a replica's Lease: the version of the program.
pub const RUNS_VERSION: &str = "operatingsystemmanager.k8c.io/version";
/// Annotation of a replica's Lease: the settings on which it depends what is served, as JSON.
pub const RUNS_WITH: &str = "operatingsystemmanager.k8c.io/settings";

/// The maximum size of a label's value.
pub const LABEL_VALUE_BYTES_MAX: usize = 63;

/// The names of everything that is created for one machine deployment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DerivedNames {
    /// The config, in the management cluster.
    pub config: String,
    /// The provisioning Secret.
    pub provisioning: String,
    /// The bootstrap Secret.
    pub bootstrap: String,
    /// The Secret with the kubelet's bootstrap kubeconfig.
    pub kubelet_kubeconfig: String,
    /// The Secret with the script for edge machines. It does not exist on other clouds.
    pub edge_script: String,
    /// The ServiceAccount (and Role, and RoleBinding) with which its machines fetch their
    /// documents, if each machine deployment has its own credentials.
    pub fetcher: String,
    /// The Secret with that ServiceAccount's token.
    pub fetcher_token: String,
    /// The value of the bootstrap token's label.
    pub key: String,
}

impl DerivedNames {
    /// Derives the names from the machine deployment's name and namespace.
    pub fn new(namespace: &str, name: &str) -> Self {
        let key = machine_deployment_key(namespace, name);
        Self {
            config: format!("{name}-{namespace}-config"),
            provisioning: format!("{name}-{namespace}-provisioning-config"),
            bootstrap: format!("{name}-{namespace}-bootstrap-config"),
            kubelet_kubeconfig: format!("{key}-kubelet-bootstrap-config"),
            edge_script: format!("edge-provider-script-{name}-{namespace}"),
            fetcher: format!("{key}-{FETCHER}"),
            fetcher_token: format!("{key}-{FETCHER_TOKEN}"),
            key,
        }
    }

    /// Returns true if any object of one has the same name as an object of the other, of whatever
    /// kind: the bootstrap Secret of `kubelet/kube-system-workers` has the name of the kubelet's
    /// kubeconfig of `kube-system/workers`.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.config == other.config
            || self.key == other.key
            || self.fetcher == other.fetcher
            || self.all_secrets().any(|name| other.has_secret(name))
    }

    /// Returns the name that two of its own Secrets share, if there is one. In the namespace
    /// `kubelet`, the bootstrap Secret and the kubelet's kubeconfig have the same name if the key
    /// is only the name.
    pub fn shared_secret(&self) -> Option<&str> {
        let mut seen = BTreeSet::new();
        self.all_secrets().find(|name| !seen.insert(*name))
    }

    /// Returns the Secrets in `cloud-init-settings` that are written, in the order in which they
    /// are deleted. The bootstrap Secret comes first, because machine-controller must not pass on a
    /// document whose Secrets are being deleted. The fetcher's token, which the cluster fills, is
    /// not included.
    pub fn secrets(&self) -> [&str; 4] {
        [
            &self.bootstrap,
            &self.provisioning,
            &self.kubelet_kubeconfig,
            &self.edge_script,
        ]
    }

    /// Returns true if one of the Secrets in `cloud-init-settings` has this name.
    pub fn has_secret(&self, name: &str) -> bool {
        self.all_secrets().any(|own| own == name)
    }

    /// Returns the Secrets in `cloud-init-settings`, including the fetcher's token.
    fn all_secrets(&self) -> impl Iterator<Item = &str> {
        self.secrets()
            .into_iter()
            .chain([self.fetcher_token.as_str()])
    }
}

/// Returns `<namespace>-<name>`, or only the name if that would be too long for a label's value.
fn machine_deployment_key(namespace: &str, name: &str) -> String {
    let key = format!("{namespace}-{name}");
    if key.len() >= LABEL_VALUE_BYTES_MAX {
        name.to_owned()
    } else {
        key
    }
}

/// The maximum length of an object's name.
const NAME_BYTES_MAX: usize = 253;

/// Returns true if an object can have the name. Such a name can be part of a request's path, and
/// leads nowhere else.
pub fn is_path_segment(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && !matches!(name, "." | "..")
}

/// Returns true if only the name of an object was read, because it is too large.
pub fn is_name_alone(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(TOO_LARGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_machine_deployments_overlap_where_any_name_of_any_kind_is_shared() {
        let overlap = |(namespace, name), (other_namespace, other)| {
            let one = DerivedNames::new(namespace, name);
            let two = DerivedNames::new(other_namespace, other);
            assert_eq!(one.overlaps(&two), two.overlaps(&one));
            one.overlaps(&two)
        };
        let workers = ("kube-system", "workers");
        assert!(overlap(workers, ("kubelet", "kube-system-workers")));
        assert!(overlap(("c", "a-b"), ("b-c", "a")), "the config");
        assert!(overlap(("c-a", "b"), ("c", "a-b")), "the key");
        assert!(
            overlap(("config", "a-bootstrap"), ("a", "edge-provider-script")),
            "the edge script of the one is the bootstrap Secret of the other"
        );
        assert!(!overlap(workers, ("kubelet", "workers")));
        assert!(!overlap(workers, ("kube-system", "others")));
    }

    #[test]
    fn a_machine_deployment_may_share_a_name_with_itself() {
        let long = "a".repeat(LABEL_VALUE_BYTES_MAX - 7);
        let names = DerivedNames::new("kubelet", &long);
        assert_eq!(names.shared_secret(), Some(names.bootstrap.as_str()));
        assert_eq!(DerivedNames::new("kubelet", "a").shared_secret(), None);
        assert_eq!(DerivedNames::new("other", &long).shared_secret(), None);
    }
}
