//! Tasks that belong to the whole process, not to a tenant.

use std::sync::Arc;

use kube::Client;
use tokio::{net::TcpListener, runtime::Handle, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::dedicated_runtime;
use crate::admin::{self, AdminState};
use crate::client::watch::Scope;
use crate::controllers::{
    rollout::{Rollout, Tenants},
    serve::Controllers,
};
use crate::fleet::engagement::HomeWatches;
use crate::telemetry::{chain::chain, metrics::Metrics};
use crate::tenant::waves::Pace;

/// The tasks of the whole process. Each is awaited. If one panics, the process ends.
pub(super) struct ProcessTasks {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl ProcessTasks {
    /// Creates an empty set. Its tasks end when this is cancelled.
    pub(super) fn new(cancel: &CancellationToken) -> Self {
        Self {
            tasks: JoinSet::new(),
            stop: cancel.child_token(),
        }
    }

    pub(super) fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// Serves the admin port. It is not cut short: answers in flight get a moment to finish.
    pub(super) fn serve_admin(&mut self, listener: TcpListener, state: AdminState, on: &Handle) {
        let stop = self.stop.clone();
        match dedicated_runtime::hand_over(listener, on) {
            Ok(listener) => drop(self.tasks.spawn_on(admin::run(listener, state, stop), on)),
            Err(error) => tracing::error!(error = %chain(&error), "the admin port failed"),
        }
    }

    /// Grants slots to install newer default profiles.
    pub(super) fn pace(
        &mut self,
        controllers: &Controllers,
        tenants: Tenants,
        (pace, metrics): (Pace, &Metrics),
    ) {
        let rollout = Rollout {
            slots: Arc::clone(&controllers.rollout_slots),
            tenants,
            profiles: Arc::clone(&controllers.profiles),
            defaults: Arc::clone(&controllers.defaults),
            pace,
            metrics: metrics.clone(),
        };
        self.spawn(rollout.run());
    }

    /// Watches the homes of tenants in the management cluster.
    pub(super) fn watch_management(
        &mut self,
        client: &Client,
        scope: &Scope,
        controllers: &Controllers,
    ) {
        let (client, controllers) = (client.clone(), controllers.clone());
        let watches = HomeWatches::in_management(scope);
        self.spawn(async move { controllers.follow(client, watches).await });
    }

    /// Waits until a task panics.
    pub(super) async fn panicked(&mut self) -> anyhow::Error {
        while let Some(ended) = self.tasks.join_next().await {
            if ended.is_err() {
                return a_task_panicked();
            }
        }
        std::future::pending().await
    }

    pub(super) async fn finish(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|_| a_task_panicked())?;
        }
        Ok(())
    }
}

/// Returns the error for a panicked task. It does not contain the panic's message, which may
/// contain a tenant's data.
pub(super) fn a_task_panicked() -> anyhow::Error {
    anyhow::anyhow!("a task of the whole process panicked; the log has the place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_of_a_panic_has_no_message_of_it() {
        let tasks = || {
            let mut tasks = ProcessTasks::new(&CancellationToken::new());
            tasks.spawn(async { panic!("c4n4ry") });
            tasks
        };
        let error = tasks().panicked().await;
        assert!(!format!("{error:?} {error:#}").contains("c4n4ry"));
        let tasks = tasks();
        // There is only one thread, so the task runs now, and panics.
        tokio::task::yield_now().await;
        let error = tasks.finish().await.unwrap_err();
        assert!(!format!("{error:?} {error:#}").contains("c4n4ry"));
    }
}
