//! Leader election by a Lease, as in other programs. The holder of the Lease serves, and writes
//! pass a fence while the Lease is valid.

use std::{future::pending, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::{Instant, sleep, timeout};

use super::REQUEST_TIMEOUT;
use crate::client::{clock::Clock, fence::Fence};
use crate::telemetry::chain::chain;

/// At most one renewal is under way when the Lease is released.
const RELEASE_ATTEMPTS_MAX: u32 = 3;

/// The lease duration, the renew deadline and the retry period: the defaults of client-go.
const DURATION: Duration = Duration::from_secs(15);
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);

/// The error if another process holds the Lease, or if it could not be renewed in time.
#[derive(Debug, thiserror::Error)]
#[error("leader election lost: Lease {name}: {why}")]
pub(super) struct Lost {
    name: String,
    why: String,
}

/// Acquires the Leases in their order. Leases that are already held are renewed while it waits for
/// the next: otherwise another process would take one of them over, and neither process would get
/// all of them.
pub(super) async fn acquire_all(leaders: &mut [Leader]) -> Result<(), Lost> {
    for next in 0..leaders.len() {
        let (held, waiting) = leaders.split_at_mut(next);
        let Some(leader) = waiting.first_mut() else {
            break;
        };
        tokio::select! {
            biased;
            lost = keep_all(held) => return Err(lost),
            () = leader.acquire() => {}
        }
    }
    Ok(())
}

/// Renews every Lease until one of them is lost.
pub(super) async fn keep_all(leaders: &mut [Leader]) -> Lost {
    let mut kept: FuturesUnordered<_> = leaders.iter_mut().map(Leader::keep).collect();
    match kept.next().await {
        Some(lost) => lost,
        None => pending().await,
    }
}

/// Releases the Leases that are held.
pub(super) async fn release_all(leaders: &mut [Leader]) {
    for leader in leaders {
        leader.release().await;
    }
}

/// A process that is the leader, or waits to become it.
pub(super) struct Leader {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: Clock,
    fence: Fence,
    /// The time at which the Lease was last acquired or renewed.
    renewed: Option<Instant>,
    /// The last observed Lease, and the time since which it has not changed.
    seen: Option<(Option<LeaseSpec>, Instant)>,
}

impl Leader {
    pub(super) fn new(client: &Client, (namespace, name): (&str, &str), clock: &Clock) -> Self {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        Self {
            api: Api::namespaced(client.clone(), namespace),
            name: name.to_owned(),
            identity: format!("{host}_{:016x}", rand::random::<u64>()),
            fence: Fence::closed(clock.clone(), REQUEST_TIMEOUT),
            clock: clock.clone(),
            renewed: None,
            seen: None,
        }
    }

