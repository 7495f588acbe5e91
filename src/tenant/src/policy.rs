//! The limits of a tenant. They come only from the settings of the process, by the tenant's name or
//! the labels of its namespace. An object in the tenant's namespace could be written by the tenant.

use std::{collections::BTreeSet, num::NonZeroU32};

use super::{access::AccessRules, class::TenantClass};

/// The limits of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantPolicy {
    /// The class by which the tenant's objectives are measured.
    pub class: TenantClass,
    /// The rules for the worker cluster's address and for the kubeconfig.
    pub access: AccessRules,
    /// The namespaces from which profiles may be used, besides the tenant's own.
    pub profile_namespaces: BTreeSet<String>,
    /// States whether that includes every namespace.
    pub profile_reach: ProfileReach,
    /// The budget of requests to the worker cluster.
    pub worker_requests: RequestBudget,
    /// The budget of requests to the management cluster on behalf of the tenant.
    pub management_requests: RequestBudget,
    /// The maximum number of concurrent reconciles of the tenant. Each also needs a permit of the
    /// process.
    pub reconciles_max: usize,
    /// The maximum number of these that may be resyncs, if at least one slot stays free. Their
    /// requests take the tenant's budgets before the next change.
    pub resyncs_max: usize,
    /// The maximum number of machine deployments that are served. If there are more, the oldest
    /// are.
    pub machine_deployments_max: usize,
    /// The quota of the tenant's own profiles in memory. Default profiles are not counted.
    pub profiles: ProfileQuota,
}

/// The average weight in memory of a machine deployment in a cluster with the maximum number: ten
/// times that of an ordinary one.
const MACHINE_DEPLOYMENT_BYTES: usize = 64 << 10;
/// The size of the metadata of one machine deployment's Secrets, and again of its config: ten times
/// that of two Secrets.
const METADATA_BYTES: usize = 16 << 10;
/// The minimum number of machine deployments for which there is memory, even if fewer may be
/// served. Those that exceed the number are refused, and must be known for that.
const MACHINE_DEPLOYMENTS_KEPT: usize = 100;

impl TenantPolicy {
    /// Returns the maximum weight of all machine deployments of a cluster together, in bytes.
    pub fn machine_deployment_bytes_max(&self) -> usize {
        self.machine_deployments_kept()
            .saturating_mul(MACHINE_DEPLOYMENT_BYTES)
    }

    /// Returns the maximum size of the metadata of a tenant's Secrets, and again of its configs, in
    /// bytes.
    pub fn metadata_bytes_max(&self) -> usize {
        self.machine_deployments_kept()
            .saturating_mul(METADATA_BYTES)
    }

    /// Returns what a list of a tenant's bootstrap tokens may take, in MiB. One of
    /// machine-controller takes 5 KiB, and a machine deployment may have three.
    pub fn tokens_mib_max(&self) -> usize {
        self.machine_deployments_kept().div_ceil(64)
    }

    fn machine_deployments_kept(&self) -> usize {
        self.machine_deployments_max.max(MACHINE_DEPLOYMENTS_KEPT)
    }
}

/// The namespaces from which a tenant may use profiles, besides its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileReach {
    /// The listed namespaces.
    #[default]
    Listed,
    /// All namespaces. Used if there is only one cluster, and no other tenant has anything in it.
    Everywhere,
}

/// The quota of a namespace's profiles in memory. If there are more, the oldest are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileQuota {
    /// The maximum number of profiles.
    pub count_max: usize,
    /// The maximum size of their specs together, as JSON, in bytes.
    pub bytes_max: usize,
}

impl ProfileQuota {
    /// Takes the size of a profile from the quota. Returns false if it does not fit.
    pub fn take(&mut self, bytes: usize) -> bool {
        let left = (
            self.count_max.checked_sub(1),
            self.bytes_max.checked_sub(bytes),
        );
        let (Some(count_max), Some(bytes_max)) = left else {
            return false;
        };
        *self = Self {
            count_max,
            bytes_max,
        };
        true
    }
}

