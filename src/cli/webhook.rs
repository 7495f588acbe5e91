//! `osm webhook`: settings, telemetry, signals, and then the webhooks.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;

use super::run::run_until_a_signal;
use crate::app::webhook::{Certificates, Own, Params, run as serve};
use crate::render_worker::Pool;
use crate::settings::TraceFlags;
use crate::telemetry::{
    TelemetrySettings,
    logs::LogFormat,
    metrics::{Component, Metrics},
};

/// The flags of `osm webhook`.
#[derive(Args, Debug)]
pub(super) struct WebhookFlags {
    /// The address of the webhooks, over TLS.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9443")]
    address: SocketAddr,

    /// The address of /livez, /readyz and /metrics.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    admin_address: SocketAddr,

    /// A folder with tls.crt and tls.key that another program keeps current, such as cert-manager.
    /// By default, the webhooks manage their own certificates.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kubeconfig", "hosts"])]
    certificate_folder: Option<PathBuf>,

    /// The kubeconfig for managing certificates. By default: $KUBECONFIG, or the pod's own
    /// credentials.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The namespace of the Secret with the managed certificates.
    #[arg(
        long,
        value_name = "NAMESPACE",
        env = "POD_NAMESPACE",
        default_value = "operating-system-manager"
    )]
    namespace: String,

    /// The Secret with the managed certificates. It must exist.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "operating-system-manager-webhook"
    )]
    certificate_secret: String,

    /// The name of the mutating and of the validating webhook configuration whose caBundle is kept
    /// current.
    #[arg(long, value_name = "NAME", default_value = "operating-system-manager")]
    configuration: String,

    /// A name or address with which the API server calls the webhooks; may be repeated. By default:
    /// the Service operating-system-manager-webhook in the namespace.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,

    /// The format of log lines.
    #[arg(long, value_name = "FORMAT", default_value = "json")]
    log_format: LogFormat,

    /// The lines to log, such as `info` or `warn,osm::admission=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "RUST_LOG")]
    log_filter: String,

    /// Traces.
    #[command(flatten)]
    traces: TraceFlags,
}

pub(super) fn run(flags: WebhookFlags) -> anyhow::Result<()> {
    let settings = TelemetrySettings {
        log_format: flags.log_format,
        log_filter: flags.log_filter.clone(),
        ..TelemetrySettings::default()
    };
    let settings = flags.traces.clone().completed(settings)?;
    run_until_a_signal(&settings, async move |cancel| {
        serve(listen(flags).await?, cancel).await
    })
}

async fn listen(flags: WebhookFlags) -> anyhow::Result<Params> {
    let listener = TcpListener::bind(flags.address)
        .await
        .with_context(|| format!("cannot listen on --address {}", flags.address))?;
    let admin = TcpListener::bind(flags.admin_address)
        .await
        .with_context(|| format!("cannot listen on --admin-address {}", flags.admin_address))?;
    let (address, admin_address) = (listener.local_addr()?, admin.local_addr()?);
    tracing::info!(%address, %admin_address, "the webhooks listen");
    let mut hosts = flags.hosts;
    if hosts.is_empty() {
        let service = "operating-system-manager-webhook";
        hosts.push(format!("{service}.{}.svc", flags.namespace));
    }
    let own = Own {
        kubeconfig: flags.kubeconfig,
        namespace: flags.namespace,
        secret: flags.certificate_secret,
        configurations: flags.configuration,
        hosts,
    };
    let folder = flags.certificate_folder.map(Certificates::FileWatcher);
    Ok(Params {
        listener,
        admins: vec![admin],
        certificates: folder.unwrap_or(Certificates::Own(own)),
        metrics: Metrics::of(Component::Webhook, None),
        workers: Arc::new(Pool::of_this_program()),
    })
}
