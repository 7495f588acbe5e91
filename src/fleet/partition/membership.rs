//! Keeps the replica a member: writes its Lease, reads those of the others, follows what they say.
//!
//! It never waits for a tenant: while the fleet lets go of what moved, the Lease goes on being
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
    evaluate::{Pace, Verdict, evaluate},
    evidence::Evidence,
    fence::Fence,
    grant::Grant,
    lease::{LeaseError, Leases, Statement, Swapped},
    precautions::{Announcer, CrashLog, Precautions},
    sightings::{LAST, Listed, Sightings, with_drift},
    stance::Stance,
    suspicion::Trial,
};
use crate::fleet::{clock::Clock, retry_delay::RetryDelay};
use crate::telemetry::{
    logs::chain,
    metrics::{Attempted, Metrics},
    pulse::Pulse,
};

/// How soon the Leases are read again while something is expected of another replica.
const BRISK: Duration = Duration::from_millis(250);
/// How long the last write of a replica that leaves may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a Lease holds, and what follows from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// For how long a Lease holds after it was written.
    pub duration: Duration,
    /// How long a write of the replica may take: no write is sent later than this before the end.
    pub margin: Duration,
}

impl Terms {
    /// How often the Lease is written: four times before the fence would close.
    fn renewal_interval(self) -> Duration {
        self.duration.saturating_sub(self.margin) / 4
    }

    /// How long one call for the Leases may take: two fit in before the fence would close.
    pub fn call_timeout(self) -> Duration {
        self.duration.saturating_sub(self.margin) / 2
    }
}

/// What a replica's membership needs.
pub struct Params {
    /// The Leases.
    pub leases: Leases,
    /// This life of this replica.
    pub me: Holder,
    /// How long its Lease holds.
    pub terms: Terms,
    /// The clocks.
    pub clock: Clock,
    /// Opened as long as the Lease holds.
    pub fence: Fence,
    /// Where renewals are counted.
    pub metrics: Metrics,
    /// Whether what the Lease stands for gets on.
    pub pulse: Pulse,
}

/// What the fleet follows, and what it tells.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Which tenants this replica may serve.
    pub grants: watch::Receiver<Grant>,
    /// The last grant for which everything else was let go.
    pub let_go: watch::Sender<Grant>,
    /// What the writes pass.
    pub fence: Fence,
    /// What is known of crashes.
    pub precautions: Precautions,
}

/// A replica's membership.
pub struct Membership {
    params: Params,
    grants: watch::Sender<Grant>,
    let_go: watch::Receiver<Grant>,
    announcer: Announcer,
}

/// A replica that holds its Lease.
struct Member {
    lease: Lease,
    stance: Stance,
    sightings: Sightings,
    crashes: CrashLog,
    renewed: Instant,
    is_failing: bool,
}

impl Membership {
    /// A membership that has not begun, and what the fleet needs of it.
    pub fn new(params: Params) -> (Self, Placement) {
        let grants = watch::Sender::new(Grant::nothing(&params.me.instance));
        let let_go = watch::Sender::new(Grant::nothing(&params.me.instance));
        let (announcer, precautions) = Announcer::new();
        let placement = Placement {
            grants: grants.subscribe(),
            let_go: let_go.clone(),
            fence: params.fence.clone(),
            precautions,
        };
        let membership = Self {
            params,
            grants,
            let_go: let_go.subscribe(),
            announcer,
        };
        (membership, placement)
    }

