//! A stand-in for machine-controller: it keeps that contract with the manager and with nodes, for
//! a provider whose machines are QEMU processes.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinSet;

/// The address that QEMU's network gives to a machine.
pub const NODE_ADDRESS: &str = "10.0.2.15";
/// Where QEMU's machines find this host.
pub const HOST_ADDRESS: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 0, 2, 2);

/// The namespace of what machines fetch.
pub const SETTINGS: &str = "cloud-init-settings";
const DOCUMENT: &str = "cloud-config";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The manager writes a machine deployment's documents within a second of its engagement.
const DOCUMENT_TIMEOUT: Duration = Duration::from_mins(2);

/// Approves serving certificates for as long as it lives, and makes user data.
pub struct MachineController {
    client: Client,
    _approver: JoinSet<()>,
}

impl MachineController {
    /// Begins to approve.
    pub fn start(client: Client) -> Self {
        let mut approver = JoinSet::new();
        approver.spawn(approve_all(client.clone()));
        Self {
            client,
            _approver: approver,
        }
    }

    /// Creates the Machine, waits for the bootstrap Secret of its machine deployment, and makes of
    /// it what the machine gets.
    ///
    /// # Errors
    ///
    /// When the Machine cannot be created, or there is no such Secret within two minutes.
    pub async fn user_data(
        &self,
        (namespace, deployment): (&str, &str),
        machine: &str,
    ) -> anyhow::Result<String> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), SETTINGS);
        let name = format!("{deployment}-{namespace}-bootstrap-config");
        let has_document = |secret: Option<&Secret>| {
            let data = secret.and_then(|secret| secret.data.as_ref());
            data.is_some_and(|data| data.contains_key(DOCUMENT))
        };
        self.create_machine(namespace, deployment, machine).await?;
        let found = await_condition(secrets, &name, has_document);
        let secret = tokio::time::timeout(DOCUMENT_TIMEOUT, found)
            .await
            .with_context(|| format!("waiting for Secret {SETTINGS}/{name}"))??;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let bytes = data.get(DOCUMENT).context("the document is gone")?;
        Ok(for_machine(&String::from_utf8_lossy(&bytes.0), machine))
    }

    /// A Machine of a set of the machine deployment, as the chain of owners of a real one.
    async fn create_machine(
        &self,
        namespace: &str,
        deployment: &str,
        name: &str,
    ) -> anyhow::Result<()> {
        let client = &self.client;
        let deployments = objects(
            client,
            namespace,
            ("MachineDeployment", "machinedeployments"),
        );
        let owner = deployments
            .get(deployment)
            .await
            .context("reading the machine deployment")?;
        let set = format!("{deployment}-set");
        let set = create(
            client,
            namespace,
            ("MachineSet", "machinesets", &set),
            &owner,
        )
        .await?;
        create(client, namespace, ("Machine", "machines", name), &set).await?;
        Ok(())
    }
}

/// An object that belongs to another one.
async fn create(
    client: &Client,
    namespace: &str,
    (kind, plural, name): (&str, &str, &str),
    owner: &DynamicObject,
) -> anyhow::Result<DynamicObject> {
    let objects = objects(client, namespace, (kind, plural));
    let owner = owner_of(owner).context("the owner was read from the server")?;
    let object = json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": kind,
        "metadata": { "name": name, "ownerReferences": [owner] },
    });
    let params = PatchParams::apply("machine-controller").force();
    objects
        .patch(name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("creating {kind} {name}"))
}

fn owner_of(object: &DynamicObject) -> Option<serde_json::Value> {
    let types = object.types.as_ref()?;
    Some(json!({
        "apiVersion": types.api_version, "kind": types.kind, "controller": true,
        "name": object.metadata.name, "uid": object.metadata.uid,
    }))
}

fn objects(client: &Client, namespace: &str, (kind, plural): (&str, &str)) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// machine-controller puts the name in place of its placeholder, also in a URL, and blanks out
/// lines that are white space.
fn for_machine(document: &str, name: &str) -> String {
    let named = document
        .replace("<MACHINE_NAME>", name)
        .replace("%3CMACHINE_NAME%3E", name);
    let blanked = |line: &str| {
        if line.trim().is_empty() {
            String::new()
        } else {
            line.to_owned()
        }
    };
    named.lines().map(|line| blanked(line) + "\n").collect()
}

async fn approve_all(client: Client) {
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    loop {
        // A server that is away is asked again.
        if let Ok(list) = requests.list(&ListParams::default()).await {
            for request in list.items.iter().filter(|it| waits(it)) {
                let condition = json!({
                    "type": "Approved", "status": "True", "reason": "MachineControllerApproved",
                    "message": "the request is of a machine",
                });
                let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
                let (name, params) = (request.name_any(), PatchParams::default());
                // A failed approval is retried in a second.
                drop(
                    requests
                        .patch_subresource("approval", &name, &params, &patch)
                        .await,
                );
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn waits(request: &CertificateSigningRequest) -> bool {
    let status = request.status.as_ref();
    let decided = status.and_then(|it| it.conditions.as_ref());
    request.spec.signer_name == SERVING && decided.is_none_or(Vec::is_empty)
}
