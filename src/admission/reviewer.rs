//! Answers reviews: bounded in their size, their weight, their number and their time.
//!
//! Evaluation compiles templates, on a blocking thread, for which a verdict waits. Remarks render
//! samples, on a blocking thread or in a worker, and are left out where they would be late.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::Value as Json;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::{Instant, timeout},
};
use tracing::{
    Instrument as _, Span,
    field::{Empty, display},
};

use super::{
    memory_pool::{MemoryPool, Share},
    review::Review,
};
use crate::api::weight;
use crate::port::Source;
use crate::render_worker::Pool;
use crate::rules::admission::{
    Answer, Asked, remarks_on_machine_deployment, remarks_on_profile, remarks_on_worker_cluster,
    review_config, review_machine_deployment, review_profile, review_worker_cluster,
    written_profile,
};
use crate::telemetry::{
    metrics::{Metrics, Verdict, Webhook},
    traces::{self, TRACEPARENT},
};
use crate::tenant::id::TenantId;

/// The API server takes objects up to 3 MiB, and a review may hold one twice.
pub const REVIEW_BYTES_MAX: usize = 7 * 1024 * 1024;
/// The memory limit of a decoded review: 7 MiB of `[0,0,…` would take 287.
pub(super) const REVIEW_MIB_MAX: usize = 16;
/// How long the API server may take to send a review, and how long room for it may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a review may wait for room to be decoded in and for a thread: API servers give up after
/// ten seconds.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a verdict is held back for remarks.
const REMARKS_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of reviews that are evaluated at once.
const VERDICTS_MAX: usize = 8;
/// How many profiles are rendered at once, for remarks.
const REMARKS_MAX: usize = 2;

