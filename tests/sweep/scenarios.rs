//! What happens in a world: each a beginning that settles, and an event.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Cluster, object};
use kube::api::{Api, DeleteParams};
use osm::api::machine_deployment::MachineDeployment;
use serde_json::{Map, Value, json};

use crate::{
    fixtures,
    snapshot::{boot_secret, decoded},
    wire::Life,
    world::{Process, World, put, settings},
};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// A tenant with a machine deployment is registered, and nothing has been made for it yet.
    Create,
    /// machine-controller raises the revision.
    Revision,
    /// The profile gets another version and prints the same.
    ProfileVersion,
    /// The profile prints another provisioning document.
    Provisioning,
    /// The revision is raised, and the profile prints another provisioning document.
    RevisionAndProvisioning,
    /// The tenant's settings change the bootstrap document and the kubelet's kubeconfig.
    Settings,
    /// The token must be renewed.
    Renewal,
    /// The kubeconfig gets another token, and the old one is worthless.
    Kubeconfig,
    /// The fetcher gets another token: every document, and the key of every digest.
    FetchToken,
    /// The profile prints another provisioning document, and machines of another are replaced.
    Machines,
    /// Somebody writes other bytes into the provisioning Secret.
    Tampering,
    /// Somebody deletes the bootstrap Secret and the kubelet's kubeconfig.
    Loss,
    /// The machine deployment is deleted.
    Deletion,
    /// As the first, on the provider `edge`.
    EdgeCreate,
    /// On the provider `edge`, the tenant's settings change the script, too.
    EdgeSettings,
    /// A machine deployment on the provider `edge` is deleted.
    EdgeDeletion,
    /// As the first, with credentials for each machine deployment.
    OwnCreate,
    /// A machine deployment with credentials of its own is deleted.
    OwnDeletion,
    /// The registration is removed, and with it what was made, with credentials of its own.
    OwnPurge,
    /// The registration is removed; the machine deployments are given back.
    Release,
    /// The registration is removed, and with it what was made.
    Purge,
}

/// The Secrets of the machine deployment `workers`.
pub const PROVISIONING: &str = "workers-kube-system-provisioning-config";
/// As above.
pub const BOOTSTRAP: &str = "workers-kube-system-bootstrap-config";
/// As above.
pub const KUBELET_KUBECONFIG: &str = "kube-system-workers-kubelet-bootstrap-config";

impl Scenario {
    /// The world before the manager starts.
    pub fn world(self) -> World {
        let mut world = World::with_berlin();
        if self != Self::Renewal {
            world.settings = settings(&["--token-lifetime=24h", "--lease-duration=1h"]);
        }
        let mut machine_deployment = fixtures::a_machine_deployment("workers");
        if matches!(
            self,
            Self::EdgeCreate | Self::EdgeSettings | Self::EdgeDeletion
        ) {
            let cloud = "/spec/template/spec/providerSpec/value/cloudProvider";
            set(&mut machine_deployment, cloud, json!("edge"));
        }
        if self == Self::Machines {
            let at_rest = json!({
                "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
            });
            set(&mut machine_deployment, "/metadata/generation", json!(1));
            set(&mut machine_deployment, "/spec/replicas", json!(2));
            // Nobody replaces them here, and nobody is to complain.
            let day = json!(86_400);
            set(
                &mut machine_deployment,
                "/spec/progressDeadlineSeconds",
                day,
            );
            set(&mut machine_deployment, "/status", at_rest);
        }
        put(world.worker("berlin"), machine_deployment);
        let is_own = matches!(self, Self::OwnCreate | Self::OwnDeletion | Self::OwnPurge);
        let spec = match self {
            Self::Release => json!({"onRemoval": "Release"}),
            Self::Purge => json!({"onRemoval": "Purge"}),
            Self::Machines => json!({"rollout": {"machines": {"replace": "WhenOutdated"}}}),
            _ if is_own => {
                json!({"onRemoval": "Purge", "nodeCredentials": "PerMachineDeployment"})
            }
            _ => return world,
        };
        world.configure("berlin", &spec);
        world
    }

    /// Its world with a manager, at rest.
    pub async fn settled(self) -> (World, Process) {
        let world = self.world();
        let process = world.start_settled().await;
        (world, process)
    }

    /// As [`Self::settled`], with a life that has forgotten what was sent so far.
    pub async fn settled_with_life(self) -> (World, Process, Arc<Life>) {
        let (world, life) = (self.world(), Life::new());
        let process = world.start_settled_as(&life).await;
        life.forget();
        (world, process, life)
    }

    /// Whether the world settles before the event.
    pub fn begins_settled(self) -> bool {
        !matches!(self, Self::Create | Self::EdgeCreate | Self::OwnCreate)
    }

    /// Whether the kubeconfig goes with the event: a process that starts after it cannot reach the
    /// worker cluster any more.
    pub fn takes_kubeconfig(self) -> bool {
        matches!(self, Self::Release | Self::Purge | Self::OwnPurge)
    }

    /// Whether the kubelet's kubeconfig goes with the event.
    pub fn takes_kubelet_kubeconfig(self) -> bool {
        matches!(
            self,
            Self::Loss
                | Self::Deletion
                | Self::EdgeDeletion
                | Self::OwnDeletion
                | Self::Purge
                | Self::OwnPurge
        )
    }

    /// How long after the start the event comes.
    pub fn lead(self) -> Duration {
        match self {
            // The token is renewed between the thirtieth minute and the thirty-sixth.
            Self::Renewal => Duration::from_mins(27),
            _ => Duration::ZERO,
        }
    }

