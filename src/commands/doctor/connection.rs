//! Checks that a cluster answers and accepts the credential, and compares the clusters' clocks.

use std::time::Duration;

use anyhow::Context as _;
use http::{Request, StatusCode};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use tokio::time::timeout;

use super::Check;
use crate::client::clock::answered_at;
use crate::commands::cluster_client::{ClusterClient, KubeconfigSource};

/// How long a tenant's cluster may take for its first answer. Some hundred of them are asked at
/// once, and the rest after those.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A clock that is wrong by more than this starts to matter.
const SKEW_WARN_SECONDS: u64 = 10;
/// If clocks differ by more than this, tokens are refused.
const SKEW_FAIL_SECONDS: u64 = 300;

/// The first answer of a cluster.
pub(super) enum Answer {
    /// It answers. How far its clock is ahead of this machine's, if the answer contains the time.
    Clock(Option<SignedDuration>),
    /// It does not accept the credential.
    Unauthorized,
}

/// Sends the first request to a tenant's cluster. One that is connected and does not answer soon
/// holds up the others that wait for their turn.
///
/// # Errors
///
/// Returns an error if the cluster does not answer.
pub(super) async fn reach_tenant(place: &str, client: &Client) -> anyhow::Result<Answer> {
    let answer = timeout(ANSWER_TIMEOUT, reach(place, client)).await;
    answer.unwrap_or_else(|_| {
        let seconds = ANSWER_TIMEOUT.as_secs();
        anyhow::bail!("cannot reach the cluster ({place}): no answer within {seconds}s")
    })
}

/// Sends the first request to a cluster.
///
/// # Errors
///
/// Returns an error if the cluster does not answer.
pub(super) async fn reach(place: &str, client: &Client) -> anyhow::Result<Answer> {
    let request = Request::get("/version").body(kube::client::Body::empty())?;
    let answer = client
        .send(request)
        .await
        .with_context(|| format!("cannot reach the cluster ({place})"))?;
    if answer.status() == StatusCode::UNAUTHORIZED {
        return Ok(Answer::Unauthorized);
    }
    let there = answered_at(answer.headers());
    Ok(Answer::Clock(
        there.map(|there| there.duration_since(Timestamp::now())),
    ))
}

/// Returns true if an API server does not accept the credential of a call.
pub(super) fn is_unauthorized(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 401)
}

/// Returns the check of a management cluster that does not accept the user's credential.
pub(super) fn refused(source: &KubeconfigSource, cluster: &ClusterClient) -> Check {
    let server = cluster.server.to_string();
    let message = format!(
        "{} does not accept the credential of {} (401 Unauthorized)",
        server.trim_end_matches('/'),
        name_of(source)
    );
    let fix = "renew that credential, or choose another one with --kubeconfig or --context";
    Check::wrong("management", "connection", (message, fix))
}

/// Names the context and the kubeconfig by the flags, since only the connection reads the file.
fn name_of(source: &KubeconfigSource) -> String {
    let context = match &source.context {
        Some(context) => format!("context {context}"),
        None => "the current context".to_owned(),
    };
    match &source.kubeconfig {
        Some(file) => format!("{context} of {}", file.display()),
        None => {
            format!("{context} of $KUBECONFIG, the pod or ~/.kube/config, the first that exists")
        }
    }
}

/// Returns the check of a worker cluster that does not accept the registered credential.
pub(super) fn refused_by_worker(place: &str) -> Check {
    let message = "it does not accept the kubeconfig's credential (401 Unauthorized)".to_owned();
    let fix = "put a valid kubeconfig into the Secret; osm tenant add creates one with a new token";
    Check::wrong(place, "connection", (message, fix))
}

/// Compares the clocks of the management cluster and of a worker cluster, each given by how far it
/// is ahead of this machine's. This machine's own clock may be wrong.
pub(super) fn clock(
    place: &str,
    (here, there): (Option<SignedDuration>, Option<SignedDuration>),
) -> Check {
    let Some((here, there)) = here.zip(there) else {
        return Check::ok(place, "connection", "it answers");
    };
    let what = "connection and clock";
    let skew = there.as_secs().abs_diff(here.as_secs());
    let message = format!("it answers; its clock and the management cluster's differ by {skew} s");
    let fix = "let the machines of both synchronise their clocks (chrony, systemd-timesyncd): \
               they decide what has expired";
    match skew {
        0..=SKEW_WARN_SECONDS => Check::ok(place, what, message),
        SKEW_FAIL_SECONDS.. => Check::wrong(place, what, (message, fix)),
        _ => Check::doubtful(place, what, (message, fix)),
    }
}

#[cfg(test)]
mod tests {
    use fake_cluster::{Cluster, Fault, Matcher};

    use super::{super::State, *};

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_does_not_answer_holds_nobody_up_for_long() {
        let cluster = Cluster::default();
        cluster.inject(Matcher::any(), Fault::Hang);
        let begun = tokio::time::Instant::now();
        let answer = reach_tenant("berlin", &cluster.client()).await;
        let message = answer.err().unwrap().to_string();
        assert_eq!(
            message,
            "cannot reach the cluster (berlin): no answer within 5s"
        );
        assert_eq!(begun.elapsed(), ANSWER_TIMEOUT);
    }

    #[test]
    fn clocks_are_compared_with_each_other_and_not_with_this_machines() {
        let ahead = |seconds| Some(SignedDuration::from_secs(seconds));
        let state = |here, there| clock("x", (here, there)).state;
        assert_eq!(state(ahead(0), ahead(1)), State::Ok);
        assert_eq!(state(ahead(7_200), ahead(7_201)), State::Ok);
        assert_eq!(state(None, ahead(7_200)), State::Ok);
        assert_eq!(state(ahead(0), ahead(-60)), State::Warn);
        let wrong = clock("x", (ahead(-1_800), ahead(1_800)));
        assert!(wrong.state == State::Fail && wrong.fix.is_some());
    }
}