    /// Joins and stays until `leave`, which is set once nothing is served any more. Ends early only
    /// where the Lease is lost for good.
    pub async fn run(mut self, leave: &CancellationToken) -> Result<(), LeaseError> {
        let joined = tokio::select! {
            biased;
            () = leave.cancelled() => return Ok(()),
            joined = self.join() => joined,
        };
        let mut member = joined;
        let left = loop {
            let pace = match self.step(&mut member).await {
                Ok(pace) => pace,
                Err(lost) => break Err(lost),
            };
            let next = self.next(&member, pace);
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
        self.leave(&member).await;
        Ok(())
    }

    /// Gives the Lease up, unless that would hide somebody who may still write.
    async fn leave(&self, member: &Member) {
        let now = self.params.clock.since_boot();
        if now < member.stance.unseen_until || member.sightings.has_vanished() {
            tracing::info!("the Lease is left to end by itself");
            return;
        }
        let text = if member.stance.is_last() { LAST } else { "" };
        let clock = &self.params.clock;
        let release = self.params.leases.release(&member.lease, text, clock.now());
        match timeout(RELEASE_TIMEOUT, release).await {
            Ok(Ok(())) => tracing::info!(replica = %self.params.me, "left the fleet"),
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "the Lease was not released");
            }
            Err(_) => tracing::warn!("the Lease was not released in time"),
        }
    }

    /// Tries until there is a Lease.
    async fn join(&self) -> Member {
        let mut delay = RetryDelay::default();
        loop {
            match self.try_join().await {
                Ok(Some(member)) => return member,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot join the fleet");
                }
            }
            tokio::time::sleep(delay.next().unwrap_or_default()).await;
        }
    }

    /// The first set is published with the Lease: nothing has to be let go. None where another
    /// replica was faster.
    async fn try_join(&self) -> Result<Option<Member>, LeaseError> {
        let params = &self.params;
        let mut listed = params.leases.list().await?;
        let unseen_until = match Evidence::of(&params.me, &listed) {
            Evidence::Enough => Duration::ZERO,
            Evidence::Last(name) => {
                let Some(seen) = listed.leases.remove(&name) else {
                    return Ok(None);
                };
                if params.leases.remove(&name, &seen).await? == Swapped::Elsewhere {
                    return Ok(None);
                }
                Duration::ZERO
            }
            Evidence::Missing => {
                let wait = with_drift(params.terms.duration);
                tracing::info!(?wait, "no Lease tells whether somebody else is there");
                params.clock.since_boot() + wait
            }
        };
        let stance = Stance::joining(params.me.clone(), &listed, unseen_until);
        let (sent, now) = (params.clock.since_boot(), params.clock.now());
        let mut crashes = CrashLog::default();
        crashes.hear(&listed, now.as_second());
        if let Some(found) = self.earlier_life(&listed) {
            crashes.crashed(found, &stance.aim, now.as_second());
        }
        let statement = Statement {
            view: stance.published.clone(),
            record: crashes.record(None, (&params.me, &stance.aim), now.as_second()),
        };
        let lease = params.leases.join(&statement, &listed, now).await;
        self.has_written(&lease, now);
        let lease = lease?;
        params.fence.extend(sent + params.terms.duration);
        params.metrics.set_fleet_members(stance.aim.0.len());
        tracing::info!(replica = %params.me, members = stance.aim.0.len(), "joined the fleet");
        let mut sightings = Sightings::new(params.terms.duration);
        sightings.update(listed, params.clock.since_boot());
        crashes.wrote(statement.record);
        self.announcer.tell(&crashes);
        Ok(Some(Member {
            lease,
            stance,
            sightings,
            crashes,
            renewed: Instant::now(),
            is_failing: false,
        }))
    }

    /// A process of this replica's name that has not left the fleet.
    fn earlier_life<'a>(&self, listed: &'a Listed) -> Option<(&'a str, &'a Holder)> {
        let me = &self.params.me;
        let leases = listed.leases.iter();
        let mut held = leases.filter_map(|(name, it)| Some((name.as_str(), it.holder.as_ref()?)));
        held.find(|(_, holder)| holder.instance == me.instance && *holder != me)
    }

    /// Renews if it is time, looks, and follows. Only a Lease that is lost is an error.
    async fn step(&self, member: &mut Member) -> Result<Pace, LeaseError> {
        // Nobody is served by threads that hang: another replica may have the tenants.
        if self.params.pulse.is_late() {
            return Ok(Pace::Brisk);
        }
        let is_due = member.renewed.elapsed() >= self.params.terms.renewal_interval();
        if is_due || member.crashes.has_news(self.trial()) {
            let view = member.stance.published.clone();
            let renewed = self.write(member, view).await;
            weather(member, renewed)?;
        }
        let listed = self.params.leases.list().await;
        let Some(listed) = weather(member, listed)? else {
            return Ok(Pace::Brisk);
        };
        let verdict = self.look(member, listed);
        self.follow(member, &verdict).await?;
        self.evict(member, &verdict).await;
        Ok(verdict.pace)
    }

    /// The trial that the fleet is at, or about to begin.
    fn trial(&self) -> Option<Trial> {
        *self.announcer.wanted.borrow()
    }

    fn look(&self, member: &mut Member, listed: Listed) -> Verdict {
        let today = self.params.clock.now().as_second();
        member.crashes.hear(&listed, today);
        self.announcer.tell(&member.crashes);
        let now = self.params.clock.since_boot();
        member.sightings.update(listed, now);
        let published = &member.stance.published;
        evaluate(&self.params.me, published, member.sightings.leases(), now)
    }

    async fn follow(&self, member: &mut Member, verdict: &Verdict) -> Result<(), LeaseError> {
        let before = member.stance.aim.clone();
        member.stance.follow(verdict);
        let stance = &member.stance;
        if stance.aim != before {
            self.params.metrics.set_fleet_members(stance.aim.0.len());
            let members: Vec<&String> = stance.aim.0.iter().map(|it| &it.instance).collect();
            tracing::info!(?members, "the members of the fleet changed");
        }
        self.grants.send_if_modified(|grant| {
            let is_another = *grant != stance.grant;
            grant.clone_from(&stance.grant);
            is_another
        });
        // What moved is let go first.
        if *self.let_go.borrow() != stance.grant {
            return Ok(());
        }
        let now = self.params.clock.since_boot();
        let Some(view) = stance.to_publish(now).cloned() else {
            return Ok(());
        };
        let published = self.write(member, view.clone()).await;
        if weather(member, published)?.is_some() {
            member.stance.has_published(view);
        }
        Ok(())
    }

    async fn write(&self, member: &mut Member, view: View) -> Result<(), LeaseError> {
        let params = &self.params;
        let (sent, now) = (params.clock.since_boot(), params.clock.now());
        let whose = (&params.me, &member.stance.published);
        let record = member.crashes.record(self.trial(), whose, now.as_second());
        let statement = Statement { view, record };
        let renewed = params.leases.renew(&member.lease, &statement, now).await;
        self.has_written(&renewed, now);
        member.lease = renewed?;
        member.crashes.wrote(statement.record);
        self.announcer.tell(&member.crashes);
        if let Some(revision) = revision(&member.lease) {
            member.sightings.wrote(revision);
        }
        member.renewed = Instant::now();
        params.fence.extend(sent + params.terms.duration);
        Ok(())
    }

    /// Counts a write of the Lease that was sent then.
    fn has_written(&self, outcome: &Result<Lease, LeaseError>, sent: Timestamp) {
        let Params { metrics, terms, .. } = &self.params;
        metrics.lease_written(Attempted::of(outcome));
        if let (Ok(_), Ok(end)) = (outcome, sent.checked_add(terms.duration)) {
            metrics.set_lease_end(end);
        }
    }

    /// Ends the Leases of those that were not heard of. Somebody else may be faster.
    async fn evict(&self, member: &mut Member, verdict: &Verdict) {
        for name in &verdict.over {
            let Some(seen) = member.sightings.leases().get(name) else {
                continue;
            };
            match self.params.leases.evict(name, &seen.lease).await {
                Ok(Swapped::Here) => {
                    tracing::info!(lease = %name, "ended a Lease that was over");
                    if let Some(holder) = &seen.lease.holder {
                        let now = self.params.clock.now().as_second();
                        let view = &member.stance.published;
                        member.crashes.crashed((name, holder), view, now);
                    }
                }
                Ok(Swapped::Elsewhere) => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot end a Lease that is over");
                }
            }
        }
    }

    fn next(&self, member: &Member, pace: Pace) -> Instant {
        let renewal = member.renewed + self.params.terms.renewal_interval();
        let look = Instant::now() + BRISK;
        match pace {
            Pace::Calm => renewal,
            Pace::Brisk => renewal.min(look).max(Instant::now() + BRISK / 5),
        }
    }
}

/// Returns the Lease's resourceVersion as a number; none where it is not one.
fn revision(lease: &Lease) -> Option<u64> {
    lease.metadata.resource_version.as_ref()?.parse().ok()
}

/// Whether a call succeeded. Failures are told when they begin; only a lost Lease is one for good.
fn weather<T>(
    member: &mut Member,
    outcome: Result<T, LeaseError>,
) -> Result<Option<T>, LeaseError> {
    match outcome {
        Ok(value) => {
            member.is_failing = false;
            Ok(Some(value))
        }
        Err(lost @ LeaseError::Lost { .. }) => Err(lost),
        Err(error) => {
            if !std::mem::replace(&mut member.is_failing, true) {
                tracing::warn!(error = %chain(&error), "cannot keep the membership");
            }
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests;
