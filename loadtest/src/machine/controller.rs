//! A stand-in for machine-controller: it keeps that contract with the manager and with nodes, for
//! a provider whose machines are QEMU processes.

mod rollout;

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams};
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
/// The namespace of Machines.
const MACHINES: &str = "kube-system";
const DOCUMENT: &str = "cloud-config";
/// The annotation of a document's Secret.
const MADE_FOR_REVISION: &str = "k8c.io/machine-deployment-revision";
const SERVING: &str = "kubernetes.io/kubelet-serving";
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The manager writes a machine deployment's documents within a second of its engagement.
const DOCUMENT_TIMEOUT: Duration = Duration::from_mins(2);

/// Approves serving certificates and replaces Machines of old templates for as long as it lives,
/// and makes user data.
pub struct MachineController {
    client: Client,
    _reconciling: JoinSet<()>,
}

impl MachineController {
    /// Begins to reconcile.
    pub fn start(client: Client) -> Self {
        let mut reconciling = JoinSet::new();
        reconciling.spawn(reconcile(client.clone()));
        Self {
            client,
            _reconciling: reconciling,
        }
    }

    /// Creates the Machine, waits for the bootstrap Secret of its machine deployment's revision,
    /// and makes of it what the machine gets.
    ///
    /// # Errors
    ///
    /// When the Machine cannot be created, or there is no such Secret within two minutes.
    pub async fn user_data(
        &self,
        deployment: (&str, &str),
        machine: &str,
    ) -> anyhow::Result<String> {
        let revision = rollout::create_machine(&self.client, deployment, machine).await?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), SETTINGS);
        let name = format!("{1}-{0}-bootstrap-config", deployment.0, deployment.1);
        let is_ready = |secret: Option<&Secret>| {
            let made_for = secret.and_then(|it| it.annotations().get(MADE_FOR_REVISION));
            let data = secret.and_then(|secret| secret.data.as_ref());
            made_for == Some(&revision) && data.is_some_and(|data| data.contains_key(DOCUMENT))
        };
        let found = await_condition(secrets, &name, is_ready);
        let secret = tokio::time::timeout(DOCUMENT_TIMEOUT, found)
            .await
            .with_context(|| format!("waiting for Secret {SETTINGS}/{name} of {revision}"))??;
        let data = secret.and_then(|secret| secret.data).unwrap_or_default();
        let bytes = data.get(DOCUMENT).context("the document is gone")?;
        Ok(for_machine(&String::from_utf8_lossy(&bytes.0), machine))
    }

    /// Waits until a Machine is deleted.
    ///
    /// # Errors
    ///
    /// When it is still there after two minutes.
    pub async fn until_gone(&self, machine: &str) -> anyhow::Result<()> {
        let machines = rollout::machines(&self.client, MACHINES);
        let gone = await_condition(machines, machine, |it: Option<&_>| it.is_none());
        let gone = tokio::time::timeout(DOCUMENT_TIMEOUT, gone).await;
        gone.with_context(|| format!("waiting until Machine {machine} is deleted"))??;
        Ok(())
    }
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

/// A server that is away, or refuses a write, is asked again in a second.
async fn reconcile(client: Client) {
    loop {
        drop(approve_all(&client).await);
        drop(rollout::reconcile(&client, MACHINES).await);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn approve_all(client: &Client) -> kube::Result<()> {
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    for request in requests.list(&ListParams::default()).await? {
        if !waits(&request) {
            continue;
        }
        let condition = json!({
            "type": "Approved", "status": "True", "reason": "MachineControllerApproved",
            "message": "the request is of a machine",
        });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        let (name, params) = (request.name_any(), PatchParams::default());
        requests.patch_approval(&name, &params, &patch).await?;
    }
    Ok(())
}

fn waits(request: &CertificateSigningRequest) -> bool {
    let status = request.status.as_ref();
    let decided = status.and_then(|it| it.conditions.as_ref());
    request.spec.signer_name == SERVING && decided.is_none_or(Vec::is_empty)
}
