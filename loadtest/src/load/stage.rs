//! The fleet and the manager between its clusters: how a run starts, what it waits for, and how it
//! looks at the process.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use fake_cluster::AuditEntry;
use tokio::time::{Instant, sleep, timeout};

use super::descriptors;
use super::fleet::Fleet;
use super::measure::{self, Sample};
use super::served::{LOOK_INTERVAL, Serving, until_served};
use crate::demo::cluster::Kind;
use crate::demo::install;
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
    /// What the management cluster is.
    pub management: Kind,
    /// The `osm` program.
    pub osm: PathBuf,
    /// More arguments of `osm run`.
    pub arguments: Vec<String>,
    /// The command line of a process for one cluster, where a scenario compares with such.
    pub per_cluster_cmd: Option<String>,
    /// The only attack of a siege, by its name.
    pub attack: Option<String>,
    /// Where the manager's log stays after the run; without it, it goes with the run.
    pub log: Option<PathBuf>,
    /// Where everything is printed.
    pub screen: Screen,
}

impl Params {
    /// A fleet in memory, with one machine deployment for each tenant.
    pub fn in_memory(osm: PathBuf, tenants: usize) -> Self {
        Self {
            tenants,
            machine_deployments: 1,
            latency: Duration::ZERO,
            window: Duration::ZERO,
            management: Kind::Fake,
            osm,
            arguments: Vec::new(),
            per_cluster_cmd: None,
            attack: None,
            log: None,
            screen: Screen::of_this_process(),
        }
    }
}

/// The fleet, and the managers that run: one, or several replicas.
pub struct Stage {
    /// The clusters.
    pub fleet: Fleet,
    /// What the run was asked for.
    pub params: Params,
    /// What `osm crds` prints.
    pub definitions: String,
    folder: tempfile::TempDir,
    running: Vec<Running>,
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
        descriptors::raise_for(params.tenants)?;
        let definitions = install::crds(&params.osm).await?;
        Ok(Self {
            fleet: a_fleet(&params, &definitions, params.machine_deployments).await?,
            definitions,
            folder: tempfile::tempdir().context("making a folder")?,
            running: Vec::new(),
            params,
        })
    }

    /// Starts the manager, and returns once its admin port listens.
    pub async fn start(&mut self) -> anyhow::Result<Instant> {
        self.start_with("", &[]).await
    }

    /// As [`Self::start`], with arguments before those of the run.
    pub async fn start_with(&mut self, instance: &str, more: &[&str]) -> anyhow::Result<Instant> {
        let kubeconfig = self.folder.path().join("osm.kubeconfig");
        let text = self.fleet.management_kubeconfig();
        // A replica that has just started may be reading it.
        if !std::fs::read(&kubeconfig).is_ok_and(|there| there == text.as_bytes()) {
            std::fs::write(&kubeconfig, text).context("writing the manager's kubeconfig")?;
        }
        let log = self.params.log.clone();
        let log = log.unwrap_or_else(|| self.folder.path().join("osm.log"));
        let log = match instance {
            "" => log,
            instance => log.with_added_extension(instance),
        };
        let own = self.params.arguments.iter().map(String::as_str);
        let arguments: Vec<&str> = more.iter().copied().chain(own).collect();
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
        self.running.push(Running {
            manager,
            admin,
            pid,
        });
        Ok(begun)
    }

    /// Ends the managers in good order.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        for mut running in std::mem::take(&mut self.running) {
            let status = running.manager.stop().await?;
            if !status.success() {
                bail!(
                    "the manager ended badly ({status}):\n{}",
                    running.manager.log_tail()
                );
            }
        }
        Ok(())
    }

    /// Returns the process ids of the replicas.
    pub fn process_ids(&self) -> Vec<u32> {
        self.running.iter().map(|running| running.pid).collect()
    }

    /// Returns the addresses of the replicas' admin ports.
    pub fn admin_addresses(&self) -> Vec<String> {
        let running = self.running.iter();
        running.map(|running| running.admin.clone()).collect()
    }

    /// Looks at the manager; at replicas together.
    pub async fn sample(&self) -> anyhow::Result<Sample> {
        let mut samples = Vec::new();
        for running in &self.running {
            samples.push(Sample::take(running.pid, &running.admin).await?);
        }
        anyhow::ensure!(!samples.is_empty(), "no manager runs");
        Ok(Sample::together(&samples))
    }

    /// A counter of the manager's metrics, over all its labels and replicas.
    pub async fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let mut sum = 0;
        for running in &self.running {
            sum += measure::counter(&running.admin, name).await?;
        }
        Ok(sum)
    }

    /// How long the manager's metrics take.
    pub async fn metrics_page(&self) -> anyhow::Result<Duration> {
        let running = self.running.first().context("no manager runs")?;
        measure::metrics_page(&running.admin).await
    }

    /// How long the manager's fleet page takes, with every tenant on it.
    pub async fn fleet_page(&self) -> anyhow::Result<Duration> {
        let running = self.running.first().context("no manager runs")?;
        measure::fleet_page(&running.admin, self.params.tenants).await
    }

    /// Registers every tenant, and returns when each was.
    pub async fn register_all(&self) -> anyhow::Result<Vec<Instant>> {
        let mut registered = Vec::new();
        for worker in &self.fleet.workers {
            registered.push(Instant::now());
            self.fleet.register(worker).await?;
        }
        Ok(registered)
    }

    /// Waits until all machine deployments are served in a revision.
    pub async fn until_all_served(&mut self, revision: u64) -> anyhow::Result<Vec<Serving>> {
        let what = format!("all served in revision {revision}");
        self.wait(&what, async |fleet: &Fleet| {
            let mut found = Vec::new();
            for worker in &fleet.workers {
                for name in &worker.machine_deployments {
                    found.push(until_served(worker, name, revision).await);
                }
            }
            found
        })
        .await
    }

    /// Waits until a condition of the fleet holds.
    pub async fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Fleet) -> bool,
    ) -> anyhow::Result<()> {
        self.wait(what, async |fleet: &Fleet| {
            while !holds(fleet) {
                sleep(LOOK_INTERVAL).await;
            }
        })
        .await
    }

    /// Waits for something of the fleet, unless a manager ends first.
    pub async fn wait<T>(
        &mut self,
        what: &str,
        work: impl AsyncFnOnce(&Fleet) -> T,
    ) -> anyhow::Result<T> {
        let managers = self.running.iter_mut().map(|it| &mut it.manager);
        let work = unless_one_ends(managers, what, work(&self.fleet));
        self.params.screen.step(what, work).await
    }

    /// Waits until nothing is written to the management cluster any more.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        self.wait("nothing is written any more", async |fleet: &Fleet| {
            let mut before = None;
            loop {
                let now = fleet.management_requests(wrote_of_a_tenant)?;
                if before.replace(now) == Some(now) {
                    return Ok(());
                }
                sleep(QUIET).await;
            }
        })
        .await?
    }

    /// Lets some time go by.
    pub async fn rest(&mut self, time: Duration) -> anyhow::Result<()> {
        let what = format!("{} s at rest", time.as_secs());
        self.wait(&what, async |_: &Fleet| sleep(time).await).await
    }
}

