//! Clusters that are restored from a backup, namespaces and WorkerClusters that are deleted, and
//! what cuts the manager off: an outage, and a suspended process.

use std::time::Duration;

use fake_cluster::{Backup, Cluster, Fault, Matcher, Revisions, object};
use osm::api::names::CLOUD_INIT_SETTINGS;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    fixtures,
    history::{Outage, Restored, Where},
    inputs::LIST_INTERVAL,
    links::remove_namespace,
    model::{Model, Tenant},
    world::{World, account, put},
};

/// What others write in the hours after a backup: no version of before a restore is given out for
/// another state after it.
const OTHERS: u64 = 10_000;

/// With a bump, watches begin again. But a reconcile that wrote the provisioning document before
/// the restoration may write the bootstrap document after it: the restoration took away the one,
/// and the version of the other is what it was. No precondition of a write spans two objects.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

/// What everything was like at one time.
pub struct Backups {
    management: Backup,
    workers: Vec<Backup>,
    tenants: Vec<Tenant>,
    /// How often something was restored from it.
    uses: u64,
}

impl Backups {
    /// Everything as it is now.
    pub fn take(world: &World, tenants: &[Tenant]) -> Self {
        let workers = tenants.iter().map(|tenant| world.worker(tenant.name));
        let backups = Self {
            management: world.management.backup(),
            workers: workers.map(Cluster::backup).collect(),
            tenants: tenants.to_vec(),
            uses: 0,
        };
        for (_, cluster) in world.clusters() {
            cluster.skip_revisions(OTHERS);
        }
        backups
    }
}

impl Model {
    /// Everything is backed up.
    pub fn back_up(&mut self) {
        self.backups = Backups::take(&self.world, &self.tenants);
    }

    /// Clusters are what they were at the last backup.
    pub fn restore(&mut self, restored: Restored, revisions: Revisions) {
        let all = 0..self.tenants.len();
        let workers = match restored {
            Restored::Management => 0..0,
            Restored::Worker(tenant) => tenant..tenant + 1,
            Restored::All => all.clone(),
        };
        if !matches!(restored, Restored::Worker(_)) {
            self.restore_cluster(Where::Management, revisions);
            self.may_lose_lease = true;
            for tenant in all {
                self.management_goes_back(tenant);
            }
        }
        for tenant in workers {
            let fetcher = self.fetcher(tenant);
            self.restore_cluster(Where::Worker(tenant), revisions);
            if self.fetcher(tenant) != fetcher {
                self.inputs[tenant].changes_bootstrap();
            }
            self.tenants[tenant].machines = self.backups.tenants[tenant].machines;
        }
        self.backups.uses += 1;
    }

    fn restore_cluster(&mut self, place: Where, revisions: Revisions) {
        let cluster = self.cluster(place);
        let (name, backup) = match place {
            Where::Management => ("management", &self.backups.management),
            Where::Worker(tenant) => (self.tenants[tenant].name, &self.backups.workers[tenant]),
        };
        cluster.restore(backup, revisions);
        if let Where::Worker(tenant) = place {
            let unseen_for = match revisions {
                Revisions::AreBumped if !self.inputs[tenant].is_disturbed => WRITE_INTERVAL,
                Revisions::AreBumped | Revisions::GoBack => LIST_INTERVAL,
            };
            let went_back = (cluster.revision(), Instant::now(), unseen_for);
            self.inputs[tenant].went_back = Some(went_back);
        }
        // As if others had written: versions of after the last restore are not given out again.
        cluster.skip_revisions(self.backups.uses.min(3) * OTHERS / 4);
        let now = cluster.revision();
        self.foreign
            .retain(|(of, revision)| of != name || *revision <= now);
    }

