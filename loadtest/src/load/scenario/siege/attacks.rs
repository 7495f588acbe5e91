//! The attacks: what a tenant, its worker cluster or somebody who reaches the admin port does.

use std::sync::Arc;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use fake_cluster::{Chunks, Fault, Matcher, Verb, object};
use futures::future::{LocalBoxFuture, pending};
use serde_json::{Value, json};

use super::{
    super::hostile::a_profile,
    answers::{
        MACHINE_DEPLOYMENTS, SECRETS, empty_items, endless_endpoints, endless_events, endless_list,
        endless_objects, endless_secrets, endless_tokens, long_uids, managed_fields, on_list,
        on_list_of_tokens, on_watch, smuggled_name, unreported_deletions,
    },
    noise::half_requests,
};
use crate::load::{
    fleet::{KUBE_SYSTEM, PROFILE, Worker, machine_deployment},
    stage::Stage,
};

/// More labelled Secrets of this size than fit into a page of a list.
const REGISTRATIONS: usize = 26;
const REGISTRATION_BYTES: usize = 1_000_000;
/// Secrets of Cluster API's type in one namespace, each with a kubeconfig of this size.
const FOUND: usize = 10_000;
const FOUND_BYTES: usize = 10_000;
/// Overlays that each resolve to a profile as large as their base.
const OVERLAYS: usize = 199;
const BASE_BYTES: usize = 900_000;
/// Profiles that a worker cluster offers for adoption.
const OFFERED: usize = 166;
/// Machine deployments that are larger together than any tenant's share.
const LARGE: usize = 100;
const LARGE_BYTES: usize = 1_200_000;

/// When an inventory's Secrets were created: before the attacker's own registration. Of a
/// namespace, the oldest is served, and of one second, any of them.
const BEFORE: &str = "2026-01-01T00:00:00Z";

/// More than the versions that an attacker makes up.
const MADE_UP_REVISIONS: u64 = 1 << 40;

/// One attack.
pub(super) struct Attack {
    /// Its name. The attacker's namespace is called after it.
    pub name: &'static str,
    /// What a condition of the attacker's WorkerCluster must say. Empty if nothing is wrong there.
    pub cause: &'static str,
    /// Which attacks go on at the same time. The first ones begin before the replicas start.
    pub wave: usize,
    /// What is done to the replicas' admin ports. Never returns.
    pub noise: fn(Vec<String>) -> LocalBoxFuture<'static, ()>,
    begin: fn(&Stage, &Worker) -> anyhow::Result<()>,
    end: fn(&Stage, &Worker) -> anyhow::Result<()>,
}

