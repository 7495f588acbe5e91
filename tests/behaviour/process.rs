//! The manager under test: in this process, or as the real binary in a process of its own.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser;
use osm::app::{self, LocalDependencies};
use osm::render_worker::{Pool, Renderer};
use osm::settings::RunFlags;
use osm::telemetry::metrics::Metrics;
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::server::ok;
use crate::stage::{Stage, Tenant};
use crate::wait;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    run: RunFlags,
}

/// A manager that runs in this process. Dropping it ends it at once, as `kill -9` would.
pub struct Manager {
    metrics: Metrics,
    cancel: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
    _kubeconfig: NamedTempFile,
}

fn arguments(stage: &Stage, kubeconfig: &NamedTempFile, more: &[&str]) -> Vec<String> {
    let path = kubeconfig.path().to_str().expect("our path is text");
    let mut arguments: Vec<String> = ["--kubeconfig", path, "--allow-loopback-servers"]
        .map(str::to_owned)
        .to_vec();
    arguments.extend(["--registration-selector".to_owned(), stage.selector()]);
    if !more.contains(&"--admin-address") {
        arguments.extend(["--admin-address", "127.0.0.1:0"].map(str::to_owned));
    }
    arguments.extend(["--fleet".to_owned(), stage.name().to_owned()]);
    if !more.contains(&"--instance") {
        // The next one of the same name does not wait for the Lease of one that was killed.
        arguments.extend(["--instance", "osm-0"].map(str::to_owned));
    }
    arguments.extend(more.iter().map(|&it| it.to_owned()));
    arguments
}

fn kubeconfig_file(kubeconfig: &str) -> NamedTempFile {
    let file = NamedTempFile::new().expect("there is room for a file");
    std::fs::write(file.path(), kubeconfig).expect("the file is ours");
    file
}

impl Manager {
    /// Makes a stage's one tenant, and starts a manager before anything is registered.
    pub async fn with_tenant(stage: &Stage) -> (Tenant, Self) {
        let tenant = stage.tenant().await;
        let manager = Self::start(stage, &[]).await;
        (tenant, manager)
    }

    /// As [`Self::with_tenant`], and registers the tenant.
    pub async fn with_registered(stage: &Stage) -> (Tenant, Self) {
        let (tenant, manager) = Self::with_tenant(stage).await;
        tenant.register().await;
        (tenant, manager)
    }

    /// Starts one that serves the stage's registrations alone.
    pub async fn start(stage: &Stage, more: &[&str]) -> Self {
        let workers = Arc::new(Pool::new(env!("CARGO_BIN_EXE_osm")));
        Self::start_with(stage, more, workers).await
    }

    /// Starts one whose workers are these.
    pub async fn start_with(stage: &Stage, more: &[&str], workers: Arc<Pool>) -> Self {
        let kubeconfig = kubeconfig_file(&stage.world.management_kubeconfig);
        let arguments = arguments(stage, &kubeconfig, more);
        Self::begin((kubeconfig, arguments), workers).await
    }

    /// Starts one in another management cluster, whose kubeconfig this is.
    pub async fn start_in(kubeconfig: &str, more: &[&str]) -> Self {
        let kubeconfig = kubeconfig_file(kubeconfig);
        let path = kubeconfig.path().to_str().expect("our path is text");
        let mut arguments = vec!["--kubeconfig", path, "--allow-loopback-servers"];
        arguments.extend(["--admin-address", "127.0.0.1:0", "--instance", "osm-0"]);
        arguments.extend(more);
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        let workers = Arc::new(Pool::new(env!("CARGO_BIN_EXE_osm")));
        Self::begin((kubeconfig, arguments), workers).await
    }

    async fn begin(
        (kubeconfig, arguments): (NamedTempFile, Vec<String>),
        workers: Arc<Pool>,
    ) -> Self {
        let flags = Flags::try_parse_from(std::iter::once("osm".to_owned()).chain(arguments));
        let settings = ok(
            ok(flags, "the flags are known").run.check(),
            "the flags fit",
        );
        let metrics = Metrics::new();
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let local = LocalDependencies {
            admin: ok(TcpListener::bind("127.0.0.1:0").await, "a port is free"),
            metrics: metrics.clone(),
            renderer: Renderer::Workers(workers),
        };
        let app = app::run_on(settings, local, cancel.clone());
        tasks.spawn(app);
        Self {
            metrics,
            cancel,
            tasks,
            _kubeconfig: kubeconfig,
        }
    }

