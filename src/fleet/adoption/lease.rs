//! Reads the Lease of the previous manager: is it held, or has it expired?
//!
//! A Lease is evaluated by the clock of the API server that stores it, taken from the response. A
//! local clock that is wrong by hours does no harm.

use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Client, Resource,
    api::GetParams,
    client::Body,
    core::{Request, Status},
};

use crate::api::names::KUBE_SYSTEM;
use crate::client::clock::{Clock, answered_at};

/// The name of the Lease where profiles live in the worker cluster.
pub const LEASE: &str = "operating-system-manager";
/// The name of the Lease where profiles live in the management cluster.
pub const WORKER_LEASE: &str = "operating-system-manager-worker-manager";

/// The duration of a Lease that specifies none: client-go's default.
const DURATION: Duration = Duration::from_secs(15);
/// How far the holder's clock may lag behind that of the API server. A Lease counts as held for
/// this long after it expired.
const SKEW: Duration = Duration::from_mins(1);

/// The holder of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The Lease's name.
    pub lease: String,
    /// The identity that the holder wrote into the Lease.
    pub identity: String,
}

/// The state of a Lease that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The Lease is held.
    Held(Holder),
    /// The Lease was released, or has expired.
    Free,
}

/// Reads the state of a Lease in `kube-system`. Returns `None` if it does not exist.
pub async fn read(
    worker: &Client,
    name: &str,
    clock: &Clock,
) -> Result<Option<Found>, kube::Error> {
    let (found, now) = get(worker, name, clock).await?;
    Ok(found.map(|lease| evaluate(name, &lease, now)))
}

/// Reads a Lease in `kube-system`, if it exists, and the time of the API server that answers.
pub async fn get(
    worker: &Client,
    name: &str,
    clock: &Clock,
) -> Result<(Option<Lease>, Timestamp), kube::Error> {
    let request = Request::new(Lease::url_path(&(), Some(KUBE_SYSTEM)))
        .get(name, &GetParams::default())
        .map_err(kube::Error::BuildRequest)?;
    let response = worker.send(request.map(Body::from)).await?;
    let (status, now) = (response.status(), answered_at(response.headers()));
    let now = now.unwrap_or_else(|| clock.now());
    let bytes = response.into_body().collect_bytes().await?;
    if status == StatusCode::NOT_FOUND {
        return Ok((None, now));
    }
    if !status.is_success() {
        let failure = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Status::failure("the Lease cannot be read", "Unknown"));
        let failure = Status {
            code: status.as_u16(),
            ..failure
        };
        return Err(kube::Error::Api(Box::new(failure)));
    }
    let lease: Lease = serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?;
    Ok((Some(lease), now))
}

/// Returns the state of a Lease at a time of its API server.
pub fn evaluate(name: &str, lease: &Lease, now: Timestamp) -> Found {
    let spec = lease.spec.clone().unwrap_or_default();
    let identity = spec.holder_identity.unwrap_or_default();
    let Some(renewed) = spec.renew_time.map(|time| time.0) else {
        return Found::Free;
    };
    if identity.is_empty() {
        return Found::Free;
    }
    let lasts = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(DURATION, Duration::from_secs);
    let ends = renewed.saturating_add(lasts + SKEW);
    if ends.is_ok_and(|ends| ends < now) {
        return Found::Free;
    }
    Found::Held(Holder {
        lease: name.to_owned(),
        identity: identity.chars().take(100).collect(),
    })
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;

    use super::*;

    fn a_lease(identity: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": LEASE},
            "spec": {
                "holderIdentity": identity, "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T12:00:00.000000Z",
            },
        }))
        .unwrap()
    }

    fn after(seconds: i64) -> Timestamp {
        let renewed: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        renewed + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn a_lease_is_held_until_it_has_run_out_by_any_clock_that_is_nearly_right() {
        let lease = a_lease("pod_1");
        for (seconds, is_held) in [
            (-3_600, true),
            (0, true),
            (15, true),
            (74, true),
            (76, false),
        ] {
            let found = evaluate(LEASE, &lease, after(seconds));
            assert_eq!(matches!(found, Found::Held(_)), is_held, "{seconds}");
        }
        assert_eq!(evaluate(LEASE, &a_lease(""), after(0)), Found::Free);
        assert_eq!(evaluate(LEASE, &Lease::default(), after(0)), Found::Free);
    }
}