impl Attack {
    /// Attacks that begin by faults alone end when these are cleared.
    const fn by(
        (wave, name): (usize, &'static str),
        cause: &'static str,
        begin: fn(&Stage, &Worker) -> anyhow::Result<()>,
    ) -> Self {
        Self {
            name,
            cause,
            wave,
            noise: |_| Box::pin(pending()),
            begin,
            end: |_, _| Ok(()),
        }
    }

    /// Begins the attack, before the attacker is registered.
    pub(super) fn begin(&self, stage: &Stage, attacker: &Worker) -> anyhow::Result<()> {
        (self.begin)(stage, attacker)
    }

    /// Makes the attacker behave again.
    pub(super) fn end(&self, stage: &Stage, attacker: &Worker) -> anyhow::Result<()> {
        let cluster = &attacker.server.cluster;
        cluster.clear_faults();
        // A watch cannot go on from a version that the attacker made up.
        cluster.skip_revisions(MADE_UP_REVISIONS);
        cluster.compact();
        (self.end)(stage, attacker)
    }
}

/// All attacks. Those that take much memory, or a share of what all tenants have, are in waves of
/// their own: the cause of one must not be another.
pub(super) const ATTACKS: &[Attack] = &[
    Attack::by(
        (1, "empty-items"),
        "the list has more objects than were asked for",
        |_, attacker| {
            on_list(attacker, MACHINE_DEPLOYMENTS, empty_items());
            Ok(())
        },
    ),
    Attack::by(
        (0, "endless-list"),
        "the list has not ended after 500 pages",
        |_, attacker| {
            on_list(attacker, MACHINE_DEPLOYMENTS, endless_list()?);
            Ok(())
        },
    ),
    Attack::by(
        (0, "smuggled-name"),
        "has a name that no object can have",
        |_, attacker| {
            on_list(attacker, MACHINE_DEPLOYMENTS, smuggled_name()?);
            Ok(())
        },
    ),
    Attack::by(
        (1, "managed-fields"),
        "more than 4 MiB of events a second",
        |_, attacker| {
            on_watch(attacker, MACHINE_DEPLOYMENTS, managed_fields()?);
            Ok(())
        },
    ),
    Attack::by(
        (3, "endless-events"),
        "more than 4 MiB of events a second",
        |_, attacker| {
            on_watch(attacker, MACHINE_DEPLOYMENTS, endless_events()?);
            Ok(())
        },
    ),
    Attack::by(
        (2, "endless-objects"),
        "more than 4000 objects exist",
        |_, attacker| {
            on_watch(attacker, MACHINE_DEPLOYMENTS, endless_objects()?);
            Ok(())
        },
    ),
    Attack::by(
        (4, "endless-secrets"),
        "there is no memory left for Secret",
        |_, attacker| {
            on_watch(attacker, SECRETS, endless_secrets());
            Ok(())
        },
    ),
    Attack::by(
        (2, "long-uids"),
        "has a name, uid or resourceVersion longer than any object's",
        |_, attacker| {
            on_watch(attacker, SECRETS, long_uids());
            Ok(())
        },
    ),
    Attack::by((4, "unreported-deletions"), "", |_, attacker| {
        on_watch(attacker, SECRETS, unreported_deletions());
        Ok(())
    }),
    Attack::by(
        (1, "endless-tokens"),
        "the list takes more than 8 MiB of memory",
        |_, attacker| {
            on_list_of_tokens(attacker, endless_tokens());
            Ok(())
        },
    ),
    Attack::by(
        (2, "endless-endpoints"),
        "the list has not ended after 10 pages",
        |_, attacker| {
            let announced = Matcher::on(&[Verb::Get], "configmaps");
            attacker
                .server
                .cluster
                .inject(announced, Fault::status(404));
            on_list(attacker, "endpointslices", endless_endpoints());
            Ok(())
        },
    ),
    Attack::by(
        (2, "long-version"),
        "an object of the answer is longer than 4 MiB",
        |_, attacker| {
            let long = "a".repeat(30 << 20);
            let version =
                json!({ "major": "1", "minor": "35", "gitVersion": format!("v1.35.0-{long}") });
            let version = Bytes::from(version.to_string());
            let chunks: Chunks = Arc::new(move || Box::new(std::iter::once(version.clone())));
            let not_a_resource = Matcher {
                resource: Some(String::new()),
                ..Matcher::default()
            };
            attacker
                .server
                .cluster
                .inject(not_a_resource, Fault::Body(chunks));
            Ok(())
        },
    ),
    Attack {
        end: |_, attacker| {
            forget_all(attacker, "large", LARGE);
            Ok(())
        },
        ..Attack::by((5, "large-objects"), "", |_, attacker| {
            let long = "a".repeat(LARGE_BYTES);
            for index in 0..LARGE {
                let mut large = machine_deployment(&format!("large-{index}"));
                annotate(&mut large, "long", &long)?;
                attacker.server.put(large)?;
            }
            Ok(())
        })
    },
    Attack {
        end: |stage, attacker| give_profiles(stage, attacker, |_| "well".to_owned()),
        ..Attack::by(
            (1, "templates"),
            "the profile makes more than",
            |stage, attacker| {
                give_profiles(stage, attacker, str::to_owned)?;
                for index in 0..TEMPLATES.len() {
                    name_profile(
                        attacker,
                        &format!("burning-{index}"),
                        &format!("hostile-{index}"),
                    )?;
                }
                Ok(())
            },
        )
    },
    Attack {
        end: |stage, attacker| {
            forget_all(attacker, "overlay", OVERLAYS);
            for index in 0..OVERLAYS {
                let name = format!("overlay-{index}");
                let profile = object(PROFILES, &attacker.tenant, &name);
                stage.fleet.management.cluster.delete_raw(profile);
            }
            let base = object(PROFILES, &attacker.tenant, "base");
            stage.fleet.management.cluster.delete_raw(base);
            Ok(())
        },
        ..Attack::by((3, "overlays"), "", |stage, attacker| {
            let base = a_profile(&"a".repeat(BASE_BYTES));
            stage.fleet.give_profile(attacker, ("base", &base))?;
            for index in 0..OVERLAYS {
                let name = format!("overlay-{index}");
                let overlay = json!({
                    "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0",
                    "templateLanguage": "Jinja", "extends": "base",
                });
                stage.fleet.give_profile(attacker, (&name, &overlay))?;
                name_profile(attacker, &name, &name)?;
            }
            Ok(())
        })
    },
    Attack {
        end: |_, attacker| {
            forget_all(attacker, "offered", OFFERED);
            Ok(())
        },
        ..Attack::by(
            (1, "offered-profiles"),
            "not found in namespace",
            |stage, attacker| {
                for yaml in [stage.definitions.as_str(), ADOPTION_RIGHTS] {
                    let applied = attacker.server.cluster.apply_yaml(yaml);
                    applied.context("applying definitions and rights")?;
                }
                let spec = a_profile(&"{{ KubeVersion }} ".repeat(10_000));
                for index in 0..OFFERED {
                    let name = format!("offered-{index}");
                    attacker.server.put(json!({
                        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
                        "kind": "OperatingSystemProfile",
                        "metadata": { "name": name, "namespace": KUBE_SYSTEM }, "spec": spec,
                    }))?;
                    name_profile(attacker, &name, &name)?;
                }
                Ok(())
            },
        )
    },
    Attack {
        end: |stage, attacker| {
            for index in 0..REGISTRATIONS {
                let name = format!("large-{index}");
                let secret = object("secrets", &attacker.tenant, &name);
                stage.fleet.management.cluster.delete_raw(secret);
            }
            Ok(())
        },
        ..Attack::by(
            (0, "large-registrations"),
            "registers a worker cluster in this namespace already",
            |stage, attacker| {
                let kubeconfig = STANDARD.encode("a".repeat(REGISTRATION_BYTES));
                for index in 0..REGISTRATIONS {
                    stage.fleet.management.put(json!({
                        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                        "metadata": {
                            "name": format!("large-{index}"), "namespace": attacker.tenant,
                            "labels": { "operatingsystemmanager.k8c.io/worker-cluster": "true" },
                        },
                        "data": { "kubeconfig": kubeconfig },
                    }))?;
                }
                Ok(())
            },
        )
    },
    Attack {
        end: |stage, attacker| {
            for index in 0..FOUND {
                let name = found(index);
                let secret = object("secrets", &attacker.tenant, &name);
                stage.fleet.management.cluster.delete_raw(secret);
            }
            Ok(())
        },
        ..Attack::by((2, "inventory"), "KubeconfigRefused", |stage, attacker| {
            let kubeconfigs = hostile_kubeconfigs().map(|it| STANDARD.encode(it.to_string()));
            for (index, kubeconfig) in (0..FOUND).zip(kubeconfigs.iter().cycle()) {
                stage.fleet.management.put(json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                    "metadata": {
                        "name": found(index), "namespace": attacker.tenant,
                        "creationTimestamp": BEFORE,
                    },
                    "data": { "value": kubeconfig },
                }))?;
            }
            // Its name is that of a WorkerCluster of another Secret.
            own_worker_cluster(stage, attacker, &found(0))
        })
    },
    Attack {
        end: |stage, attacker| {
            for (kind, name) in [
                ("deployments.apps", "operating-system-manager"),
                ("secrets", "operatingsystemmanager-kubeconfig"),
            ] {
                let gone = object(kind, &attacker.tenant, name);
                stage.fleet.management.cluster.delete_raw(gone);
            }
            Ok(())
        },
        ..Attack::by(
            (0, "user-cluster"),
            "no command is run",
            |stage, attacker| {
                // What it was served with before its command line was changed.
                own_worker_cluster(stage, attacker, "operatingsystemmanager-kubeconfig")?;
                let labels = json!({ "app": "operating-system-manager" });
                let arguments = [
                    "-a-flag-of-tomorrow",
                    "-kubeconfig",
                    "/etc/passwd",
                    "-namespace",
                ];
                let container = json!({
                    "name": "manager", "image": "a", "command": ["/osm-controller"], "args": arguments,
                });
                stage.fleet.management.put(json!({
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": { "name": "operating-system-manager", "namespace": attacker.tenant },
                "spec": {
                    "replicas": 0, "selector": { "matchLabels": labels },
                    "template": {
                        "metadata": { "labels": labels }, "spec": { "containers": [container] },
                    },
                },
            }))?;
                let [kubeconfig, ..] = hostile_kubeconfigs();
                stage.fleet.management.put(json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                    "metadata": {
                        "name": "operatingsystemmanager-kubeconfig", "namespace": attacker.tenant,
                        "creationTimestamp": BEFORE,
                    },
                    "data": { "kubeconfig": STANDARD.encode(kubeconfig.to_string()) },
                }))
            },
        )
    },
    Attack {
        noise: |admins| Box::pin(half_requests(admins)),
        ..Attack::by((0, "half-requests"), "", |_, _| Ok(()))
    },
];

