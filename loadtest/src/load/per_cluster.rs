//! The other side of a comparison: each worker cluster has a process of its own, as it is run
//! today. Any program that takes the place of a cluster's operating-system-manager can be put
//! there.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fake_cluster::User;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::fleet::{ACCOUNT, Fleet, KUBE_SYSTEM};
use super::measure::Sample;
use super::stage::{unless_one_ends, wrote_of_a_tenant};
use crate::demo::process::Manager;

/// Where the path of a cluster's kubeconfig goes in a command line.
const KUBECONFIG: &str = "{kubeconfig}";
/// What is run when nothing else is asked for, behind our own `osm-controller`.
const OURS: &str = "-kubeconfig {kubeconfig} -namespace kube-system \
    -health-probe-address 127.0.0.1:0 -metrics-address 127.0.0.1:0";
/// What such a program finds in its cluster: its rights, and nothing of a fleet's.
const RIGHTS: &str = include_str!("../../../tests/drop_in/rights.yaml");
const PID_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Nothing is written any more when nothing was for this long.
const QUIET: Duration = Duration::from_secs(4);

/// The command line of each process.
#[derive(Debug)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// Splits what the user gave as a shell does; a kubeconfig must have its place in it.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let words = shlex::split(text);
        let words = words.with_context(|| format!("a quote is not closed in: {text}"))?;
        ensure!(
            words.iter().skip(1).any(|word| word.contains(KUBECONFIG)),
            "no {KUBECONFIG} behind the program in: {text}"
        );
        Ok(Self(words))
    }

    /// Our own binary under the name that makes it serve one cluster.
    pub fn of_osm(osm: &Path, folder: &Path) -> anyhow::Result<Self> {
        let program = folder.join("osm-controller");
        let osm = osm.canonicalize().context("finding the manager")?;
        symlink(osm, &program).context("naming the manager osm-controller")?;
        let arguments = OURS.split_whitespace().map(str::to_owned);
        let program = program.to_string_lossy().into_owned();
        Ok(Self(std::iter::once(program).chain(arguments).collect()))
    }

    /// For the cluster of a kubeconfig.
    pub fn with(&self, kubeconfig: &Path) -> Vec<OsString> {
        let path = kubeconfig.to_string_lossy();
        let words = self.0.iter();
        words
            .map(|word| word.replace(KUBECONFIG, &path).into())
            .collect()
    }
}

/// A process for each worker cluster of a fleet. Dropping it ends them.
pub struct PerCluster<'a> {
    fleet: &'a Fleet,
    processes: Vec<Manager>,
    folder: TempDir,
}

/// Brings the clusters to where a process for each expects them. The default profile is named, as
/// the webhook does it there.
pub(super) async fn prepare(fleet: &Fleet, definitions: &str) -> anyhow::Result<()> {
    for worker in &fleet.workers {
        let cluster = &worker.server.cluster;
        cluster.apply_yaml(definitions).context("definitions")?;
        cluster.apply_yaml(RIGHTS).context("rights")?;
        let revisions = worker.revisions();
        for name in &worker.machine_deployments {
            revisions.name_profile(name, "osp-ubuntu").await?;
        }
    }
    Ok(())
}

impl<'a> PerCluster<'a> {
    /// Prepares the clusters, and starts nothing.
    pub async fn new(fleet: &'a Fleet, definitions: &str) -> anyhow::Result<Self> {
        prepare(fleet, definitions).await?;
        Ok(Self {
            fleet,
            processes: Vec::new(),
            folder: tempfile::tempdir().context("making a folder")?,
        })
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts them all.
    pub fn start(&mut self, line: &CommandLine) -> anyhow::Result<()> {
        let user = User::service_account(KUBE_SYSTEM, ACCOUNT);
        for worker in &self.fleet.workers {
            let path = |suffix: &str| -> PathBuf {
                let name = format!("{}.{suffix}", worker.tenant);
                self.folder.path().join(name)
            };
            let kubeconfig = path("kubeconfig");
            std::fs::write(&kubeconfig, worker.server.front.kubeconfig(&user))
                .context("writing a kubeconfig")?;
            let manager = Manager::supervise(&line.with(&kubeconfig), path("log"))?;
            self.processes.push(manager);
        }
        Ok(())
    }

    /// Waits until something is done, unless a process ends first or the time is up.
    pub async fn with<T>(&mut self, work: impl Future<Output = T>) -> anyhow::Result<T> {
        unless_one_ends(self.processes.iter_mut(), "all processes are done", work).await
    }

    /// Waits until nothing is written to any cluster any more.
    pub async fn settle(&mut self) -> anyhow::Result<()> {
        let fleet = self.fleet;
        self.with(async {
            let mut before = None;
            loop {
                let workers = fleet.workers.iter();
                let counts = workers.map(|it| it.server.cluster.count_requests(wrote_of_a_tenant));
                let now: usize = counts.sum();
                if before.replace(now) == Some(now) {
                    return;
                }
                sleep(QUIET).await;
            }
        })
        .await
    }

    /// Looks at all of them together.
    pub async fn sample(&self) -> anyhow::Result<Sample> {
        let mut samples = Vec::with_capacity(self.processes.len());
        for process in &self.processes {
            let pid = timeout(PID_TIMEOUT, async {
                loop {
                    match process.pid() {
                        Some(pid) => return pid,
                        None => sleep(POLL_INTERVAL).await,
                    }
                }
            });
            let pid = pid.await.context("a process has no id")?;
            samples.push(Sample::of(pid)?);
        }
        Ok(Sample::together(&samples))
    }

    /// Ends them in good order, all at once.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let ends = self.processes.iter_mut().map(Manager::stop);
        futures::future::try_join_all(ends).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_names_the_kubeconfig_behind_the_program() {
        let line = CommandLine::parse("/bin/other -kubeconfig '{kubeconfig}' --say 'a b'").unwrap();
        let words = line.with(Path::new("/tmp/a cluster"));
        assert_eq!(
            words,
            [
                "/bin/other",
                "-kubeconfig",
                "/tmp/a cluster",
                "--say",
                "a b"
            ]
        );
        assert!(CommandLine::parse("/bin/other -namespace x").is_err());
        assert!(CommandLine::parse("/bin/other '{kubeconfig}").is_err());
    }
}
