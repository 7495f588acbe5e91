//! The claim on a worker cluster that is its tenant's home: the Lease by which the program that osm
//! replaces elects its leader. While we hold it, that program waits and writes nothing.
//!
//! The Lease is held for the tenant, by whichever replica serves it, so that a restart writes
//! nothing. Which replica that is, the replicas' own Leases decide.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep};

use super::Claimant;
use crate::api::names::KUBE_SYSTEM;
use crate::client::{clock::Clock, jitter, retry_delay::RetryDelay};
use crate::fleet::adoption::{
    LEASE,
    lease::{self, Found, Holder},
};
use crate::telemetry::chain::chain;

/// How long the Lease is valid. client-go's candidates wait for as long as the Lease says, so this
/// bounds only how long they wait once we are gone without having released it.
const DURATION: Duration = Duration::from_hours(1);
/// The interval between two renewals. After two that fail there is time for a third.
const RENEWAL: Duration = Duration::from_mins(20);
/// A Lease that is held and younger than this is not renewed when it is acquired again.
const YOUNG: Duration = Duration::from_mins(10);
/// Nothing is served any more this long before the Lease ends, counted from when it was acquired:
/// it may have been renewed so long before, and a reconcile that runs takes less than the rest.
const MARGIN: Duration = Duration::from_mins(15);

/// The reason why the Lease was not acquired or renewed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Another holds it.
    #[error("{} holds Lease {KUBE_SYSTEM}/{}", .0.identity, .0.lease)]
    Held(Holder),
    /// A call failed, or another client wrote the Lease first.
    #[error("cannot write Lease {KUBE_SYSTEM}/{LEASE}")]
    Call(#[from] kube::Error),
}

impl Claimant {
    /// Returns the name under which Leases are held for the tenant.
    fn holder(&self) -> String {
        format!("osm/{}", self.text())
    }
}

/// Acquires the Lease for a tenant, or renews it if that is due. A Lease that is held and was
/// renewed a moment ago is not written.
///
/// # Errors
///
/// Another holds the Lease, or a call fails.
pub async fn acquire(
    worker: &Client,
    claimant: &Claimant,
    clock: &Clock,
) -> Result<(), LeaseError> {
    let api: Api<Lease> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    let params = PostParams::default();
    let (found, now) = lease::get(worker, LEASE, clock).await?;
    let Some(found) = found else {
        let spec = wanted(&claimant.holder(), None, now);
        let metadata = ObjectMeta {
            name: Some(LEASE.to_owned()),
            ..ObjectMeta::default()
        };
        let lease = Lease {
            metadata,
            spec: Some(spec),
        };
        return Ok(api.create(&params, &lease).await.map(drop)?);
    };
    let spec = found.spec.as_ref();
    let is_ours = is_held_by(spec, claimant);
    match lease::evaluate(LEASE, &found, now) {
        Found::Held(holder) if !is_ours => return Err(LeaseError::Held(holder)),
        Found::Held(_) if !is_due(spec, now) => return Ok(()),
        Found::Held(_) | Found::Free => {}
    }
    let before = spec.filter(|_| is_ours);
    let transitions = spec.and_then(|it| it.lease_transitions).unwrap_or_default();
    let mut wanted = wanted(&claimant.holder(), before, now);
    let more = i32::from(!is_ours);
    wanted.lease_transitions = Some(transitions.saturating_add(more));
    let renewed = Lease {
        spec: Some(wanted),
        ..found
    };
    Ok(api.replace(LEASE, &params, &renewed).await.map(drop)?)
}

/// Renews the Lease until it is lost: somebody else has it, or the cluster does not answer for so
/// long that it may end.
pub async fn keep(worker: impl Fn() -> Client, claimant: &Claimant, clock: &Clock) -> LeaseError {
    let mut renewed = Instant::now();
    let mut delay = RetryDelay::default();
    let mut wait = jitter::around(RENEWAL);
    loop {
        sleep(wait).await;
        match Box::pin(acquire(&worker(), claimant, clock)).await {
            Ok(()) => {
                (renewed, delay) = (Instant::now(), RetryDelay::default());
                wait = jitter::around(RENEWAL);
            }
            Err(lost @ LeaseError::Held(_)) => return lost,
            Err(failed) if renewed.elapsed() + MARGIN >= DURATION => return failed,
            Err(failed) => {
                tracing::debug!(error = %chain(&failed), "the Lease was not renewed");
                wait = delay.next().unwrap_or(MARGIN);
            }
        }
    }
}

/// Releases the Lease if it is held for the tenant, so that others need not wait for its end.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn release(worker: &Client, claimant: &Claimant) -> Result<(), kube::Error> {
    let api: Api<Lease> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    let Some(mut lease) = api.get_opt(LEASE).await? else {
        return Ok(());
    };
    if !is_held_by(lease.spec.as_ref(), claimant) {
        return Ok(());
    }
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    let params = PostParams::default();
    api.replace(LEASE, &params, &lease).await.map(drop)
}

