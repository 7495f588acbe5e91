//! Counts the manager's requests at the servers. What this process does to the clusters itself is
//! not among them: it comes as another user.

use std::collections::BTreeMap;

use fake_cluster::{AuditEntry, Verb};
use serde::Serialize;

use super::fleet::Fleet;

const MANAGER: &str = ":operating-system-manager";

/// How many requests of which kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Requests {
    /// By `management` or `worker`, verb and resource: `worker get configmaps`.
    pub by_kind: BTreeMap<String, u64>,
    /// Calls about the replica's own Lease, which are in no other count: a fixed number per second,
    /// whatever the number of tenants.
    pub leases: u64,
    /// Requests that changed an object.
    pub writes: u64,
    /// Requests that might have: each costs its server a look, changed or not.
    pub mutating: u64,
    /// Reads of one object or of a list; watches are none.
    pub reads: u64,
    /// Watches that were opened.
    pub watches: u64,
    /// Answers of 400 and above, 404 and 409 excepted, and requests without an answer.
    pub failed: u64,
    /// The same by kind and code: `worker get configmaps 403`.
    pub failures: BTreeMap<String, u64>,
}

impl Requests {
    /// The requests since the last count, which are then forgotten.
    pub fn take(fleet: &Fleet) -> Self {
        let mut counted = Self::default();
        counted.count("management", &fleet.take_management_audit());
        for worker in &fleet.workers {
            counted.count("worker", &worker.server.cluster.take_audit());
        }
        counted
    }

    /// Adds the manager's requests to one side.
    pub fn count(&mut self, side: &str, entries: &[AuditEntry]) {
        for entry in entries.iter().filter(|entry| entry.user.ends_with(MANAGER)) {
            if side == "management" && entry.target.resource == "leases" {
                self.leases += 1;
                continue;
            }
            let mut resource = entry.target.resource.clone();
            if !entry.target.subresource.is_empty() {
                resource = format!("{resource}/{}", entry.target.subresource);
            }
            let kind = format!("{side} {} {resource}", entry.verb.as_str());
            let is_well = (200..400).contains(&entry.code) || matches!(entry.code, 404 | 409);
            if !is_well {
                self.failed += 1;
                let failure = format!("{kind} {}", entry.code);
                *self.failures.entry(failure).or_default() += 1;
            }
            *self.by_kind.entry(kind).or_default() += 1;
            self.writes += u64::from(entry.wrote);
            self.mutating += u64::from(entry.verb.is_mutating() && entry.target.is_resource());
            match entry.verb {
                Verb::Watch => self.watches += 1,
                Verb::Get | Verb::List => self.reads += 1,
                _ => {}
            }
        }
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_kind.values().sum()
    }
}