/// A replica renews its Lease all the time.
pub(super) fn wrote_of_a_tenant(request: &AuditEntry) -> bool {
    request.wrote && request.target.resource != "leases"
}

/// A management cluster, and worker clusters of which none is registered.
async fn a_fleet(
    params: &Params,
    definitions: &str,
    machine_deployments: usize,
) -> anyhow::Result<Fleet> {
    let (kind, clusters) = match params.management {
        Kind::Fake => ("", params.tenants + 1),
        Kind::Real => ("a real management cluster, and ", params.tenants),
    };
    let what = format!("{kind}{clusters} clusters in memory");
    let made = async {
        let mut fleet = match params.management {
            Kind::Fake => Fleet::start(definitions).await?,
            Kind::Real => Fleet::start_real(definitions).await?,
        };
        fleet.grow(params.tenants, machine_deployments).await?;
        fleet.delay(params.latency);
        anyhow::Ok(fleet)
    };
    params.screen.step(&what, made).await
}

/// Waits for some work, unless one of these managers ends first or the time is up.
pub(super) async fn unless_one_ends<'a, T>(
    managers: impl Iterator<Item = &'a mut Manager>,
    what: &str,
    work: impl Future<Output = T>,
) -> anyhow::Result<T> {
    let mut managers: Vec<_> = managers.collect();
    anyhow::ensure!(!managers.is_empty(), "no manager runs to wait for: {what}");
    let ended = managers.iter_mut().map(|manager| {
        Box::pin(async {
            let error = manager.ended().await;
            error.context(manager.log_tail())
        })
    });
    let ended = futures::future::select_all(ended);
    let done = timeout(SERVED_TIMEOUT, async {
        tokio::select! {
            done = work => Ok(done),
            (error, ..) = ended => Err(error),
        }
    });
    let done = done.await;
    let tail = || managers.first().map(|it| it.log_tail());
    let Ok(done) = done else {
        bail!(
            "waited too long until {what}; the log of osm ends with:\n{}",
            tail().unwrap_or_default()
        );
    };
    done.with_context(|| format!("waiting until {what}"))
}
