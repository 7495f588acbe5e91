//! Keeps this replica in the replica set: renews its Lease, reads the Leases of the other replicas,
//! and follows them.
//!
//! It never waits for a tenant. While the fleet releases the tenants that moved, the Lease is
//! renewed with the set that was published before.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Holder, View,
    assignment::Assignment,
    evaluate::{ElectionResult, Pace, evaluate},
    lease::{LeaseError, Leases, Statement, Swapped},
    observed_leases::{LAST, Listed, ObservedLeases, with_drift},
    precautions::{Announcer, CrashLog, Precautions},
    predecessor::Predecessor,
    shard::Shard,
    suspicion::Trial,
};
use crate::client::{clock::Clock, fence::Fence, recurring::Recurring, retry_delay::RetryDelay};
use crate::telemetry::{
    chain::chain,
    heartbeat::Heartbeat,
    metrics::{Attempted, Metrics},
};

/// How soon the Leases are read again while another replica is expected to act.
const BRISK: Duration = Duration::from_millis(250);
/// How long the last write of a replica that leaves may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// The duration of a Lease, and the intervals that follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a Lease is valid after it was written.
    pub duration: Duration,
    /// The longest time that a write may take. No write is sent later than this before the Lease
    /// ends.
    pub margin: Duration,
}

impl Terms {
    /// Returns the interval between renewals: four fit in before the fence would close.
    fn renewal_interval(self) -> Duration {
        self.duration.saturating_sub(self.margin) / 4
    }

    /// Returns the timeout of a call for the Leases: two fit in before the fence would close.
    pub fn call_timeout(self) -> Duration {
        self.duration.saturating_sub(self.margin) / 2
    }
}

/// The arguments of [`Membership::new`].
pub struct Params {
    /// The Leases.
    pub leases: Leases,
    /// This run of this replica.
    pub me: Holder,
    /// The duration of its Lease.
    pub terms: Terms,
    /// The clocks.
    pub clock: Clock,
    /// Open as long as the Lease is valid.
    pub fence: Fence,
    /// Counts the renewals.
    pub metrics: Metrics,
    /// Shows whether the process makes progress. A Lease of a hung process is not renewed.
    pub heartbeat: Heartbeat,
}

/// The fleet's side of the membership.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The tenants that this replica may serve.
    pub shards: watch::Receiver<Shard>,
    /// The fleet reports here the last shard for which all other tenants were released.
    pub let_go: watch::Sender<Shard>,
    /// Checks the writes.
    pub fence: Fence,
    /// The records about crashes.
    pub precautions: Precautions,
}

/// The membership of a replica.
pub struct Membership {
    params: Params,
    shards: watch::Sender<Shard>,
    let_go: watch::Receiver<Shard>,
    announcer: Announcer,
}

/// A replica that holds its Lease.
struct Member {
    lease: Lease,
    assignment: Assignment,
    observed_leases: ObservedLeases,
    crashes: CrashLog,
    renewed: Instant,
    is_failing: bool,
}

impl Membership {
    /// Creates a membership that has not joined yet, and the fleet's side of it.
    pub fn new(params: Params) -> (Self, Placement) {
        let shards = watch::Sender::new(Shard::nothing(&params.me.instance));
        let let_go = watch::Sender::new(Shard::nothing(&params.me.instance));
        let (announcer, precautions) = Announcer::new();
        let placement = Placement {
            shards: shards.subscribe(),
            let_go: let_go.clone(),
            fence: params.fence.clone(),
            precautions,
        };
        let membership = Self {
            params,
            shards,
            let_go: let_go.subscribe(),
            announcer,
        };
        (membership, placement)
    }

    /// Joins the fleet, and stays until `leave` is cancelled, once nothing is served any more.
    /// Returns early only if the Lease is lost.
    ///
    /// # Errors
    ///
    /// The Lease is lost: it could not be renewed in time, or another process has it.
    pub async fn run(mut self, leave: &CancellationToken) -> Result<(), LeaseError> {
        let joined = tokio::select! {
            biased;
            () = leave.cancelled() => return Ok(()),
            joined = self.join() => joined,
        };
        let mut replica = joined;
        let left = loop {
            let pace = match self.step(&mut replica).await {
                Ok(pace) => pace,
                Err(lost) => break Err(lost),
            };
            let next = self.next(&replica, pace);
            tokio::select! {
                biased;
                () = leave.cancelled() => break Ok(()),
                () = sleep_until(next) => {}
                Ok(()) = self.let_go.changed() => {}
                Ok(()) = self.announcer.wanted.changed() => {}
            }
        };
        self.params.fence.extend(Duration::ZERO);
        left?;
        self.leave(&replica).await;
        Ok(())
    }