/// The manager's rights to look for a program that served the cluster before.
const ADOPTION_RIGHTS: &str = include_str!("../../../../../manifests/rbac/worker-adoption.yaml");
const PROFILES: &str = "operatingsystemprofiles.operatingsystemmanager.k8c.io";

/// Templates that take much memory or time if they are not stopped.
const TEMPLATES: [&str; 3] = [
    "{% for i in range(400) %}{{ go_printf('%1000000d', i) | length }}{% endfor %}",
    "{% set x = go_printf('%950000d', 1) %}{% for i in range(16000) %}{{ x[i] }}{% endfor %}",
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.x = ns.x ~ ns.x %}\
     {% endfor %}",
];

/// Returns the name of a Secret that the inventory of Cluster API finds.
fn found(index: usize) -> String {
    format!("hostile-{index}-kubeconfig")
}

/// Creates a WorkerCluster that refers to a Secret.
fn own_worker_cluster(stage: &Stage, attacker: &Worker, secret: &str) -> anyhow::Result<()> {
    let (kind, namespace) = ("WorkerCluster", &attacker.tenant);
    stage.fleet.management.put(json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": kind,
        "metadata": { "name": "hostile-1", "namespace": namespace },
        "spec": { "kubeconfigSecretRef": { "name": secret } },
    }))
}

