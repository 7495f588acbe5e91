//! What stands in documents, and when somebody changed it.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use fake_cluster::{User, object};
use osm::api::names::{CLOUD_INIT_SETTINGS, FETCHER, SETTINGS_RESTORED};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{fixtures, history::Where, model::Model, world::put};

/// Without a bump of revisions, watches do not show what a restoration brought back. A list does,
/// within this time. While requests fail, a watch that begins again may fail many times in a row.
pub const LIST_INTERVAL: Duration = Duration::from_hours(1);

/// When somebody changed what stands in a tenant's documents.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// What stands in provisioning documents: the profile's text.
    pub provisioning: Vec<Instant>,
    /// What stands in bootstrap documents: the API server and the fetcher's token.
    pub bootstrap: Vec<Instant>,
    /// The revision that the worker cluster was restored to, when, and for how long the manager may
    /// go by what stood there before.
    pub went_back: Option<(u64, Instant, Duration)>,
    /// Whether requests to the worker cluster fail by a fault that lasts.
    pub is_disturbed: bool,
}

impl Inputs {
    /// Requests to the worker cluster fail from now on. If it was restored a moment ago, the
    /// manager may not learn that before requests succeed again.
    pub fn disturb(&mut self) {
        self.is_disturbed = true;
        if let Some((_, at, unseen_for)) = &mut self.went_back
            && at.elapsed() <= *unseen_for
        {
            *unseen_for = LIST_INTERVAL;
        }
    }

    /// Somebody changes the profile's text.
    pub fn changes_provisioning(&mut self) {
        self.provisioning.push(Instant::now());
    }

    /// Somebody changes the API server or the fetcher's token.
    pub fn changes_bootstrap(&mut self) {
        self.bootstrap.push(Instant::now());
    }
}

impl Model {
    /// The tenant is paused, or not any more. A tenant without settings gets some with it.
    pub fn pause(&mut self, tenant: usize) {
        let next = self.next();
        let own = &mut self.tenants[tenant];
        own.is_paused = !own.is_paused;
        if own.settings.is_none() {
            own.settings = Some(next);
            self.inputs[tenant].changes_bootstrap();
        }
        self.put_settings(tenant);
    }

    /// The tenant's profile is written as it was last asked for, in another version.
    pub fn put_profile(&mut self, tenant: usize) {
        self.tenants[tenant].version = self.next();
        if !self.tenants[tenant].has_namespace {
            return;
        }
        let profile = self.tenants[tenant].profile();
        self.by_somebody(Where::Management, |management| put(management, profile));
    }

    /// The tenant's settings are written as they were last asked for.
    pub fn put_settings(&mut self, tenant: usize) {
        if !self.tenants[tenant].has_namespace {
            return;
        }
        let name = self.tenants[tenant].name;
        let spec = self.tenants[tenant].spec().unwrap_or_default();
        let mut wanted = fixtures::a_worker_cluster(name, &spec);
        self.by_somebody(Where::Management, |management| {
            let there = object("workerclusters", name, name);
            let Some(mut found) = management.get(there) else {
                return put(management, wanted);
            };
            found["spec"] = wanted["spec"].take();
            found["metadata"]
                .as_object_mut()
                .map(|it| it.remove("annotations"));
            // As a server counts it.
            let generation = found["metadata"]["generation"].as_u64().unwrap_or(1);
            found["metadata"]["generation"] = json!(generation + 1);
            put(management, found)
        });
    }

    /// Settings that the manager has restored are written as they should be.
    pub fn confirm_settings(&mut self) {
        for tenant in 0..self.tenants.len() {
            let name = self.tenants[tenant].name;
            let there = object("workerclusters", name, name);
            let own = self.world.management.get(there);
            let is_restored =
                |own: &Value| !own["metadata"]["annotations"][SETTINGS_RESTORED].is_null();
            let Some(mut own) = own.filter(is_restored) else {
                continue;
            };
            self.inputs[tenant].changes_bootstrap();
            if self.tenants[tenant].settings.is_some() {
                self.put_settings(tenant);
                continue;
            }
            own["metadata"]
                .as_object_mut()
                .map(|it| it.remove("annotations"));
            own["spec"]
                .as_object_mut()
                .map(|it| it.remove("apiServerOverride"));
            own["spec"]["paused"] = json!(false);
            self.by_somebody(Where::Management, |management| put(management, own));
        }
    }

    /// Nobody is paused any more.
    pub fn unpause(&mut self) {
        for tenant in 0..self.tenants.len() {
            if self.tenants[tenant].is_paused {
                self.tenants[tenant].is_paused = false;
                self.put_settings(tenant);
            }
        }
    }

    /// The fetcher has another token.
    pub fn rotate_fetch_token(&mut self, tenant: usize) {
        self.inputs[tenant].changes_bootstrap();
        let number = format!("token:{}", self.next());
        let account = User::service_account(CLOUD_INIT_SETTINGS, FETCHER).in_group(&number);
        let token = self.cluster(Where::Worker(tenant)).token(&account);
        let token = STANDARD.encode(token);
        let fetcher = object("secrets", CLOUD_INIT_SETTINGS, "cloud-init-getter-token");
        self.edit(Where::Worker(tenant), fetcher, |secret| {
            secret["data"]["token"] = json!(token);
        });
    }

    /// A process that starts may be shown settings of before, and then those of now.
    pub fn show_old_settings(&mut self, place: Where) {
        if place == Where::Management {
            for inputs in &mut self.inputs {
                inputs.bootstrap.extend([Instant::now(); 2]);
            }
        }
    }
}

/// What a cluster says of its API server: another address than its endpoints say.
pub fn cluster_info(name: &str) -> Value {
    let server = format!("https://info.{name}.example:6443");
    fixtures::cluster_info(&server, fixtures::certificate())
}