    /// How long the event takes to come to pass.
    pub fn takes(self) -> Duration {
        match self {
            Self::Renewal => Duration::from_mins(8),
            // The cluster info is read again after eleven minutes at most.
            Self::FetchToken => Duration::from_mins(12),
            _ => Duration::ZERO,
        }
    }

    /// Lets it happen.
    pub async fn happen(self, world: &World) {
        let berlin = world.worker("berlin");
        match self {
            Self::Create | Self::EdgeCreate | Self::OwnCreate | Self::Renewal => {}
            Self::Revision => raise_revision(berlin),
            Self::ProfileVersion => profile(world, "text\n"),
            Self::Provisioning | Self::Machines => profile(world, "another text\n"),
            Self::RevisionAndProvisioning => {
                profile(world, "another text\n");
                raise_revision(berlin);
            }
            Self::Settings | Self::EdgeSettings => world.change_own("berlin", |own| {
                let other = json!("https://other.example:6443");
                set(own, "/spec/apiServerOverride", other);
                // As a server counts it.
                set(own, "/metadata/generation", json!(2));
            }),
            Self::Kubeconfig => rotate_kubeconfig(world),
            Self::FetchToken => change(
                berlin,
                ("secrets", "cloud-init-settings", "cloud-init-getter-token"),
                |secret| set(secret, "/data/token", json!("YW5vdGhlciB0b2tlbg==")),
            ),
            Self::Tampering => change(
                berlin,
                ("secrets", "cloud-init-settings", PROVISIONING),
                |secret| set(secret, "/data/cloud-config", json!("Zm9yZWlnbg==")),
            ),
            Self::Loss => {
                for name in [BOOTSTRAP, KUBELET_KUBECONFIG] {
                    berlin.delete_raw(object("secrets", "cloud-init-settings", name));
                }
            }
            Self::Deletion | Self::EdgeDeletion | Self::OwnDeletion => {
                delete_machine_deployment(berlin, "workers").await;
            }
            Self::Release | Self::Purge | Self::OwnPurge => unregister(world),
        }
    }
}

/// Removes the registration of `berlin`.
pub fn unregister(world: &World) {
    let gone = object("secrets", "berlin", "berlin");
    assert!(world.management.delete_raw(gone), "it was registered");
}

/// Raises the revision as machine-controller does.
pub fn raise_revision(worker: &Cluster) {
    change_machine_deployment(worker, "workers", |found| {
        if let Some(revision) = annotations(found).get_mut(fixtures::REVISION) {
            let before = revision.as_str().and_then(|text| text.parse().ok());
            let before: u32 = before.expect("a revision is a number");
            *revision = json!((before + 1).to_string());
        }
    });
}

/// Gives the profile another version, and this text.
pub fn profile(world: &World, text: &str) {
    world.add_profile("berlin", "v2.0.0", text);
}

fn rotate_kubeconfig(world: &World) {
    let berlin = world.worker("berlin");
    let before = berlin.token(&crate::world::account("kube-system"));
    assert!(berlin.revoke_token(&before), "it was valid");
    world.register("berlin");
}

/// Deletes a machine deployment of `kube-system` as a user would.
pub async fn delete_machine_deployment(worker: &Cluster, name: &str) {
    let api: Api<MachineDeployment> = Api::namespaced(worker.client(), "kube-system");
    let deleted = api.delete(name, &DeleteParams::default()).await;
    deleted.expect("an administrator may delete it");
}

/// Changes an object of a cluster as somebody else would.
pub fn change(
    cluster: &Cluster,
    (resource, namespace, name): (&str, &str, &str),
    change: impl FnOnce(&mut Value),
) {
    let mut found = cluster
        .get(object(resource, namespace, name))
        .expect("what is changed is there");
    change(&mut found);
    put(cluster, found);
}

/// Changes a machine deployment of `kube-system` as somebody else would.
pub fn change_machine_deployment(worker: &Cluster, name: &str, change: impl FnOnce(&mut Value)) {
    self::change(worker, ("machinedeployments", "kube-system", name), change);
}

/// Checks that machines of `workers` find nothing.
pub fn nothing_is_made(worker: &Cluster) {
    for name in [BOOTSTRAP, PROVISIONING, KUBELET_KUBECONFIG] {
        assert!(boot_secret(worker, name).is_none(), "{name}");
    }
}

/// Waits until a worker cluster has this Secret in `cloud-init-settings`.
pub async fn until_made(worker: &Cluster, name: &str) {
    let is_made = |worker: &Cluster| boot_secret(worker, name).is_some();
    worker.wait_until(is_made).await;
}

/// What machines fetch from this Secret of `cloud-init-settings`; empty without one.
pub fn document(worker: &Cluster, name: &str) -> String {
    decoded(
        &boot_secret(worker, name).unwrap_or_default(),
        "cloud-config",
    )
}

/// The annotations of an object that has some.
pub fn annotations(object: &mut Value) -> &mut Map<String, Value> {
    let found = object.pointer_mut("/metadata/annotations");
    found
        .and_then(Value::as_object_mut)
        .expect("it has annotations")
}

/// Sets an annotation of an object that has some.
pub fn annotate(object: &mut Value, key: &str, value: &str) {
    annotations(object).insert(key.to_owned(), json!(value));
}

/// Sets a value in an object.
pub fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer has a slash");
    let parent = object
        .pointer_mut(parent)
        .and_then(Value::as_object_mut)
        .expect("the parent is there");
    parent.insert(key.to_owned(), value);
}
