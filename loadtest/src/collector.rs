//! An OpenTelemetry collector on loopback: it receives traces by OTLP over gRPC and over HTTP,
//! keeps them in memory, and shows them as trees.
//!
//! It speaks the published protocol, so that what arrives here arrives at any collector. It
//! stores nothing and forwards nothing.

mod over_http;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span as Received, status::StatusCode};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, async_trait};

/// More spans than this are counted and dropped: about 200 MiB, and more than a demo shows.
const SPANS_MAX: usize = 200_000;

/// The attributes that a line of a tree shows, in this order.
const SHOWN: [&str; 14] = [
    "tenant",
    "cluster",
    "machine_deployment",
    "trigger",
    "queue_wait_ms",
    "profile",
    "outcome",
    "writes",
    "step",
    "osm.cluster.kind",
    "server.address",
    "url.path",
    "http.response.status_code",
    "error.type",
];

/// A running collector; it stops when it is dropped.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    http_address: SocketAddr,
    store: watch::Receiver<Store>,
    _servers: JoinSet<()>,
}

/// What was received.
#[derive(Clone, Debug, Default)]
struct Store {
    spans: Vec<Span>,
    dropped: usize,
    headers: BTreeMap<String, String>,
}

/// One span, with ids in hexadecimal and values as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The trace that it belongs to.
    pub trace_id: String,
    /// Its own id.
    pub span_id: String,
    /// The span that it is part of; `None` at the root.
    pub parent_span_id: Option<String>,
    /// What was done.
    pub name: String,
    /// `internal`, `client`, `server`, `producer` or `consumer`.
    pub kind: &'static str,
    /// When it started, in Unix nanoseconds.
    pub start: u64,
    /// How long it took.
    pub duration: Duration,
    /// Its attributes.
    pub attributes: BTreeMap<String, String>,
    /// The names of its events.
    pub events: Vec<String>,
    /// What it is linked to: the ids of a trace and of a span in it.
    pub links: Vec<(String, String)>,
    /// What went wrong, if something did.
    pub error: Option<String>,
    /// Attributes of the process that sent it, such as `service.name`.
    pub resource: BTreeMap<String, String>,
}

/// What was waited for did not come.
#[derive(Debug, Error)]
#[error("not the expected spans within {deadline:?}; these came:\n{seen}")]
pub struct NotSeen {
    deadline: Duration,
    seen: String,
}

