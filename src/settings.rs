//! The settings of the process: read from flags and the environment, and validated once at start.
//!
//! Settings that a tenant controls are fields of its WorkerCluster. Limits on tenants are set here,
//! by the operator.

pub mod drop_in;
mod egress;
mod flags;
mod fleet_page;
mod inventories;
mod published;
mod replica;
mod tenant_defaults;
mod tenant_policies;
mod trace_flags;
mod yaml_file;

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

pub use self::{
    egress::EgressFlags,
    flags::RunFlags,
    fleet_page::{FleetPageFlags, FleetPageSettings},
    inventories::{inventories, kubeconfig_keys},
    published::{CannotFollow, Completed, PublishedSettings, TypedFlags},
    replica::ReplicaSettings,
    tenant_defaults::{NOT_DEFAULTS, tenant_defaults},
    tenant_policies::tenant_policies,
    trace_flags::TraceFlags,
};
use crate::telemetry::TelemetrySettings;
use crate::tenant::{
    access::AccessRules,
    address::{AddressRules, Loopback},
    class::TenantClass,
    egress::NotAProxy,
    inventory::Inventory,
    policies::TenantPolicies,
    policy::{ProfileQuota, ProfileReach, RESYNCS_MAX, RequestBudget, TenantPolicy},
    settings::TenantSettings,
    waves::Pace,
};

/// The shortest lifetime of a bootstrap token: a machine takes minutes to boot.
const TOKEN_LIFETIME_MIN: Duration = Duration::from_mins(10);

/// The validated settings of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Path of the management cluster's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// The inventories of registrations.
    pub inventories: BTreeSet<Inventory>,
    /// Label selector of registrations.
    pub registration_selector: String,
    /// The namespaces to watch; all, if empty.
    pub namespaces: Vec<String>,
    /// The namespaces in which no tenant is served.
    pub except_namespaces: BTreeSet<String>,
    /// The address that the admin server listens on.
    pub admin_address: SocketAddr,
    /// Who may see the fleet page.
    pub fleet_page: FleetPageSettings,
    /// The limits of each tenant.
    pub policies: Arc<TenantPolicies>,
    /// The defaults for settings that a tenant does not set.
    pub tenant_defaults: TenantSettings,
    /// Maximum number of concurrent renders, for all tenants together.
    pub reconciles_max: usize,
    /// The memory limit of the process and its render workers, in bytes.
    pub memory_limit: Option<usize>,
    /// Rate limit of requests to the management cluster, for all tenants together.
    pub management_requests: RequestBudget,
    /// Timeout of a request to an API server.
    pub request_timeout: Duration,
    /// Interval at which a cluster's info is read again.
    pub cluster_info_interval: Duration,
    /// The age at which a token is renewed, where that is the manager's task.
    pub token_renewal_age: Duration,
    /// Enables the join check.
    pub join_check: bool,
    /// How long a bootstrap token is valid.
    pub token_lifetime: Duration,
    /// The uids of management clusters that are gone, whose claims are taken over.
    pub former_management_clusters: Vec<String>,
    /// The identity and sharding settings of this replica.
    pub replica: ReplicaSettings,
    /// The rollout strategy of newer default profiles.
    pub rollout: Pace,
    /// Settings of logs and traces.
    pub telemetry: TelemetrySettings,
}

