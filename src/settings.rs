//! The settings of the process: read from flags and the environment, then checked, once.
//!
//! What may differ from tenant to tenant and belongs to the tenant stands in its WorkerCluster;
//! what bounds a tenant stands here.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;

use crate::api::{names::WORKER_CLUSTER_LABEL, worker_cluster::WorkerClusterSpec};
use crate::telemetry::{TelemetrySettings, logs::LogFormat};
use crate::tenant::{
    access::AccessRules,
    address::{AddressRange, AddressRules, Loopback},
    policy::{RequestBudget, TenantPolicy},
    settings::TenantSettings,
};

/// The shortest lifetime of a bootstrap token: a machine takes minutes to boot.
const TOKEN_LIFETIME_MIN: Duration = Duration::from_mins(10);

/// Fields of a spec that speak of one tenant, or of what is done with it.
const NOT_DEFAULTS: [&str; 7] = [
    "kubeconfigSecretRef",
    "registryCredentialsSecretRef",
    "confirmedClusterUid",
    "paused",
    "onRemoval",
    "profileAnnotation",
    "defaultProfiles",
];

/// Flags of `osm run`, as they are typed.
#[derive(Args, Clone, Debug)]
pub struct RunFlags {
    /// The management cluster's kubeconfig. Without it: $KUBECONFIG, the pod's own credentials.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Label selector of the Secrets that register worker clusters.
    #[arg(long, value_name = "SELECTOR", default_value_t = format!("{WORKER_CLUSTER_LABEL}=true"))]
    pub registration_selector: String,

    /// Watch only this namespace of the management cluster for tenants; may be repeated. Without it
    /// all namespaces are watched.
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    pub namespaces: Vec<String>,

    /// Where /livez, /readyz and /metrics are served.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub admin_address: SocketAddr,

    /// Settings of tenants that set nothing: a YAML file with fields of a WorkerCluster's spec.
    #[arg(long, value_name = "FILE")]
    pub tenant_defaults: Option<PathBuf>,

    /// Namespaces besides its own that a tenant may read profiles from; may be repeated.
    #[arg(long = "profile-namespace", value_name = "NAMESPACE")]
    pub profile_namespaces: Vec<String>,

    /// Accept kubeconfigs whose server is on this machine: for demonstrations and tests.
    #[arg(long)]
    pub allow_loopback_servers: bool,

    /// Accept only servers in this range of addresses (CIDR); may be repeated.
    #[arg(long = "allowed-servers", value_name = "CIDR")]
    pub allowed_servers: Vec<AddressRange>,

    /// Refuse servers in this range of addresses (CIDR); may be repeated.
    #[arg(long = "denied-servers", value_name = "CIDR")]
    pub denied_servers: Vec<AddressRange>,

    /// Requests per second and tenant to its worker cluster.
    #[arg(long, value_name = "COUNT", default_value = "20")]
    pub worker_requests: NonZeroU32,

    /// Requests at once per tenant to its worker cluster.
    #[arg(long, value_name = "COUNT", default_value = "60")]
    pub worker_burst: NonZeroU32,

    /// Requests per second and tenant to the management cluster.
    #[arg(long, value_name = "COUNT", default_value = "10")]
    pub management_requests: NonZeroU32,

    /// Requests at once per tenant to the management cluster.
    #[arg(long, value_name = "COUNT", default_value = "30")]
    pub management_burst: NonZeroU32,

    /// Machine deployments per tenant; younger ones are refused.
    #[arg(long, value_name = "COUNT", default_value = "500")]
    pub tenant_machine_deployments: usize,

    /// Reconciles under way at once per tenant.
    #[arg(long, value_name = "COUNT", default_value = "4")]
    pub tenant_reconciles: usize,

    /// Reconciles under way at once for all tenants together.
    #[arg(long, value_name = "COUNT", default_value = "64")]
    pub reconciles: usize,

    /// How long a call to an API server may take, watches excepted.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub request_timeout: Duration,

    /// How often the facts of a worker cluster (API server, token) are read again.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = humantime::parse_duration)]
    pub facts_interval: Duration,

    /// How long a bootstrap token is valid; it is renewed at half of that.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = humantime::parse_duration)]
    pub token_lifetime: Duration,

    /// The form of a log line.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub log_format: LogFormat,

