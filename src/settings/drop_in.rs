//! The settings of a process that stands in for the operating-system-manager of one cluster, from
//! the flags that KubeOne and KKP give that one.

mod controller_flags;
pub mod deployed;
mod go_flags;
mod registries;
mod webhook_flags;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
};

pub use self::{
    controller_flags::{CONTROLLER_FLAGS, ControllerFlags},
    go_flags::{Flag, Read, Stop, read, usage},
    webhook_flags::{WEBHOOK_FLAGS, WebhookFlags},
};
use super::{InvalidSetting, TraceFlags};
use crate::api::worker_cluster::{ProfileRollout, StoredConfig};
use crate::telemetry::{TelemetrySettings, logs::LogFormat};
use crate::tenant::{
    mode::{Mode, NamespacedName},
    settings::{MirrorOrder, TenantSettings},
};

/// The feature gate that every kubelet gets unless the flag says otherwise.
const ROTATE_SERVER_CERTIFICATE: &str = "RotateKubeletServerCertificate";

/// The settings, checked.
#[derive(Clone, Debug)]
pub struct DropInSettings {
    /// One cluster, or a worker cluster besides the one of profiles and configs.
    pub mode: Mode,
    /// The way into the cluster of profiles and configs.
    pub kubeconfig: Option<PathBuf>,
    /// The way into the worker cluster, where that is another one.
    pub worker_kubeconfig: Option<PathBuf>,
    /// The namespace of profiles, configs and the leader's Lease.
    pub namespace: String,
    /// Reconciles under way at once.
    pub reconciles_max: usize,
    /// The settings that documents are rendered with.
    pub tenant: TenantSettings,
    /// The Secret with credentials of registries, in the cluster of profiles and configs.
    pub registry_credentials: Option<NamespacedName>,
    /// The ServiceAccount whose token kubelets bootstrap with, in the worker cluster.
    pub bootstrap_account: Option<NamespacedName>,
    /// The handling of default profiles.
    pub default_profiles: DefaultProfileInstallation,
    /// The leader election.
    pub leader_election: LeaderElection,
    /// The addresses of `/healthz` and `/readyz`.
    pub health_addresses: Vec<String>,
    /// The addresses of `/metrics`.
    pub metrics_addresses: Vec<String>,
    /// Logs.
    pub telemetry: TelemetrySettings,
}

/// The settings of the webhooks, checked.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    /// The folder with `tls.crt` and `tls.key`.
    pub certificate_folder: PathBuf,
    /// The addresses of all pages.
    pub admin_addresses: Vec<String>,
    /// Logs.
    pub telemetry: TelemetrySettings,
}

/// The handling of default profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultProfileInstallation {
    /// They are installed, and replaced by newer ones.
    Kept,
    /// Nothing.
    Disabled,
}

/// The leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderElection {
    /// The holder of the Lease serves.
    Held,
    /// There is one process only.
    None,
}

