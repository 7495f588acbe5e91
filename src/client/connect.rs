//! Creates clients for a tenant's clusters: transport, budget, timeout and health in one client.
//!
//! ```text
//! kube::Client ──► TenantService: budget, circuit, timeout, filter ──► trace ──► transport
//! ```
//!
//! The transport is passed in: TLS in production, an in-memory cluster in tests. This client
//! follows no redirects, reads no proxy from the environment and does not retry. The caller gets
//! the error, and knows how long to wait.

use std::{
    fmt,
    future::poll_fn,
    mem,
    num::NonZeroU32,
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::{Client, client::Body};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};
use tracing::Instrument;

use crate::client::{
    fence::{Fence, Fenced},
    health::{Health, HeldBack},
    memory::{Memory, Reservation},
    permits::{Permit, Priority},
    rate_limit::{Budget, Prepaid, SharedBudget},
    response_filter::{self, Shape, body, request},
    transport::{OneCallAtATime, ResponseBody, Transport},
};
use crate::telemetry::{
    metrics::{ClusterKind, Metrics},
    traces::{ApiCall, ApiCallLayer},
};
use crate::tenant::{
    access::{AccessRules, ClusterAccess},
    id::TenantId,
    policy::RequestBudget,
};

/// Creates a transport from a validated kubeconfig.
pub type Connector =
    Arc<dyn Fn(&ClusterAccess, &AccessRules) -> Result<Transport, BoxError> + Send + Sync>;

const ONE: NonZeroU32 = NonZeroU32::MIN;

/// The parts of a tenant's client.
#[derive(Clone)]
pub struct ClientParts {
    /// Carries the requests.
    pub transport: Transport,
    /// The tenant's budget of requests to this cluster.
    pub budget: Arc<Budget>,
    /// The tenant's share of the budget of all tenants, if they use the same cluster.
    pub share: Option<Share>,
    /// The timeout of a call, except for watches.
    pub timeout: Duration,
    /// Observes the outcome of each call, and holds calls back while the cluster fails. `None` for
    /// the management cluster.
    pub health: Option<Arc<Health>>,
    /// Checks every write as it is sent. `None` for the replica's own Lease.
    pub fence: Option<Fence>,
    /// The memory that tenants share. Answers reserve it while they are read. `None` for the
    /// management cluster, and for commands that read from one cluster only.
    pub memory: Option<Arc<Memory>>,
    /// The kind of cluster.
    pub kind: ClusterKind,
    /// Counts the calls.
    pub metrics: Metrics,
}

impl ClientParts {
    /// Returns the parts of a client that has a budget, and nothing else that is optional.
    pub fn new(
        transport: Transport,
        budget: RequestBudget,
        timeout: Duration,
        (kind, metrics): (ClusterKind, Metrics),
    ) -> Self {
        Self {
            transport,
            budget: Arc::new(Budget::new(budget)),
            share: None,
            timeout,
            health: None,
            fence: None,
            memory: None,
            kind,
            metrics,
        }
    }
}

/// A tenant's share of a budget that all tenants share.
#[derive(Clone, Debug)]
pub struct Share {
    /// The shared budget.
    pub budget: Arc<SharedBudget>,
    /// The tenant.
    pub tenant: TenantId,
}

/// Creates a client for one of a tenant's clusters.
pub fn client(parts: ClientParts) -> Client {
    Client::new(TenantService::from(parts), "default")
}

/// Creates clients for one of a tenant's clusters. A client is created for each piece of work and
/// then dropped, because an idle one keeps a task and room for dozens of requests.
#[derive(Clone)]
pub struct Clients(Arc<ClientParts>);

impl Clients {
    /// Creates a source of clients with these parts.
    pub fn new(parts: ClientParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns a client of high priority. All clients use the same budget.
    pub fn client(&self) -> Client {
        self.client_for(Priority::High)
    }

    /// Returns a client for work of this priority. In the budget that all tenants share, requests
    /// of low priority yield to those of high priority.
    pub fn client_for(&self, priority: Priority) -> Client {
        let service = TenantService {
            priority,
            ..self.service()
        };
        Client::new(service, "default")
    }

    /// Waits for the budget of one request, and returns a client whose first request needs none.
    /// Callers create large values after the wait, and so do not keep them while they wait.
    pub async fn paid(&self, priority: Priority) -> Client {
        pay(&self.0, priority).await;
        let service = TenantService {
            priority,
            is_paid: true,
            ..self.service()
        };
        Client::new(service, "default")
    }

    /// Returns a source of clients with the same parts, but for the transport.
    #[must_use]
    pub fn with_transport(&self, transport: Transport) -> Self {
        Self::new(ClientParts {
            transport,
            ..ClientParts::clone(&self.0)
        })
    }

    fn service(&self) -> TenantService {
        ClientParts::clone(&self.0).into()
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("clients")
    }
}

/// The error for a call that took too long.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {}", humantime::format_duration(*.0))]
struct Timeout(Duration);

#[derive(Clone)]
struct TenantService {
    parts: ClientParts,
    priority: Priority,
    /// True if the budget for the next request was taken already.
    is_paid: bool,
}

impl From<ClientParts> for TenantService {
    fn from(parts: ClientParts) -> Self {
        Self {
            parts,
            priority: Priority::High,
            is_paid: false,
        }
    }
}

impl Service<Request<Body>> for TenantService {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The wait for the budget is part of the call, so that each call waits for its own.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (parts, priority) = (self.parts.clone(), self.priority);
        let is_paid =
            mem::take(&mut self.is_paid) || request.extensions().get::<Prepaid>().is_some();
        Box::pin(async move {
            let shape = request::answer(&request)?;
            if parts.health.as_ref().is_some_and(|it| it.holds_back()) {
                // A request that is not sent takes nothing from the budget, which the next one
                // needs.
                return Err(HeldBack.into());
            }
            if !is_paid {
                pay(&parts, priority).await;
            }
            let _under_way = enter(&parts, priority).await;
            // This check comes after the last of our queues. The transport checks again when the
            // body is sent, because the request may have waited for a stream or a connection.
            if let Some(fence) = &parts.fence {
                let passed = fence.check(request.method());
                passed.inspect_err(|fenced| parts.metrics.fenced(fenced.reason()))?;
                request.extensions_mut().insert(fence.clone());
            }
            let Some(health) = &parts.health else {
                return send(&parts, request, shape).await.and_then(expected);
            };
            let observed = health.admit(request.method())?;
            let sent = Instant::now();
            let outcome = send(&parts, request, shape).await;
            match &outcome {
                Ok(response) => {
                    observed.answered(response);
                    if shape != Shape::Events {
                        health.took(sent.elapsed());
                    }
                }
                // These errors say nothing about the cluster.
                Err(error)
                    if error.is::<Fenced>() || response_filter::is_page_too_large(&**error) => {}
                Err(error) => observed.unreachable(error.as_ref()),
            }
            outcome.and_then(expected)
        })
    }
}

