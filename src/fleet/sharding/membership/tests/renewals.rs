//! Tests of when a Lease is renewed, when it ends, and when it is no longer kept.

use super::*;

/// The write of a Lease takes this long.
const SLOW: Duration = Duration::from_secs(3);

/// Starts a replica whose first write of this kind is slow, and cuts it off right after that write.
/// The fence must close as if the write had been answered at once.
async fn check_end_of_lease(slow: Verb) {
    let cluster = Cluster::default();
    let clock = Clock::tokio(Timestamp::UNIX_EPOCH);
    let writes = Matcher::on(&[slow], "leases");
    cluster.inject_times(writes, Fault::Delay(SLOW), 1);
    let params = params(cluster.client(), &Holder::parse("a_1"), &clock);
    let fence = params.fence.clone();
    let (membership, _placement) = Membership::new(params);
    let mut process = JoinSet::new();
    process.spawn(async move { membership.run(&CancellationToken::new()).await });
    let is_slow = |it: &fake_cluster::AuditEntry| it.wrote && it.verb == slow;
    cluster
        .wait_until(|cluster| cluster.audit().iter().any(is_slow))
        .await;
    let any = Matcher {
        resource: Some("leases".to_owned()),
        ..Matcher::any()
    };
    cluster.inject(any, Fault::Hang);
    sleep(TERMS.duration.saturating_sub(TERMS.margin + SLOW)).await;
    assert_eq!(fence.check(&Method::POST), Ok(()), "{slow:?}");
    advance(Duration::from_millis(5)).await;
    assert_eq!(fence.check(&Method::POST), Err(Fenced::Lease), "{slow:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_counts_from_the_moment_in_which_its_write_was_sent() {
    check_end_of_lease(Verb::Create).await;
    check_end_of_lease(Verb::Patch).await;
}

#[test]
fn renewals_and_their_calls_fit_in_before_the_fence_closes() {
    assert_eq!(TERMS.renewal_interval(), Duration::from_secs(3));
    assert_eq!(TERMS.call_timeout(), Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_not_renewed_for_threads_that_hang() {
    let cluster = Cluster::default();
    let clock = Clock::tokio(Timestamp::UNIX_EPOCH);
    let params = params(cluster.client(), &Holder::parse("a_1"), &clock);
    let (fence, heartbeat) = (params.fence.clone(), params.heartbeat.clone());
    let (membership, _placement) = Membership::new(params);
    let mut process = JoinSet::new();
    process.spawn(async move { membership.run(&CancellationToken::new()).await });
    let mut beating = JoinSet::new();
    beating.spawn(heartbeat.clone().beat());
    sleep(Duration::from_mins(5)).await;
    assert_eq!(fence.check(&Method::POST), Ok(()));
    beating.shutdown().await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(fence.check(&Method::POST), Err(Fenced::Lease));
    beating.spawn(heartbeat.beat());
    sleep(TERMS.renewal_interval()).await;
    assert_eq!(fence.check(&Method::POST), Ok(()), "they go on");
}