/// A flag that cannot be used. The texts are those that operators know.
#[derive(Debug, thiserror::Error)]
pub enum InvalidFlag {
    /// A variable about traces.
    #[error(transparent)]
    Traces(#[from] InvalidSetting),
    /// There is no namespace.
    #[error("-namespace is required")]
    NoNamespace,
    /// Another container runtime.
    #[error("{0} not supported; containerd is the only supported container runtimes")]
    ContainerRuntime(String),
    /// A DNS server is no address.
    #[error("invalid cluster dns specified: unable to parse ip {0}")]
    ClusterDns(String),
    /// A feature gate is not one.
    #[error("invalid kubelet feature gates specified: invalid kubelet feature gate: {0:?}")]
    FeatureGate(String),
    /// A feature gate is neither on nor off.
    #[error("invalid kubelet feature gates specified: failed to parse kubelet feature gate: {0:?}")]
    FeatureGateValue(String),
    /// The Secret with credentials is not named.
    #[error(
        "-node-registry-credentials-secret is in incorrect format {0:?}, should be in \
         'namespace/secretname'"
    )]
    CredentialsSecret(String),
    /// The ServiceAccount is not named.
    #[error(
        "splitting the bootstrap-token-service-account-name flag value in '/' returned {0} parts, \
         expected exactly two"
    )]
    BootstrapAccount(usize),
    /// A file of certificates cannot be read.
    #[error("-{flag} is invalid: failed to read file {path:?}: {source}")]
    CertificateFile {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A file of certificates has none.
    #[error("-{0} is invalid: file does not contain valid PEM-encoded certificates")]
    NoCertificates(&'static str),
    /// Nothing would be reconciled.
    #[error("-worker-count must be at least 1")]
    NoWorkers,
}

impl ControllerFlags {
    /// Checks the flags, and reads the files that they name.
    ///
    /// # Errors
    ///
    /// A flag has an invalid value, or a file that it names cannot be used.
    pub fn check(self) -> Result<DropInSettings, InvalidFlag> {
        if self.namespace.is_empty() {
            return Err(InvalidFlag::NoNamespace);
        }
        if self.container_runtime != "containerd" {
            return Err(InvalidFlag::ContainerRuntime(self.container_runtime));
        }
        let reconciles_max = usize::try_from(self.worker_count).unwrap_or_default();
        if reconciles_max == 0 {
            return Err(InvalidFlag::NoWorkers);
        }
        let tenant = self.tenant()?;
        let worker_kubeconfig = path(&self.worker_cluster_kubeconfig);
        let mode = match worker_kubeconfig {
            Some(_) => Mode::OneWorker,
            None => Mode::SingleCluster,
        };
        let (health_addresses, metrics_addresses) = self.addresses(mode);
        Ok(DropInSettings {
            mode,
            kubeconfig: path(&self.kubeconfig),
            worker_kubeconfig,
            registry_credentials: self.registry_credentials()?,
            bootstrap_account: self.bootstrap_account()?,
            namespace: self.namespace,
            reconciles_max,
            tenant,
            default_profiles: if self.disable_default_osps {
                DefaultProfileInstallation::Disabled
            } else {
                DefaultProfileInstallation::Kept
            },
            leader_election: if self.leader_elect {
                LeaderElection::Held
            } else {
                LeaderElection::None
            },
            health_addresses,
            metrics_addresses,
            telemetry: telemetry(self.log_format, self.log_debug.then_some("info,osm=debug"))?,
        })
    }

    fn tenant(&self) -> Result<TenantSettings, InvalidFlag> {
        Ok(TenantSettings {
            cluster_dns: cluster_dns(&self.cluster_dns)?,
            external_cloud_provider: self.external_cloud_provider,
            http_proxy: given(&self.node_http_proxy),
            no_proxy: given(&self.node_no_proxy),
            host_ca_bundle: certificates("host-ca-bundle", &self.host_ca_bundle)?
                .unwrap_or_default(),
            kubernetes_ca_bundle: certificates("kubernetes-ca-bundle", &self.kubernetes_ca_bundle)?,
            pause_image: self.pause_image.clone(),
            initial_taints: self.initial_taints.clone(),
            kubelet_feature_gates: feature_gates(&self.node_kubelet_feature_gates)?,
            device_ownership_from_security_context: self.device_ownership_from_security_context,
            insecure_registries: registries::insecure(&self.node_insecure_registries),
            registry_mirrors: registries::mirrors(
                &self.node_containerd_registry_mirrors,
                &self.node_registry_mirrors,
            ),
            mirror_order: MirrorOrder::ByUrl,
            api_server_override: given(&self.override_bootstrap_kubelet_apiserver),
            // Readers of configs of these clusters find in them what machines get.
            stored_config: StoredConfig::Inline,
            profile_rollout: ProfileRollout::Immediate,
            ..TenantSettings::default()
        })
    }

    fn registry_credentials(&self) -> Result<Option<NamespacedName>, InvalidFlag> {
        let text = &self.node_registry_credentials_secret;
        if text.is_empty() {
            return Ok(None);
        }
        let named = NamespacedName::parse(text).map(Some);
        named.map_err(|_| InvalidFlag::CredentialsSecret(text.clone()))
    }

    fn bootstrap_account(&self) -> Result<Option<NamespacedName>, InvalidFlag> {
        let text = &self.bootstrap_token_service_account_name;
        if text.is_empty() {
            return Ok(None);
        }
        let named = NamespacedName::parse(text).map(Some);
        named.map_err(InvalidFlag::BootstrapAccount)
    }

    fn addresses(&self, mode: Mode) -> (Vec<String>, Vec<String>) {
        let mut health = vec![&self.health_probe_address];
        let mut metrics = vec![&self.metrics_address];
        if mode == Mode::OneWorker {
            health.push(&self.worker_health_probe_address);
            metrics.push(&self.worker_metrics_address);
        }
        let listened = |addresses: Vec<&String>| -> Vec<String> {
            addresses.into_iter().filter_map(|it| address(it)).collect()
        };
        (listened(health), listened(metrics))
    }
}

impl WebhookFlags {
    /// Checks the flags.
    ///
    /// # Errors
    ///
    /// A flag has an invalid value, or a file that it names cannot be used.
    pub fn check(self) -> Result<WebhookSettings, InvalidFlag> {
        if self.namespace.is_empty() {
            return Err(InvalidFlag::NoNamespace);
        }
        let admins = [&self.health_probe_bind_address, &self.metrics_bind_address];
        let filter = self.log_debug.then_some("info,osm=debug");
        Ok(WebhookSettings {
            certificate_folder: self.cert_dir.into(),
            admin_addresses: admins.into_iter().filter_map(|it| address(it)).collect(),
            telemetry: telemetry(self.log_format, filter)?,
        })
    }
}

/// Returns an address to listen on: Go takes an address without a host for all of the machine's.
fn address(text: &str) -> Option<String> {
    match text {
        "" | "0" => None,
        port if port.starts_with(':') => Some(format!("[::]{port}")),
        address => Some(address.to_owned()),
    }
}

fn telemetry(
    log_format: LogFormat,
    filter: Option<&str>,
) -> Result<TelemetrySettings, InvalidSetting> {
    let settings = TelemetrySettings {
        log_format,
        log_filter: filter.unwrap_or("info").to_owned(),
        ..TelemetrySettings::default()
    };
    // There are no flags for traces.
    TraceFlags::default().completed(settings)
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn path(text: &str) -> Option<PathBuf> {
    given(text).map(PathBuf::from)
}

fn cluster_dns(text: &str) -> Result<Vec<IpAddr>, InvalidFlag> {
    let parse = |part: &str| {
        part.trim()
            .parse()
            .map_err(|_| InvalidFlag::ClusterDns(part.to_owned()))
    };
    text.split(',').map(parse).collect()
}

fn feature_gates(text: &str) -> Result<BTreeMap<String, bool>, InvalidFlag> {
    let mut gates = BTreeMap::new();
    for gate in text.split(',') {
        let (name, value) = gate
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))
            .ok_or_else(|| InvalidFlag::FeatureGate(gate.to_owned()))?;
        let value = go_flags::parse_bool(value)
            .ok_or_else(|| InvalidFlag::FeatureGateValue(gate.to_owned()))?;
        gates.insert(name.to_owned(), value);
    }
    gates
        .entry(ROTATE_SERVER_CERTIFICATE.to_owned())
        .or_insert(true);
    Ok(gates)
}

/// A file with at least one certificate that can be read, as it is.
fn certificates(flag: &'static str, file: &str) -> Result<Option<String>, InvalidFlag> {
    let Some(path) = given(file) else {
        return Ok(None);
    };
    let text = match std::fs::read_to_string(Path::new(&path)) {
        Ok(text) => text,
        Err(source) => return Err(InvalidFlag::CertificateFile { flag, path, source }),
    };
    let has_one = x509_parser::pem::Pem::iter_from_buffer(text.as_bytes())
        .flatten()
        .any(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok());
    if has_one {
        Ok(Some(text))
    } else {
        Err(InvalidFlag::NoCertificates(flag))
    }
}

#[cfg(test)]
mod tests;