/// Refuses an answer that no API server gives.
fn expected(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, BoxError> {
    response_filter::expect_answer(response.status())?;
    Ok(response)
}

/// Waits for the budgets of one request, and counts how long that took. A wait has its own span.
async fn pay(parts: &ClientParts, priority: Priority) {
    let mut paying = pin!(async {
        let waited = parts.budget.take(ONE).await;
        match &parts.share {
            Some(share) => waited + share.budget.take(&share.tenant, priority).await,
            None => waited,
        }
    });
    let waited = match futures::poll!(&mut paying) {
        Poll::Ready(waited) => waited,
        Poll::Pending => paying.instrument(wait_span(parts)).await,
    };
    parts.metrics.throttled(parts.kind, waited);
}

/// Waits until the request may be sent. Only requests to a cluster that all tenants share wait.
async fn enter(parts: &ClientParts, priority: Priority) -> Option<Permit> {
    let share = parts.share.as_ref()?;
    let mut entering = pin!(share.budget.enter(&share.tenant, priority));
    if let Poll::Ready(permit) = futures::poll!(&mut entering) {
        return Some(permit);
    }
    let asked = Instant::now();
    let permit = entering.instrument(wait_span(parts)).await;
    parts.metrics.throttled(parts.kind, asked.elapsed());
    Some(permit)
}

fn wait_span(parts: &ClientParts) -> tracing::Span {
    let kind = parts.kind.as_str();
    tracing::info_span!("wait for the budget", osm.cluster.kind = kind)
}

async fn send(
    parts: &ClientParts,
    request: Request<Body>,
    shape: Shape,
) -> Result<Response<ResponseBody>, BoxError> {
    let service =
        ApiCallLayer::new(parts.metrics.clone(), parts.kind).layer(parts.transport.clone());
    let (metrics, kind) = (parts.metrics.clone(), parts.kind);
    // The management cluster is trusted, so its watches are not slowed down.
    let is_paced = kind == ClusterKind::Worker;
    let health = parts.health.clone();
    let waited = is_paced.then_some(move |waited| {
        metrics.throttled(kind, waited);
        if let Some(health) = &health {
            health.events_delayed();
        }
    });
    let memory = parts.memory.as_ref().map(Reservation::guaranteed);
    let health = parts.health.clone();
    let exchanged = exchange(service, (request, shape), (waited, memory, health));
    let outcome = match tokio::time::timeout(parts.timeout, exchanged).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Timeout(parts.timeout).into()),
    };
    outcome.inspect_err(|error| {
        if let Some(fenced) = error.downcast_ref::<Fenced>() {
            parts.metrics.fenced(fenced.reason());
        }
    })
}

async fn exchange(
    mut service: ApiCall<Transport>,
    (request, shape): (Request<Body>, Shape),
    (waited, memory, health): (
        Option<impl Fn(Duration) + Send + Sync + 'static>,
        Option<Reservation>,
        Option<Arc<Health>>,
    ),
) -> Result<Response<ResponseBody>, BoxError> {
    poll_fn(|context| service.poll_ready(context)).await?;
    let response = service.call(request).await?;
    let (head, body) = response.into_parts();
    let body = match (head.status.is_success(), shape) {
        (true, Shape::Events) => {
            let is_alone = head.extensions.get::<OneCallAtATime>().is_some();
            let lost = health.filter(|_| is_alone).map(|health| {
                let lost: BoxFuture<'static, ()> = Box::pin(async move { health.silent().await });
                lost
            });
            body::events(body, waited, memory, lost)
        }
        (true, shape) => whole(body::read(body, shape, memory).await?),
        (false, _) => whole(body::read_status(body).await?),
    };
    Ok(Response::from_parts(head, body))
}

fn whole(bytes: Bytes) -> ResponseBody {
    Full::new(bytes)
        .map_err(|never| match never {})
        .boxed_unsync()
}

#[cfg(test)]
mod tests;
