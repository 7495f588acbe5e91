//! Writes the status of a WorkerCluster from the tenant's status in memory: at most once a second,
//! and only if it differs from what the watch shows.

use std::time::Duration;

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::utils::Backoff,
};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use crate::api::{
    condition::ConditionType,
    reason::{Reason, Severity},
    worker_cluster::{WorkerCluster, WorkerClusterStatus},
};
use crate::client::{recurring::Recurring, retry_delay::RetryDelay, tenant_status::ConditionLog};
use crate::fleet::{
    engage::is_of_an_older_definition,
    engagement::Reporting,
    events::{self, Occurrence},
};
use crate::plan::{
    news::{News, is_ready_again, news},
    status::{self, status},
};
use crate::telemetry::chain::chain;

/// A status is written at most this often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Steps on the way to being served are written at most this often, the first one this long after
/// the beginning. A fleet that starts would otherwise write several of each tenant.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(30);
/// The longest delay between writes of the same status, while another program keeps changing it.
const AGAIN_MAX: Duration = Duration::from_mins(5);
/// An Event is emitted after this long only. A server that restarts is back by then.
const WARN_AFTER: Duration = Duration::from_secs(30);
/// The shortest interval between Events about a cluster that comes and goes.
const WARN_INTERVAL: Duration = Duration::from_mins(10);
/// The timeout of the last write, after the cluster's task has ended.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Keeps the status current until cancelled, then writes it once more.
pub async fn report(reporting: Reporting) {
    let mut worker_cluster = reporting.registered.worker_cluster.subscribe();
    let mut writer = Writer {
        reporting: &reporting,
        written: None,
        written_at: Some(Instant::now()),
        is_held_back: false,
        warn_at: None,
        warned: None,
        has_warned: false,
        has_older_definition: false,
        again: RetryDelay::new(INTERVAL, AGAIN_MAX),
        log: ConditionLog::default(),
    };
    let mut delay = RetryDelay::default();
    let mut failure = Recurring::default();
    let mut next = Instant::now();
    let mut must_retry = false;
    loop {
        tokio::select! {
            biased;
            () = reporting.cancel.cancelled() => break,
            () = reporting.registered.status.changed() => {}
            Ok(()) = worker_cluster.changed() => {}
            () = sleep_until(next), if must_retry => {}
            () = sleep_until(writer.progress_due()), if writer.is_held_back => {}
            () = sleep_until(writer.warn_at.unwrap_or(next)), if writer.warn_at.is_some() => {
                Box::pin(writer.warn()).await;
                continue;
            }
        }
        tokio::select! {
            biased;
            () = reporting.cancel.cancelled() => break,
            () = sleep_until(next) => {}
        }
        match Box::pin(writer.write()).await {
            Ok(wait) => {
                must_retry = false;
                failure.is_over();
                delay = RetryDelay::default();
                next = Instant::now() + wait;
            }
            Err(error) => {
                let registration = &reporting.registered.id;
                let cause = chain(&error).to_string();
                if failure.is_news(&cause) {
                    tracing::warn!(%registration, error = cause, "cannot write a status");
                }
                must_retry = true;
                next = Instant::now() + delay.next().unwrap_or(INTERVAL).max(INTERVAL);
            }
        }
    }
    // This is the last chance to write it: the cluster's task has ended.
    writer.written_at = None;
    let last = async {
        let mut delay = RetryDelay::default();
        while let Err(error) = Box::pin(writer.write()).await {
            tracing::debug!(error = %chain(&error), "cannot write the last status");
            tokio::time::sleep(delay.next().unwrap_or_default()).await;
        }
    };
    if timeout(LAST_WRITE_TIMEOUT, last).await.is_err() {
        tracing::warn!(registration = %reporting.registered.id, "the last status was not written");
    }
}

struct Writer<'a> {
    reporting: &'a Reporting,
    written: Option<Written>,
    written_at: Option<Instant>,
    /// True if a step is not written yet.
    is_held_back: bool,
    /// When to emit an Event, if the cluster is still not connected.
    warn_at: Option<Instant>,
    /// When the last such Event was emitted.
    warned: Option<Instant>,
    /// True if an Event has said that something is wrong, and none that all is well.
    has_warned: bool,
    /// True if the definition of WorkerClusters lacks fields of this release. It is tried again
    /// after a restart.
    has_older_definition: bool,
    /// The delay between writes of the same status, in case another program writes it, too.
    again: RetryDelay,
    log: ConditionLog,
}

