//! The links of a machine's way to a node: how they break, and whether a machine gets there.

use fake_cluster::{Cluster, User, object};
use k8s_openapi::api::{authorization::v1::SelfSubjectAccessReview, core::v1::Secret};
use kube::{Api, Client, api::PostParams};
use osm::api::names::{CLOUD_INIT_SETTINGS, DerivedNames, FETCHER, FETCHER_TOKEN};
use serde_json::{Value, json};

use crate::{
    fixtures,
    history::{Link, MACHINES, Where},
    invariants::Held,
    model::{Model, machine_name, made_names},
    snapshot::{boot_secret, decoded, text},
    wire::{Life, transport},
    world::{World, put},
};

/// What lets kubelets request certificates; a part of machine-controller.
const BOOTSTRAPPER: &str = include_str!("../../tenants-example/worker-crds/kubelet-bootstrap.yaml");

/// Lets kubelets request certificates.
pub fn bind_bootstrapper(worker: &Cluster) {
    let applied = worker.apply_yaml(BOOTSTRAPPER);
    applied.expect("the example is right");
}

impl Model {
    /// Somebody breaks a link.
    pub fn break_link(&mut self, tenant: usize, link: Link) {
        let fetcher = |kind| object(kind, CLOUD_INIT_SETTINGS, FETCHER);
        let place = Where::Worker(tenant);
        match link {
            Link::RulesOfRole => self.edit(place, fetcher("roles"), |role| {
                role["rules"] = json!([]);
            }),
            Link::SubjectsOfBinding => self.edit(place, fetcher("rolebindings"), |binding| {
                binding["subjects"] = json!([]);
            }),
            Link::RoleOfBinding => self.edit(place, fetcher("rolebindings"), |binding| {
                binding["roleRef"]["name"] = json!("another");
            }),
            Link::Role => self.delete_of_worker(tenant, ("roles", FETCHER)),
            Link::Binding => self.delete_of_worker(tenant, ("rolebindings", FETCHER)),
            Link::Account => {
                self.inputs[tenant].changes_bootstrap();
                self.delete_of_worker(tenant, ("serviceaccounts", FETCHER));
            }
            Link::FetchToken => {
                self.inputs[tenant].changes_bootstrap();
                self.delete_of_worker(tenant, ("secrets", FETCHER_TOKEN));
            }
            Link::Namespace => {
                self.inputs[tenant].changes_bootstrap();
                self.by_somebody(place, |worker| {
                    remove_namespace(worker, CLOUD_INIT_SETTINGS);
                });
            }
            Link::Bootstrapper => {
                self.by_somebody(place, |worker| {
                    let name = "machine-controller-kubelet-bootstrap";
                    worker.delete_raw(object("clusterrolebindings", "", name))
                });
            }
        }
    }

    fn delete_of_worker(&mut self, tenant: usize, (kind, name): (&str, &str)) {
        self.by_somebody(Where::Worker(tenant), |worker| {
            worker.delete_raw(object(kind, CLOUD_INIT_SETTINGS, name))
        });
    }

    /// A person applies what the manager may not make: its own rights, and those of kubelets.
    pub fn mend_links(&mut self) {
        for tenant in 0..self.tenants.len() {
            self.by_somebody(Where::Worker(tenant), |worker| {
                bind_bootstrapper(worker);
                for wanted in fixtures::worker() {
                    let kind = format!("{}s", text(wanted, "/kind").to_lowercase());
                    let namespace = text(wanted, "/metadata/namespace");
                    let there = object(&kind, namespace, text(wanted, "/metadata/name"));
                    if worker.get(there).is_none() {
                        put(worker, wanted.clone());
                    }
                }
            });
        }
    }
}

/// A namespace goes with all that is in it.
pub fn remove_namespace(cluster: &Cluster, name: &str) {
    for resource in cluster.resources() {
        for found in cluster.objects(&resource) {
            if text(&found, "/metadata/namespace") == name {
                cluster.delete_raw(object(&resource, name, text(&found, "/metadata/name")));
            }
        }
    }
    cluster.delete_raw(object("namespaces", "", name));
}

/// Tenants are ready, and a machine of each of their machine deployments can join.
pub async fn all_can_join(model: &Model) -> Held {
    for tenant in &model.tenants {
        let own = object("workerclusters", tenant.name, tenant.name);
        let own = model.world.management.get(own).unwrap_or_default();
        let conditions = own["status"]["conditions"].as_array();
        let conditions = conditions.map_or(&[][..], Vec::as_slice);
        let of = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
        let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
        if !conditions.iter().any(is_ready) {
            let told = conditions.iter().map(|it| {
                ["type", "status", "reason", "message"]
                    .map(|key| of(it, key))
                    .join(" ")
            });
            let told: Vec<String> = told.collect();
            return Err(format!("{} is not ready: {}", tenant.name, told.join("; ")));
        }
        for number in (0..MACHINES).filter(|number| tenant.machines[*number].is_some()) {
            let names = made_names(tenant.name, number);
            let joined = joins(&model.world, tenant.name, &names).await;
            let name = machine_name(tenant.name, number);
            joined.map_err(|problem| format!("a machine of {name} cannot join: {problem}"))?;
        }
    }
    Ok(())
}

/// Does what a machine does: fetches with the token of its bootstrap document, and requests a
/// certificate with the kubelet's kubeconfig.
async fn joins(world: &World, tenant: &'static str, names: &DerivedNames) -> Held {
    let worker = world.worker(tenant);
    let told = |error: kube::Error| error.to_string();
    let found = |name: &str| boot_secret(worker, name).ok_or(format!("{name} is missing"));
    let document = decoded(&found(&names.bootstrap)?, "cloud-config");
    let order = document.split_once("fetch with ");
    let (token, server) = order
        .and_then(|(_, order)| order.lines().next()?.split_once(" from "))
        .ok_or(format!("no order to fetch: {document}"))?;
    leads_to(tenant, server)?;
    let secrets: Api<Secret> = Api::namespaced(client(worker, token), CLOUD_INIT_SETTINGS);
    drop(secrets.get(&names.provisioning).await.map_err(told)?);
    let kubeconfig = decoded(&found(&names.kubelet_kubeconfig)?, "kubeconfig");
    let value = |key: &str| {
        let after = kubeconfig.split_once(key).map(|(_, after)| after);
        after
            .and_then(|after| after.lines().next())
            .unwrap_or_default()
    };
    leads_to(tenant, value("server: "))?;
    let kubelet = client(worker, value("token: "));
    let reviews: Api<SelfSubjectAccessReview> = Api::all(kubelet);
    let review = json!({
        "spec": { "resourceAttributes": {
            "group": "certificates.k8s.io", "resource": "certificatesigningrequests",
            "verb": "create",
        } },
    });
    let review = serde_json::from_value(review).expect("the fields are right");
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(told)?;
    if !answer.status.is_some_and(|status| status.allowed) {
        return Err("a kubelet may not request certificates".to_owned());
    }
    Ok(())
}

fn leads_to(tenant: &str, server: &str) -> Held {
    if server.ends_with(&format!(".{tenant}.example:6443")) {
        return Ok(());
    }
    Err(format!("{server} is another's"))
}

fn client(worker: &Cluster, token: &str) -> Client {
    let front = worker.front_as(&User::anonymous());
    Client::new(
        transport("machine", front, Some(token), &Life::new()),
        "default",
    )
}
