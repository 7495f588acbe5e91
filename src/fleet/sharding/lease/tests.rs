//! Leases on an API server in memory.

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};

use super::*;

const NAMESPACE: &str = "default";
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn leases(cluster: &Cluster, me: &str) -> Leases {
    let me = (Holder::parse(me), Duration::from_millis(15_500));
    Leases::new((cluster.client(), NAMESPACE), "osm", me, "{}".to_owned())
}

async fn joined(of: &Leases) -> Lease {
    let listed = of.list().await.unwrap();
    of.join(&a_statement(), &listed, NOW).await.unwrap()
}

fn a_statement() -> Statement {
    Statement {
        view: View([Holder::parse("a_1")].into()),
        record: Record::default(),
    }
}

#[tokio::test]
async fn a_lease_says_what_other_replicas_and_people_read() {
    let cluster = Cluster::default();
    for (me, transitions) in [("a_1", 0), ("a_2", 1), ("a_3", 2)] {
        let of_me = leases(&cluster, me);
        let lease = joined(&of_me).await;
        assert_eq!(lease.labels()[FLEET_LABEL], "osm");
        assert_eq!(lease.annotations()[VIEW], a_statement().view.digest());
        assert_eq!(lease.annotations()[RUNS_WITH], "{}");
        let spec = lease.spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some(me));
        assert_eq!(spec.lease_duration_seconds, Some(16), "rounded up");
        assert_eq!(spec.acquire_time, Some(MicroTime(NOW)));
        assert_eq!(spec.renew_time, Some(MicroTime(NOW)));
        assert_eq!(spec.lease_transitions, Some(transitions));
    }
}

#[tokio::test]
async fn a_lease_that_was_released_is_held_by_nobody_and_says_what_was_left() {
    let cluster = Cluster::default();
    let of_a = leases(&cluster, "a_1");
    let lease = joined(&of_a).await;
    of_a.release(&lease, "last", NOW).await.unwrap();
    let seen = of_a.list().await.unwrap().leases["osm-a"].clone();
    assert!(seen.is_last());
}

#[tokio::test]
async fn a_replica_writes_its_own_lease_again_where_an_answer_was_lost() {
    let cluster = Cluster::default();
    let of_a = leases(&cluster, "a_1");
    let first = joined(&of_a).await;
    let later = |seconds| Timestamp::from_second(seconds).unwrap();
    of_a.renew(&first, &a_statement(), later(1)).await.unwrap();
    let again = of_a.renew(&first, &a_statement(), later(2)).await.unwrap();
    assert_eq!(again.uid(), first.uid());
    assert_eq!(again.spec.unwrap().renew_time, Some(MicroTime(later(2))));
}

#[tokio::test]
async fn only_a_lease_that_is_gone_or_held_by_another_is_lost() {
    let cluster = Cluster::default();
    let of_a = leases(&cluster, "a_1");
    let first = joined(&of_a).await;
    let patches = Matcher::on(&[Verb::Patch], "leases");
    let (code, retry_after) = (403, None);
    cluster.inject_times(patches, Fault::Status { code, retry_after }, 1);
    let refused = of_a.renew(&first, &a_statement(), NOW).await.unwrap_err();
    assert!(matches!(refused, LeaseError::Call { .. }), "{refused}");

    joined(&leases(&cluster, "a_2")).await;
    let taken = of_a.renew(&first, &a_statement(), NOW).await.unwrap_err();
    assert!(matches!(&taken, LeaseError::Lost { why, .. } if why.starts_with("a_2 holds")));

    assert!(cluster.delete_raw(object("leases", NAMESPACE, "osm-a")));
    let deleted = of_a.renew(&first, &a_statement(), NOW).await.unwrap_err();
    assert!(matches!(&deleted, LeaseError::Lost { why, .. } if why == "it was deleted"));
}

#[tokio::test]
async fn who_ends_a_lease_that_is_over_knows_whether_another_was_faster() {
    let cluster = Cluster::default();
    let (of_a, of_b) = (leases(&cluster, "a_1"), leases(&cluster, "b_1"));
    joined(&of_a).await;
    let held = of_b.list().await.unwrap().leases["osm-a"].clone();
    assert_eq!(of_b.evict("osm-a", &held).await.unwrap(), Swapped::Here);
    assert_eq!(
        of_b.evict("osm-a", &held).await.unwrap(),
        Swapped::Elsewhere
    );
    let free = of_b.list().await.unwrap().leases["osm-a"].clone();
    assert_eq!(of_b.evict("osm-a", &free).await.unwrap(), Swapped::Here);
    assert!(of_b.list().await.unwrap().leases.is_empty(), "removed");
    assert_eq!(
        of_b.evict("osm-a", &free).await.unwrap(),
        Swapped::Elsewhere
    );

    joined(&of_a).await;
    let seen = of_b.list().await.unwrap().leases["osm-a"].clone();
    let patches = Matcher::on(&[Verb::Patch], "leases");
    let (code, retry_after) = (403, None);
    cluster.inject_times(patches, Fault::Status { code, retry_after }, 1);
    assert!(of_b.evict("osm-a", &seen).await.is_err(), "neither");
}