type Evaluate = fn(&Asked<'_>) -> Answer;
type FindRemarks = dyn Fn(&Asked<'_>) -> Vec<String> + Send + Sync;

/// Where samples of a profile are rendered, for remarks.
#[derive(Clone)]
enum Samples {
    /// In this process, on a blocking thread.
    Here(Arc<FindRemarks>),
    /// In worker processes.
    InWorkers(Arc<Pool>),
}

/// The webhooks. Configurations of others name the first three paths already.
const WEBHOOKS: [(&str, Webhook, Evaluate); 4] = [
    (
        "/mutate-v1alpha1-machinedeployment",
        Webhook::MachineDeployment,
        review_machine_deployment,
    ),
    ("/operatingsystemprofile", Webhook::Profile, review_profile),
    ("/operatingsystemconfig", Webhook::Config, review_config),
    (
        "/workercluster",
        Webhook::WorkerCluster,
        review_worker_cluster,
    ),
];

/// Answers reviews; a clone shares its bounds.
#[derive(Clone)]
pub struct Reviewer {
    metrics: Metrics,
    memory_pool: MemoryPool,
    verdicts: Arc<Semaphore>,
    remarks: Arc<Semaphore>,
    samples: Samples,
}

/// A request body, and its source.
type Sent = (Option<Source>, Body);

/// A review that was read, with what it takes in memory for as long as anybody looks at it.
struct Held {
    review: Review,
    _share: Share,
}

/// Why a review has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("the body is larger than {REVIEW_BYTES_MAX} bytes, or broke off")]
    Body,
    #[error("the review would take more than {REVIEW_MIB_MAX} MiB of memory")]
    TooHeavy,
    #[error("the body took too long")]
    SlowBody,
    #[error("the body is no AdmissionReview of admission.k8s.io/v1")]
    NotAReview,
    #[error("too many reviews are waiting")]
    Busy,
    #[error("evaluating the review failed")]
    Panicked,
}

impl Failure {
    const fn status(self) -> StatusCode {
        match self {
            Self::Body | Self::TooHeavy => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::NotAReview => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Reviewer {
    /// Creates a reviewer that renders samples in this process.
    pub fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            memory_pool: MemoryPool::default(),
            verdicts: Arc::new(Semaphore::new(VERDICTS_MAX)),
            remarks: Arc::new(Semaphore::new(REMARKS_MAX)),
            samples: Samples::Here(Arc::new(remarks_on_profile)),
        }
    }

    /// Renders samples in worker processes.
    #[must_use]
    pub fn with_workers(self, workers: Arc<Pool>) -> Self {
        Self {
            samples: Samples::InWorkers(workers),
            ..self
        }
    }

    /// As if this were said of profiles.
    #[cfg(test)]
    pub(super) fn with_remarks(self, find_remarks: Arc<FindRemarks>) -> Self {
        Self {
            samples: Samples::Here(find_remarks),
            ..self
        }
    }

    /// The paths of all webhooks.
    pub fn router(&self) -> Router {
        let webhooks = WEBHOOKS.into_iter();
        webhooks.fold(Router::new(), |router, (path, webhook, evaluate)| {
            router.merge(self.route(path, (webhook, evaluate)))
        })
    }

    /// Takes all permits, as if the maximum number of profiles were being rendered.
    #[cfg(test)]
    pub(super) fn hold_remarks(&self) -> OwnedSemaphorePermit {
        let all = u32::try_from(REMARKS_MAX).unwrap();
        let remarks = Arc::clone(&self.remarks);
        remarks.try_acquire_many_owned(all).unwrap()
    }

    /// One webhook.
    pub(super) fn route(&self, path: &'static str, webhook: (Webhook, Evaluate)) -> Router {
        let answer = move |State(reviewer): State<Self>,
                           source: Option<Extension<Source>>,
                           headers: HeaderMap,
                           body: Body| {
            let source = source.map(|Extension(source)| source);
            let span = span_of(path, webhook.0);
            let caller = headers.get(TRACEPARENT).and_then(|it| it.to_str().ok());
            traces::follow(&span, caller);
            reviewer.respond(webhook, (source, body)).instrument(span)
        };
        Router::new()
            .route(path, post(answer))
            .with_state(self.clone())
    }

    async fn respond(self, (webhook, evaluate): (Webhook, Evaluate), sent: Sent) -> Response {
        let begin = Instant::now();
        let answered = self.answer((webhook, evaluate), sent).await;
        let verdict = answered
            .as_ref()
            .map_or(Verdict::Failed, |(verdict, _)| *verdict);
        self.metrics.reviewed(webhook, verdict, begin.elapsed());
        let span = Span::current();
        span.record("outcome", verdict.as_str());
        let response = match answered {
            Ok((_, review)) => {
                ([(header::CONTENT_TYPE, "application/json")], review).into_response()
            }
            Err(failure) => {
                tracing::warn!(webhook = webhook.as_str(), %failure, "a review has no answer");
                span.record("otel.status_code", "error");
                span.record("otel.status_description", display(&failure));
                (failure.status(), format!("{failure}\n")).into_response()
            }
        };
        let status = i64::from(response.status().as_u16());
        span.record("http.response.status_code", status);
        response
    }

    async fn answer(
        &self,
        (webhook, evaluate): (Webhook, Evaluate),
        (source, body): Sent,
    ) -> Result<(Verdict, String), Failure> {
        let mut share = self.memory_pool.share(source);
        let body = timeout(BODY_TIMEOUT, share.read(body, REVIEW_BYTES_MAX))
            .await
            .map_err(|_| Failure::SlowBody)?
            .map_err(|_| Failure::Body)?;
        let weight = weight::of(&body);
        if weight > REVIEW_MIB_MAX << 20 {
            return Err(Failure::TooHeavy);
        }
        let turn = async {
            share.reach(body.capacity() + weight).await;
            Arc::clone(&self.verdicts).acquire_owned().await
        };
        let Ok(Ok(permit)) = timeout(TURN_TIMEOUT, turn).await else {
            return Err(Failure::Busy);
        };
        let evaluated = on_a_thread(permit, move || {
            let review = read(&body)?;
            let answer = evaluate(&review.asked());
            Ok((review, answer))
        });
        let span = tracing::info_span!("evaluate");
        let (review, answer) = evaluated.instrument(span).await??;
        review.record(&Span::current());
        let held = Arc::new(Held {
            review,
            _share: share,
        });
        let verdict = match &answer {
            Answer::Refused { .. } => Verdict::Refused,
            Answer::Allowed { patch, .. } if patch.is_empty() => Verdict::Allowed,
            Answer::Allowed { .. } => Verdict::Patched,
        };
        let remarks = match (webhook, verdict) {
            (Webhook::Profile, Verdict::Allowed) => {
                let span = tracing::info_span!("remark");
                self.remarks(&held).instrument(span).await
            }
            (Webhook::MachineDeployment, Verdict::Allowed | Verdict::Patched) => {
                remarks_on_machine_deployment(&held.review.asked())
            }
            (Webhook::WorkerCluster, _) => self.effects(&held).await,
            _ => Vec::new(),
        };
        Ok((verdict, held.review.answered(&answer, remarks).to_string()))
    }

    /// Returns remarks on a profile, if they are found in time.
    async fn remarks(&self, held: &Arc<Held>) -> Vec<String> {
        let Ok(permit) = Arc::clone(&self.remarks).try_acquire_owned() else {
            return not_test_rendered();
        };
        let found = async {
            match &self.samples {
                Samples::Here(find_remarks) => {
                    let (held, find_remarks) = (Arc::clone(held), Arc::clone(find_remarks));
                    let find = move || find_remarks(&held.review.asked());
                    on_a_thread(permit, find).await.ok()
                }
                Samples::InWorkers(workers) => {
                    let _permit = permit;
                    lint(workers, Arc::clone(held)).await
                }
            }
        };
        let found = timeout(REMARKS_TIMEOUT, found).await;
        found.ok().flatten().unwrap_or_else(not_test_rendered)
    }

    /// Returns what changed settings take, if that is found in time. The default profiles are ours:
    /// no worker is needed.
    async fn effects(&self, held: &Arc<Held>) -> Vec<String> {
        let late = || vec!["see `osm plan -f` for what this takes on machines".to_owned()];
        let Ok(permit) = Arc::clone(&self.remarks).try_acquire_owned() else {
            return late();
        };
        let held = Arc::clone(held);
        let find = on_a_thread(permit, move || {
            remarks_on_worker_cluster(&held.review.asked())
        });
        let found = timeout(REMARKS_TIMEOUT, find).await;
        found.ok().and_then(Result::ok).unwrap_or_else(late)
    }
}

/// Returns a worker's remarks on a profile; `None` if it had to be stopped.
async fn lint(workers: &Pool, held: Arc<Held>) -> Option<Vec<String>> {
    // Megabytes may be decoded.
    let decoded = spawn_blocking(move || {
        let asked = held.review.asked();
        let written = written_profile(&asked)?;
        let namespace = asked.object.pointer("/metadata/namespace");
        let tenant = TenantId::new(namespace.and_then(Json::as_str).unwrap_or_default());
        Some((tenant, written))
    });
    let Some((tenant, written)) = decoded.await.ok()? else {
        return Some(Vec::new());
    };
    workers.lint(&tenant, &written).await.ok()
}

fn not_test_rendered() -> Vec<String> {
    vec!["the profile was not test-rendered; `osm lint` does that".to_owned()]
}

/// The review as a whole, from its first byte to the answer.
fn span_of(path: &'static str, webhook: Webhook) -> Span {
    tracing::info_span!(
        parent: None,
        "review",
        otel.name = format!("POST {path}"),
        otel.kind = "server",
        http.request.method = "POST",
        http.route = path,
        webhook = webhook.as_str(),
        http.response.status_code = Empty,
        osm.request.verb = Empty,
        osm.request.kind = Empty,
        namespace = Empty,
        name = Empty,
        outcome = Empty,
        otel.status_code = Empty,
        otel.status_description = Empty,
    )
}

fn read(body: &[u8]) -> Result<Review, Failure> {
    Review::read(body).map_err(|_| Failure::NotAReview)
}

/// Runs on a blocking thread, which holds the permit until the work ends, waited for or not.
async fn on_a_thread<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let ran = spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    });
    ran.await.map_err(|_| Failure::Panicked)
}