    /// Releases the Lease, unless that would hide a replica that may still write.
    async fn leave(&self, replica: &Member) {
        let now = self.params.clock.since_boot();
        if now < replica.assignment.unseen_until || replica.observed_leases.has_vanished() {
            tracing::info!("the Lease is left to end by itself");
            return;
        }
        let text = if replica.assignment.is_last() {
            LAST
        } else {
            ""
        };
        let clock = &self.params.clock;
        let release = self
            .params
            .leases
            .release(&replica.lease, text, clock.now());
        match timeout(RELEASE_TIMEOUT, release).await {
            Ok(Ok(())) => tracing::info!(replica = %self.params.me, "left the fleet"),
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "the Lease was not released");
            }
            Err(_) => tracing::warn!("the Lease was not released in time"),
        }
    }

    /// Tries to join until it succeeds.
    async fn join(&self) -> Member {
        let (mut delay, mut failure) = (RetryDelay::default(), Recurring::default());
        loop {
            match self.try_join().await {
                Ok(Some(replica)) => return replica,
                Ok(None) => {}
                Err(error) => {
                    let cause = chain(&error).to_string();
                    if failure.is_news(&cause) {
                        tracing::warn!(error = cause, "cannot join the fleet");
                    }
                }
            }
            tokio::time::sleep(delay.next().unwrap_or_default()).await;
        }
    }

    /// Tries once to create the Lease, which publishes the first set. There are no tenants to
    /// release. Returns `None` if another replica was faster.
    async fn try_join(&self) -> Result<Option<Member>, LeaseError> {
        let params = &self.params;
        let mut listed = params.leases.list().await?;
        let unseen_until = match Predecessor::of(&params.me, &listed) {
            Predecessor::Enough => Duration::ZERO,
            Predecessor::Last(name) => {
                let Some(seen) = listed.leases.remove(&name) else {
                    return Ok(None);
                };
                if params.leases.remove(&name, &seen).await? == Swapped::Elsewhere {
                    return Ok(None);
                }
                Duration::ZERO
            }
            Predecessor::Missing => params.clock.since_boot() + with_drift(params.terms.duration),
        };
        let assignment = Assignment::joining(params.me.clone(), &listed, unseen_until);
        let (sent, now) = (params.clock.since_boot(), params.clock.now());
        let mut crashes = CrashLog::default();
        crashes.merge(&listed, now.as_second());
        if let Some(found) = self.earlier_life(&listed) {
            crashes.crashed(found, &assignment.aim, now.as_second());
        }
        let statement = Statement {
            view: assignment.published.clone(),
            record: crashes.record(None, (&params.me, &assignment.aim), now.as_second()),
        };
        let lease = params.leases.join(&statement, &listed, now).await;
        self.has_written(&lease, now);
        let lease = lease?;
        if let Some(wait) = unseen_until.checked_sub(params.clock.since_boot()) {
            tracing::info!(?wait, "no Lease shows whether another replica exists");
        }
        params.fence.extend(sent + params.terms.duration);
        params.metrics.set_fleet_members(assignment.aim.0.len());
        tracing::info!(replica = %params.me, replicas = assignment.aim.0.len(), "joined the fleet");
        let mut observed_leases = ObservedLeases::new(params.terms.duration);
        observed_leases.update(listed, params.clock.since_boot());
        crashes.wrote(statement.record);
        self.announcer.report(&crashes);
        Ok(Some(Member {
            lease,
            assignment,
            observed_leases,
            crashes,
            renewed: Instant::now(),
            is_failing: false,
        }))
    }

    /// Returns the Lease of an earlier process of this replica that did not leave the fleet.
    fn earlier_life<'a>(&self, listed: &'a Listed) -> Option<(&'a str, &'a Holder)> {
        let me = &self.params.me;
        let leases = listed.leases.iter();
        let mut held = leases.filter_map(|(name, it)| Some((name.as_str(), it.holder.as_ref()?)));
        held.find(|(_, holder)| holder.instance == me.instance && *holder != me)
    }

    /// Renews the Lease if it is due, lists the Leases, and follows them. Returns an error only if
    /// the Lease is lost.
    async fn step(&self, replica: &mut Member) -> Result<Pace, LeaseError> {
        // Hung threads do not serve tenants, so another replica may take them.
        if self.params.heartbeat.is_late() {
            return Ok(Pace::Brisk);
        }
        let is_due = replica.renewed.elapsed() >= self.params.terms.renewal_interval();
        if is_due || replica.crashes.has_news(self.trial()) {
            let view = replica.assignment.published.clone();
            let renewed = self.write(replica, view).await;
            transient_error(replica, renewed)?;
        }
        let listed = self.params.leases.list().await;
        let Some(listed) = transient_error(replica, listed)? else {
            return Ok(Pace::Brisk);
        };
        let election_result = self.observe(replica, listed);
        self.follow(replica, &election_result).await?;
        self.evict(replica, &election_result).await;
        Ok(election_result.pace)
    }

    /// Returns the trial that the fleet is about to begin, or has begun.
    fn trial(&self) -> Option<Trial> {
        *self.announcer.wanted.borrow()
    }

    fn observe(&self, replica: &mut Member, listed: Listed) -> ElectionResult {
        let today = self.params.clock.now().as_second();
        replica.crashes.merge(&listed, today);
        self.announcer.report(&replica.crashes);
        let now = self.params.clock.since_boot();
        replica.observed_leases.update(listed, now);
        let published = &replica.assignment.published;
        evaluate(
            &self.params.me,
            published,
            replica.observed_leases.leases(),
            now,
        )
    }

    async fn follow(
        &self,
        replica: &mut Member,
        election_result: &ElectionResult,
    ) -> Result<(), LeaseError> {
        let before = replica.assignment.aim.clone();
        replica.assignment.follow(election_result);
        let assignment = &replica.assignment;
        if assignment.aim != before {
            self.params
                .metrics
                .set_fleet_members(assignment.aim.0.len());
            let replicas: Vec<&String> = assignment.aim.0.iter().map(|it| &it.instance).collect();
            tracing::info!(?replicas, "the replicas of the fleet changed");
        }
        self.shards.send_if_modified(|grant| {
            let is_another = *grant != assignment.grant;
            grant.clone_from(&assignment.grant);
            is_another
        });
        // Tenants that moved are released first.
        if *self.let_go.borrow() != assignment.grant {
            return Ok(());
        }
        let now = self.params.clock.since_boot();
        let Some(view) = assignment.to_publish(now).cloned() else {
            return Ok(());
        };
        let published = self.write(replica, view.clone()).await;
        if transient_error(replica, published)?.is_some() {
            replica.assignment.has_published(view);
        }
        Ok(())
    }

    async fn write(&self, replica: &mut Member, view: View) -> Result<(), LeaseError> {
        let params = &self.params;
        let (sent, now) = (params.clock.since_boot(), params.clock.now());
        let whose = (&params.me, &replica.assignment.published);
        let record = replica.crashes.record(self.trial(), whose, now.as_second());
        let statement = Statement { view, record };
        let renewed = params.leases.renew(&replica.lease, &statement, now).await;
        self.has_written(&renewed, now);
        replica.lease = renewed?;
        replica.crashes.wrote(statement.record);
        self.announcer.report(&replica.crashes);
        if let Some(revision) = revision(&replica.lease) {
            replica.observed_leases.wrote(revision);
        }
        replica.renewed = Instant::now();
        params.fence.extend(sent + params.terms.duration);
        Ok(())
    }

    /// Counts a write of the Lease that was sent at this time.
    fn has_written(&self, outcome: &Result<Lease, LeaseError>, sent: Timestamp) {
        let Params { metrics, terms, .. } = &self.params;
        metrics.lease_written(Attempted::of(outcome));
        if let (Ok(_), Ok(end)) = (outcome, sent.checked_add(terms.duration)) {
            metrics.set_lease_end(end);
        }
    }

    /// Takes the expired Leases. Another replica may be faster.
    async fn evict(&self, replica: &mut Member, election_result: &ElectionResult) {
        for name in &election_result.over {
            let Some(seen) = replica.observed_leases.leases().get(name) else {
                continue;
            };
            match self.params.leases.evict(name, &seen.lease).await {
                Ok(Swapped::Here) => {
                    tracing::info!(lease = %name, "ended a Lease that was over");
                    if let Some(holder) = &seen.lease.holder {
                        let now = self.params.clock.now().as_second();
                        let view = &replica.assignment.published;
                        replica.crashes.crashed((name, holder), view, now);
                    }
                }
                Ok(Swapped::Elsewhere) => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot end a Lease that is over");
                }
            }
        }
    }

    fn next(&self, replica: &Member, pace: Pace) -> Instant {
        let renewal = replica.renewed + self.params.terms.renewal_interval();
        let look = Instant::now() + BRISK;
        match pace {
            Pace::Calm => renewal,
            Pace::Brisk => renewal.min(look).max(Instant::now() + BRISK / 5),
        }
    }
}

/// Returns the Lease's resource version, or `None` if it is not a number.
fn revision(lease: &Lease) -> Option<u64> {
    lease.metadata.resource_version.as_ref()?.parse().ok()
}

/// Returns the value, or `None` after a transient error. Errors are logged when they begin. Only a
/// lost Lease is returned as an error.
fn transient_error<T>(
    replica: &mut Member,
    outcome: Result<T, LeaseError>,
) -> Result<Option<T>, LeaseError> {
    match outcome {
        Ok(value) => {
            replica.is_failing = false;
            Ok(Some(value))
        }
        Err(lost @ LeaseError::Lost { .. }) => Err(lost),
        Err(error) => {
            if !std::mem::replace(&mut replica.is_failing, true) {
                tracing::warn!(error = %chain(&error), "cannot keep the membership");
            }
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests;
