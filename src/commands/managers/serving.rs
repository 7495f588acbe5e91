//! Who serves a tenant: a replica of its fleet, which may be another installation's.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kube::Client;

use super::{Fleet, Fleets, fleets, leases, not_watched};
use crate::api::worker_cluster::{FleetId, WorkerCluster, WorkerClusterStatus};
use crate::fleet::sharding::shard::owner;
use crate::tenant::id::TenantId;

/// Who serves a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// This replica.
    By(String),
    /// A fleet whose Leases are elsewhere, and which keeps the status.
    Elsewhere(FleetId),
    /// No replica, for this reason. What a status says was true once.
    Nobody(Unserved, String),
    /// It is not known.
    Unknown,
}

/// Why no replica serves a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// No replica of its fleet has renewed its Lease.
    NoManager,
    /// No Lease is of its fleet, which may run in another namespace.
    NoLease,
    /// Its fleet does not watch its namespace any more.
    NotWatched,
}

impl Unserved {
    /// Returns the word for the state of such a tenant.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoManager => "NoManager",
            Self::NoLease => "Unknown",
            Self::NotWatched => "NotWatched",
        }
    }
}

impl Fleets {
    /// Returns who serves a tenant, whose status is written by this fleet.
    pub fn serving(&self, tenant: &TenantId, fleet: Option<&FleetId>) -> Serving {
        let other = fleet.filter(|it| !self.may_have(it));
        let place = other.and_then(|it| it.namespace.as_ref());
        let all = match (other, place.and_then(|place| self.elsewhere.get(place))) {
            (None, _) => &self.all,
            (Some(_), Some(all)) => all,
            (Some(other), None) => return Serving::Elsewhere(other.clone()),
        };
        let is_watched = |it: &&Fleet| match &it.settings {
            Some(Ok(settings)) => settings.watches(tenant.namespace()),
            _ => true,
        };
        let running = || all.iter().filter(|it| it.runs());
        let of_name = |it: &&Fleet| fleet.is_none_or(|fleet| it.name == fleet.name);
        if let Some(serving) = running().filter(of_name).find(is_watched) {
            let replicas = serving.replicas.iter().map(String::as_str);
            // A status of a release that did not name its fleet may be another one's.
            let replica = owner(replicas, tenant).filter(|_| fleet.is_some());
            return replica.map_or(Serving::Unknown, |it| Serving::By(it.to_owned()));
        }
        if let Some(other) = running().find(of_name) {
            let why = not_watched(&other.name, tenant.namespace());
            return Serving::Nobody(Unserved::NotWatched, why);
        }
        let silent = all.iter().filter(of_name).max_by_key(|it| it.renewed);
        match (silent, fleet) {
            (Some(silent), _) => Serving::Nobody(Unserved::NoManager, silent.is_silent()),
            (None, fleet) => {
                let of = fleet.map_or_else(String::new, |it| format!(" of fleet {}", it.name));
                let place = place.unwrap_or(&self.place);
                let why =
                    format!("no Lease{of} in {place} (--manager-namespace says where it runs)");
                Serving::Nobody(Unserved::NoLease, why)
            }
        }
    }

    /// Reads the Leases where the statuses of tenants say that their fleets are. The manager alone
    /// writes a status, so these Leases are believed. Those that cannot be read stay unknown.
    pub async fn with_those_of(
        mut self,
        client: &Client,
        owns: impl Iterator<Item = &WorkerCluster>,
    ) -> Self {
        let statuses = owns.filter_map(|own| own.status.as_ref());
        let elsewhere = statuses
            .filter_map(WorkerClusterStatus::fleet)
            .filter(|fleet| !self.may_have(fleet))
            .filter_map(|fleet| fleet.namespace);
        for place in elsewhere.collect::<BTreeSet<_>>() {
            if let Ok(leases) = leases(client, &place).await {
                let found = fleets(&leases, Timestamp::now());
                self.elsewhere.insert(place, found);
            }
        }
        self
    }
}
