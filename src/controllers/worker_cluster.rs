//! Keeps the status of a WorkerCluster: what stands on the tenant's board, written at most once a
//! second, and only when it is different.

use std::time::Duration;

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use crate::api::worker_cluster::{WorkerCluster, WorkerClusterStatus};
use crate::fleet::{engagement::Reporting, retry_delay::RetryDelay};
use crate::plan::status::{self, status};
use crate::telemetry::logs::chain;

/// A status is written at most this often.
const INTERVAL: Duration = Duration::from_secs(1);
/// The last write of a member that leaves may take this long.
const LAST_WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Keeps the status until the member leaves, and writes once more then.
pub async fn report(reporting: Reporting) {
    let mut worker_cluster = reporting.member.worker_cluster.subscribe();
    let mut writer = Writer {
        reporting: &reporting,
        written: None,
    };
    let mut delay = RetryDelay::default();
    let mut next = Instant::now();
    let mut must_retry = false;
    loop {
        tokio::select! {
            biased;
            () = reporting.cancel.cancelled() => break,
            () = reporting.member.board.changed() => {}
            Ok(()) = worker_cluster.changed() => {}
            () = sleep_until(next), if must_retry => {}
        }
        tokio::select! {
            biased;
            () = reporting.cancel.cancelled() => break,
            () = sleep_until(next) => {}
        }
        match Box::pin(writer.write()).await {
            Ok(()) => {
                must_retry = false;
                delay = RetryDelay::default();
                next = Instant::now() + INTERVAL;
            }
            Err(error) => {
                let member = &reporting.member.id;
                tracing::warn!(%member, error = %chain(&error), "cannot write a status");
                must_retry = true;
                next = Instant::now() + delay.next().unwrap_or(INTERVAL).max(INTERVAL);
            }
        }
    }
    // Nobody writes it later: the member is leaving.
    let last = async {
        let mut delay = RetryDelay::default();
        while let Err(error) = Box::pin(writer.write()).await {
            tracing::debug!(error = %chain(&error), "cannot write the last status");
            tokio::time::sleep(delay.next().unwrap_or_default()).await;
        }
    };
    if timeout(LAST_WRITE_TIMEOUT, last).await.is_err() {
        tracing::warn!(member = %reporting.member.id, "the last status was not written");
    }
}

struct Writer<'a> {
    reporting: &'a Reporting,
    /// What was written last: the watch may not have told of it yet.
    written: Option<WorkerClusterStatus>,
}

impl Writer<'_> {
    async fn write(&mut self) -> Result<(), kube::Error> {
        let Some(own) = self.reporting.member.worker_cluster.borrow().clone() else {
            return Ok(());
        };
        let none = WorkerClusterStatus::default();
        let before = self
            .written
            .as_ref()
            .or(own.status.as_ref())
            .unwrap_or(&none);
        let wanted = status(status::Params {
            report: &self.reporting.member.board.report(),
            before,
            generation: own.metadata.generation,
            now: self.reporting.clock.now(),
        });
        if *before == wanted {
            return Ok(());
        }
        let namespace = own.namespace().unwrap_or_default();
        let api: Api<WorkerCluster> =
            Api::namespaced(self.reporting.management.client(), &namespace);
        let patch = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
            "kind": "WorkerCluster",
            "status": wanted,
        });
        let params = PatchParams::apply("osm").force();
        api.patch_status(&own.name_any(), &params, &Patch::Apply(&patch))
            .await?;
        self.written = Some(wanted);
        Ok(())
    }
}
