//! Counts what became of renders.

use std::time::Duration;

use super::error::Error;
use crate::render::RenderError;
use crate::rules::user_data::{Fitting, TooLarge};
use crate::telemetry::metrics::{Document, Metrics, RenderResult, TemplateLimit};

/// A render ended in documents of these sizes, provisioning first. They may be too large.
pub fn ended(
    metrics: &Metrics,
    sizes: [usize; 2],
    (fitting, took): (&Result<Fitting, TooLarge>, Duration),
) {
    let documents = [Document::Provisioning, Document::Bootstrap];
    for (document, size) in documents.into_iter().zip(sizes) {
        metrics.user_data_rendered(document, size);
    }
    let result = match fitting {
        Ok(_) => RenderResult::Rendered,
        Err(_) => RenderResult::TooLarge,
    };
    metrics.rendered(result, took);
}

/// A render ended without documents.
pub fn failed(metrics: &Metrics, error: &Error, took: Duration) {
    let result = match error {
        Error::RenderPanicked => RenderResult::Panicked,
        _ => RenderResult::Refused,
    };
    metrics.rendered(result, took);
    if let Error::Render(error) = error
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
