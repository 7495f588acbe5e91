//! Which program reads a file, and what it takes until it goes by another content.
//!
//! The paths are those of the shipped profiles, and of most others.

use super::{
    Class,
    syntax::{Fields, Syntax},
};
use osm_render::machine_updates::{AUTHORITY, FILES, HEADER, RELOADED, SCRIPT, is_at};

/// Files that are read by one program.
pub(super) struct Known {
    /// Each path with its syntax. A `*` stands for the name of a file or a folder.
    paths: &'static [(&'static str, Syntax)],
    pub(super) class: Class,
    /// The units to restart.
    pub(super) units: &'static [&'static str],
    /// What it takes at least when the file is gone.
    pub(super) when_gone: Class,
}

/// Returns what is known about a file.
pub(super) fn find(path: &str) -> Option<(&'static Known, Syntax)> {
    KNOWN.iter().find_map(|known| {
        let (_, syntax) = known
            .paths
            .iter()
            .find(|(pattern, _)| is_at(pattern, path))?;
        Some((known, *syntax))
    })
}

const KNOWN: [Known; 9] = [
    // What differs besides the list says what the change takes. Machines go on with their script.
    Known {
        paths: &[(FILES, Syntax::Bytes), (SCRIPT, Syntax::Bytes)],
        class: Class::None,
        units: &[],
        when_gone: Class::NewMachine,
    },
    Known {
        paths: &[(AUTHORITY, Syntax::Bytes), (HEADER, Syntax::Bytes)],
        class: Class::Reload,
        units: &[],
        when_gone: Class::NewMachine,
    },
    Known {
        paths: &[
            (RELOADED[0], Syntax::Bytes),
            (RELOADED[1], Syntax::Bytes),
            (RELOADED[2], Syntax::Bytes),
        ],
        class: Class::Reload,
        units: &[],
        when_gone: Class::None,
    },
    Known {
        paths: &[
            ("/opt/bin/health-monitor.sh", Syntax::Bytes),
            (
                "/etc/systemd/system/kubelet-healthcheck.service",
                Syntax::Unit(HEALTH_CHECK),
            ),
            (
                "/etc/systemd/system/containerd-healthcheck.service",
                Syntax::Unit(HEALTH_CHECK),
            ),
        ],
        class: Class::RestartUnit,
        units: &[
            "containerd-healthcheck.service",
            "kubelet-healthcheck.service",
        ],
        when_gone: Class::NewMachine,
    },
    Known {
        paths: &[("/etc/systemd/journald.conf.d/*", Syntax::Bytes)],
        class: Class::RestartUnit,
        units: &["systemd-journald.service"],
        when_gone: Class::None,
    },
    // The kernel keeps a setting that is no longer there.
    Known {
        paths: &[("/etc/sysctl.d/*", Syntax::Settings)],
        class: Class::RestartUnit,
        units: &["systemd-sysctl.service"],
        when_gone: Class::Reboot,
    },
    Known {
        paths: &[
            ("/etc/kubernetes/kubelet.conf", Syntax::Yaml(KUBELET_FIELDS)),
            (
                "/etc/kubernetes/kubelet.conf.d/*",
                Syntax::Yaml(KUBELET_FIELDS),
            ),
            (
                "/etc/kubernetes/image-credential-providers.json",
                Syntax::Bytes,
            ),
            (
                "/etc/systemd/system/kubelet.service",
                Syntax::Unit(KUBELET_UNIT),
            ),
            (
                "/etc/systemd/system/kubelet.service.d/*",
                Syntax::Unit(KUBELET_UNIT),
            ),
        ],
        class: Class::RestartKubelet,
        units: &["kubelet.service"],
        when_gone: Class::None,
    },
    Known {
        paths: &[
            (
                "/etc/containerd/config.toml",
                Syntax::Toml(CONTAINERD_FIELDS),
            ),
            (
                "/etc/systemd/system/containerd.service.d/*",
                Syntax::Unit(CONTAINERD_UNIT),
            ),
        ],
        class: Class::RestartContainerd,
        units: &["containerd.service"],
        when_gone: Class::None,
    },
    // Restarting what reads them would cut connections, and modules stay loaded.
    Known {
        paths: &[
            ("/etc/NetworkManager/conf.d/*", Syntax::Bytes),
            ("/etc/systemd/network/*", Syntax::Bytes),
            ("/etc/modules-load.d/*", Syntax::Bytes),
            ("/opt/load-kernel-modules.sh", Syntax::Bytes),
            (
                "/etc/systemd/system/systemd-networkd-wait-online.service.d/*",
                Syntax::Bytes,
            ),
        ],
        class: Class::Reboot,
        units: &[],
        when_gone: Class::None,
    },
];

