//! The demo: a management cluster, the worker clusters of `tenants-example/`, and the manager's
//! real binary between them. It does what an operator would do, from outside, and shows what became
//! of it.
//!
//! ```text
//!  DemoCluster ── management, berlin, lisbon: in memory or real
//!  Manager ────── `osm run`, as the ServiceAccount of manifests/rbac/management.yaml
//!  tenants ────── registers each tenant, and waits until it is served
//!  revisions ──── raises revisions, as machine-controller does
//!  show ───────── the tables, one document, one trace
//!  node ───────── a virtual machine that joins, on request
//! ```

pub mod cluster;
mod document;
pub(crate) mod folder;
pub(crate) mod install;
pub(crate) mod node;
pub mod process;
pub(crate) mod revisions;
pub mod screen;
mod show;
pub(crate) mod tenants;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::cluster::{DemoCluster, Kind};
use self::folder::Folder;
use self::process::Manager;
use self::screen::{Look, Screen, seconds};
use self::tenants::{Served, Tenant};
use crate::collector::Collector;
use crate::control_plane::{self, Assets};
use crate::machine::{HOST_ADDRESS, Images, Machine, Provider, network};

/// A real control plane on a busy machine takes its time; in memory all is done in two seconds.
const SERVED_TIMEOUT: Duration = Duration::from_mins(1);
const ADMIN_TIMEOUT: Duration = Duration::from_secs(20);
const MANAGEMENT: &str = "management";

/// What the demo is asked for.
#[derive(Debug)]
pub struct Params {
    /// What the clusters are.
    pub kind: Kind,
    /// The `osm` program.
    pub osm: PathBuf,
    /// With these, a machine of the tenant in `loadtest/nodes` boots and becomes a node.
    pub machine: Option<Images>,
    /// What comes after the last table.
    pub ending: Ending,
    /// Where everything is printed.
    pub screen: Screen,
    /// Ends the demo early, in good order.
    pub cancel: CancellationToken,
}

/// What comes after the last table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Everything stays up until the demo is cancelled.
    Stay,
    /// Everything ends.
    Exit,
}

/// Runs the demo to its end. Whatever happens, nothing is left behind.
pub async fn run(params: Params) -> anyhow::Result<()> {
    let begun = tokio::time::Instant::now();
    let screen = params.screen;
    if !params.osm.is_file() {
        bail!(
            "there is no program {}: build it with `cargo build`, or name it in OSM_BINARY",
            params.osm.display()
        );
    }
    let folder = match params.machine {
        Some(_) => "loadtest/nodes",
        None => "tenants-example",
    };
    let tenants = tenants::read_all(&install::repository().join(folder))?;
    let cancelled = params.cancel.clone();
    let mut stage = Stage::default();
    let played = tokio::select! {
        biased;
        () = cancelled.cancelled() => match params.ending {
            Ending::Stay => Ok(()),
            Ending::Exit => Err(anyhow::anyhow!("interrupted before the end")),
        },
        played = stage.play(&params, &tenants, begun) => played,
    };
    screen.clear_line();
    if params.cancel.is_cancelled() {
        screen.print("");
    }
    let ended = screen
        .step("everything ended, files removed", stage.end())
        .await;
    // What went wrong first is what matters.
    played.and(ended)
}

/// What runs; ended in the order of the fields.
#[derive(Default)]
struct Stage {
    machine: Option<(Provider, Machine)>,
    /// Stands for machine-controller where no machine is started.
    revisions: JoinSet<()>,
    manager: Option<Manager>,
    clusters: Vec<DemoCluster>,
    folder: Option<Folder>,
}