    /// Returns the fence that checks every write.
    pub(super) fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Waits until the Lease is acquired.
    async fn acquire(&mut self) {
        tracing::info!(lease = self.name, "waiting to be the leader");
        loop {
            match self.try_acquire().await {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(lease = self.name, error = %chain(&error), "no leader election");
                }
            }
            sleep(RETRY).await;
        }
        self.renewed = Some(Instant::now());
        tracing::info!(lease = self.name, identity = self.identity, "leading");
    }

    /// Renews the Lease until it is lost.
    async fn keep(&mut self) -> Lost {
        loop {
            sleep(RETRY).await;
            let left = RENEW_DEADLINE.saturating_sub(self.since_renewal());
            let why = match timeout(left, self.try_acquire()).await {
                Ok(Ok(true)) => {
                    self.renewed = Some(Instant::now());
                    continue;
                }
                Ok(Ok(false)) => {
                    let why = "somebody else has it".to_owned();
                    return self.lost(why);
                }
                Ok(Err(error)) => chain(&error).to_string(),
                Err(_) => "no answer".to_owned(),
            };
            tracing::warn!(lease = self.name, why, "the Lease was not renewed");
            if self.since_renewal() >= RENEW_DEADLINE {
                return self.lost(why);
            }
        }
    }

    fn since_renewal(&self) -> Duration {
        self.renewed.map_or(Duration::MAX, |it| it.elapsed())
    }

    fn lost(&self, why: String) -> Lost {
        Lost {
            name: self.name.clone(),
            why,
        }
    }

    /// Releases the Lease, so that others need not wait. Nothing may be written after this.
    async fn release(&mut self) {
        self.fence.let_go();
        if self.renewed.is_none() {
            return;
        }
        for _ in 0..RELEASE_ATTEMPTS_MAX {
            let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else {
                return;
            };
            let Some(spec) = lease.spec.as_mut().filter(|spec| self.holds(spec)) else {
                return;
            };
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            let params = PostParams::default();
            match self.api.replace(&self.name, &params, &lease).await {
                // A renewal that was sent earlier, and whose answer was abandoned, came in between.
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "the Lease was not released");
                    return;
                }
                Ok(_) => return,
            }
        }
    }

    fn holds(&self, spec: &LeaseSpec) -> bool {
        spec.holder_identity.as_ref() == Some(&self.identity)
    }

    /// Takes or renews the Lease, unless another process holds it. Returns true if we hold it.
    async fn try_acquire(&mut self) -> Result<bool, kube::Error> {
        let sent = self.clock.since_boot();
        let found = self.api.get_opt(&self.name).await?;
        let params = PostParams::default();
        let written = match found {
            None => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(self.wanted(None)),
                };
                self.api.create(&params, &lease).await
            }
            Some(mut lease) => {
                if self.is_held_by_another(lease.spec.as_ref()) {
                    return Ok(false);
                }
                lease.spec = Some(self.wanted(lease.spec.as_ref()));
                self.api.replace(&self.name, &params, &lease).await
            }
        };
        match written {
            Ok(_) => {
                self.fence.extend(sent + DURATION);
                Ok(true)
            }
            // Another process may have been faster. The next attempt shows which one.
            Err(kube::Error::Api(status)) if status.code == 409 => self.holds_still().await,
            Err(error) => Err(error),
        }
    }

    /// Returns true if we hold the Lease although a write was refused.
    async fn holds_still(&self) -> Result<bool, kube::Error> {
        let found = self.api.get_opt(&self.name).await?;
        let spec = found.and_then(|lease| lease.spec);
        Ok(spec.is_some_and(|spec| self.holds(&spec)))
    }

    /// Returns true if another process holds the Lease. Clocks of other machines are not trusted: a
    /// Lease expires once it was observed unchanged for its duration.
    fn is_held_by_another(&mut self, spec: Option<&LeaseSpec>) -> bool {
        let now = Instant::now();
        let since = match &self.seen {
            Some((seen, since)) if seen.as_ref() == spec => *since,
            _ => {
                self.seen = Some((spec.cloned(), now));
                now
            }
        };
        let Some(spec) = spec else {
            return false;
        };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.unwrap_or_default();
        let lasts = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        !holder.is_empty() && holder != self.identity && now.duration_since(since) < lasts
    }

    fn wanted(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now: Timestamp = self.clock.now();
        let is_ours = before.is_some_and(|before| self.holds(before));
        let transitions = before.and_then(|before| before.lease_transitions);
        let transitions = transitions.unwrap_or_default();
        let acquired = before
            .filter(|_| is_ours)
            .and_then(|before| before.acquire_time.clone());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(match before {
                Some(_) if !is_ours => transitions.saturating_add(1),
                _ => transitions,
            }),
            ..before.cloned().unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use fake_cluster::{Cluster, Fault, Matcher, Verb};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_released_although_a_renewal_comes_between() {
        let cluster = Cluster::default();
        let client = cluster.client();
        let mut leader = Leader::new(&client, ("kube-system", "lease"), &Clock::system());
        leader.acquire().await;
        let conflict = Fault::Status {
            code: 409,
            retry_after: None,
        };
        cluster.inject_times(Matcher::on(&[Verb::Update], "leases"), conflict, 1);
        leader.release().await;
        let leases: Api<Lease> = Api::namespaced(client, "kube-system");
        let spec = leases.get("lease").await.unwrap().spec.unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some(""));
    }
}
