//! The fleet and the manager between its clusters: how a run starts, what it waits for, and how it
//! looks at the process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use fake_cluster::AuditEntry;
use tokio::time::{Instant, sleep, timeout};

use super::fleet::Fleet;
use super::measure::{self, Sample};
use super::served::{LOOK_INTERVAL, Serving, until_served};
use crate::demo::process::{self, Manager};
use crate::demo::screen::Screen;

/// Five thousand tenants on a busy machine take some minutes.
const SERVED_TIMEOUT: Duration = Duration::from_mins(20);
const ADMIN_TIMEOUT: Duration = Duration::from_mins(1);
/// When the management cluster was not written to for this long, all statuses are there: they come
/// a second apart at most.
const QUIET: Duration = Duration::from_secs(4);

/// What a run is asked for.
#[derive(Clone, Debug)]
pub struct Params {
    /// Tenants.
    pub tenants: usize,
    /// Machine deployments of each.
    pub machine_deployments: usize,
    /// The delay of every answer.
    pub latency: Duration,
    /// How long the manager is watched at rest.
    pub window: Duration,
    /// The `osm` program.
    pub osm: PathBuf,
    /// More arguments of `osm run`.
    pub arguments: Vec<String>,
    /// The command line of a process for one cluster, where a scenario compares with such.
    pub per_cluster_cmd: Option<String>,
    /// Where the manager's log stays after the run; without it, it goes with the run.
    pub log: Option<PathBuf>,
    /// Where everything is printed.
    pub screen: Screen,
}

/// The fleet, and the manager while one runs.
pub struct Stage {
    /// The clusters.
    pub fleet: Fleet,
    /// What the run was asked for.
    pub params: Params,
    /// What `osm crds` prints.
    pub definitions: String,
    folder: tempfile::TempDir,
    running: Option<Running>,
}

struct Running {
    manager: Manager,
    admin: String,
    pid: u32,
}

impl Stage {
    /// Makes the management cluster and the worker clusters; nothing is registered, nothing runs.
    pub async fn new(params: Params) -> anyhow::Result<Self> {
        anyhow::ensure!(
            params.osm.is_file(),
            "there is no program {}: build it with `cargo build --release`",
            params.osm.display()
        );
        let definitions = definitions(&params.osm).await?;
        let what = format!("{} clusters in memory", params.tenants + 1);
        let screen = params.screen;
        let fleet = screen.step(&what, async {
            let mut fleet = Fleet::start(&definitions).await?;
            fleet
                .grow(params.tenants, params.machine_deployments)
                .await?;
            fleet.delay(params.latency);
            anyhow::Ok(fleet)
        });
        Ok(Self {
            fleet: fleet.await?,
            definitions,
            folder: tempfile::tempdir().context("making a folder")?,
            running: None,
            params,
        })
    }

    /// Starts the manager, and returns once its admin port listens.
    pub async fn start(&mut self) -> anyhow::Result<Instant> {
        let kubeconfig = self.folder.path().join("osm.kubeconfig");
        std::fs::write(&kubeconfig, self.fleet.management_kubeconfig())
            .context("writing the manager's kubeconfig")?;
        let log = self.params.log.clone();
        let log = log.unwrap_or_else(|| self.folder.path().join("osm.log"));
        let arguments: Vec<&str> = self.params.arguments.iter().map(String::as_str).collect();
        let begun = Instant::now();
        let mut manager = Manager::start(process::Params {
            binary: &self.params.osm,
            kubeconfig: &kubeconfig,
            arguments: &arguments,
            log,
        })?;
        let admin = timeout(ADMIN_TIMEOUT, manager.admin_address()).await;
        let admin = admin.context("the manager does not listen")??;
        let pid = manager.pid().context("the manager has no process id")?;
        self.running = Some(Running {
            manager,
            admin,
            pid,
        });
        Ok(begun)
    }

