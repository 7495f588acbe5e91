//! The process that serves the admission webhooks: a port, a certificate that renews itself, and
//! the admin port. It has no tenants and needs no Lease: all replicas give the same answers.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{FLEET_REQUESTS, management, process_client};
use crate::admin::{self, AdminState, Gate, Readiness};
use crate::admission::{
    certificate_rotator::{self, CertificateRotator},
    file_watcher::FileWatcher,
    identity::Identity,
    reviewer::Reviewer,
    server,
};
use crate::client::{
    clock::Clock,
    transport::{self, Patience},
};
use crate::render_worker::Pool;
use crate::telemetry::metrics::{ClusterKind, Metrics};

/// The timeout of one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts of the process.
#[derive(Debug)]
pub struct Params {
    /// The socket for the API server.
    pub listener: TcpListener,
    /// The sockets on which /livez, /readyz and /metrics are served. Each serves all of them.
    pub admins: Vec<TcpListener>,
    /// The source of the certificate.
    pub certificates: Certificates,
    /// Counts everything.
    pub metrics: Metrics,
    /// Renders samples of profiles.
    pub workers: Arc<Pool>,
}

/// The source of the server's certificate.
#[derive(Clone, Debug)]
pub enum Certificates {
    /// Another program keeps `tls.crt` and `tls.key` in this folder current, and the `caBundle` of
    /// the configurations.
    FileWatcher(PathBuf),
    /// We create and renew it, and patch the `caBundle`.
    Own(Own),
}

/// The place of our own certificates.
#[derive(Clone, Debug)]
pub struct Own {
    /// The kubeconfig; by default the one that kubectl uses.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace of the Secret.
    pub namespace: String,
    /// The Secret's name.
    pub secret: String,
    /// The name of both webhook configurations.
    pub configurations: String,
    /// The names and addresses with which the API server calls us.
    pub hosts: Vec<String>,
}

/// Serves until cancelled.
///
/// # Errors
///
/// The address is taken, the certificate cannot be used, or a task panics.
pub async fn run(params: Params, cancel: CancellationToken) -> anyhow::Result<()> {
    let (shown, identity) = watch::channel(None);
    let metrics = params.metrics;
    let readiness = Readiness::waiting_for(&[Gate::Admission]);
    let mut tasks = JoinSet::new();
    for listener in params.admins {
        let state = AdminState {
            metrics: metrics.clone(),
            heartbeat: None,
            readiness: readiness.clone(),
            refresh: Arc::new(|| {}),
            fleet: None,
        };
        // It ends with the other tasks, after the last answer.
        let admin = admin::run(listener, state, CancellationToken::new());
        tasks.spawn(async {
            admin.await;
            Ok(())
        });
    }
    tasks.spawn(open_gate(readiness, identity.clone()));
    match params.certificates {
        Certificates::FileWatcher(path) => {
            let folder = FileWatcher::new(path, shown, metrics.clone());
            tasks.spawn(async {
                folder.run().await;
                Ok(())
            });
        }
        Certificates::Own(own) => {
            let certificate_rotator = certificate_rotator(own, shown, &metrics).await?;
            tasks.spawn(async {
                certificate_rotator.run().await;
                Ok(())
            });
        }
    }
    let workers = Arc::clone(&params.workers);
    tasks.spawn(async move {
        workers.stop_idle().await;
        Ok(())
    });
    let reviewer = Reviewer::new(metrics).with_workers(params.workers);
    let server = server::Params {
        listener: params.listener,
        identity,
        router: reviewer.router(),
    };
    let ended = tokio::select! {
        ended = server::run(server, cancel) => ended.context("cannot serve TLS"),
        broken = failure(&mut tasks) => Err(broken),
    };
    tasks.shutdown().await;
    ended
}

async fn open_gate(
    readiness: Readiness,
    mut identity: watch::Receiver<Option<Identity>>,
) -> anyhow::Result<()> {
    if identity.wait_for(Option::is_some).await.is_err() {
        bail!("nobody keeps the certificate");
    }
    readiness.set_ready(Gate::Admission);
    Ok(())
}

/// Returns the first error or panic of a task. Tasks that ended without an error are ignored.
async fn failure(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Error {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(_) => return anyhow::anyhow!("a task of the webhook panicked"),
        }
    }
    std::future::pending().await
}

async fn certificate_rotator(
    own: Own,
    shown: watch::Sender<Option<Identity>>,
    metrics: &Metrics,
) -> anyhow::Result<CertificateRotator> {
    let config = management::config(own.kubeconfig.as_deref()).await?;
    let clock = Clock::system();
    let agent = transport::user_agent("webhook");
    let transport = management::transport(&config, agent, Patience::of(CALL_TIMEOUT))?;
    let counted = (ClusterKind::Management, metrics);
    let client = process_client(&transport, (FLEET_REQUESTS, CALL_TIMEOUT), counted);
    Ok(CertificateRotator::new(certificate_rotator::Params {
        client,
        namespace: own.namespace,
        secret: own.secret,
        configurations: own.configurations,
        hosts: own.hosts,
        now: Arc::new(move || clock.now()),
        shown,
        metrics: metrics.clone(),
    }))
}