    /// Ends it as SIGTERM would; everything that it meant to write is written then.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        let ended = self.tasks.join_next().await.expect("there is one task");
        ok(
            ok(ended, "the manager does not panic"),
            "the manager ends well",
        );
    }

    /// The sum of a metric's series that have these labels (`outcome="served"`).
    pub fn metric(&self, name: &str, labels: &str) -> f64 {
        sum(&self.metrics.encode(), name, labels)
    }

    /// Waits until this many reconciles have ended with the outcome.
    pub async fn has_reconciled(&self, outcome: &str, count: f64) {
        let labels = format!("outcome=\"{outcome}\"");
        let what = format!("{count} reconciles are {outcome}");
        wait::until(&what, async || {
            (self.metric("osm_reconciles_total", &labels) >= count).then_some(())
        })
        .await;
    }

    /// Returns the number of reconciles that ended with the outcome.
    pub fn reconciled(&self, outcome: &str) -> f64 {
        self.metric("osm_reconciles_total", &format!("outcome=\"{outcome}\""))
    }
}

/// Adds up the values of a metric that have these labels.
pub fn sum(page: &str, name: &str, labels: &str) -> f64 {
    page.lines()
        .filter(|line| line.starts_with(name) && line.contains(labels))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// The real binary in a process of its own, and what it logs. Dropping it kills it; a failed test
/// tells what it logged.
pub struct LoggedProcess {
    child: Child,
    log: Arc<Mutex<String>>,
    reading: JoinSet<()>,
}

impl LoggedProcess {
    /// Starts the command.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary was built with this test");
        let log = Arc::<Mutex<String>>::default();
        let mut reading = JoinSet::new();
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let kept = Arc::clone(&log);
        reading.spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        Self {
            child,
            log,
            reading,
        }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.clone()
    }

    /// Where its pages are.
    pub async fn address(&self) -> String {
        wait::until("the address is told", async || {
            let log = self.log();
            let (_, rest) = log.split_once("\"address\":\"")?;
            Some(rest.split_once('"')?.0.to_owned())
        })
        .await
    }

    fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends it a signal (`TERM`, `INT`).
    pub async fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await;
        assert!(
            ok(sent, "kill is installed").success(),
            "SIG{name} was sent"
        );
    }

    /// Waits for its end, and hands out everything that it logged.
    pub async fn ended(&mut self) -> (ExitStatus, String) {
        let status = tokio::time::timeout(wait::DEADLINE, self.child.wait()).await;
        let status = ok(ok(status, "it ends in time"), "its end is seen");
        while self.reading.join_next().await.is_some() {}
        (status, self.log())
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the process logged:\n{}", self.log());
        }
    }
}

/// `osm run` for the stage's registrations.
pub struct Binary {
    process: LoggedProcess,
    _kubeconfig: NamedTempFile,
}

impl Binary {
    /// Starts it.
    pub fn start(stage: &Stage, more: &[&str]) -> Self {
        let kubeconfig = kubeconfig_file(&stage.world.management_kubeconfig);
        let mut command = Command::new(env!("CARGO_BIN_EXE_osm"));
        command
            .arg("run")
            .args(arguments(stage, &kubeconfig, more))
            .env_clear();
        Self {
            process: LoggedProcess::spawn(&mut command),
            _kubeconfig: kubeconfig,
        }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Where its admin port is.
    pub async fn admin_address(&self) -> String {
        self.process.address().await
    }

    /// What its memory is, resident, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let id = self.process.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status"));
        let status = ok(status, "Linux tells");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.and_then(|kib| kib.parse().ok()).expect("in KiB")
    }

    /// Sends it a signal (`TERM`, `INT`).
    pub async fn signal(&self, name: &str) {
        self.process.signal(name).await;
    }

    /// Ends it as Kubernetes does, and hands out everything that it logged.
    pub async fn stop(self) -> String {
        self.signal("TERM").await;
        let (status, log) = self.ended().await;
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// Waits for its end, and hands out everything that it logged.
    pub async fn ended(mut self) -> (ExitStatus, String) {
        self.process.ended().await
    }
}

/// Runs `osm plan` for the stage's registrations: its exit code, and its result or else its error.
pub async fn plan(stage: &Stage, more: &[&str]) -> (Option<i32>, String) {
    let kubeconfig = kubeconfig_file(&stage.world.management_kubeconfig);
    let output = Command::new(env!("CARGO_BIN_EXE_osm"))
        .arg("plan")
        .args(arguments(stage, &kubeconfig, more))
        .env_clear()
        .kill_on_drop(true)
        .output();
    let output = ok(output.await, "the binary was built with this test");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let told = match text(&output.stdout) {
        none if none.is_empty() => text(&output.stderr),
        result => result,
    };
    (output.status.code(), told)
}