/// Returns large kubeconfigs whose credentials come from a program, or from files.
fn hostile_kubeconfigs() -> [Value; 3] {
    let long = "a".repeat(FOUND_BYTES);
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": [long],
    });
    let users = [
        json!({ "exec": exec }),
        json!({ "tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token", "token": long }),
        json!({ "client-certificate": "/proc/self/environ", "client-key": long }),
    ];
    users.map(|user| {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
            "clusters": [{ "name": "a", "cluster": { "server": "https://a.example.com" } }],
            "users": [{ "name": "a", "user": user }],
        })
    })
}

fn give_profiles(
    stage: &Stage,
    attacker: &Worker,
    template: impl Fn(&str) -> String,
) -> anyhow::Result<()> {
    for (index, hostile) in TEMPLATES.iter().enumerate() {
        let spec = a_profile(&template(hostile));
        let name = format!("hostile-{index}");
        stage.fleet.give_profile(attacker, (&name, &spec))?;
    }
    Ok(())
}

/// Creates a machine deployment that names a profile.
fn name_profile(attacker: &Worker, name: &str, profile: &str) -> anyhow::Result<()> {
    let mut named = machine_deployment(name);
    annotate(&mut named, PROFILE, profile)?;
    attacker.server.put(named)
}

fn annotate(object: &mut Value, key: &str, value: &str) -> anyhow::Result<()> {
    let annotations = object.pointer_mut("/metadata/annotations");
    let annotations = annotations.and_then(Value::as_object_mut);
    let annotations = annotations.context("a machine deployment has annotations")?;
    annotations.insert(key.to_owned(), value.into());
    Ok(())
}

/// Removes numbered machine deployments without asking anybody.
fn forget_all(attacker: &Worker, name: &str, count: usize) {
    for index in 0..count {
        let name = format!("{name}-{index}");
        let gone = attacker.machine_deployment(&name);
        attacker.server.cluster.delete_raw(gone);
    }
}