impl Collector {
    /// Listens on a free port of loopback.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (sender, store) = watch::channel(Store::default());
        let received_here = Receiver(Arc::new(sender));
        let service = TraceServiceServer::new(received_here.clone());
        let http_listener = TcpListener::bind("127.0.0.1:0").await?;
        let http_address = http_listener.local_addr()?;
        let mut servers = JoinSet::new();
        servers.spawn(over_http::serve(http_listener, received_here.clone()));
        servers.spawn(async {
            let server = tonic::transport::Server::builder();
            // It serves for as long as the collector lives.
            let incoming = TcpIncoming::from(listener);
            drop(server.serve_with_incoming(service, incoming).await);
        });
        Ok(Self {
            address,
            http_address,
            store,
            _servers: servers,
        })
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` is to say.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it is to say where `OTEL_EXPORTER_OTLP_PROTOCOL` says `http/protobuf`.
    pub fn http_endpoint(&self) -> String {
        format!("http://{}", self.http_address)
    }

    /// The headers that came with the last spans.
    pub fn headers(&self) -> BTreeMap<String, String> {
        self.store.borrow().headers.clone()
    }

    /// Every span that has come, in the order of arrival.
    pub fn spans(&self) -> Vec<Span> {
        self.store.borrow().spans.clone()
    }

    /// How many spans came after the memory was full.
    pub fn dropped(&self) -> usize {
        self.store.borrow().dropped
    }

    /// Waits until the spans that have come satisfy the predicate, and returns them.
    pub async fn wait_for(
        &self,
        predicate: impl Fn(&[Span]) -> bool,
        deadline: Duration,
    ) -> Result<Vec<Span>, NotSeen> {
        let mut store = self.store.clone();
        let wanted = store.wait_for(|store| predicate(&store.spans));
        if let Ok(Ok(store)) = tokio::time::timeout(deadline, wanted).await {
            return Ok(store.spans.clone());
        }
        let seen = self
            .traces()
            .keys()
            .map(|trace_id| self.tree(trace_id))
            .collect();
        Err(NotSeen { deadline, seen })
    }

    /// The spans by trace id, each trace sorted by start.
    pub fn traces(&self) -> BTreeMap<String, Vec<Span>> {
        let mut traces = BTreeMap::<String, Vec<Span>>::new();
        for span in &self.store.borrow().spans {
            traces
                .entry(span.trace_id.clone())
                .or_default()
                .push(span.clone());
        }
        for spans in traces.values_mut() {
            spans.sort_by_key(|span| span.start);
        }
        traces
    }

    /// One trace as an indented tree, siblings in the order of their start. A span whose parent
    /// did not come stands at the left.
    pub fn tree(&self, trace_id: &str) -> String {
        let spans = self.traces().remove(trace_id).unwrap_or_default();
        tree(trace_id, &spans)
    }
}

/// The service behind the port.
#[derive(Clone)]
struct Receiver(Arc<watch::Sender<Store>>);

impl Receiver {
    fn take(&self, request: ExportTraceServiceRequest, headers: &HeaderMap) {
        let spans: Vec<Span> = received(request).collect();
        let headers = headers.iter().map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.to_string(), value)
        });
        let headers = headers.collect();
        self.0.send_modify(|store| {
            let room = SPANS_MAX.saturating_sub(store.spans.len());
            store.dropped += spans.len().saturating_sub(room);
            store.spans.extend(spans.into_iter().take(room));
            store.headers = headers;
        });
    }
}

#[async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, tonic::Status> {
        let (metadata, _, request) = request.into_parts();
        self.take(request, &metadata.into_headers());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn received(request: ExportTraceServiceRequest) -> impl Iterator<Item = Span> {
    request.resource_spans.into_iter().flat_map(|group| {
        let resource = attributes(group.resource.map(|resource| resource.attributes));
        group
            .scope_spans
            .into_iter()
            .flat_map(|scope| scope.spans)
            .map(move |span| readable(span, resource.clone()))
    })
}

fn readable(span: Received, resource: BTreeMap<String, String>) -> Span {
    let error = span
        .status
        .and_then(|status| (status.code() == StatusCode::Error).then_some(status.message));
    Span {
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent_span_id: (!span.parent_span_id.is_empty()).then(|| hex(&span.parent_span_id)),
        kind: kind(span.kind),
        start: span.start_time_unix_nano,
        duration: Duration::from_nanos(
            span.end_time_unix_nano
                .saturating_sub(span.start_time_unix_nano),
        ),
        attributes: attributes(Some(span.attributes)),
        events: span.events.into_iter().map(|event| event.name).collect(),
        links: span
            .links
            .iter()
            .map(|it| (hex(&it.trace_id), hex(&it.span_id)))
            .collect(),
        name: span.name,
        error,
        resource,
    }
}

fn kind(number: i32) -> &'static str {
    match number {
        2 => "server",
        3 => "client",
        4 => "producer",
        5 => "consumer",
        _ => "internal",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

fn attributes(attributes: Option<Vec<KeyValue>>) -> BTreeMap<String, String> {
    let attributes = attributes.unwrap_or_default().into_iter();
    attributes
        .map(|pair| (pair.key, pair.value.map(text).unwrap_or_default()))
        .collect()
}

fn text(value: AnyValue) -> String {
    match value.value {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        other => format!("{other:?}"),
    }
}

/// These spans of one trace as an indented tree, wherever they were received.
pub fn tree(trace_id: &str, spans: &[Span]) -> String {
    let known = |id: &str| spans.iter().any(|span| span.span_id == id);
    let mut text = format!("trace {trace_id}\n");
    for root in spans {
        if root
            .parent_span_id
            .as_deref()
            .is_none_or(|parent| !known(parent))
        {
            branch(
                &mut text,
                root,
                &Place {
                    spans,
                    indent: String::new(),
                },
            );
        }
    }
    text
}

/// Where in the tree the next line stands.
struct Place<'a> {
    spans: &'a [Span],
    indent: String,
}

fn branch(text: &mut String, span: &Span, place: &Place<'_>) {
    let Place { spans, indent } = place;
    writeln!(text, "{indent}{span}").expect("writing to a String cannot fail");
    // A span that names itself as its parent would never end.
    let children = spans.iter().filter(|child| {
        child.parent_span_id.as_ref() == Some(&span.span_id) && child.span_id != span.span_id
    });
    let below = Place {
        spans,
        indent: format!("{indent}  "),
    };
    for child in children {
        branch(text, child, &below);
    }
}

/// One line: name, duration, key attributes, error.
impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}  {:.1?}", self.name, self.duration)?;
        for key in SHOWN {
            if let Some(value) = self.attributes.get(key) {
                write!(formatter, "  {key}={value}")?;
            }
        }
        match self.error.as_deref() {
            Some("") => write!(formatter, "  ERROR"),
            Some(error) => write!(formatter, "  ERROR {error}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_span(id: &str, parent: Option<&str>, start: u64) -> Span {
        Span {
            trace_id: "t".to_owned(),
            span_id: id.to_owned(),
            parent_span_id: parent.map(str::to_owned),
            name: id.to_owned(),
            start,
            duration: Duration::from_millis(12),
            ..Span::default()
        }
    }

    #[test]
    fn a_tree_shows_children_below_their_parent_by_start() {
        let mut apply = a_span("apply", Some("reconcile"), 30);
        apply.error = Some("refused".to_owned());
        let mut get = a_span("GET secrets", Some("dereference"), 21);
        get.attributes
            .insert("http.response.status_code".to_owned(), "200".to_owned());
        get.attributes
            .insert("not.shown".to_owned(), "x".to_owned());
        let spans = [
            a_span("reconcile", None, 10),
            a_span("dereference", Some("reconcile"), 20),
            get,
            apply,
        ];
        assert_eq!(
            tree("t", &spans),
            "trace t\n\
             reconcile  12.0ms\n  \
             dereference  12.0ms\n    \
             GET secrets  12.0ms  http.response.status_code=200\n  \
             apply  12.0ms  ERROR refused\n"
        );
    }

    #[test]
    fn a_span_without_its_parent_stands_at_the_left() {
        let spans = [a_span("late", Some("never came"), 1)];
        assert_eq!(tree("t", &spans), "trace t\nlate  12.0ms\n");
    }

    #[tokio::test]
    async fn what_does_not_come_is_reported_with_what_came() {
        let collector = Collector::start().await.unwrap();
        let missing = collector
            .wait_for(|spans| !spans.is_empty(), Duration::from_millis(1))
            .await;
        assert!(
            missing
                .unwrap_err()
                .to_string()
                .starts_with("not the expected spans within 1ms")
        );
    }
}
