//! How long the manager blocks its runtime's thread while ten thousand clusters are registered.
//!
//! `cargo bench --bench blocking 2>/dev/null`; docs/performance.md keeps the figures. The manager
//! runs as in production, over TLS, on a runtime with one thread of its own. Another thread wakes a
//! task there each millisecond. This runtime polls what other threads wake before anything else, so
//! that the delay is what was left of one poll of one task, or of one look for events.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Parser as _;
use fake_cluster::{AuditEntry, object};
use loadtest::load::fleet::Fleet;
use osm::{
    app::{self, LocalDependencies},
    render_worker::Renderer,
    settings::RunFlags,
    telemetry::{self, metrics::Metrics},
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
#[cfg(target_env = "gnu")]
use tikv_jemallocator::Jemalloc;
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

#[cfg(target_env = "gnu")]
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const REGISTRATIONS: usize = 10_000;
const PING_INTERVAL: Duration = Duration::from_millis(1);
/// How long what was begun is watched.
const WINDOW: Duration = Duration::from_secs(10);
/// Until everybody has a status, on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(4);
/// A kubeconfig that is refused as soon as it is read.
const REFUSED: &str = "no kubeconfig";

#[derive(clap::Parser)]
struct CommandLine {
    #[command(flatten)]
    flags: RunFlags,
}

/// What the pings found since they were asked last.
#[derive(Clone, Copy, Default)]
struct Found {
    /// The longest delay.
    late: Duration,
    /// The most processor time of the thread between two pings, without what fits between them
    /// anyway.
    busy: Duration,
}

struct Pings {
    found: Arc<std::sync::Mutex<Found>>,
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Runs the manager on a thread of its own until it is cancelled.
fn start_manager(kubeconfig: &str, cancel: CancellationToken) -> anyhow::Result<(Pings, String)> {
    let line = [
        "osm",
        "--kubeconfig",
        kubeconfig,
        "--allow-loopback-servers",
        "--admin-address",
        "127.0.0.1:0",
    ];
    let settings = CommandLine::try_parse_from(line)?.flags.check()?;
    let (answers, answered) = mpsc::channel();
    let (addresses, address) = mpsc::channel();
    let wake = Arc::new(Notify::new());
    let woken = Arc::clone(&wake);
    let run = move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .global_queue_interval(1)
            .enable_all()
            .build()?;
        let telemetry = runtime.block_on(async { telemetry::start(&settings.telemetry) })?;
        let mut tasks = JoinSet::new();
        tasks.spawn_on(
            async move {
                loop {
                    woken.notified().await;
                    if answers.send((Instant::now(), processor_time())).is_err() {
                        return Ok(());
                    }
                }
            },
            runtime.handle(),
        );
        tasks.spawn_on(
            async move {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                addresses.send(listener.local_addr()?.to_string())?;
                let local = LocalDependencies {
                    admin: listener,
                    metrics: Metrics::new(),
                    renderer: Renderer::InProcess,
                };
                app::run_on(settings, local, cancel).await
            },
            runtime.handle(),
        );
        let ended = runtime.block_on(tasks.join_next());
        runtime.block_on(telemetry.shutdown());
        ended.context("there are tasks")??
    };
    thread::spawn(move || {
        if let Err(error) = run() {
            println!("the manager ended: {error:#}");
        }
    });
    let pings = Pings {
        found: Arc::default(),
    };
    let found = Arc::clone(&pings.found);
    thread::spawn(move || ping(&wake, &answered, &found));
    Ok((pings, address.recv()?))
}

/// Wakes the task again and again, until it ends.
fn ping(
    wake: &Notify,
    answered: &mpsc::Receiver<(Instant, Duration)>,
    found: &std::sync::Mutex<Found>,
) {
    let mut before: Option<(Instant, Duration)> = None;
    loop {
        wake.notify_one();
        // Not before: this thread may have waited for a core in between.
        let asked = Instant::now();
        let Ok((answered, processor)) = answered.recv() else {
            return;
        };
        let late = answered.saturating_duration_since(asked);
        // Between two answers that are far apart the manager did more than one thing.
        let busy = before
            .filter(|(at, _)| asked.duration_since(*at) < 2 * PING_INTERVAL)
            .map_or(Duration::ZERO, |(_, before)| {
                processor.saturating_sub(before)
            });
        before = Some((Instant::now(), processor));
        if let Ok(mut found) = found.lock() {
            found.late = found.late.max(late);
            found.busy = found.busy.max(busy.saturating_sub(PING_INTERVAL));
        }
        thread::sleep(PING_INTERVAL);
    }
}

impl Pings {
    fn take(&self) -> Found {
        self.found
            .lock()
            .map(|mut found| std::mem::take(&mut *found))
            .unwrap_or_default()
    }
}

struct Bench {
    fleet: Fleet,
    pings: Pings,
    admin: String,
}

impl Bench {
    /// Prints what was found for as long as a window.
    async fn report(&self, what: &str) {
        tokio::time::sleep(WINDOW).await;
        let Found { late, busy } = self.pings.take();
        let requests = self.fleet.take_management_audit().len();
        println!("{what:<44} {late:>10.1?} {busy:>10.1?} {requests:>8} requests");
    }

    /// Waits until the manager has written a status for each registration.
    async fn until_all_have_a_status(&self) {
        let begun = Instant::now();
        let is_status = |it: &AuditEntry| it.target.subresource == "status";
        let management = &self.fleet.management.cluster;
        while management.count_requests(is_status) < REGISTRATIONS
            && begun.elapsed() < START_TIMEOUT
        {
            tokio::time::sleep(WINDOW / 10).await;
        }
        println!("statuses after {:.0?}", begun.elapsed());
    }

    async fn page(&self, path: &str) -> anyhow::Result<usize> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(&self.admin).await?;
        let request = format!("GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.admin);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(answer.len())
    }
}

fn tenant(index: usize) -> String {
    format!("tenant-{index:05}")
}

/// A kubeconfig of a server where nobody listens: each its own address of loopback.
fn unreachable(index: usize, authority: &str) -> String {
    let (high, low) = (index / 250 + 1, index % 250 + 1);
    let authority = STANDARD.encode(authority);
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters:\n- name: a\n  cluster: {{server: \"https://127.1.{high}.{low}:1\", \
         certificate-authority-data: {authority}}}\n\
         users:\n- name: a\n  user: {{token: t0k3n}}\n\
         contexts:\n- name: a\n  context: {{cluster: a, user: a}}\n"
    )
}

async fn run(kind: &str) -> anyhow::Result<()> {
    let definitions = concat!(
        include_str!("../../manifests/crds/operatingsystemprofiles.yaml"),
        "\n---\n",
        include_str!("../../manifests/crds/operatingsystemconfigs.yaml"),
        "\n---\n",
        include_str!("../../manifests/crds/workerclusters.yaml"),
    );
    let fleet = Fleet::start(definitions).await?;
    let authority = fleet.management.cluster.ca_pem();
    let kubeconfig = |index: usize| match kind {
        "refused" => REFUSED.to_owned(),
        _ => unreachable(index, &authority),
    };
    for index in 0..REGISTRATIONS {
        let name = tenant(index);
        fleet.register_other(&name, &kubeconfig(index)).await?;
        fleet.management.put(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "name": name, "namespace": name },
            "spec": { "kubeconfigSecretRef": { "name": name } },
        }))?;
    }
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, fleet.management_kubeconfig())?;
    let cancel = CancellationToken::new();
    let (pings, admin) = start_manager(&path.to_string_lossy(), cancel.clone())?;
    let bench = Bench {
        fleet,
        pings,
        admin,
    };
    let management = &bench.fleet.management.cluster;
    println!(
        "{kind} registrations: {:>41} {:>10}",
        "longest", "processor"
    );
    bench.until_all_have_a_status().await;
    bench.report("start").await;
    bench.report("afterwards").await;
    management.compact();
    management.close_watches();
    bench.report("all watches expired").await;
    bench.fleet.register_other(&tenant(7), "another").await?;
    bench.report("one is changed").await;
    management.delete_raw(object("secrets", &tenant(8), &tenant(8)));
    bench.report("one is removed").await;
    let bytes = bench.page("/metrics").await?;
    bench
        .report(&format!("a scrape of the metrics, {bytes} bytes"))
        .await;
    let bytes = bench.page("/fleet").await?;
    bench
        .report(&format!("the fleet page, {bytes} bytes"))
        .await;
    cancel.cancel();
    bench.report("the end").await;
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let chosen = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(chosen.is_ok(), "nothing has chosen a provider before");
    let kind = std::env::args().find(|it| it == "refused");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(kind.as_deref().unwrap_or("unreachable")))
}
