//! The admin port: is the process alive, is it ready, what does it count, and how is the fleet.
//!
//! Ready means that this process can do its work in the management cluster. Nothing that happens
//! in a worker cluster is a [`Gate`], so no tenant can take the replica out of service for the
//! others. The port speaks plain HTTP and tells nothing secret.

pub mod fleet_page;
mod hosts;

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::fleet_page::FleetPage;
use crate::port;
use crate::telemetry::{heartbeat::Heartbeat, metrics::Metrics};

/// How long an answer in flight may take after the process was told to end. A scraper that hangs
/// must not hold the process.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Kubelets, scrapers and people: a few of each.
const CONNECTIONS_MAX: usize = 64;

/// The content type of `Metrics::encode`.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const INDEX: &str = "\
Operating System Manager

/livez    the process makes progress; /healthz is the same
/readyz   the process can do its work in the management cluster
/metrics  counters and gauges, in the OpenMetrics text format
/fleet    every tenant in a row; /fleet.json is the same for programs
";

/// A step that must complete once before the process is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The watches of the management cluster have listed what is there.
    ManagementWatches,
    /// The replica holds its Lease, and all replicas have agreed on a set that contains it.
    Membership,
    /// The admission webhook listens and has its certificate.
    Admission,
}

impl Gate {
    const ALL: [Self; 3] = [Self::ManagementWatches, Self::Membership, Self::Admission];

    const fn name(self) -> &'static str {
        match self {
            Self::ManagementWatches => "management-watches",
            Self::Membership => "membership",
            Self::Admission => "admission",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::ManagementWatches => 1,
            Self::Membership => 2,
            Self::Admission => 4,
        }
    }
}

/// The gates that are still closed; a clone is the same gates.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// Ready when all of these gates have opened.
    pub fn waiting_for(gates: &[Gate]) -> Self {
        let closed = gates.iter().fold(0, |closed, gate| closed | gate.bit());
        Self(Arc::new(AtomicU8::new(closed)))
    }

    /// Opens a gate, for good.
    pub fn set_ready(&self, gate: Gate) {
        self.0.fetch_and(!gate.bit(), Ordering::Release);
    }

    /// Returns true if every gate is open.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    fn is_closed(&self, gate: Gate) -> bool {
        self.0.load(Ordering::Acquire) & gate.bit() != 0
    }
}

/// The content of the admin port.
#[derive(Clone)]
pub struct AdminState {
    /// Shown under `/metrics`.
    pub metrics: Metrics,
    /// Shown under `/livez`; `None` if the threads that it reports on serve the port.
    pub heartbeat: Option<Heartbeat>,
    /// Shown under `/readyz`.
    pub readiness: Readiness,
    /// Brings the gauges up to date before they are shown.
    pub refresh: Arc<dyn Fn() + Send + Sync>,
    /// Shown under `/fleet`; none in a process that serves no fleet.
    pub fleet: Option<Arc<FleetPage>>,
}

impl fmt::Debug for AdminState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AdminState")
            .field("readiness", &self.readiness)
            .finish_non_exhaustive()
    }
}

/// Serves until it is cancelled, and then for as long as answers in flight take, up to two seconds.
/// On loopback, the port answers under the names of this machine and of the fleet page alone.
pub async fn run(listener: TcpListener, state: AdminState, cancelled: CancellationToken) {
    let address = listener.local_addr();
    let is_loopback = address.is_ok_and(|it| it.ip().to_canonical().is_loopback());
    let names = state.fleet.as_ref().map(|it| it.hosts());
    let mut router = router(state);
    if is_loopback {
        router = hosts::known_only(router, names.unwrap_or_default());
    }
    let port = port::Params {
        listener,
        tls: None,
        router,
        connections_max: CONNECTIONS_MAX,
        drain: DRAIN_TIMEOUT,
    };
    port::run(port, cancelled).await;
}

/// The pages of the admin port.
pub fn router(state: AdminState) -> Router {
    Router::new()
        .route("/", get(INDEX))
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/fleet", get(fleet_page::html).post(fleet_page::sign_in))
        .route("/fleet.json", get(fleet_page::json))
        .with_state(state)
}

async fn livez(State(state): State<AdminState>) -> impl IntoResponse {
    if state.heartbeat.is_some_and(|heartbeat| heartbeat.is_late()) {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the threads of the process hang\n",
        )
    } else {
        (StatusCode::OK, "ok\n")
    }
}

async fn readyz(State(state): State<AdminState>) -> impl IntoResponse {
    let closed = Gate::ALL
        .into_iter()
        .filter(|gate| state.readiness.is_closed(*gate));
    let mut waiting = String::new();
    for gate in closed {
        writeln!(waiting, "waiting for {}", gate.name()).expect("writing to a String cannot fail");
    }
    if waiting.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, waiting)
    }
}

async fn metrics(State(state): State<AdminState>) -> impl IntoResponse {
    (state.refresh)();
    (
        [(header::CONTENT_TYPE, OPENMETRICS)],
        state.metrics.encode(),
    )
}

#[cfg(test)]
mod tests;
