//! The telemetry of the process: logs on stderr, traces over OTLP, metrics for Prometheus.
//!
//! [`start`] is called once, by `main`, inside the runtime. Telemetry must never contain
//! secrets: [`logs`] and [`traces`] enforce this themselves and do not rely on their callers.

pub mod build;
pub mod chain;
pub mod heartbeat;
pub mod logs;
pub mod metrics;
pub mod traces;

use std::time::Duration;

use opentelemetry_sdk::trace::SdkTracerProvider;
use thiserror::Error;
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

use self::logs::LogFormat;

/// Timeout for exporting the last spans when the process ends. An unreachable collector delays the
/// shutdown once by this much, which is below the 30 s that Kubernetes gives a pod to terminate.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The OpenTelemetry default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const OTLP_TIMEOUT: Duration = Duration::from_secs(10);

/// The protocol by which spans are exported to a collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// OTLP over gRPC.
    #[default]
    Grpc,
    /// OTLP over HTTP, encoded as protobuf.
    Http,
}

/// The rule for the sampling decision of a remote parent, such as that of an API server that
/// calls a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parents {
    /// A trace is recorded if, and only if, its parent is.
    #[default]
    Followed,
    /// Only [`TelemetrySettings::sample_ratio`] decides.
    Ignored,
}

/// Settings of logs and traces.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetrySettings {
    /// The format of a log line.
    pub log_format: LogFormat,
    /// Which lines are logged, in the syntax of `RUST_LOG`: `info`, `warn,osm::fleet=debug`.
    /// [`logs::layer`] lists what is never logged, whatever the filter says.
    pub log_filter: String,
    /// The OTLP endpoint: for gRPC such as `http://collector:4317`, for HTTP with the path, such as
    /// `http://collector:4318/v1/traces`. If `None`, no traces are recorded. Headers and batch
    /// sizes are read by the exporter from the standard `OTEL_*` variables.
    pub otlp_endpoint: Option<String>,
    /// The protocol of the OTLP endpoint.
    pub otlp_protocol: OtlpProtocol,
    /// Timeout of exporting one batch.
    pub otlp_timeout: Duration,
    /// The rule for the sampling decision of a remote parent.
    pub parents: Parents,
    /// The ratio of traces that are recorded, from 0 to 1. A trace is recorded as a whole or not at
    /// all.
    pub sample_ratio: f64,
    /// Identifies this replica (`service.instance.id`), for example the pod's name.
    pub instance_id: Option<String>,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            log_format: LogFormat::Json,
            log_filter: "info".to_owned(),
            otlp_endpoint: None,
            otlp_protocol: OtlpProtocol::Grpc,
            otlp_timeout: OTLP_TIMEOUT,
            parents: Parents::Followed,
            sample_ratio: 1.0,
            instance_id: None,
        }
    }
}

/// Reports why telemetry cannot start. Every variant needs a corrected setting, so the process
/// exits.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The log filter cannot be parsed.
    #[error("cannot read the log filter {filter:?}")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The sample ratio is not between 0 and 1.
    #[error("cannot sample traces at the ratio {0}: it must be from 0 to 1")]
    SampleRatio(f64),
    /// The exporter cannot be built from the endpoint and the environment.
    #[error("cannot export traces to {endpoint:?}")]
    Exporter {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The endpoint uses TLS, but this machine has no trusted certificate authorities.
    #[error("cannot export traces over TLS: no certificates of authorities are found")]
    Authorities(#[source] std::io::Error),
    /// The exporter needs a Tokio runtime for its connection, and none is running.
    #[error("cannot export traces outside of a tokio runtime")]
    NoRuntime,
    /// Telemetry was started before.
    #[error("cannot install the log subscriber: the process already has one")]
    AlreadyStarted,
}

/// Running telemetry; held until the process ends.
#[derive(Debug)]
#[must_use = "the last spans are lost unless it is shut down"]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// Installs logs and traces for the whole process.
///
/// # Errors
///
/// [`TelemetryError`] if a setting is invalid or telemetry was started before.
pub fn start(settings: &TelemetrySettings) -> Result<Telemetry, TelemetryError> {
    let (dispatch, telemetry) = prepare(settings, std::io::stderr)?;
    // Not `SubscriberInitExt::init`: that would also take records of the `log` crate, which the
    // TLS library writes, and which pass the filters under another target than their own.
    tracing::dispatcher::set_global_default(dispatch)
        .map_err(|_| TelemetryError::AlreadyStarted)?;
    Ok(telemetry)
}

/// Creates logs and traces without installing them: a test installs the [`Dispatch`] for its own
/// thread and passes a [`logs::LogBuffer`] as the writer.
///
/// # Errors
///
/// [`TelemetryError`] if a setting is invalid.
pub fn prepare<W>(
    settings: &TelemetrySettings,
    writer: W,
) -> Result<(Dispatch, Telemetry), TelemetryError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let provider = traces::provider(settings)?;
    let subscriber = tracing_subscriber::registry()
        .with(provider.as_ref().map(traces::layer))
        .with(logs::layer(
            writer,
            settings.log_format,
            &settings.log_filter,
        )?);
    Ok((Dispatch::new(subscriber), Telemetry { provider }))
}

/// Returns the ID of the current trace, for Events, conditions and status entries; `None` outside
/// of a span, without an exporter, and in a trace that is not sampled.
pub fn trace_id() -> Option<String> {
    traces::current().map(|context| context.trace_id().to_string())
}

impl Telemetry {
    /// Exports the remaining spans; takes at most five seconds, even if the collector does not
    /// respond.
    pub async fn shutdown(self) {
        let Some(provider) = self.provider else {
            return;
        };
        // The flush waits for the exporter's own thread, which waits for this runtime to move the
        // bytes: on the runtime's thread both would wait for each other.
        let flush =
            tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIMEOUT));
        match flush.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last traces may be lost"),
            Err(error) => tracing::warn!(%error, "the last traces may be lost"),
        }
    }
}
