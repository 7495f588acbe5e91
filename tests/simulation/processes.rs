//! The processes of the manager, one after the other: how they start, and how they may end.

use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use crate::{model::Model, wire::Life};

impl Model {
    /// Starts a manager.
    pub fn start(&mut self) {
        let before = std::mem::replace(&mut self.life, Life::new());
        self.before.push(before);
        self.may_lose_lease = false;
        self.process = Some(self.world.start_as(&self.life));
    }

    /// Ends the manager in order, if there is one.
    pub async fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            self.check_end(process.end().await);
        }
    }

    /// A manager ends in order, or since a restored management cluster lacks its Lease.
    fn check_end(&self, ended: anyhow::Result<()>) {
        let Err(error) = ended else { return };
        let is_lost = error.to_string().contains(" is lost");
        assert!(
            is_lost && self.may_lose_lease,
            "the manager ended: {error:#}"
        );
    }

    /// Kills the manager.
    pub async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    /// Another manager comes, whose clock is ahead of the clusters'.
    pub async fn skew(&mut self, minutes: i64) {
        self.stop().await;
        self.world.ahead = SignedDuration::from_mins(minutes);
        self.start();
    }

    /// Starts another manager in place of one that died or ended.
    pub async fn revive(&mut self) {
        self.revive_ended();
        if self.life.is_struck() {
            self.kill().await;
            self.start();
        }
        self.life.disarm();
    }

    fn revive_ended(&mut self) {
        let process = self.process.as_mut();
        if let Some(ended) = process.and_then(|process| process.tasks.try_join_next()) {
            let ended = ended.expect("the manager does not panic");
            assert!(ended.is_err(), "nobody asked the manager to end");
            self.check_end(ended);
            self.start();
        }
    }

    /// Time goes by. A process that ends is started again.
    pub async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let left = until - Instant::now();
            tokio::time::sleep(left.min(Duration::from_mins(1))).await;
            self.revive_ended();
        }
    }
}
