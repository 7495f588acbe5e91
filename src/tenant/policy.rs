//! The limits of a tenant. They come from the process settings alone, by the tenant's name or the
//! labels of its namespace: an object in the tenant's namespace could be written by the tenant.

use std::{collections::BTreeSet, num::NonZeroU32};

use super::{access::AccessRules, id::TenantId};

/// The limits of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantPolicy {
    /// How the worker cluster may be reached, and how large the kubeconfig may be.
    pub access: AccessRules,
    /// Namespaces besides the tenant's own that profiles may be read from.
    pub profile_namespaces: BTreeSet<String>,
    /// Whether that is every namespace.
    pub profile_reach: ProfileReach,
    /// Requests to the worker cluster.
    pub worker_requests: RequestBudget,
    /// Requests to the management cluster on the tenant's behalf.
    pub management_requests: RequestBudget,
    /// Reconciles of the tenant that run at once. They take a permit of the process, too.
    pub reconciles_max: usize,
    /// Of these, resyncs that run at once, where they leave one slot free: what they ask for waits
    /// at the tenant's own budgets before the next change.
    pub sweeps_max: usize,
    /// Machine deployments that are served; the oldest ones, where there are more.
    pub machine_deployments_max: usize,
    /// Profiles of the tenant's own that are kept in memory, the default ones not counted.
    pub profiles: ProfileQuota,
}

/// What a machine deployment may weigh in memory where a cluster has as many as are served: ten
/// times what an ordinary one takes.
const MACHINE_DEPLOYMENT_BYTES: usize = 64 << 10;
/// What the metadata of the Secrets that are made for one may take, and again that of its config:
/// ten times what two Secrets take.
const METADATA_BYTES: usize = 16 << 10;
/// There is room for as many even where fewer are served: those that are refused for their number
/// are told so.
const MACHINE_DEPLOYMENTS_KEPT: usize = 100;

impl TenantPolicy {
    /// What the machine deployments of a cluster may weigh together, in bytes.
    pub fn machine_deployment_bytes_max(&self) -> usize {
        self.machine_deployments_kept()
            .saturating_mul(MACHINE_DEPLOYMENT_BYTES)
    }

    /// What the metadata of a tenant's Secrets may take, and again that of its configs, in bytes.
    pub fn metadata_bytes_max(&self) -> usize {
        self.machine_deployments_kept()
            .saturating_mul(METADATA_BYTES)
    }

    fn machine_deployments_kept(&self) -> usize {
        self.machine_deployments_max.max(MACHINE_DEPLOYMENTS_KEPT)
    }
}

/// Which namespaces a tenant may read profiles from besides its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileReach {
    /// Those that are listed.
    #[default]
    Listed,
    /// All: where one cluster is all that there is, and nobody else has anything in it.
    Everywhere,
}

/// How much of a namespace's profiles is kept in memory; the oldest ones, where there are more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileQuota {
    /// How many.
    pub count_max: usize,
    /// Bytes of their specs together, as JSON.
    pub bytes_max: usize,
}

impl ProfileQuota {
    /// Takes the room of a profile with this many bytes, if there is enough.
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

/// Requests over time: a bucket of `burst` that fills at a rate of `per_second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBudget {
    /// The rate that can be kept up.
    pub per_second: NonZeroU32,
    /// What may be spent at once after a pause.
    pub burst: NonZeroU32,
}

/// A new machine deployment costs about six requests to its worker cluster, its deletion eight,
/// and its rotation ten. This bounds a storm, and not the work of a tenant: 30 machine deployments
/// are made and deleted before it binds, and then the rate is twice that of drop-in mode.
const WORKER_REQUESTS: RequestBudget = budget(100, 500);
/// A new machine deployment costs about three requests here: its config, an Event, the status.
/// Lower than the worker cluster's, since all tenants share this server. What is fair among them
/// is not decided here: they take turns at the budget that they share.
const MANAGEMENT_REQUESTS: RequestBudget = budget(50, 200);
/// Enough to hide the latency of a far worker cluster, and as many as in drop-in mode.
const RECONCILES_MAX: usize = 10;
/// Few, so that a change does not wait behind many of them at a budget that is short.
pub const SWEEPS_MAX: usize = 3;
/// Each keeps three Secrets and a token in the worker cluster, and about 10 KiB in memory here. A
/// hundred is a large cluster.
const MACHINE_DEPLOYMENTS_MAX: usize = 500;

/// A default profile has about 40 KiB: two hundred of that size.
const PROFILES: ProfileQuota = ProfileQuota {
    count_max: 200,
    bytes_max: 8 * 1024 * 1024,
};

impl Default for TenantPolicy {
    fn default() -> Self {
        Self {
            access: AccessRules::default(),
            profile_namespaces: BTreeSet::new(),
            profile_reach: ProfileReach::Listed,
            worker_requests: WORKER_REQUESTS,
            management_requests: MANAGEMENT_REQUESTS,
            reconciles_max: RECONCILES_MAX,
            sweeps_max: SWEEPS_MAX,
            machine_deployments_max: MACHINE_DEPLOYMENTS_MAX,
            profiles: PROFILES,
        }
    }
}

impl TenantPolicy {
    /// Whether the tenant's machine deployments may use the profiles of a namespace.
    pub fn allows_profiles_of(&self, tenant: &TenantId, namespace: &str) -> bool {
        tenant.namespace() == namespace
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
        let berlin = TenantId::new("tenant-berlin");
        for (namespace, allowed) in [
            ("tenant-berlin", true),
            ("shared-profiles", true),
            ("tenant-lisbon", false),
            ("", false),
        ] {
            assert_eq!(
                policy.allows_profiles_of(&berlin, namespace),
                allowed,
                "{namespace}"
            );
        }
    }
}