    /// What was asked for in the management cluster is what it was. Tokens that were revoked since
    /// stay revoked.
    fn management_goes_back(&mut self, tenant: usize) {
        let then = self.backups.tenants[tenant].clone();
        let now = &mut self.tenants[tenant];
        let is_other_text = now.text != then.text;
        let is_other_spec = now.spec() != then.spec();
        *now = Tenant {
            machines: now.machines,
            kubeconfig: now.kubeconfig,
            is_registered: then.is_registered && then.kubeconfig == now.kubeconfig,
            ..then
        };
        if is_other_text {
            self.inputs[tenant].changes_provisioning();
        }
        if is_other_spec {
            self.inputs[tenant].changes_bootstrap();
        }
    }

    fn fetcher(&self, tenant: usize) -> Option<Value> {
        let fetcher = object("secrets", CLOUD_INIT_SETTINGS, "cloud-init-getter-token");
        let found = self.cluster(Where::Worker(tenant)).get(fetcher)?;
        Some(found["data"]["token"].clone())
    }

    /// The tenant's WorkerCluster is deleted, for it is to have the defaults. Where a replica has
    /// seen it, it keeps its settings until somebody writes others.
    pub fn drop_settings(&mut self, tenant: usize) {
        let own = &mut self.tenants[tenant];
        own.is_paused = false;
        if own.settings.take().is_some() {
            self.inputs[tenant].changes_bootstrap();
        }
        self.delete_worker_cluster(tenant);
    }

    /// The tenant's WorkerCluster is deleted and made again.
    pub fn recreate_settings(&mut self, tenant: usize) {
        self.delete_worker_cluster(tenant);
        if self.tenants[tenant].settings.is_some() {
            // In between it has the defaults.
            self.inputs[tenant].changes_bootstrap();
            self.inputs[tenant].changes_bootstrap();
            self.put_settings(tenant);
        }
    }

    fn delete_worker_cluster(&mut self, tenant: usize) {
        let name = self.tenants[tenant].name;
        self.by_somebody(Where::Management, |management| {
            management.delete_raw(object("workerclusters", name, name))
        });
    }

    /// The tenant's namespace is deleted with all that is in it, until troubles end.
    pub fn delete_namespace(&mut self, tenant: usize) {
        let own = &mut self.tenants[tenant];
        let name = own.name;
        own.is_registered = false;
        own.has_namespace = false;
        if own.settings.is_some() {
            // While the registration is there it has the defaults, and when it comes back.
            self.inputs[tenant].changes_bootstrap();
            self.inputs[tenant].changes_bootstrap();
        }
        self.by_somebody(Where::Management, |management| {
            remove_namespace(management, name);
        });
    }

    /// The tenant's namespace is made again, if it was deleted, with what was asked for.
    pub fn restore_namespace(&mut self, tenant: usize) {
        let own = &mut self.tenants[tenant];
        if own.has_namespace {
            return;
        }
        own.has_namespace = true;
        let (namespace, profile) = (fixtures::a_namespace(own.name), own.profile());
        self.by_somebody(Where::Management, |management| {
            put(management, namespace);
            put(management, profile)
        });
        if self.tenants[tenant].settings.is_some() {
            self.put_settings(tenant);
        }
    }

    /// Nothing that the manager sends to the cluster arrives.
    pub fn cut_off(&mut self, place: Where, outage: Outage) {
        if let Where::Worker(tenant) = place {
            self.inputs[tenant].disturb();
        }
        let namespace = match place {
            Where::Management => "operating-system-manager",
            Where::Worker(_) => "kube-system",
        };
        let matcher = Matcher {
            user: Some(account(namespace).name),
            ..Matcher::any()
        };
        let fault = match outage {
            Outage::Hangs => Fault::Hang,
            Outage::Refuses => Fault::ConnectionRefused,
        };
        self.cluster(place).inject(matcher, fault);
        self.cluster(place).close_watches();
    }
}

/// The process, and all that is in this world, gets no time to run: what was due meanwhile is due
/// at once when it goes on.
pub async fn suspend(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}
