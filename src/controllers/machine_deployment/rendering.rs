//! Renders on blocking threads or in render workers, and records the outcome.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::Instrument;

use super::{super::context::Context, error::Error};
use crate::client::permits::Priority;
use crate::plan::{invalid::Invalid, validate::Deployment};
use crate::render::RenderError;
use crate::render_worker::Pool;
use crate::rules::user_data::{SizeChecked, Weighed, weigh};
use crate::telemetry::metrics::{Document, Metrics, RenderResult, TemplateLimit};

/// The outcome of a render and its duration, without the wait for a permit.
type Timed = (Result<Weighed, Error>, Duration);

/// Renders and checks the sizes. A slow render must not block the runtime, so it gets a blocking
/// thread or a worker process. The permit is released before any API call: otherwise slow clusters
/// would starve the others.
///
/// # Errors
///
/// If the profile cannot be rendered, a document is too large, or the worker was killed.
pub async fn render(
    context: &Context,
    deployment: &Arc<Deployment>,
    priority: Priority,
) -> Result<SizeChecked, Error> {
    let workers = context.rules.renderer.workers_for(&deployment.profile);
    let (weighed, took) = match workers {
        Some(workers) => in_worker(context, deployment, (workers, priority)).await,
        None => in_thread(context, deployment, priority).await,
    };
    let metrics = &context.engagement.shared.metrics;
    let Weighed { sizes, documents } = weighed.inspect_err(|error| failed(metrics, error, took))?;
    ended(metrics, sizes, (documents.is_ok(), took));
    let documents = documents.map_err(Invalid::from)?;
    let [provisioning, bootstrap] = sizes;
    let statistics = &context.engagement.tenant_status.statistics;
    statistics.user_data(provisioning.max(bootstrap));
    Ok(documents)
}

async fn in_thread(context: &Context, deployment: &Arc<Deployment>, priority: Priority) -> Timed {
    let asked = Instant::now();
    let shared = &context.engagement.shared;
    let tenant = context.engagement.tenant();
    let wait = tracing::info_span!("wait for a permit");
    let _permit = shared
        .permits
        .take(&tenant, priority)
        .instrument(wait)
        .await;
    shared.metrics.permit_waited(asked.elapsed());
    let limits = context.rules.limits;
    let deployment = Arc::clone(deployment);
    let span = tracing::info_span!("render", profile = deployment.profile.digest());
    let begun = Instant::now();
    let rendering = tokio::task::spawn_blocking(move || {
        span.in_scope(|| weigh(&deployment.render_input(), &limits))
    });
    let weighed = match rendering.await {
        Ok(weighed) => weighed.map_err(|error| Invalid::from(error).into()),
        Err(_) => Err(Error::RenderPanicked),
    };
    (weighed, begun.elapsed())
}

async fn in_worker(
    context: &Context,
    deployment: &Deployment,
    (workers, priority): (&Pool, Priority),
) -> Timed {
    let asked = Instant::now();
    let tenant = context.engagement.tenant();
    let wait = tracing::info_span!("wait for a worker");
    let slot = workers.acquire(&tenant, priority).instrument(wait).await;
    let metrics = &context.engagement.shared.metrics;
    metrics.permit_waited(asked.elapsed());
    let span = tracing::info_span!("render", profile = deployment.profile.digest());
    let begun = Instant::now();
    let input = deployment.render_input();
    let rendering = slot.render(&input, &context.rules.limits);
    let weighed = match rendering.instrument(span).await {
        Ok(weighed) => weighed.map_err(|error| Invalid::from(error).into()),
        Err(stopped) => Err(stopped.into()),
    };
    (weighed, begun.elapsed())
}

/// Records a render that produced documents of these sizes, provisioning first.
fn ended(metrics: &Metrics, sizes: [usize; 2], (fits, took): (bool, Duration)) {
    let documents = [Document::Provisioning, Document::Bootstrap];
    for (document, size) in documents.into_iter().zip(sizes) {
        metrics.user_data_rendered(document, size);
    }
    let result = if fits {
        RenderResult::Rendered
    } else {
        RenderResult::TooLarge
    };
    metrics.rendered(result, took);
}

/// Records a render that produced no documents.
fn failed(metrics: &Metrics, error: &Error, took: Duration) {
    let result = match error {
        Error::RenderPanicked => RenderResult::Panicked,
        Error::RenderStopped(_) => RenderResult::Stopped,
        _ => RenderResult::Refused,
    };
    metrics.rendered(result, took);
    if let Error::Invalid(Invalid::Render(error)) = error
        && let Some(limit) = limit(error)
    {
        metrics.template_limit_hit(limit);
    }
}

const fn limit(error: &RenderError) -> Option<TemplateLimit> {
    match error {
        RenderError::OutOfFuel { .. } => Some(TemplateLimit::Instructions),
        RenderError::OutputTooLarge { .. } => Some(TemplateLimit::Output),
        RenderError::WorkTooLarge { .. } => Some(TemplateLimit::Work),
        _ => None,
    }
}
