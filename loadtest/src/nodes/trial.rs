//! One machine on a site, and what is asked of it.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use super::Params;
use super::site::Site;
use crate::demo::node::{self, watched};
use crate::demo::screen::Screen;
use crate::machine::{
    Boot, JOIN_TIMEOUT, Machine, Progress, READY, Reached, Shell, is_ready, pods, tail,
};

/// What is said on the console comes within seconds; this is for a busy machine.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A site, and the machine that boots there.
pub(super) struct Trial {
    pub(super) site: Site,
    pub(super) machine: Machine,
    progress: Progress,
    screen: Screen,
}

impl Trial {
    /// Powers on the site's machine.
    pub(super) async fn power_on(site: Site, params: &Params, boot: Boot) -> anyhow::Result<Self> {
        let machine = site.power_on(boot).await?;
        Self::with(site, params, machine).await
    }

    /// Watches a machine that was powered on.
    pub(super) async fn with(
        site: Site,
        params: &Params,
        machine: Machine,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            progress: watched(params.screen, site.worker().await?),
            screen: params.screen,
            site,
            machine,
        })
    }

    /// Deletes the Machine, and powers another one on in its place.
    pub(super) async fn deleted(self, params: &Params, boot: Boot) -> anyhow::Result<Self> {
        let machines = self.site.machines().await?;
        machines
            .delete(self.machine.name(), &DeleteParams::default())
            .await
            .context("deleting the Machine")?;
        self.replaced(params, boot).await
    }

    /// Waits until the Machine is gone, powers the machine off, and another one on.
    pub(super) async fn replaced(self, params: &Params, boot: Boot) -> anyhow::Result<Self> {
        let provider = &self.site.provider;
        let machine = provider
            .replaced(self.machine, node::DEPLOYMENT, boot)
            .await?;
        let trial = Self::with(self.site, params, machine).await?;
        trial.note("another machine is powered on in its place");
        Ok(trial)
    }

    /// Prints what was seen.
    pub(super) fn note(&self, what: &str) {
        self.screen.print(&format!("    ok  {what}"));
    }

    /// Waits until the machine has reached a stage.
    pub(super) async fn until(&mut self, stage: &str) -> anyhow::Result<()> {
        self.progress
            .until(&mut self.machine, stage, JOIN_TIMEOUT)
            .await
    }

    /// Waits until it is a Ready node.
    pub(super) async fn joins(&mut self) -> anyhow::Result<()> {
        self.until(READY).await
    }

    /// Waits until the console shows a text behind this many bytes.
    pub(super) async fn console_shows(&mut self, from: usize, text: &str) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + JOIN_TIMEOUT;
        loop {
            self.machine.check()?;
            self.progress.look(&self.machine).await;
            let console = self.machine.console();
            if console.get(from..).is_some_and(|it| it.contains(text)) {
                self.note(&format!("the console says: {text}"));
                return Ok(());
            }
            if tokio::time::Instant::now() > deadline {
                bail!(
                    "the console never says {text:?}; it ends with:\n{}",
                    tail(&console)
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// A root shell in the machine.
    pub(super) async fn shell(&self) -> anyhow::Result<Shell> {
        self.machine.shell().await
    }

    /// The node that it has become.
    pub(super) async fn node(&self) -> anyhow::Result<Node> {
        let nodes: Api<Node> = Api::all(self.site.worker().await?);
        nodes
            .get(self.machine.name())
            .await
            .context("reading the node")
    }

    /// The kubelet's configuration, as it says itself.
    pub(super) async fn kubelet_configuration(&self) -> anyhow::Result<Value> {
        let request = http::Request::get(format!(
            "/api/v1/nodes/{}/proxy/configz",
            self.machine.name()
        ))
        .body(Vec::new())
        .context("a request")?;
        let client = self.site.worker().await?;
        let answer: Value = client
            .request(request)
            .await
            .context("asking the kubelet for its configuration")?;
        answer
            .get("kubeletconfig")
            .cloned()
            .context("the kubelet's answer has no configuration")
    }

    /// Sees that the kubelet runs with the setting by which a revision is known.
    pub(super) async fn has_max_pods(&self, wanted: u32) -> anyhow::Result<()> {
        let configuration = self.kubelet_configuration().await?;
        let pods = configuration.get("maxPods");
        let pods = pods.context("the kubelet's configuration has no maxPods")?;
        ensure!(*pods == json!(wanted), "maxPods is {pods}, not {wanted}");
        self.note(&format!("the kubelet has maxPods {wanted}"));
        Ok(())
    }

    /// What `osm machine` prints about it, whatever its exit status.
    #[expect(
        clippy::disallowed_methods,
        reason = "running the program is what this is for"
    )]
    pub(super) fn explained(&self) -> anyhow::Result<String> {
        let worker = &self.site.worker;
        let kubeconfig = self.site.folder.kubeconfig(worker);
        std::fs::write(&kubeconfig, worker.admin_kubeconfig()).context("writing a kubeconfig")?;
        let output = Command::new(self.site.osm())
            .args(["machine", self.machine.name(), "--worker-kubeconfig"])
            .arg(kubeconfig)
            .output()
            .context("running osm machine")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            !said.is_empty(),
            "osm machine said nothing: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said.into_owned())
    }

    /// Sees that `osm machine` says so, however wide its columns are.
    pub(super) fn is_explained_by(&self, text: &str) -> anyhow::Result<()> {
        let said = self.explained()?;
        let words: Vec<&str> = said.split_whitespace().collect();
        ensure!(
            words.join(" ").contains(text),
            "osm machine does not say {text:?}:\n{said}"
        );
        self.note(&format!("osm machine says: {text}"));
        Ok(())
    }

    /// Runs a pod of this image, and reads its log through the kubelet.
    pub(super) async fn runs(&self, name: &str, image: &str) -> anyhow::Result<()> {
        let client = self.site.worker().await?;
        let log = Box::pin(pods::log_of(client, self.machine.name(), name, image)).await?;
        ensure!(log.contains("hello from pod"), "{image} said {log:?}");
        self.note(&format!("a pod of {image} ran: {}", log.trim_end()));
        Ok(())
    }

    /// Reboots the machine, and waits until the node is Ready again.
    pub(super) async fn reboots(&self) -> anyhow::Result<()> {
        let before = boot_id(&self.node().await?);
        let begun = tokio::time::Instant::now();
        // The shell ends with the machine.
        drop(self.shell().await?.run("systemctl reboot").await);
        // While the machine is away, the API server answers from what it knew.
        let is_back =
            |node: Option<&Node>| node.is_some_and(|it| boot_id(it) != before && is_ready(it));
        let nodes: Api<Node> = Api::all(self.site.worker().await?);
        let back = await_condition(nodes, self.machine.name(), is_back);
        tokio::time::timeout(JOIN_TIMEOUT, back)
            .await
            .with_context(|| {
                let console = tail(&self.machine.console());
                format!("waiting for the node after a reboot; the console ends with:\n{console}")
            })??;
        let took = begun.elapsed().as_secs();
        self.note(&format!("after a reboot it is Ready again, {took} s later"));
        Ok(())
    }

    /// Ends the machine and the site; what the machine has reached is the result.
    pub(super) async fn end(self) -> anyhow::Result<Vec<Reached>> {
        drop(self.machine);
        self.site.end().await?;
        Ok(self.progress.reached)
    }
}

pub(super) fn boot_id(node: &Node) -> Option<String> {
    let info = node.status.as_ref()?.node_info.as_ref()?;
    Some(info.boot_id.clone())
}
