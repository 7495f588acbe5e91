//! What the process tells about itself: logs on stderr, traces over OTLP, metrics for Prometheus.
//!
//! [`start`] is called once, by `main`, inside the runtime. Nothing in here decides anything about
//! clusters, and nothing in here may tell a secret: what the logs and traces never carry is
//! enforced in [`logs`] and [`traces`], not left to the callers.

pub mod build;
pub mod logs;
pub mod metrics;
pub mod pulse;
pub mod traces;

use std::time::Duration;

use opentelemetry_sdk::trace::SdkTracerProvider;
use thiserror::Error;
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

use crate::telemetry::logs::LogFormat;

/// How long the last spans may take to leave when the process ends. A dead collector costs this
/// much once; it stays below the 30 s that Kubernetes gives a pod to end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// What the standard gives a collector by default.
const OTLP_TIMEOUT: Duration = Duration::from_secs(10);

/// How spans go to a collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// As gRPC.
    #[default]
    Grpc,
    /// As protobuf in requests of HTTP.
    Http,
}

/// What counts of the word of whoever began a trace, such as an API server that asks a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parents {
    /// A trace that it records is recorded here, too, and one that it does not is not.
    #[default]
    Followed,
    /// The share alone decides.
    Ignored,
}

/// What may be set about logs and traces.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetrySettings {
    /// The form of a log line.
    pub log_format: LogFormat,
    /// Which lines are logged, in the syntax of `RUST_LOG`: `info`, `warn,osm::fleet=debug`.
    /// [`logs::layer`] says what it cannot widen.
    pub log_filter: String,
    /// Where traces go by OTLP: over gRPC such as `http://collector:4317`, over HTTP with the path,
    /// such as `http://collector:4318/v1/traces`; without it there are no traces. Headers and batch
    /// sizes are read by the exporter from the standard `OTEL_*` variables.
    pub otlp_endpoint: Option<String>,
    /// How they go there.
    pub otlp_protocol: OtlpProtocol,
    /// How long the collector may take to take a batch.
    pub otlp_timeout: Duration,
    /// Whether those who began a trace decide that it is recorded.
    pub parents: Parents,
    /// The share of traces that is recorded, from 0 to 1. A trace is recorded whole or not at all.
    pub sample_ratio: f64,
    /// What tells this replica from the others (`service.instance.id`), such as the pod's name.
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

/// Why telemetry cannot start. All of them are settings to correct, so the process ends.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The log filter is not one.
    #[error("cannot read the log filter {filter:?}")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The share of traces is not a share.
    #[error("cannot sample traces at the ratio {0}: it must be from 0 to 1")]
    SampleRatio(f64),
    /// The exporter cannot be made from the endpoint and the environment.
    #[error("cannot export traces to {endpoint:?}")]
    Exporter {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// The collector is to be reached over TLS, and this machine trusts no authority.
    #[error("cannot export traces over TLS: no certificates of authorities are found")]
    Authorities(#[source] std::io::Error),
    /// The exporter's connection lives on the tokio runtime, and there is none.
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
pub fn start(settings: &TelemetrySettings) -> Result<Telemetry, TelemetryError> {
    let (dispatch, telemetry) = prepare(settings, std::io::stderr)?;
    // Not `SubscriberInitExt::init`: that would also take records of the `log` crate, which the
    // TLS library writes, and which pass the filters under another target than their own.
    tracing::dispatcher::set_global_default(dispatch)
        .map_err(|_| TelemetryError::AlreadyStarted)?;
    Ok(telemetry)
}

/// Makes logs and traces without installing them: a test installs the [`Dispatch`] for its own
/// thread, and gives a [`logs::LogBuffer`] to write to.
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

/// The id of the trace that is recorded around this call, for Events, conditions and status
/// entries; `None` outside of a span, without an exporter, and in a trace that is not sampled.
pub fn trace_id() -> Option<String> {
    traces::current().map(|context| context.trace_id().to_string())
}

impl Telemetry {
    /// Sends what is left, and takes at most five seconds for it, whatever the collector does.
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
