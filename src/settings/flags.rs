//! The flags of `osm run`, as they are typed.

use std::{net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use clap::{ArgAction, Args};

use super::{EgressFlags, FleetPageFlags, TraceFlags};
use crate::api::names::WORKER_CLUSTER_LABEL;
use crate::telemetry::logs::LogFormat;
use crate::tenant::{
    address::AddressRange,
    waves::{Wave, percent},
};

/// Flags of `osm run`, as they are typed.
#[derive(Args, Clone, Debug)]
pub struct RunFlags {
    /// The management cluster's kubeconfig. Without it: $KUBECONFIG, the pod's own credentials.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Where the Secrets that register worker clusters come from: label, kkp, cluster-api, kamaji,
    /// or the name of a rule; may be repeated.
    #[arg(
        long = "inventory",
        value_name = "INVENTORY",
        value_delimiter = ',',
        default_value = "label"
    )]
    pub inventories: Vec<String>,

    /// Further inventories: a YAML file with a list of rules, each with the Secrets that it is for.
    #[arg(long, value_name = "FILE")]
    pub inventory_rules: Option<PathBuf>,

    /// Label selector of the Secrets that register worker clusters.
    #[arg(long, value_name = "SELECTOR", default_value_t = format!("{WORKER_CLUSTER_LABEL}=true"))]
    pub registration_selector: String,

    /// Watch only this namespace of the management cluster for tenants; may be repeated. Without it
    /// all namespaces are watched.
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    pub namespaces: Vec<String>,

    /// Serve no tenant in this namespace, which another fleet serves; may be repeated.
    #[arg(
        long = "except-namespace",
        value_name = "NAMESPACE",
        conflicts_with = "namespaces",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub except_namespaces: Vec<String>,

    /// Where /livez, /readyz, /metrics and /fleet are served.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    pub admin_address: SocketAddr,

    /// The fleet page.
    #[command(flatten)]
    pub fleet_page: FleetPageFlags,

    /// Settings of tenants that set nothing: a YAML file with fields of a WorkerCluster's spec.
    #[arg(long, value_name = "FILE")]
    pub tenant_defaults: Option<PathBuf>,

    /// The limits of single tenants: a YAML list of rules, of which the first that matches applies.
    #[arg(long, value_name = "FILE")]
    pub tenant_policies: Option<PathBuf>,

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

    /// The proxy to worker clusters.
    #[command(flatten)]
    pub egress: EgressFlags,

    /// Requests per second and tenant to its worker cluster.
    #[arg(long, value_name = "COUNT", default_value = "100")]
    pub worker_requests: NonZeroU32,

    /// Requests at once per tenant to its worker cluster.
    #[arg(long, value_name = "COUNT", default_value = "500")]
    pub worker_burst: NonZeroU32,

    /// Requests per second and tenant to the management cluster.
    #[arg(long, value_name = "COUNT", default_value = "50")]
    pub management_requests: NonZeroU32,

    /// Requests at once per tenant to the management cluster.
    #[arg(long, value_name = "COUNT", default_value = "200")]
    pub management_burst: NonZeroU32,

    /// Requests per second to the management cluster for all tenants together; they take turns.
    #[arg(long, value_name = "COUNT", default_value = "500")]
    pub fleet_management_requests: NonZeroU32,

    /// Requests at once to the management cluster for all tenants together.
    #[arg(long, value_name = "COUNT", default_value = "1000")]
    pub fleet_management_burst: NonZeroU32,

    /// Machine deployments per tenant; younger ones are refused.
    #[arg(long, value_name = "COUNT", default_value = "500")]
    pub tenant_machine_deployments: usize,

    /// Profiles per tenant that are kept, besides the default ones; younger ones are refused.
    #[arg(long, value_name = "COUNT", default_value = "200")]
    pub tenant_profiles: usize,

    /// Bytes of the profiles per tenant that are kept, besides the default ones.
    #[arg(long, value_name = "BYTES", default_value = "8388608")]
    pub tenant_profile_bytes: usize,

    /// Reconciles under way at once per tenant.
    #[arg(long, value_name = "COUNT", default_value = "10")]
    pub tenant_reconciles: usize,

    /// Renders under way at once for all tenants together.
    #[arg(long, alias = "reconciles", value_name = "COUNT", default_value = "64")]
    pub concurrent_renders: usize,

    /// Memory limit of the process and its render workers, in bytes. Defaults to the container's
    /// limit, if it has one.
    #[arg(long, value_name = "BYTES")]
    pub memory_limit: Option<usize>,

    /// How long a call to an API server may take, watches excepted.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub request_timeout: Duration,

    /// How often the cluster info of a worker cluster (API server, token) is read again.
    #[arg(
        long = "facts-interval",
        value_name = "DURATION",
        default_value = "10m",
        value_parser = humantime::parse_duration
    )]
    pub cluster_info_interval: Duration,

    /// Renew a token once it is this old, or after half of its lifetime if that is earlier, where
    /// spec.credentials of the WorkerCluster is Renewed or Federated.
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = humantime::parse_duration)]
    pub renew_tokens_after: Duration,

    /// Check from time to time whether a machine can fetch its configuration and join, as the
    /// machine would do it.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub join_check: bool,

    /// How long a bootstrap token is valid; it is renewed at half of that.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = humantime::parse_duration)]
    pub token_lifetime: Duration,

    /// How many tenants get newer default profiles at a time, as numbers or shares: each wave
    /// waits until those of the waves before are settled.
    #[arg(
        long,
        value_name = "WAVE",
        value_delimiter = ',',
        default_value = "1,10%,100%"
    )]
    pub rollout_waves: Vec<Wave>,

    /// Nobody gets newer default profiles while more machine deployments than this fail with them,
    /// in percent.
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    pub rollout_pause_failure_rate: u8,

    /// The form of a log line.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    pub log_format: LogFormat,

    /// Which lines are logged, such as `info` or `warn,osm::fleet=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "RUST_LOG")]
    pub log_filter: String,

    /// Traces.
    #[command(flatten)]
    pub traces: TraceFlags,

    /// This replica's name, in its Lease, in traces and to API servers: one process at a time has
    /// it. Without it: the host's name and something random.
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub instance: Option<String>,

    /// The fleet whose tenants this replica shares with the others of the same fleet. Two
    /// installations in one management cluster are two fleets.
    #[arg(long, value_name = "NAME", default_value = "osm")]
    pub fleet: String,

    /// The uid of a management cluster that this one was restored from, as backups have it: its
    /// claims on worker clusters are taken over, each by the tenant of the same name; may be
    /// repeated. Only if that cluster is gone for good.
    #[arg(
        long = "former-management-cluster",
        value_name = "UID",
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub former_management_clusters: Vec<String>,

    /// Where the replicas' Leases are.
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "POD_NAMESPACE",
        default_value = "operating-system-manager"
    )]
    pub lease_namespace: String,

    /// How long after its last sign of life a replica's tenants go to the others. It stops writing
    /// one request timeout before.
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = humantime::parse_duration)]
    pub lease_duration: Duration,
}