impl Stage {
    async fn play(
        &mut self,
        params: &Params,
        tenants: &[Tenant],
        begun: tokio::time::Instant,
    ) -> anyhow::Result<()> {
        let screen = params.screen;
        screen.heading("Starting");
        self.start_clusters(params, tenants).await?;
        let folder = self.folder.insert(Folder::new()?);
        let (management, workers) = self
            .clusters
            .split_first()
            .context("the first cluster is the management cluster")?;
        let installed = install::in_all(&params.osm, management, workers);
        screen
            .step("CRDs and roles applied", Box::pin(installed))
            .await?;
        if params.machine.is_none() {
            self.revisions = revisions::keep_in(workers).await?;
        }
        let collector = Collector::start().await.context("starting a collector")?;
        let arguments = [
            "--otlp-endpoint",
            &collector.endpoint(),
            "--instance",
            "demo",
        ];
        let manager = install::start_manager(&params.osm, management, folder, &arguments).await?;
        let manager = self.manager.insert(manager);
        let admin = screen
            .step("osm run started, with its own roles only", async {
                tokio::time::timeout(ADMIN_TIMEOUT, manager.admin_address())
                    .await
                    .unwrap_or_else(|_| {
                        bail!("osm run does not listen; its log:\n{}", manager.log_tail())
                    })
            })
            .await?;
        let served = serve(screen, manager, (management, workers, tenants)).await?;
        show::everything(&show::Params {
            screen,
            management,
            workers,
            served: &served,
            collector: &collector,
        })
        .await?;
        if let (Some(images), Some(worker)) = (&params.machine, workers.first()) {
            let (client, folder) = (worker.client().await?, folder.path().to_owned());
            let joined = Box::pin(node::join(screen, client, images.clone(), folder)).await?;
            self.machine = Some(joined);
        }
        let what = match self.machine {
            Some(_) => "a machine joined".to_owned(),
            None => format!("{} tenants served", tenants.len()),
        };
        let done = screen.paint(Look::Good, "Done:");
        let all = seconds(begun.elapsed());
        screen.print(&format!("\n{done} {what} in {all}, from nothing."));
        if params.ending == Ending::Exit {
            return Ok(());
        }
        folder.write_kubeconfigs(&self.clusters)?;
        let prefix = self.machine.is_some().then(network::prefix);
        show::LookAround {
            screen,
            folder,
            prefix: &prefix.unwrap_or_default(),
        }
        .print(&self.clusters, (manager.log(), &admin));
        // The manager must not end; the user ends the demo with a signal.
        let ended = manager.ended().await;
        bail!("{ended:#}; its log:\n{}", manager.log_tail())
    }

    async fn start_clusters(&mut self, params: &Params, tenants: &[Tenant]) -> anyhow::Result<()> {
        if params.kind == Kind::Real {
            // Without a moving line: a build writes lines of its own.
            let assets = Assets::find().await?;
            let folder = assets.folder().display();
            params
                .screen
                .print(&format!("        Kubernetes from {folder}"));
        }
        let names = || std::iter::once(MANAGEMENT).chain(tenants.iter().map(Tenant::name));
        let what = format!(
            "clusters started: {}",
            names().collect::<Vec<_>>().join(", ")
        );
        let started = names().map(|name| {
            let is_for_machines = params.machine.is_some() && name != MANAGEMENT;
            let cluster = control_plane::Params {
                name: name.to_owned(),
                machines_reach: is_for_machines.then_some(HOST_ADDRESS),
                ..control_plane::Params::default()
            };
            DemoCluster::start(params.kind, cluster)
        });
        self.clusters = params
            .screen
            .step(&what, futures::future::try_join_all(started))
            .await?;
        Ok(())
    }

    async fn end(self) -> anyhow::Result<()> {
        drop((self.machine, self.revisions));
        if let Some(mut manager) = self.manager {
            let status = manager.stop().await?;
            if !status.success() {
                bail!("osm run ended badly ({status}):\n{}", manager.log_tail());
            }
        }
        let stopped = self.clusters.into_iter().map(DemoCluster::stop);
        futures::future::try_join_all(stopped).await?;
        self.folder.map_or(Ok(()), Folder::remove)
    }
}

/// Registers every tenant, and waits until all of them are served or the manager ends.
async fn serve(
    screen: Screen,
    manager: &mut Manager,
    (management, workers, tenants): (&DemoCluster, &[DemoCluster], &[Tenant]),
) -> anyhow::Result<Vec<Served>> {
    for (tenant, worker) in tenants.iter().zip(workers) {
        let what = format!("{} registered", tenant.namespace());
        screen
            .step(&what, tenants::register(tenant, management, worker))
            .await?;
    }
    let all = async {
        let client = management.client().await?;
        let each = tenants.iter().map(|tenant| {
            let client = client.clone();
            async move {
                let what = tenant.namespace();
                tenants::until_served(client, tenant, SERVED_TIMEOUT)
                    .await
                    .with_context(|| format!("waiting for {what}"))
            }
        });
        futures::future::try_join_all(each).await
    };
    let served = screen
        .step("machine deployments served", async {
            tokio::select! {
                served = all => served,
                ended = manager.ended() => Err(ended),
            }
        })
        .await;
    served.map_err(|error| {
        anyhow::anyhow!(
            "{error:#}\n\nthe log of osm ends with:\n{}",
            manager.log_tail()
        )
    })
}
