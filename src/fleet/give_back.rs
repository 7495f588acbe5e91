//! Gives a worker cluster back: its machine deployments lose our finalizer, and the cluster our
//! claim.

use std::collections::BTreeSet;

use kube::{Client, ResourceExt};

use super::{
    claim::{self, Claimant},
    removal::{self, Held},
};
use crate::api::worker_cluster::{Home, OnRemoval};
use crate::tenant::report::{Removal, counted};

/// The maximum number of machine deployments that a message names.
const NAMED_MAX: usize = 3;

/// A worker cluster whose registration is gone.
pub struct GiveBack<'a> {
    /// A client for the worker cluster.
    pub worker: Client,
    /// A client for the management cluster.
    pub management: Client,
    /// The tenant that it was claimed for.
    pub claimant: &'a Claimant,
    /// Where the tenant's profiles and configs are.
    pub home: Home,
    /// The name of the registration.
    pub registration: &'a str,
    /// Why it is gone.
    pub gone: &'a str,
    /// What happens to its machine deployments.
    pub policy: OnRemoval,
}

impl GiveBack<'_> {
    /// Tries once, and returns what was done, with a sentence about it. `released` collects the
    /// uids of the machine deployments of all attempts.
    ///
    /// # Errors
    ///
    /// A call to an API server fails. It may be tried again.
    pub async fn attempt(
        &self,
        released: &mut BTreeSet<Option<String>>,
    ) -> Result<(Removal, String), kube::Error> {
        let gone = self.gone;
        if self.home == Home::Worker {
            claim::lease::release(&self.worker, self.claimant).await?;
            let message = format!(
                "{gone}; the Lease of the worker cluster was released, and everything in it stays"
            );
            return Ok((Removal::Released, message));
        }
        let mut held = Held::of(&self.worker);
        let tenant = &self.claimant.tenant;
        if self.policy == OnRemoval::Keep {
            let (mut count, mut names) = (0, Vec::new());
            while let Some(page) = held.next().await? {
                count += page.len();
                let more = page.iter().take(NAMED_MAX - names.len()).map(|it| {
                    let namespace = it.namespace().unwrap_or_default();
                    format!("{namespace}/{}", it.name_any())
                });
                names.extend(more);
            }
            let hang = match names.as_slice() {
                [] => String::new(),
                names => format!(", so that deleting one hangs: {}", names.join(", ")),
            };
            let one = "machine deployment still has";
            let held = counted(count, one, "machine deployments still have");
            let name = self.registration;
            let message = format!(
                "{gone}; {held} our finalizer{hang}. `osm tenant remove {name} \
                 -n {tenant} --on-removal release --worker-kubeconfig FILE` gives the cluster back"
            );
            return Ok((Removal::Kept, message));
        }
        while let Some(page) = held.next().await? {
            for machine_deployment in &page {
                if self.policy == OnRemoval::Purge {
                    let (management, namespace) = (&self.management, tenant.namespace());
                    removal::purge(&self.worker, management, namespace, machine_deployment).await?;
                }
                released.insert(machine_deployment.uid());
                removal::release(&self.worker, machine_deployment).await?;
            }
        }
        claim::release(&self.worker, self.claimant).await?;
        let (removal, done) = match self.policy {
            OnRemoval::Purge => (
                Removal::Purged,
                "released, and what was made for them was deleted",
            ),
            OnRemoval::Keep | OnRemoval::Release => (Removal::Released, "released"),
        };
        let one = "machine deployment was";
        let released = counted(released.len(), one, "machine deployments were");
        Ok((removal, format!("{gone}; {released} {done}")))
    }
}
