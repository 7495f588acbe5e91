//! Registrations that go and come, and what cannot be read.

use fake_cluster::{Fault, Matcher, Verb, object};
use serde_json::json;

use crate::{
    fixtures,
    history::Where,
    model::Model,
    world::{account, put},
};

/// A machine deployment that nothing is made for.
const UNREADABLE: &str = "unreadable";
/// As far back as a process that was away may be shown.
const BEHIND: u64 = 12;

impl Model {
    /// The registration has another token, and the old one is worthless.
    pub fn rotate_kubeconfig(&mut self, tenant: usize) {
        let worker = self.cluster(Where::Worker(tenant));
        worker.revoke_token(&worker.token(&account("kube-system")));
        self.tenants[tenant].kubeconfig += 1;
        if self.tenants[tenant].is_registered {
            self.world.register(self.tenants[tenant].name);
        }
    }

    /// The registration is removed.
    pub fn unregister(&mut self, tenant: usize) {
        let name = self.tenants[tenant].name;
        self.tenants[tenant].is_registered = false;
        self.by_somebody(Where::Management, |management| {
            management.delete_raw(object("secrets", name, name))
        });
    }

    /// The registration is made again, if it was removed.
    pub fn register(&mut self, tenant: usize) {
        let own = &self.tenants[tenant];
        if !own.is_registered && own.has_namespace {
            self.tenants[tenant].is_registered = true;
            self.world.register(self.tenants[tenant].name);
        }
    }

    /// The next lists show an old state of everything.
    pub fn stale_lists(&self, place: Where) {
        let resources = match place {
            Where::Management => ["secrets", "operatingsystemconfigs", "workerclusters"].as_slice(),
            Where::Worker(_) => ["secrets", "machinedeployments"].as_slice(),
        };
        for resource in resources {
            let stale = Fault::StaleList { revisions: BEHIND };
            let lists = Matcher::on(&[Verb::List], resource);
            self.cluster(place).inject_times(lists, stale, 2);
        }
    }

    /// Half of all lists and watches bring what cannot be read.
    pub fn spoil(&self, place: Where, resource: &str) {
        let matcher = Matcher {
            probability: Some(0.5),
            ..Matcher::on(&[Verb::List, Verb::Watch], resource)
        };
        self.cluster(place).inject(matcher, Fault::BadObject);
    }

    /// A machine deployment appears that cannot be read.
    pub fn make_unreadable(&mut self, tenant: usize) {
        let mut found = fixtures::a_machine_deployment(UNREADABLE);
        found["spec"]["template"] = json!("nothing of the kind");
        self.by_somebody(Where::Worker(tenant), |worker| put(worker, found));
    }

    /// What cannot be read goes.
    pub fn remove_unreadable(&mut self) {
        for tenant in 0..self.tenants.len() {
            self.by_somebody(Where::Worker(tenant), |worker| {
                worker.delete_raw(object("machinedeployments", "kube-system", UNREADABLE))
            });
        }
    }
}
