//! How far a machine has come: what its console shows, then what the API server knows of it.

use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, ListParams};

use super::qemu::Machine;

/// Four times what a machine takes to join on two processors that nothing else uses.
pub const JOIN_TIMEOUT: Duration = Duration::from_mins(20);
/// The last stage.
pub const READY: &str = "node Ready";
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The last lines of a console say why it went no further.
const CONSOLE_TAIL_LINES: usize = 40;

/// A stage that a machine has reached, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The stage, in the machine's own words where it says them.
    pub stage: String,
    /// The time since the machine was powered on.
    pub after: Duration,
}

/// Follows one machine.
pub struct Progress {
    client: Client,
    /// Older requests are those of another machine.
    since: Timestamp,
    tell: Box<dyn FnMut(&Reached) + Send>,
    /// All stages so far, in order.
    pub reached: Vec<Reached>,
}

impl Progress {
    /// Follows a machine that becomes a node of this cluster, and reports each stage.
    pub fn new(client: Client, tell: impl FnMut(&Reached) + Send + 'static) -> Self {
        Self {
            client,
            since: Timestamp::now(),
            tell: Box::new(tell),
            reached: Vec::new(),
        }
    }

    /// Waits until the machine has reached a stage whose name begins so.
    ///
    /// # Errors
    ///
    /// When the machine ends, or the time is over; with the last lines of the console.
    pub async fn until(
        &mut self,
        machine: &mut Machine,
        stage: &str,
        timeout: Duration,
    ) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + timeout;
        loop {
            machine.check()?;
            self.look(machine).await;
            if self.reached.iter().any(|it| it.stage.starts_with(stage)) {
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "{} has not come to {stage:?} within {} s; its console ends with:\n{}",
                    machine.name(),
                    timeout.as_secs(),
                    tail(&machine.console())
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Reports everything that is new.
    pub async fn look(&mut self, machine: &Machine) {
        let console = machine.console();
        let mut stages: Vec<String> = console.lines().filter_map(stage_of).collect();
        // A server that is away tells it with the next look.
        stages.extend(
            self.stages_on_the_server(machine.name())
                .await
                .unwrap_or_default(),
        );
        for stage in stages {
            if !self.reached.iter().any(|it| it.stage == stage) {
                let after = machine.powered_on().elapsed();
                let reached = Reached { stage, after };
                (self.tell)(&reached);
                self.reached.push(reached);
            }
        }
    }

    async fn stages_on_the_server(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let mut stages = Vec::new();
        let requests: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        for request in requests.list(&ListParams::default()).await? {
            let created = request.metadata.creation_timestamp.as_ref();
            if created.is_some_and(|it| it.0 < self.since) {
                continue;
            }
            let what = match request.spec.signer_name.as_str() {
                "kubernetes.io/kube-apiserver-client-kubelet" => "client certificate",
                "kubernetes.io/kubelet-serving" => "serving certificate",
                _ => continue,
            };
            stages.push(format!("{what} requested"));
            if request.status.is_some_and(|it| it.certificate.is_some()) {
                stages.push(format!("{what} issued"));
            }
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        if let Some(node) = nodes.get_opt(name).await? {
            stages.push("node registered".to_owned());
            if is_ready(&node) {
                stages.push(READY.to_owned());
            }
        }
        Ok(stages)
    }
}

/// The stage that a line of the console reports.
fn stage_of(line: &str) -> Option<String> {
    if line.contains("Linux version") {
        return Some("kernel".to_owned());
    }
    if line.contains("Cloud-init v.") && line.contains("running 'init'") {
        return Some("cloud-init".to_owned());
    }
    let (_, said) = line.split_once("]: ").unwrap_or_default();
    let is_stage = ["bootstrap: ", "setup: "]
        .iter()
        .any(|it| said.starts_with(it));
    is_stage.then(|| said.trim_end().to_owned())
}

/// Whether a node is Ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// The last lines of a console.
pub fn tail(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let first = lines.len().saturating_sub(CONSOLE_TAIL_LINES);
    lines
        .iter()
        .skip(first)
        .copied()
        .collect::<Vec<_>>()
        .join("\n")
}