fn is_held_by(spec: Option<&LeaseSpec>, claimant: &Claimant) -> bool {
    let holder = spec.and_then(|spec| spec.holder_identity.as_ref());
    holder == Some(&claimant.holder())
}

/// Returns true if the last renewal was a while ago, or in the future.
fn is_due(spec: Option<&LeaseSpec>, now: Timestamp) -> bool {
    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
    let age = renewed.map(|renewed| now.duration_since(renewed.0));
    let age = age.and_then(|age| Duration::try_from(age).ok());
    age.is_none_or(|age| age >= YOUNG)
}

fn wanted(holder: &str, before: Option<&LeaseSpec>, now: Timestamp) -> LeaseSpec {
    let acquired = before.and_then(|before| before.acquire_time.clone());
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(0),
        ..LeaseSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
    use serde_json::{Value, json};

    use super::*;
    use crate::fleet::claim::tests::a_claimant;

    /// A cluster whose clock goes with the test's.
    fn a_cluster() -> (Cluster, Clock) {
        (Cluster::default(), Clock::tokio(Timestamp::UNIX_EPOCH))
    }

    async fn acquire_as(of: &(Cluster, Clock), tenant: &str) -> Result<(), LeaseError> {
        acquire(&of.0.client(), &a_claimant(tenant), &of.1).await
    }

    fn spec(cluster: &Cluster, field: &str) -> Value {
        let lease = cluster.get(object("leases", KUBE_SYSTEM, LEASE));
        let lease = lease.expect("there is a Lease");
        lease.pointer(&format!("/spec/{field}")).cloned().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_written_again_only_when_a_renewal_is_due() {
        let of = a_cluster();
        acquire_as(&of, "berlin").await.unwrap();
        assert_eq!(spec(&of.0, "holderIdentity"), "osm/m/berlin");
        of.0.clear_audit();
        acquire_as(&of, "berlin").await.unwrap();
        assert_eq!(of.0.writes().len(), 0, "a restart writes nothing");
        tokio::time::advance(RENEWAL).await;
        acquire_as(&of, "berlin").await.unwrap();
        assert_eq!(of.0.writes().len(), 1);
        assert_eq!(spec(&of.0, "leaseTransitions"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_another_is_taken_once_it_has_ended_or_was_released() {
        let of = a_cluster();
        acquire_as(&of, "berlin").await.unwrap();
        let held = acquire_as(&of, "lisbon").await;
        assert!(matches!(held, Err(LeaseError::Held(it)) if it.identity == "osm/m/berlin"));
        release(&of.0.client(), &a_claimant("lisbon"))
            .await
            .unwrap();
        assert_eq!(spec(&of.0, "holderIdentity"), "osm/m/berlin", "not theirs");
        release(&of.0.client(), &a_claimant("berlin"))
            .await
            .unwrap();
        acquire_as(&of, "lisbon").await.unwrap();
        assert_eq!(spec(&of.0, "leaseTransitions"), 1);
        tokio::time::advance(DURATION * 2).await;
        acquire_as(&of, "berlin").await.unwrap();
        assert_eq!(spec(&of.0, "holderIdentity"), "osm/m/berlin");
        assert_eq!(spec(&of.0, "leaseTransitions"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_lost_to_another_and_before_it_ends_where_it_cannot_be_renewed() {
        let (cluster, clock) = a_cluster();
        let client = || cluster.client();
        let claimant = a_claimant("berlin");
        acquire(&client(), &claimant, &clock).await.unwrap();
        let taken = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": KUBE_SYSTEM},
            "spec": {
                "holderIdentity": "another", "leaseDurationSeconds": 86_400,
                "renewTime": spec(&cluster, "renewTime"),
            },
        });
        let begun = Instant::now();
        // It is taken up as it was, so its end comes sooner than counted.
        tokio::time::advance(YOUNG / 10 * 9).await;
        acquire(&client(), &claimant, &clock).await.unwrap();
        let fault = Fault::Status {
            code: 500,
            retry_after: None,
        };
        let failure = cluster.inject(Matcher::on(&[Verb::Get], "leases"), fault);
        let lost = keep(client, &claimant, &clock).await;
        assert!(matches!(lost, LeaseError::Call(_)), "{lost:?}");
        let left = DURATION.saturating_sub(begun.elapsed());
        assert!(left > Duration::from_mins(1), "{left:?}");
        cluster.clear_fault(failure);
        cluster.put_raw(taken).unwrap();
        let lost = keep(client, &claimant, &clock).await;
        assert!(matches!(lost, LeaseError::Held(it) if it.identity == "another"));
    }
}
