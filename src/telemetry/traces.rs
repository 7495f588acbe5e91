//! Traces: spans of this crate, sent over OTLP in batches by a thread of their own.
//!
//! Spans of other crates are not sent: the exporter's own connection would trace itself, and what
//! they record is outside of our control. Recording never waits: a full queue drops spans.

mod api_call;
mod api_request;
mod remote;
mod sender;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::trace::{SpanContext, TraceContextExt, TracerProvider};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{
    Protocol, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, Sampler, SdkTracerProvider, SpanData, SpanExporter as Export,
};
use tokio::runtime::Handle;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

use self::sender::Sender;
pub use self::{
    api_call::{ApiCall, ApiCallLayer},
    remote::{TRACEPARENT, follow, link},
};
use crate::telemetry::{OtlpProtocol, Parents, TelemetryError, TelemetrySettings, chain};

/// Everything that we trace stands under this name.
const SERVICE: &str = "osm";

/// The exporter and what feeds it, or nothing without an endpoint.
pub(super) fn provider(
    settings: &TelemetrySettings,
) -> Result<Option<SdkTracerProvider>, TelemetryError> {
    if !(0.0..=1.0).contains(&settings.sample_ratio) {
        return Err(TelemetryError::SampleRatio(settings.sample_ratio));
    }
    let Some(endpoint) = settings
        .otlp_endpoint
        .as_deref()
        .filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    let exporter = Reported {
        exporter: exporter(settings, endpoint)?,
        failing: AtomicBool::new(false),
    };
    // The queue is bounded by the SDK's default of 2,048 spans, about 2 MiB, in batches of 512
    // every 5 s; OTEL_BSP_* change that.
    let share = Sampler::TraceIdRatioBased(settings.sample_ratio);
    let provider = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).build())
        .with_sampler(match settings.parents {
            Parents::Followed => Sampler::ParentBased(Box::new(share)),
            Parents::Ignored => share,
        })
        .with_resource(resource(settings))
        .build();
    Ok(Some(provider))
}

fn exporter(settings: &TelemetrySettings, endpoint: &str) -> Result<SpanExporter, TelemetryError> {
    let runtime = Handle::try_current().map_err(|_| TelemetryError::NoRuntime)?;
    let builder = SpanExporter::builder();
    let built = match settings.otlp_protocol {
        OtlpProtocol::Grpc => {
            let mut builder = builder.with_tonic();
            if endpoint.starts_with("https:") {
                // The exporter's own choice trusts nobody.
                let roots = ClientTlsConfig::new().with_enabled_roots();
                builder = builder.with_tls_config(roots);
            }
            builder
                .with_protocol(Protocol::Grpc)
                .with_endpoint(endpoint)
                .with_timeout(settings.otlp_timeout)
                .build()
        }
        OtlpProtocol::Http => {
            let sender = Sender::new(endpoint, (runtime, settings.otlp_timeout))
                .map_err(TelemetryError::Authorities)?;
            builder
                .with_http()
                .with_http_client(sender)
                .with_protocol(Protocol::HttpBinary)
                .with_endpoint(endpoint)
                .with_timeout(settings.otlp_timeout)
                .build()
        }
    };
    built.map_err(|source| TelemetryError::Exporter {
        endpoint: endpoint.to_owned(),
        source,
    })
}

/// Returns the sender: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` win over our own words.
fn resource(settings: &TelemetrySettings) -> Resource {
    let from_environment = Resource::builder().build();
    let ours = [
        (
            "service.version",
            Some(env!("CARGO_PKG_VERSION").to_owned()),
        ),
        ("service.instance.id", settings.instance_id.clone()),
    ];
    let mut resource = Resource::builder();
    let name = from_environment.get(&Key::new("service.name"));
    if name.is_none_or(|name| name.as_str().starts_with("unknown_service")) {
        resource = resource.with_service_name(SERVICE);
    }
    for (key, value) in ours {
        if let (Some(value), None) = (value, from_environment.get(&Key::new(key))) {
            resource = resource.with_attribute(KeyValue::new(key, value));
        }
    }
    resource.build()
}

/// Turns our spans into OpenTelemetry's. Source places, thread names and busy times are left
/// out: they would double the size of a span and tell a reader of a trace nothing.
pub(super) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(SERVICE))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target(SERVICE, LevelFilter::DEBUG))
}

/// The span around this call, if it is recorded.
///
/// It is asked of OpenTelemetry, not of the log's span: the log may show fewer spans than are
/// traced, and its lines belong to the trace all the same.
pub(super) fn current() -> Option<SpanContext> {
    Context::map_current(|context| {
        let span = context.span().span_context().clone();
        (span.is_valid() && span.is_sampled()).then_some(span)
    })
}

/// Tells once when spans stop leaving, and once when they leave again. The SDK's own messages
/// would repeat every five seconds, or be off.
#[derive(Debug)]
struct Reported<E> {
    exporter: E,
    failing: AtomicBool,
}

impl<E: Export> Export for Reported<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.exporter.export(batch).await;
        let was_failing = self.failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_failing => {
                tracing::warn!(error = %chain::chain(error), "traces are lost: cannot export them");
            }
            Ok(()) if was_failing => tracing::info!("traces are exported again"),
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::error::OTelSdkError;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::telemetry::logs::{LogBuffer, LogFormat};

    #[derive(Debug)]
    struct Collector(AtomicBool);

    impl Export for Collector {
        async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
            let is_alive = self.0.load(Ordering::Relaxed);
            if is_alive {
                Ok(())
            } else {
                Err(OTelSdkError::InternalFailure("refused".into()))
            }
        }
    }

    #[tokio::test]
    async fn a_dead_collector_is_reported_once_and_so_is_its_return() {
        let logs = LogBuffer::default();
        let layer = crate::telemetry::logs::layer(logs.clone(), LogFormat::Text, "info").unwrap();
        let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let exporter = Reported {
            exporter: Collector(AtomicBool::new(true)),
            failing: AtomicBool::new(false),
        };
        for is_alive in [true, false, false, true, true] {
            exporter.exporter.0.store(is_alive, Ordering::Relaxed);
            drop(exporter.export(Vec::new()).await);
        }
        let text = logs.text();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            text.contains("cannot export them error=Operation failed: refused"),
            "{text}"
        );
        assert!(text.contains("exported again"), "{text}");
    }
}
