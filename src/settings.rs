//! The settings of the process: read from flags and the environment, then checked, once.
//!
//! What may differ from tenant to tenant and belongs to the tenant stands in its WorkerCluster;
//! what bounds a tenant stands here.

mod flags;
mod replica;
mod tenant_defaults;

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

pub use self::{flags::RunFlags, replica::ReplicaSettings, tenant_defaults::tenant_defaults};
use crate::telemetry::TelemetrySettings;
use crate::tenant::{
    access::AccessRules,
    address::{AddressRules, Loopback},
    policy::{RequestBudget, TenantPolicy},
    settings::TenantSettings,
};

/// The shortest lifetime of a bootstrap token: a machine takes minutes to boot.
const TOKEN_LIFETIME_MIN: Duration = Duration::from_mins(10);

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
    /// This replica among the others.
    pub replica: ReplicaSettings,
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
    /// The name of a replica or a fleet becomes part of a Lease's name and of a header.
    #[error(
        "--{flag} must be lower-case letters, digits and dashes, at most {} of them",
        replica::NAME_BYTES_MAX
    )]
    Name {
        /// The flag.
        flag: &'static str,
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
        let replica = self.replica()?;
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
                instance_id: Some(replica.instance.clone()),
            },
            replica,
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

fn at_least(flag: &'static str, value: Duration, least: Duration) -> Result<(), InvalidSetting> {
    if value >= least {
        return Ok(());
    }
    let least = humantime::format_duration(least).to_string();
    Err(InvalidSetting::TooSmall { flag, least })
}

#[cfg(test)]
mod tests;
