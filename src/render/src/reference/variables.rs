//! All variables, one row each.

use super::{Kind, Variable};

/// All variables, in the order of their names.
pub const VARIABLES: &[Variable] = &[
    plain(
        "AmazonLinuxConfig",
        Kind::Structure,
        "OSConfig",
        "The settings of Amazon Linux; zero for another operating system.",
    ),
    plain(
        "AmazonLinuxConfig.DistUpgradeOnBoot",
        Kind::Truth,
        "bool",
        "Whether packages are upgraded at the first boot.",
    ),
    secret(
        "BootstrapKubeconfig",
        Kind::Text,
        "string",
        "The kubelet's bootstrap kubeconfig itself. A profile that reads it is rotated with each new token; prefer to fetch it.",
    ),
    plain(
        "BootstrapKubeconfigSecretName",
        Kind::Text,
        "string",
        "The Secret with the kubelet's bootstrap kubeconfig, in `cloud-init-settings`.",
    ),
    plain(
        "CNIVersion",
        Kind::Text,
        "string",
        "Always empty; it is there for old profiles.",
    ),
    secret(
        "CloudConfig",
        Kind::Text,
        "string",
        "The machine deployment's `overwriteCloudConfig`. Without it, what kubelets before 1.29 read on AWS, or empty.",
    ),
    plain(
        "CloudProviderName",
        Kind::Text,
        "string",
        "The cloud provider, such as `aws`.",
    ),
    plain(
        "ClusterDNSIPs",
        Kind::List,
        "[]net.IP",
        "The addresses of the cluster's DNS servers.",
    ),
    plain(
        "ContainerLogMaxFiles",
        Kind::OptionalText,
        "*string",
        "How many log files a container keeps, from annotation `ContainerLogMaxFiles`.",
    ),
    plain(
        "ContainerLogMaxSize",
        Kind::OptionalText,
        "*string",
        "How large a container's log file may grow, from annotation `ContainerLogMaxSize`.",
    ),
    plain("ContainerRuntime", Kind::Text, "string", "`containerd`."),
    plain(
        "ContainerRuntimeAuthConfig",
        Kind::Text,
        "string",
        "Always empty; it is there for old profiles.",
    ),
    secret(
        "ContainerRuntimeConfig",
        Kind::Text,
        "string",
        "containerd's `config.toml`. Secret where registries have credentials.",
    ),
    secret(
        "ContainerRuntimeConfigV2",
        Kind::Text,
        "string",
        "The same in version 2, which containerd 1.7 needs and containerd 2 reads, too. Secret where registries have credentials.",
    ),
    plain(
        "EvictionHard",
        Kind::OptionalMap,
        "*map[string]string",
        "When the kubelet evicts pods, from annotation `EvictionHard`.",
    ),
    plain(
        "ExternalCloudProvider",
        Kind::Truth,
        "bool",
        "Whether the cloud provider's controllers run outside of Kubernetes' own.",
    ),
    plain(
        "FlatcarConfig",
        Kind::Structure,
        "OSConfig",
        "The settings of Flatcar; zero for another operating system.",
    ),
    plain(
        "FlatcarConfig.DisableAutoUpdate",
        Kind::Truth,
        "bool",
        "Whether the system never updates itself.",
    ),
    plain(
        "FlatcarConfig.DisableLocksmithD",
        Kind::Truth,
        "bool",
        "Whether locksmithd, which reboots, is off.",
    ),
    plain(
        "FlatcarConfig.DisableUpdateEngine",
        Kind::Truth,
        "bool",
        "Whether the update engine is off.",
    ),
    plain(
        "FlatcarConfig.ProvisioningUtility",
        Kind::Text,
        "string",
        "`ignition`, `cloud-init` or empty.",
    ),
    plain(
        "HTTPProxy",
        Kind::OptionalText,
        "*string",
        "The nodes' HTTP proxy.",
    ),
    plain(
        "HostCACert",
        Kind::Text,
        "string",
        "Certificates to trust besides the distribution's, in PEM; may be empty.",
    ),
    plain(
        "ImageGCHighThresholdPercent",
        Kind::OptionalNumber,
        "*int32",
        "How full a disk is when images are removed, from annotation `ImageGCHighThresholdPercent`.",
    ),
    plain(
        "ImageGCLowThresholdPercent",
        Kind::OptionalNumber,
        "*int32",
        "How full a disk may stay, from annotation `ImageGCLowThresholdPercent`.",
    ),
    plain(
        "ImageMaximumGCAge",
        Kind::OptionalText,
        "*string",
        "How long an unused image stays at most, as Go writes durations, from annotation `ImageMaximumGCAge`.",
    ),
    plain(
        "ImageMinimumGCAge",
        Kind::OptionalText,
        "*string",
        "How long an unused image stays at least, as Go writes durations, from annotation `ImageMinimumGCAge`.",
    ),
    plain(
        "InTreeCCMAvailable",
        Kind::Truth,
        "bool",
        "Whether Kubernetes had a controller of its own for the provider, and it is in use.",
    ),
    plain(
        "InitialTaints",
        Kind::Text,
        "string",
        "The taints that a kubelet registers its node with; may be empty.",
    ),
    plain(
        "KubeReserved",
        Kind::OptionalMap,
        "*map[string]string",
        "What is kept for Kubernetes' daemons, from annotation `KubeReserved`.",
    ),
    plain(
        "KubeVersion",
        Kind::Text,
        "string",
        "The kubelet's version, as `v1.35.2`.",
    ),
    plain(
        "KubeletConfiguration",
        Kind::Text,
        "string",
        "Always empty; it is there for old profiles.",
    ),
    plain(
        "KubeletFeatureGates",
        Kind::Map,
        "map[string]bool",
        "The kubelet's feature gates, each true or false.",
    ),
    plain(
        "KubeletSystemdUnit",
        Kind::Text,
        "string",
        "Always empty; it is there for old profiles.",
    ),
    plain(
        "KubernetesCACert",
        Kind::Text,
        "string",
        "The API server's certificate authority, in PEM.",
    ),
    plain(
        "MaxPods",
        Kind::OptionalNumber,
        "*int32",
        "How many pods a node takes, from annotation `MaxPods`.",
    ),
    plain(
        "NetworkConfig",
        Kind::OptionalStructure,
        "*NetworkConfig",
        "The machine deployment's `network`.",
    ),
    plain(
        "NetworkConfig.CIDR",
        Kind::Text,
        "string",
        "The node's address with its prefix.",
    ),
    plain(
        "NetworkConfig.DNS",
        Kind::Structure,
        "DNSConfig",
        "The node's DNS.",
    ),
    plain(
        "NetworkConfig.DNS.Servers",
        Kind::List,
        "[]string",
        "The addresses of its servers.",
    ),
    plain(
        "NetworkConfig.Gateway",
        Kind::Text,
        "string",
        "The node's gateway.",
    ),
    plain(
        "NetworkConfig.GetIPFamily",
        Kind::Text,
        "method",
        "The same as `IPFamily`; a missing network answers with an empty text.",
    ),
    plain(
        "NetworkConfig.IPFamily",
        Kind::Text,
        "string",
        "Such as `IPv4+IPv6`; may be empty.",
    ),
    plain(
        "NetworkConfig.IsStaticIPConfig",
        Kind::Truth,
        "method",
        "Whether the address is fixed; a missing network answers with false.",
    ),
    plain(
        "NetworkIPFamily",
        Kind::Text,
        "string",
        "Such as `IPv4+IPv6`; may be empty.",
    ),
    plain(
        "NoProxy",
        Kind::OptionalText,
        "*string",
        "What the nodes reach without a proxy.",
    ),
    plain(
        "PauseImage",
        Kind::Text,
        "string",
        "The sandbox image; may be empty.",
    ),
    plain(
        "RHSubscription",
        Kind::Map,
        "map[string]string",
        "Always empty; it is there for old profiles.",
    ),
    plain(
        "RhelConfig",
        Kind::Structure,
        "OSConfig",
        "The settings of Red Hat Enterprise Linux; zero for another operating system.",
    ),
    plain(
        "RhelConfig.AttachSubscription",
        Kind::Truth,
        "bool",
        "Whether a subscription is attached by itself.",
    ),
    plain(
        "RhelConfig.DistUpgradeOnBoot",
        Kind::Truth,
        "bool",
        "Whether packages are upgraded at the first boot.",
    ),
    secret(
        "RhelConfig.RHELActivationKey",
        Kind::Text,
        "string",
        "The activation key.",
    ),
    secret(
        "RhelConfig.RHELOrganizationName",
        Kind::Text,
        "string",
        "The organization.",
    ),
    plain(
        "RhelConfig.RHELSatelliteServer",
        Kind::Text,
        "string",
        "The Satellite server.",
    ),
    secret(
        "RhelConfig.RHELSubscriptionManagerPassword",
        Kind::Text,
        "string",
        "The subscription's password.",
    ),
    secret(
        "RhelConfig.RHELSubscriptionManagerUser",
        Kind::Text,
        "string",
        "The subscription's user.",
    ),
    plain(
        "RhelConfig.RHELUseSatelliteServer",
        Kind::Truth,
        "bool",
        "Whether a Satellite server is used.",
    ),
    secret(
        "RhelConfig.RHSMOfflineToken",
        Kind::Text,
        "string",
        "The token that unregisters a machine.",
    ),
    plain(
        "RockyLinuxConfig",
        Kind::Structure,
        "OSConfig",
        "The settings of Rocky Linux; zero for another operating system.",
    ),
    plain(
        "RockyLinuxConfig.DistUpgradeOnBoot",
        Kind::Truth,
        "bool",
        "Whether packages are upgraded at the first boot.",
    ),
    plain(
        "SecretName",
        Kind::Text,
        "string",
        "The provisioning Secret, in `cloud-init-settings`.",
    ),
    plain(
        "ServerAddress",
        Kind::Text,
        "string",
        "Always empty; it is there for old profiles.",
    ),
    plain(
        "ServerURL",
        Kind::Text,
        "string",
        "The API server as nodes reach it.",
    ),
    plain(
        "SystemReserved",
        Kind::OptionalMap,
        "*map[string]string",
        "What is kept for the system's daemons, from annotation `SystemReserved`.",
    ),
    secret(
        "Token",
        Kind::Text,
        "string",
        "The token that machines fetch their provisioning document with.",
    ),
    plain(
        "UbuntuConfig",
        Kind::Structure,
        "OSConfig",
        "The settings of Ubuntu; zero for another operating system.",
    ),
    plain(
        "UbuntuConfig.DistUpgradeOnBoot",
        Kind::Truth,
        "bool",
        "Whether packages are upgraded at the first boot.",
    ),
    secret(
        "fetch_token",
        Kind::Text,
        ONLY_IN_JINJA,
        "The token to fetch documents with: the machine deployment's own where it has one (`spec.nodeCredentials`), else `Token`.",
    ),
    plain(
        "image_credential_providers",
        Kind::ListOfMaps,
        ONLY_IN_JINJA,
        "The programs of `spec.imageCredentialProviders`, each with `name` and `binaries`: by architecture (`amd64`, `arm64`), a map of `url` and `sha256`.",
    ),
    plain(
        "kubelet_drop_ins",
        Kind::Truth,
        ONLY_IN_JINJA,
        "Whether `/etc/kubernetes/kubelet.conf.d` has fields of the kubelet's configuration (`spec.kubeletConfiguration`), which the kubelet reads with `--config-dir`.",
    ),
    plain(
        "server_is_direct",
        Kind::Truth,
        ONLY_IN_JINJA,
        "Whether `NoProxy` covers `ServerURL` by the rules of the kubelet and of containerd; curl has others.",
    ),
    plain(
        "variables",
        Kind::Map,
        "map[string]string",
        "The tenant's `spec.variables`.",
    ),
];

/// The type in Go of a variable that Go templates do not have.
pub const ONLY_IN_JINJA: &str = "";

const fn plain(
    name: &'static str,
    kind: Kind,
    go_type: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable {
        name,
        kind,
        go_type,
        meaning,
        is_secret: false,
    }
}

const fn secret(
    name: &'static str,
    kind: Kind,
    go_type: &'static str,
    meaning: &'static str,
) -> Variable {
    Variable {
        is_secret: true,
        ..plain(name, kind, go_type, meaning)
    }
}