/// Reports an invalid setting.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSetting {
    /// A file cannot be read.
    #[error("cannot read --{flag} {}", path.display())]
    Unreadable {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file has invalid content.
    #[error("--{flag} {}: {why}", path.display())]
    Content {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        why: String,
    },
    /// There is no inventory with this name.
    #[error(
        "--inventory {name:?} is unknown: it is one of {known}, or a rule of --inventory-rules"
    )]
    Inventory {
        /// The name.
        name: String,
        /// The names that are known.
        known: String,
    },
    /// A flag is too small.
    #[error("--{flag} must be at least {least}")]
    TooSmall {
        /// The flag.
        flag: &'static str,
        /// The smallest accepted value.
        least: String,
    },
    /// The name of a replica or fleet is invalid. It becomes part of a Lease's name and of a
    /// header.
    #[error(
        "--{flag} must be lower-case letters, digits and dashes, at most {} of them",
        replica::NAME_BYTES_MAX
    )]
    Name {
        /// The flag.
        flag: &'static str,
    },
    /// A trace setting is invalid.
    #[error("{name} must be {expected}, not {found:?}")]
    Traces {
        /// The flag or the variable.
        name: &'static str,
        /// The accepted values.
        expected: &'static str,
        /// What was given.
        found: String,
    },
    /// The proxy to worker clusters is not one.
    #[error("--egress-proxy: {0}")]
    EgressProxy(#[from] NotAProxy),
    /// A host of the fleet page is not a name.
    #[error("--fleet-page-host must be a DNS name without a scheme and a port, not {found:?}")]
    FleetPageHost {
        /// What was given.
        found: String,
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
    /// Validates the flags and reads the files that they name.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`] if a flag is out of range, or a file cannot be read or is invalid.
    pub fn check(self) -> Result<Settings, InvalidSetting> {
        if self.registration_selector.trim().is_empty() {
            return Err(InvalidSetting::NoSelector);
        }
        let second = Duration::from_secs(1);
        for (flag, given, least) in [
            ("token-lifetime", self.token_lifetime, TOKEN_LIFETIME_MIN),
            ("request-timeout", self.request_timeout, second / 10),
            ("facts-interval", self.cluster_info_interval, second),
            ("renew-tokens-after", self.renew_tokens_after, second),
        ] {
            at_least(flag, given, least)?;
        }
        for (flag, count) in [
            ("concurrent-renders", self.concurrent_renders),
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
        let policies = tenant_policies(self.tenant_policies.as_deref(), self.policy()?)?;
        let replica = self.replica()?;
        let tenant_defaults = tenant_defaults(self.tenant_defaults.as_deref())?;
        let telemetry = TelemetrySettings {
            log_format: self.log_format,
            log_filter: self.log_filter,
            instance_id: Some(replica.instance.clone()),
            ..TelemetrySettings::default()
        };
        let telemetry = self.traces.completed(telemetry)?;
        Ok(Settings {
            tenant_defaults,
            kubeconfig: self.kubeconfig,
            inventories: inventories(&self.inventories, self.inventory_rules.as_deref())?,
            registration_selector: self.registration_selector,
            namespaces: self.namespaces,
            except_namespaces: self.except_namespaces.into_iter().collect(),
            admin_address: self.admin_address,
            fleet_page: self.fleet_page.check()?,
            policies: Arc::new(policies),
            reconciles_max: self.concurrent_renders,
            memory_limit: self.memory_limit,
            management_requests: RequestBudget {
                per_second: self.fleet_management_requests,
                burst: self.fleet_management_burst,
            },
            request_timeout: self.request_timeout,
            cluster_info_interval: self.cluster_info_interval,
            token_renewal_age: self.renew_tokens_after,
            join_check: self.join_check,
            token_lifetime: self.token_lifetime,
            rollout: Pace {
                waves: self.rollout_waves,
                failures_percent_max: self.rollout_pause_failure_rate,
            },
            telemetry,
            former_management_clusters: self.former_management_clusters,
            replica,
        })
    }

    fn policy(&self) -> Result<TenantPolicy, InvalidSetting> {
        let loopback = if self.allow_loopback_servers {
            Loopback::Allowed
        } else {
            Loopback::Refused
        };
        Ok(TenantPolicy {
            class: TenantClass::default(),
            access: AccessRules {
                egress_proxy: self.egress.proxy()?,
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
            profile_reach: ProfileReach::Listed,
            worker_requests: RequestBudget {
                per_second: self.worker_requests,
                burst: self.worker_burst,
            },
            management_requests: RequestBudget {
                per_second: self.management_requests,
                burst: self.management_burst,
            },
            reconciles_max: self.tenant_reconciles,
            resyncs_max: RESYNCS_MAX,
            machine_deployments_max: self.tenant_machine_deployments,
            profiles: ProfileQuota {
                count_max: self.tenant_profiles,
                bytes_max: self.tenant_profile_bytes,
            },
        })
    }
}

fn at_least(flag: &'static str, value: Duration, least: Duration) -> Result<(), InvalidSetting> {
    if value >= least {
        return Ok(());
    }
    let least = humantime::format_duration(least).to_string();
    Err(InvalidSetting::TooSmall { flag, least })
}

#[cfg(test)]
mod tests;
