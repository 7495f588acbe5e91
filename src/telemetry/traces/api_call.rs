//! One span and one count per request to a Kubernetes API server.
//!
//! The layer stands innermost in a client's stack, behind retries and the budget: so every attempt
//! is a span of its own, and waiting is not taken for a slow server. A span ends with the head of
//! the answer, which is why a watch is a short span and not one of minutes. Headers and bodies are
//! never looked at, and of the address neither the query nor the user is recorded.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response, Uri};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};
use tracing::{Instrument, Span, field::Empty};

use crate::telemetry::{
    chain,
    metrics::{Asked, ClusterKind, CodeClass, Metrics},
    traces::{self, api_request::ApiRequest},
};

/// Traces and counts the calls of one client.
#[derive(Clone, Debug)]
pub struct ApiCallLayer {
    metrics: Metrics,
    cluster: ClusterKind,
}

impl ApiCallLayer {
    /// For a client of that kind of cluster.
    pub fn new(metrics: Metrics, cluster: ClusterKind) -> Self {
        Self { metrics, cluster }
    }
}

impl<S> Layer<S> for ApiCallLayer {
    type Service = ApiCall<S>;

    fn layer(&self, inner: S) -> ApiCall<S> {
        ApiCall {
            inner,
            layer: self.clone(),
        }
    }
}

/// A service whose calls are traced and counted.
#[derive(Clone, Debug)]
pub struct ApiCall<S> {
    inner: S,
    layer: ApiCallLayer,
}

impl<S, Body, Answer> Service<Request<Body>> for ApiCall<S>
where
    S: Service<Request<Body>, Response = Response<Answer>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    // Boxed, because only then its causes can be read: the outermost of hyper's errors says that a
    // connection failed, and the innermost why.
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (span, asked) = span_of(&request, self.layer.cluster);
        if let Some(parent) = span.in_scope(traceparent) {
            request.headers_mut().insert(traces::TRACEPARENT, parent);
        }
        let answer = span
            .in_scope(|| self.inner.call(request))
            .instrument(span.clone());
        let mut ending = Ending {
            layer: self.layer.clone(),
            span,
            asked,
            sent: Instant::now(),
            class: None,
        };
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into);
            match &answer {
                Ok(answer) => ending.answered(answer.status().as_u16()),
                Err(error) => ending.failed(&**error),
            }
            answer
        })
    }
}

fn span_of<Body>(request: &Request<Body>, cluster_kind: ClusterKind) -> (Span, Asked) {
    let (method, uri) = (request.method(), request.uri());
    let asked = ApiRequest::parse(method, uri);
    let span = tracing::debug_span!(
        "api call",
        otel.name = asked.title(method),
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        error.type = Empty,
        http.request.method = method.as_str(),
        http.response.status_code = Empty,
        url.path = uri.path(),
        url.template = asked.template(),
        server.address = uri.host(),
        server.port = port(uri),
        osm.request.verb = asked.verb.as_str(),
        osm.request.resource = asked.resource,
        osm.cluster.kind = cluster_kind.as_str(),
    );
    let verb = asked.verb;
    (span, Asked { cluster_kind, verb })
}

fn port(uri: &Uri) -> Option<i64> {
    let default = || match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    };
    uri.port_u16().or_else(default).map(i64::from)
}

/// The current span as a W3C `traceparent`, so that an API server that traces joins our trace.
fn traceparent() -> Option<HeaderValue> {
    let context = traces::current()?;
    let flags = context.trace_flags().to_u8();
    let text = format!(
        "00-{}-{}-{flags:02x}",
        context.trace_id(),
        context.span_id()
    );
    HeaderValue::from_str(&text).ok()
}

/// How a call ends; one that is dropped (a deadline, or a tenant that went away) counts as
/// unanswered, because that is what a silent server looks like from here.
struct Ending {
    layer: ApiCallLayer,
    span: Span,
    asked: Asked,
    sent: Instant,
    class: Option<CodeClass>,
}

impl Ending {
    fn answered(&mut self, status: u16) {
        self.class = Some(CodeClass::of(status));
        self.span
            .record("http.response.status_code", i64::from(status));
        if status >= 400 {
            self.span.record("error.type", status.to_string());
            self.span.record("otel.status_code", "error");
        }
    }

    fn failed(&mut self, error: &(dyn Error + 'static)) {
        self.class = Some(CodeClass::Unanswered);
        self.span.record("error.type", "transport");
        self.span.record(
            "otel.status_description",
            tracing::field::display(chain::chain(error)),
        );
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let class = self.class.unwrap_or_else(|| {
            self.span.record("error.type", "cancelled");
            self.span.record(
                "otel.status_description",
                "dropped before the server answered",
            );
            CodeClass::Unanswered
        });
        let (metrics, took) = (&self.layer.metrics, self.sent.elapsed());
        self.span
            .in_scope(|| metrics.api_request(self.asked, class, took));
    }
}
