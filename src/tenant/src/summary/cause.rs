//! The first problem of a tenant, as a text for people.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::state::{is_failing, wrong};
use crate::report::{ConditionState, Report, excerpt};
use osm_api::condition::ConditionType;

/// The highest number of characters of a cause, which keeps a page of a thousand tenants small.
pub(super) const WHY_CHARACTERS_MAX: usize = 300;

/// Returns the first problem, in the order in which a tenant becomes ready. Returns a remark only
/// if there is no problem.
pub(super) fn why(report: &Report, failing: usize) -> Option<String> {
    let wrong = || wrong(report);
    let of =
        |(_, finding): (_, &ConditionState)| sentence(finding.reason.as_str(), &finding.message);
    if let Some(first) = wrong().find(|(kind, _)| !kind.is_remark()) {
        return Some(of(first));
    }
    if failing == 0 {
        return wrong().next().map(of);
    }
    let first = report.outcomes.iter().find(|(_, it)| is_failing(it.state));
    first.map(|(name, it)| {
        let message = it.message.as_deref().unwrap_or_default();
        sentence(it.reason.as_str(), &format!("{name}: {message}"))
    })
}

/// Returns the first problem according to a WorkerCluster. `Ready` has the cause of the first
/// condition that is false.
pub(super) fn why_elsewhere(conditions: &[Condition]) -> Option<String> {
    let ready = ConditionType::Ready.find_in(conditions);
    let not_ready = ready.filter(|it| it.status != "True");
    let first = not_ready.or_else(|| conditions.iter().find(|it| it.status == "False"))?;
    Some(sentence(&first.reason, &first.message))
}

fn sentence(reason: &str, message: &str) -> String {
    let separator = if message.is_empty() { "" } else { ": " };
    let whole = format!("{reason}{separator}{message}");
    excerpt(&whole, WHY_CHARACTERS_MAX)
}
