//! What the task of a registration does when the registration is removed: it releases the cluster.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::Task;
use crate::api::{condition::ConditionType, reason::Reason, worker_cluster::WorkerCluster};
use crate::client::retry_delay::RetryDelay;
use crate::fleet::{discovery::Registration, give_back::GiveBack};
use crate::telemetry::chain::chain;
use crate::tenant::report::{ConditionState, Removal};

/// How long releasing a cluster is retried. The restart of an API server takes less, and a cluster
/// that was removed together with its registration does not come back.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_mins(10);

impl Task {
    /// Releases the cluster as its WorkerCluster specifies, because the registration was removed. A
    /// failed call is retried for a limited time. There is no later attempt, because the kubeconfig
    /// is gone with the registration. A registration that returns ends this.
    pub(super) async fn give_back(
        &self,
        registrations: &mut watch::Receiver<Option<Arc<Registration>>>,
        cancel: &CancellationToken,
    ) {
        let own = self.registered.worker_cluster.borrow().clone();
        let why = self.registered.why_gone();
        let command = format!(
            "`osm tenant remove {} -n {} --on-removal release --worker-kubeconfig FILE` gives it \
             back",
            self.registered.id.name, self.registered.id.tenant,
        );
        let Some(attempt) = &self.last else {
            return match own.as_deref().map(was_served) {
                Some(Served::Maybe) => {
                    let message = format!(
                        "{why}, and no replica that had its kubeconfig runs; \
                         if the cluster was not given back, {command}"
                    );
                    self.gone(Removal::KubeconfigGone, &message);
                }
                Some(Served::ForAnother) => {
                    let message = format!(
                        "{why}; somebody else has claimed the cluster, and it stays as it is"
                    );
                    self.gone(Removal::NeverEngaged, &message);
                }
                Some(Served::Never) | None => {
                    let message = format!("{why}; the cluster was never engaged");
                    self.gone(Removal::NeverEngaged, &message);
                }
            };
        };
        let deadline = Instant::now() + GIVE_BACK_TIMEOUT;
        let mut delay = RetryDelay::default();
        let claimant = self.shared.claimant(self.registered.id.tenant.clone());
        let cluster = GiveBack {
            worker: attempt.worker.client(),
            management: self.management.client(),
            claimant: &claimant,
            home: attempt.home,
            registration: &self.registered.id.name,
            gone: &why,
            policy: self.registered.on_removal(),
        };
        let mut released = BTreeSet::new();
        loop {
            let own = self.registered.worker_cluster.borrow().clone();
            if own.is_some_and(|own| self.holding().has_lost(&own, &self.asking)) {
                return;
            }
            let failed = match cluster.attempt(&mut released).await {
                Ok((removal, message)) => return self.gone(removal, &message),
                Err(error) => format!(
                    "{why}, and the cluster could not be given back: {}; \
                     {command}",
                    chain(&error)
                ),
            };
            self.gone(Removal::Failed, &failed);
            let next = Instant::now() + delay.next().unwrap_or_default();
            if next > deadline {
                return;
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                _ = registrations.changed() => return,
                () = async { sleep_until(next).await; attempt.health.due().await } => {}
            }
        }
    }

    /// Records in the tenant's status that the registration was removed, and whether the cluster
    /// was released.
    fn gone(&self, removal: Removal, message: &str) {
        let status = &self.registered.status;
        let released = ConditionState {
            holds: removal.is_released(),
            ..ConditionState::wrong(removal.reason(), message)
        };
        status.set_condition(ConditionType::Released, released);
        let gone = ConditionState::wrong(Reason::RegistrationRemoved, message);
        if status.set_condition(ConditionType::Registered, gone) {
            tracing::info!(registration = %self.registered.id, outcome = %message, "registration removed");
        }
    }
}

/// What a status says about whether the cluster was served for its tenant.
enum Served {
    Maybe,
    /// Somebody else has claimed it.
    ForAnother,
    Never,
}

fn was_served(own: &WorkerCluster) -> Served {
    let claimed = own.condition(ConditionType::Claimed);
    let is_identified = own
        .status
        .as_ref()
        .is_some_and(|it| it.cluster_uid.is_some());
    match claimed.map(|it| it.reason.as_str()) {
        Some(reason) if reason == Reason::ClaimedByOther.as_str() => Served::ForAnother,
        _ if is_identified => Served::Maybe,
        _ => Served::Never,
    }
}