/// The last write. It takes precedence over the watch until the watch has caught up.
struct Written {
    uid: Option<String>,
    /// The version that it replaced, as far as the watch had shown.
    over: Option<String>,
    /// The version that it created.
    version: Option<String>,
    status: WorkerClusterStatus,
    /// True once the watch has caught up.
    is_shown: bool,
}

impl Written {
    /// Returns true if the watch has not shown it yet. A version outside of the two is that of a
    /// later change, or of a server that was restored; then the object in the watch counts.
    fn is_ahead_of(&self, seen: &WorkerCluster) -> bool {
        if self.is_shown || self.uid != seen.uid() {
            return false;
        }
        let version = |text: Option<&String>| text.and_then(|text| text.parse::<u128>().ok());
        let seen = seen.metadata.resource_version.as_ref();
        let (over, made) = (version(self.over.as_ref()), version(self.version.as_ref()));
        seen == self.over.as_ref()
            || version(seen).is_some_and(|seen| over < Some(seen) && Some(seen) < made)
    }

    /// Records what the watch shows. Once it has caught up, only what it shows counts: a server
    /// that is restored may show the replaced version again.
    fn see(&mut self, seen: &WorkerCluster) {
        self.is_shown |= !self.is_ahead_of(seen);
    }
}

impl Writer<'_> {
    /// Writes the status if it differs. Returns how long to wait before the next write.
    async fn write(&mut self) -> Result<Duration, kube::Error> {
        let registered = &self.reporting.registered;
        let report = registered.status.report();
        self.log.record(&registered.id, &report.findings);
        let own = self.reporting.registered.worker_cluster.borrow().clone();
        let (Some(own), Some(us)) = (own, &report.fleet) else {
            return Ok(INTERVAL);
        };
        self.written.iter_mut().for_each(|it| it.see(&own));
        let none = WorkerClusterStatus::default();
        let ahead = self.written.as_ref().filter(|it| it.is_ahead_of(&own));
        let before = ahead.map(|it| &it.status).or(own.status.as_ref());
        let before = before.unwrap_or(&none);
        // Another fleet serves the tenant, and writes its status.
        if before.fleet().is_some_and(|holder| !holder.may_be(us)) {
            return Ok(INTERVAL);
        }
        let mut wanted = status(status::Params {
            report: &report,
            before,
            generation: own.metadata.generation,
            now: self.reporting.clock.now(),
        });
        if self.has_older_definition {
            let entries = wanted.machine_deployments.iter_mut();
            entries.for_each(|entry| entry.behind = None);
        }
        let (was_lost, is_lost) = (lost(before).is_some(), lost(&wanted).is_some());
        let is_same = *before == wanted;
        if !is_lost {
            self.warn_at = None;
        } else if !was_lost {
            self.warn_at = Some(Instant::now() + WARN_AFTER);
        }
        let news = news(before, &wanted);
        let is_step = is_on_the_way(before) && is_on_the_way(&wanted) && news.is_empty();
        self.is_held_back = !is_same && is_step && Instant::now() < self.progress_due();
        if is_same || self.is_held_back {
            return Ok(INTERVAL);
        }
        let is_first = before.served.is_none();
        let is_well = (is_first || self.has_warned) && is_ready_again(before, &wanted);
        let patched = self.patch(&own, &wanted).await?;
        self.written_at = Some(Instant::now());
        self.tell(&own, (&news, is_well)).await;
        let before = self.written.replace(Written {
            uid: own.uid(),
            over: own.resource_version(),
            version: patched.resource_version(),
            status: wanted,
            is_shown: false,
        });
        let is_same = |before: &Written| {
            let now = self.written.as_ref();
            now.is_some_and(|now| (&now.uid, &now.status) == (&before.uid, &before.status))
        };
        if before.as_ref().is_some_and(is_same) {
            return Ok(self.again.next().unwrap_or(INTERVAL).max(INTERVAL));
        }
        self.again.reset();
        Ok(INTERVAL)
    }

    /// Writes a status, and returns the WorkerCluster.
    async fn patch(
        &mut self,
        own: &WorkerCluster,
        wanted: &WorkerClusterStatus,
    ) -> Result<WorkerCluster, kube::Error> {
        let namespace = own.namespace().unwrap_or_default();
        let api: Api<WorkerCluster> =
            Api::namespaced(self.reporting.management.client(), &namespace);
        let patch = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
            "kind": "WorkerCluster",
            "status": WorkerClusterStatus { requested_by_fleet: None, ..wanted.clone() },
        });
        let params = PatchParams::apply("osm").force();
        let patched = api
            .patch_status(&own.name_any(), &params, &Patch::Apply(&patch))
            .await;
        if let Err(error) = &patched {
            self.has_older_definition |= is_of_an_older_definition(error);
        }
        patched
    }

    /// Returns when the next step may be written.
    fn progress_due(&self) -> Instant {
        self.written_at
            .map_or_else(Instant::now, |at| at + PROGRESS_INTERVAL)
    }

    /// Emits an Event about a lost connection.
    async fn warn(&mut self) {
        self.warn_at = None;
        let is_due = self.warned.is_none_or(|at| at.elapsed() >= WARN_INTERVAL);
        let own = self.reporting.registered.worker_cluster.borrow().clone();
        let status = self.written.as_ref().map(|it| &it.status);
        let (Some((reason, note)), Some(own), true) = (status.and_then(lost), own, is_due) else {
            return;
        };
        self.publish(&own, "Connect", (reason, note)).await;
        self.warned = Some(Instant::now());
        self.has_warned = true;
    }

    /// Emits Events about what has become wrong, or that all is well.
    async fn tell(&mut self, own: &WorkerCluster, (news, is_well): (&[News], bool)) {
        for item in news {
            self.publish(own, "Serve", (item.reason, &item.note)).await;
        }
        if is_well {
            let note = "the worker cluster is served";
            self.publish(own, "Serve", (Reason::Ready, note)).await;
        }
        self.has_warned = !is_well && (self.has_warned || !news.is_empty());
    }

    async fn publish(
        &self,
        own: &WorkerCluster,
        action: &'static str,
        (reason, note): (Reason, &str),
    ) {
        let occurrence = Occurrence {
            action,
            reason,
            note,
        };
        let known = (&*self.reporting.registered.status, &self.reporting.clock);
        events::publish(&self.reporting.management, known, (own, occurrence)).await;
    }
}