/// A rate limit: a token bucket of `burst` requests that is refilled at a rate of `per_second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBudget {
    /// The sustained rate.
    pub per_second: NonZeroU32,
    /// The maximum number of requests at once after a pause.
    pub burst: NonZeroU32,
}

/// A new machine deployment costs about six requests to its worker cluster, its deletion eight, and
/// its rotation ten. This limits a storm, and not the work of a tenant: 30 machine deployments can
/// be created and deleted before it has an effect, and then the rate is twice that of drop-in mode.
const WORKER_REQUESTS: RequestBudget = budget(100, 500);
/// A new machine deployment costs about three requests here: its config, an Event, the status. The
/// limit is lower than the worker cluster's, because all tenants share this server. Fairness
/// between tenants is implemented elsewhere: they are served round-robin at the budget that they
/// share.
const MANAGEMENT_REQUESTS: RequestBudget = budget(50, 200);
/// Enough to hide the latency of a distant worker cluster, and the same number as in drop-in mode.
const RECONCILES_MAX: usize = 10;
/// A small number, so that a change does not wait for many resyncs when a budget is short.
pub const RESYNCS_MAX: usize = 3;
/// Each machine deployment keeps three Secrets and a token in the worker cluster, and about 10 KiB
/// in memory here. A hundred is a large cluster.
const MACHINE_DEPLOYMENTS_MAX: usize = 500;

/// Enough for two hundred profiles of the size of a default one: about 40 KiB.
const PROFILES: ProfileQuota = ProfileQuota {
    count_max: 200,
    bytes_max: 8 * 1024 * 1024,
};

impl Default for TenantPolicy {
    fn default() -> Self {
        Self {
            class: TenantClass::default(),
            access: AccessRules::default(),
            profile_namespaces: BTreeSet::new(),
            profile_reach: ProfileReach::Listed,
            worker_requests: WORKER_REQUESTS,
            management_requests: MANAGEMENT_REQUESTS,
            reconciles_max: RECONCILES_MAX,
            resyncs_max: RESYNCS_MAX,
            machine_deployments_max: MACHINE_DEPLOYMENTS_MAX,
            profiles: PROFILES,
        }
    }
}

impl TenantPolicy {
    /// Returns the policy of a tenant whose profiles are in its worker cluster: they may be in any
    /// namespace there, as with the program that osm replaces.
    #[must_use]
    pub fn with_home_in_worker(&self) -> Self {
        Self {
            profile_reach: ProfileReach::Everywhere,
            // Those are in the management cluster.
            profile_namespaces: BTreeSet::new(),
            ..self.clone()
        }
    }

    /// Returns true if machine deployments of a tenant may use profiles from a namespace. `home` is
    /// the namespace of the tenant's own.
    pub fn allows_profiles_of(&self, home: &str, namespace: &str) -> bool {
        home == namespace
            || self.profile_reach == ProfileReach::Everywhere
            || self.profile_namespaces.contains(namespace)
    }
}

const fn budget(per_second: u32, burst: u32) -> RequestBudget {
    RequestBudget {
        per_second: at_least_one(per_second),
        burst: at_least_one(burst),
    }
}

const fn at_least_one(number: u32) -> NonZeroU32 {
    match NonZeroU32::new(number) {
        Some(number) => number,
        None => NonZeroU32::MIN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_outside_the_tenants_namespaces_is_refused() {
        let policy = TenantPolicy {
            profile_namespaces: BTreeSet::from(["shared-profiles".to_owned()]),
            ..TenantPolicy::default()
        };
        for (namespace, allowed) in [
            ("tenant-berlin", true),
            ("shared-profiles", true),
            ("tenant-lisbon", false),
            ("", false),
        ] {
            assert_eq!(
                policy.allows_profiles_of("tenant-berlin", namespace),
                allowed,
                "{namespace}"
            );
        }
    }
}