/// Fields by their names, from the least on. Of a unit, flags of its command, too.
const HEALTH_CHECK: Fields = &[(
    Class::RestartUnit,
    &["After", "Description", "ExecStart", "Restart", "RestartSec"],
)];

/// What the kubelet reads at each start, and no pod notices. Others are about what pods get, or
/// contradict the state that it keeps: running pods are admitted again by them when it starts.
const KUBELET_FIELDS: Fields = &[
    (
        Class::RestartKubelet,
        &[
            "apiVersion",
            "authentication",
            "authorization",
            "containerLogMaxFiles",
            "containerLogMaxSize",
            "eventBurst",
            "eventRecordQPS",
            "healthzBindAddress",
            "healthzPort",
            "imageGCHighThresholdPercent",
            "imageGCLowThresholdPercent",
            "imageMaximumGCAge",
            "imageMinimumGCAge",
            "kind",
            "kubeAPIBurst",
            "kubeAPIQPS",
            "logging",
            "maxParallelImagePulls",
            "nodeLeaseDurationSeconds",
            "nodeStatusReportFrequency",
            "nodeStatusUpdateFrequency",
            "registryBurst",
            "registryPullQPS",
            "rotateCertificates",
            "serializeImagePulls",
            "serverTLSBootstrap",
            "shutdownGracePeriod",
            "shutdownGracePeriodByPodPriority",
            "shutdownGracePeriodCriticalPods",
            "streamingConnectionIdleTimeout",
            "tlsCipherSuites",
            "tlsMinVersion",
            "tracing",
        ],
    ),
    (
        Class::Drain,
        &[
            "allowedUnsafeSysctls",
            "cgroupDriver",
            "clusterDNS",
            "clusterDomain",
            "cpuCFSQuota",
            "cpuCFSQuotaPeriod",
            "cpuManagerPolicy",
            "cpuManagerPolicyOptions",
            "enforceNodeAllocatable",
            "evictionHard",
            "evictionMinimumReclaim",
            "evictionSoft",
            "evictionSoftGracePeriod",
            "failSwapOn",
            "featureGates",
            "kubeReserved",
            "maxPods",
            "memoryManagerPolicy",
            "memorySwap",
            "memoryThrottlingFactor",
            "mergeDefaultEvictionSettings",
            "podPidsLimit",
            "reservedMemory",
            "reservedSystemCPUs",
            "resolvConf",
            "seccompDefault",
            "systemReserved",
            "topologyManagerPolicy",
            "topologyManagerPolicyOptions",
            "topologyManagerScope",
        ],
    ),
];

const KUBELET_UNIT: Fields = &[(
    Class::RestartKubelet,
    &[
        "After",
        "Description",
        "EnvironmentFile",
        "Restart",
        "RestartSec",
        "StartLimitIntervalSec",
        "Wants",
        "--v",
        "--vmodule",
        "--image-credential-provider-bin-dir",
        "--image-credential-provider-config",
        // The files in it have classes of their own.
        "--config-dir=/etc/kubernetes/kubelet.conf.d",
    ],
)];

const CONTAINERD_UNIT: Fields = &[
    (
        Class::RestartContainerd,
        &[
            "After",
            "Description",
            "Environment",
            "EnvironmentFile",
            "Restart",
            "RestartSec",
            "Wants",
        ],
    ),
    (
        Class::Drain,
        &[
            "LimitCORE",
            "LimitMEMLOCK",
            "LimitNOFILE",
            "LimitNPROC",
            "TasksMax",
        ],
    ),
];

/// A table has the class of its name, with all that is in it.
const CONTAINERD_FIELDS: Fields = &[
    (
        Class::RestartContainerd,
        &[
            "config_path",
            "max_concurrent_downloads",
            "max_container_log_line_size",
            "metrics",
            "pinned_images",
            "registry",
            "sandbox",
            "sandbox_image",
        ],
    ),
    (
        Class::Drain,
        &[
            "BinaryName",
            "SystemdCgroup",
            "default_runtime_name",
            "device_ownership_from_security_context",
            "enable_selinux",
            "enable_unprivileged_icmp",
            "enable_unprivileged_ports",
        ],
    ),
];