/// Returns true if the tenant, or one of its machine deployments, is on the way to being served,
/// and nobody has to act.
fn is_on_the_way(status: &WorkerClusterStatus) -> bool {
    let Some(ready) = ConditionType::Ready.find_in(&status.conditions) else {
        return true;
    };
    let reason = Reason::named(&ready.reason);
    let served = status.served.as_deref().and_then(|it| it.split_once('/'));
    match reason {
        Some(Reason::Ready) => served.is_some_and(|(served, all)| served != all),
        reason => reason.is_some_and(|it| it.severity() == Severity::Pending),
    }
}

/// Returns the reason and the message if the cluster is not connected.
fn lost(status: &WorkerClusterStatus) -> Option<(Reason, &str)> {
    let connected = ConditionType::Connected.find_in(&status.conditions)?;
    let reason = Reason::named(&connected.reason)?;
    (connected.status == "False").then_some((reason, &connected.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(uid: &str, version: &str) -> WorkerCluster {
        let mut own = WorkerCluster::default();
        own.metadata.uid = Some(uid.to_owned());
        own.metadata.resource_version = Some(version.to_owned());
        own
    }

    #[test]
    fn what_was_written_counts_for_the_same_object_until_the_watch_has_caught_up() {
        let written = Written {
            uid: Some("u".to_owned()),
            over: Some("7".to_owned()),
            version: Some("10".to_owned()),
            status: WorkerClusterStatus::default(),
            is_shown: false,
        };
        for (uid, version, is_ahead) in [
            ("u", "7", true),
            // Somebody changed the spec at the same time.
            ("u", "9", true),
            ("u", "10", false),
            ("u", "11", false),
            // The server was restored.
            ("u", "5", false),
            ("u", "what", false),
            ("v", "7", false),
            ("v", "8", false),
        ] {
            let found = written.is_ahead_of(&seen(uid, version));
            assert_eq!(found, is_ahead, "{uid} {version}");
        }
    }
    /// A backup was taken just before the last write of the status.
    #[test]
    fn what_the_watch_has_shown_counts_no_more_when_an_older_version_comes_back() {
        let mut written = Written {
            uid: Some("u".to_owned()),
            over: Some("7".to_owned()),
            version: Some("10".to_owned()),
            status: WorkerClusterStatus::default(),
            is_shown: false,
        };
        written.see(&seen("u", "7"));
        assert!(written.is_ahead_of(&seen("u", "7")));
        written.see(&seen("u", "10"));
        assert!(!written.is_ahead_of(&seen("u", "7")));
    }
}