    /// Ends the manager in good order.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let status = running.manager.stop().await?;
        if !status.success() {
            bail!(
                "the manager ended badly ({status}):\n{}",
                running.manager.log_tail()
            );
        }
        Ok(())
    }

    /// Looks at the manager.
    pub async fn sample(&self) -> anyhow::Result<Sample> {
        let running = self.running.as_ref().context("no manager runs")?;
        Sample::take(running.pid, &running.admin).await
    }

    /// How long the manager's fleet page takes, with every tenant on it.
    pub async fn fleet_page(&self) -> anyhow::Result<Duration> {
        let running = self.running.as_ref().context("no manager runs")?;
        measure::fleet_page(&running.admin, self.params.tenants).await
    }

    /// Registers every tenant, and returns when each was.
    pub fn register_all(&self) -> anyhow::Result<Vec<Instant>> {
        let workers = self.fleet.workers.iter();
        workers
            .map(|worker| {
                let now = Instant::now();
                self.fleet.register(worker).map(|()| now)
            })
            .collect()
    }

    /// Waits until all machine deployments are served in a revision.
    pub async fn until_all_served(&mut self, revision: u64) -> anyhow::Result<Vec<Serving>> {
        let (fleet, screen) = (&self.fleet, self.params.screen);
        let all = async {
            let mut found = Vec::new();
            for worker in &fleet.workers {
                for name in &worker.machine_deployments {
                    found.push(until_served(worker, name, revision).await);
                }
            }
            found
        };
        let what = format!("all served in revision {revision}");
        screen
            .step(&what, with(&mut self.running, &what, all))
            .await
    }

    /// Waits until a condition of the fleet holds.
    pub async fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Fleet) -> bool,
    ) -> anyhow::Result<()> {
        let (fleet, screen) = (&self.fleet, self.params.screen);
        let wait = async {
            while !holds(fleet) {
                sleep(LOOK_INTERVAL).await;
            }
        };
        screen.step(what, with(&mut self.running, what, wait)).await
    }

    /// Waits until nothing is written to the management cluster any more.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        let (fleet, screen) = (&self.fleet, self.params.screen);
        let wait = async {
            let mut before = None;
            loop {
                let now = fleet.management.cluster.count_requests(wrote_of_a_tenant);
                if before.replace(now) == Some(now) {
                    return;
                }
                sleep(QUIET).await;
            }
        };
        let what = "nothing is written any more";
        screen.step(what, with(&mut self.running, what, wait)).await
    }

    /// Lets some time go by.
    pub async fn rest(&mut self, time: Duration) -> anyhow::Result<()> {
        let what = format!("{} s at rest", time.as_secs());
        let screen = self.params.screen;
        let rest = with(&mut self.running, &what, sleep(time));
        screen.step(&what, rest).await
    }
}

/// A replica renews its Lease all the time.
pub(super) fn wrote_of_a_tenant(request: &AuditEntry) -> bool {
    request.wrote && request.target.resource != "leases"
}

/// Waits for some work, unless the manager ends first or the time is up.
async fn with<T>(
    running: &mut Option<Running>,
    what: &str,
    work: impl Future<Output = T>,
) -> anyhow::Result<T> {
    let Some(Running { manager, .. }) = running else {
        bail!("no manager runs to wait for: {what}");
    };
    let done = timeout(SERVED_TIMEOUT, async {
        tokio::select! {
            done = work => Ok(done),
            ended = manager.ended() => Err(ended),
        }
    });
    let Ok(done) = done.await else {
        bail!(
            "waited too long until {what}; the log of osm ends with:\n{}",
            manager.log_tail()
        );
    };
    done.with_context(|| format!("waiting until {what}; the log:\n{}", manager.log_tail()))
}

/// What `osm crds` prints.
#[expect(
    clippy::disallowed_methods,
    reason = "running the program is what the load test is for"
)]
async fn definitions(osm: &Path) -> anyhow::Result<String> {
    let command = std::process::Command::new(osm);
    let mut command = tokio::process::Command::from(command);
    let output = command
        .arg("crds")
        .output()
        .await
        .context("running osm crds")?;
    anyhow::ensure!(
        output.status.success(),
        "osm crds failed: {}",
        output.status
    );
    String::from_utf8(output.stdout).context("reading what osm crds prints")
}