    /// Which lines are logged, such as `info` or `warn,osm::fleet=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "RUST_LOG")]
    pub log_filter: String,

    /// Where traces are sent by OTLP over gRPC, such as `http://collector:4317`.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,

    /// The share of traces that is recorded, from 0 to 1.
    #[arg(long, value_name = "RATIO", default_value = "1")]
    pub trace_ratio: f64,

    /// What tells this replica from the others in traces.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub instance: Option<String>,
}

/// The settings, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The management cluster's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Label selector of registrations.
    pub registration_selector: String,
    /// The namespaces that are watched; none means all.
    pub namespaces: Vec<String>,
    /// Where the admin port is.
    pub admin_address: SocketAddr,
    /// What bounds each tenant.
    pub policy: TenantPolicy,
    /// The settings of a tenant that sets nothing.
    pub tenant_defaults: TenantSettings,
    /// Reconciles under way at once for all tenants together.
    pub reconciles_max: usize,
    /// How long a call may take.
    pub request_timeout: Duration,
    /// How often the facts of a cluster are read again.
    pub facts_interval: Duration,
    /// How long a bootstrap token is valid.
    pub token_lifetime: Duration,
    /// Logs and traces.
    pub telemetry: TelemetrySettings,
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSetting {
    /// The file of tenants' defaults cannot be read.
    #[error("cannot read --tenant-defaults {}", path.display())]
    TenantDefaultsFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file of tenants' defaults is not one.
    #[error("--tenant-defaults {} must be a YAML map with fields of a WorkerCluster's spec: {why}", path.display())]
    TenantDefaults {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A flag is too small.
    #[error("--{flag} must be at least {least}")]
    TooSmall {
        /// The flag.
        flag: &'static str,
        /// The least that works.
        least: String,
    },
    /// The selector is empty.
    #[error("--registration-selector must not be empty: every Secret would be a registration")]
    NoSelector,
    /// A budget's burst is too small.
    #[error("--{flag} must be at least 2: replacing a Secret takes two requests together")]
    Burst {
        /// The flag.
        flag: &'static str,
    },
}

impl RunFlags {
    /// Checks the flags.
    pub fn check(self) -> Result<Settings, InvalidSetting> {
        if self.registration_selector.trim().is_empty() {
            return Err(InvalidSetting::NoSelector);
        }
        at_least("token-lifetime", self.token_lifetime, TOKEN_LIFETIME_MIN)?;
        at_least(
            "request-timeout",
            self.request_timeout,
            Duration::from_millis(100),
        )?;
        at_least(
            "facts-interval",
            self.facts_interval,
            Duration::from_secs(1),
        )?;
        for (flag, count) in [
            ("reconciles", self.reconciles),
            ("tenant-reconciles", self.tenant_reconciles),
        ] {
            if count == 0 {
                return Err(InvalidSetting::TooSmall {
                    flag,
                    least: "1".to_owned(),
                });
            }
        }
        for (flag, burst) in [
            ("worker-burst", self.worker_burst),
            ("management-burst", self.management_burst),
        ] {
            if burst.get() < 2 {
                return Err(InvalidSetting::Burst { flag });
            }
        }
        let policy = self.policy();
        let tenant_defaults = tenant_defaults(self.tenant_defaults.as_deref())?;
        Ok(Settings {
            tenant_defaults,
            kubeconfig: self.kubeconfig,
            registration_selector: self.registration_selector,
            namespaces: self.namespaces,
            admin_address: self.admin_address,
            policy,
            reconciles_max: self.reconciles,
            request_timeout: self.request_timeout,
            facts_interval: self.facts_interval,
            token_lifetime: self.token_lifetime,
            telemetry: TelemetrySettings {
                log_format: self.log_format,
                log_filter: self.log_filter,
                otlp_endpoint: self.otlp_endpoint.filter(|endpoint| !endpoint.is_empty()),
                sample_ratio: self.trace_ratio,
                instance_id: self.instance,
            },
        })
    }

    fn policy(&self) -> TenantPolicy {
        let loopback = if self.allow_loopback_servers {
            Loopback::Allowed
        } else {
            Loopback::Refused
        };
        TenantPolicy {
            access: AccessRules {
                addresses: AddressRules {
                    loopback,
                    allowed: self.allowed_servers.clone(),
                    denied: self.denied_servers.clone(),
                    ..AddressRules::default()
                },
                ..AccessRules::default()
            },
            profile_namespaces: self
                .profile_namespaces
                .iter()
                .cloned()
                .collect::<BTreeSet<_>>(),
            worker_requests: RequestBudget {
                per_second: self.worker_requests,
                burst: self.worker_burst,
            },
            management_requests: RequestBudget {
                per_second: self.management_requests,
                burst: self.management_burst,
            },
            reconciles_max: self.tenant_reconciles,
            machine_deployments_max: self.tenant_machine_deployments,
        }
    }
}

/// A WorkerCluster's spec without its Secret: what operators know from there works here.
pub fn tenant_defaults(path: Option<&Path>) -> Result<TenantSettings, InvalidSetting> {
    let defaults = TenantSettings::default();
    let Some(path) = path else {
        return Ok(defaults);
    };
    let text = std::fs::read_to_string(path).map_err(|source| {
        let path = path.to_owned();
        InvalidSetting::TenantDefaultsFile { path, source }
    })?;
    let refused = |why: String| InvalidSetting::TenantDefaults {
        path: path.to_owned(),
        why,
    };
    let mut spec: serde_json::Map<String, serde_json::Value> =
        serde_saphyr::from_str(&text).map_err(|error| refused(error.to_string()))?;
    for field in NOT_DEFAULTS {
        if spec.contains_key(field) {
            return Err(refused(format!("{field} is a tenant's own")));
        }
    }
    spec.insert(
        "kubeconfigSecretRef".to_owned(),
        serde_json::json!({"name": ""}),
    );
    let given: Vec<String> = spec.keys().cloned().collect();
    let spec: WorkerClusterSpec =
        serde_json::from_value(spec.into()).map_err(|error| refused(error.to_string()))?;
    let known = serde_json::to_value(&spec).expect("a spec is plain values");
    if let Some(unknown) = given.iter().find(|field| known.get(field).is_none()) {
        return Err(refused(format!("{unknown} is unknown, or empty")));
    }
    defaults
        .with(&spec)
        .map_err(|error| refused(error.to_string()))
}

fn at_least(flag: &'static str, value: Duration, least: Duration) -> Result<(), InvalidSetting> {
    if value >= least {
        return Ok(());
    }
    let least = humantime::format_duration(least).to_string();
    Err(InvalidSetting::TooSmall { flag, least })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::tenant::host::Host;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: RunFlags,
    }

    fn check(arguments: &[&str]) -> Result<Settings, String> {
        let line = Line::try_parse_from([&["osm"], arguments].concat()).expect("flags");
        line.flags.check().map_err(|error| error.to_string())
    }

    #[test]
    fn the_management_api_cannot_be_registered_by_its_names() {
        let rules = check(&[]).unwrap().policy.access.addresses;
        for name in ["kubernetes.default.svc", "kubernetes"] {
            let host = Host::parse(name).expect("a host");
            assert!(rules.check_host(&host, 443).is_err(), "{name}");
        }
    }

    #[test]
    fn a_setting_that_cannot_work_is_refused_by_its_name() {
        for (arguments, expected) in [
            (["--registration-selector", " "], "--registration-selector"),
            (
                ["--token-lifetime", "1m"],
                "--token-lifetime must be at least 10m",
            ),
            (
                ["--request-timeout", "1ms"],
                "--request-timeout must be at least 100ms",
            ),
            (["--reconciles", "0"], "--reconciles must be at least 1"),
            (["--worker-burst", "1"], "--worker-burst must be at least 2"),
            (
                ["--tenant-defaults", "/does/not/exist"],
                "cannot read --tenant-defaults",
            ),
        ] {
            let refused = check(&arguments).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn tenant_defaults_are_a_spec_without_what_is_one_tenants_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("defaults.yaml");
        let with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            check(&["--tenant-defaults", path.to_str().unwrap()])
        };
        let defaults = with("clusterDNS: [10.0.0.10]\npauseImage: mirror/pause\n").unwrap();
        assert_eq!(defaults.tenant_defaults.pause_image, "mirror/pause");
        for (text, expected) in [
            ("paused: true", "paused is a tenant's own"),
            ("clusterDns: [10.0.0.10]", "clusterDns is unknown"),
            ("clusterDNS: [there]", "`there` is not an IP address"),
            ("- a", "must be a YAML map"),
        ] {
            let refused = with(text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }
}
