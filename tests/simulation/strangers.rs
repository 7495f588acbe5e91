//! The hands of strangers: they write into what we made, and delete it.

use base64::{Engine, engine::general_purpose::STANDARD};
use fake_cluster::{Cluster, object};
use osm::api::names::{CLOUD_INIT_SETTINGS, TOKEN_LABEL};
use serde_json::{Value, json};

use crate::{
    history::{Made, Where, Which},
    model::{Model, made_names},
    world::put,
};

impl Model {
    /// Somebody writes other bytes into what we made.
    pub fn tamper(&mut self, which: Which, made: Made) {
        let names = made_names(self.tenants[which.0].name, which.1);
        let next = self.next();
        let bytes = json!(STANDARD.encode(format!("foreign {next}")));
        let (name, key) = match made {
            Made::Provisioning => (&names.provisioning, "cloud-config"),
            Made::Bootstrap => (&names.bootstrap, "cloud-config"),
            Made::KubeletKubeconfig => (&names.kubelet_kubeconfig, "kubeconfig"),
            Made::Token => return self.end_tokens(which.0, &names.key),
            Made::Config => {
                let tenant = self.tenants[which.0].name;
                let config = object("operatingsystemconfigs", tenant, &names.config);
                return self.edit(Where::Management, config, |config| {
                    config["spec"]["osVersion"] = json!(format!("foreign {next}"));
                });
            }
        };
        let secret = object("secrets", CLOUD_INIT_SETTINGS, name);
        self.edit(Where::Worker(which.0), secret, |secret| {
            secret["data"][key] = bytes;
        });
    }

    /// Tokens of a machine deployment end before their time.
    fn end_tokens(&mut self, tenant: usize, key: &str) {
        let past = json!(STANDARD.encode("2026-01-01T00:00:00Z"));
        self.by_somebody(Where::Worker(tenant), |worker| {
            for mut token in tokens(worker, key) {
                token["data"]["expiration"] = past.clone();
                put(worker, token);
            }
        });
    }

    /// Somebody deletes what we made.
    pub fn lose(&mut self, which: Which, made: Made) {
        let tenant = self.tenants[which.0].name;
        let names = made_names(tenant, which.1);
        let name = match made {
            Made::Provisioning => &names.provisioning,
            Made::Bootstrap => &names.bootstrap,
            Made::KubeletKubeconfig => &names.kubelet_kubeconfig,
            Made::Token => {
                self.by_somebody(Where::Worker(which.0), |worker| {
                    for token in tokens(worker, &names.key) {
                        let name = token["metadata"]["name"].as_str().unwrap_or_default();
                        worker.delete_raw(object("secrets", "kube-system", name));
                    }
                });
                return;
            }
            Made::Config => {
                self.by_somebody(Where::Management, |management| {
                    management.delete_raw(object("operatingsystemconfigs", tenant, &names.config))
                });
                return;
            }
        };
        self.by_somebody(Where::Worker(which.0), |worker| {
            worker.delete_raw(object("secrets", CLOUD_INIT_SETTINGS, name))
        });
    }
}

fn tokens(worker: &Cluster, key: &str) -> Vec<Value> {
    let mut secrets = worker.objects("secrets");
    secrets.retain(|secret| secret["metadata"]["labels"][TOKEN_LABEL] == json!(key));
    secrets
}
