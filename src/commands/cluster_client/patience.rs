//! Retries requests if the server asks to wait: a few times, and never longer than the timeout of a
//! call.

use std::time::Duration;

use http::{HeaderMap, Request, Response, header::RETRY_AFTER};
use kube::client::{Body, retry::RetryPolicy};
use tokio::time::Sleep;
use tower::{BoxError, retry::Policy};

/// The first delay, if the server requests none.
const DELAY_MIN: Duration = Duration::from_millis(500);
/// The longest delay. If the server requests more, its answer is returned at once.
const DELAY_MAX: Duration = Duration::from_secs(4);
/// The maximum number of retries. Three times the longest delay is less than the timeout of a call.
const AGAIN_MAX: u32 = 3;

/// A retry policy. A server that has just learned a kind answers 429 for a moment, and a starting
/// one
/// 503. Users should not have to repeat a command for that.
#[derive(Clone)]
pub(super) struct Patience(RetryPolicy);

impl Default for Patience {
    fn default() -> Self {
        let policy = RetryPolicy::new(DELAY_MIN, DELAY_MAX, AGAIN_MAX, true);
        Self(policy.unwrap_or_default())
    }
}

impl<Answer> Policy<Request<Body>, Response<Answer>, BoxError> for Patience {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        answer: &mut Result<Response<Answer>, BoxError>,
    ) -> Option<Sleep> {
        let asked = answer.as_ref().ok().and_then(|it| seconds(it.headers()));
        if asked.is_some_and(|asked| asked > DELAY_MAX.as_secs()) {
            return None;
        }
        self.0.retry(request, answer)
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        <RetryPolicy as Policy<Request<Body>, Response<Answer>, BoxError>>::clone_request(
            &mut self.0,
            request,
        )
    }
}

/// Returns the delay that the server requests. API servers specify it in seconds.
fn seconds(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http_body_util::{BodyExt as _, Full};
    use tokio::time::Instant;
    use tower::{service_fn, util::BoxCloneSyncService};

    use super::super::*;

    const NAMESPACE: &str = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"uid":"u-1"}}"#;
    /// The answer of a busy API server.
    const BUSY: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":429,
        "reason":"TooManyRequests","message":"the server is busy learning kinds"}"#;

    /// Returns a client of a server that fails this number of times with the status, and the number
    /// of requests to it.
    fn a_client(
        (status, after): (u16, &'static str),
        failures: usize,
    ) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        let server = service_fn(move |_: http::Request<kube::client::Body>| {
            let is_good = counter.fetch_add(1, Ordering::SeqCst) >= failures;
            let (status, text) = if is_good {
                (200, NAMESPACE)
            } else {
                (status, BUSY)
            };
            async move {
                let body = Full::from(text).map_err(|never| match never {});
                let mut answer = http::Response::builder().status(status);
                if !after.is_empty() {
                    answer = answer.header("retry-after", after);
                }
                let body = body.map_err(|error: io::Error| error).boxed_unsync();
                Ok::<_, tower::BoxError>(answer.body(body).unwrap())
            }
        });
        let transport = BoxCloneSyncService::new(server);
        let metrics = (ClusterKind::Management, Metrics::new());
        let parts = ClientParts::new(patient(transport), FLEET_REQUESTS, CALL_TIMEOUT, metrics);
        let client = connect::client(parts);
        (client, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_a_moment_is_given_it_and_asked_again() {
        for (server, least) in [
            ((429, "2"), Duration::from_secs(6)),
            ((503, ""), Duration::from_secs(2)),
        ] {
            let (client, asked) = a_client(server, 3);
            let begun = Instant::now();
            assert_eq!(cluster_uid(&client).await.unwrap(), "u-1");
            assert_eq!(asked.load(Ordering::SeqCst), 4);
            let took = begun.elapsed();
            assert!(took >= least && took < CALL_TIMEOUT, "{server:?}: {took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stays_busy_is_asked_four_times() {
        for (server, times) in [((429, "4"), 4), ((503, ""), 4), ((429, "3600"), 1)] {
            let (client, asked) = a_client(server, usize::MAX);
            let begun = Instant::now();
            let reported = cluster_uid(&client).await.unwrap_err().to_string();
            assert_eq!(asked.load(Ordering::SeqCst), times, "{server:?}");
            assert!(
                reported.contains("the server is busy learning kinds"),
                "{reported}"
            );
            assert!(begun.elapsed() < CALL_TIMEOUT, "{server:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_not_asked_about_again() {
        let (client, asked) = a_client((403, "1"), usize::MAX);
        cluster_uid(&client).await.unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}
