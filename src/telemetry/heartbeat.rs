//! The process's heartbeat: if no beat comes, its threads hang.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// How often it beats.
const INTERVAL: Duration = Duration::from_secs(5);
/// After how long without a beat the threads hang: by far longer than a page of the largest list
/// takes to be read.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time of the last beat; a clone is the same one.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<watch::Sender<Instant>>);

impl Default for Heartbeat {
    /// As if it had just beaten.
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Instant::now())))
    }
}

impl Heartbeat {
    /// Beats until cancelled. The runtime whose threads are monitored must poll it.
    pub async fn beat(self) {
        loop {
            self.0.send_replace(Instant::now());
            sleep(INTERVAL).await;
        }
    }

    /// Returns true if the threads hang.
    pub fn is_late(&self) -> bool {
        self.0.borrow().elapsed() > PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_beat_that_stays_away_is_late_and_the_next_one_mends_it() {
        let heartbeat = Heartbeat::default();
        advance(PATIENCE).await;
        assert!(!heartbeat.is_late());
        advance(Duration::from_millis(1)).await;
        assert!(heartbeat.is_late());
        let mut beating = tokio::task::JoinSet::new();
        beating.spawn(heartbeat.clone().beat());
        sleep(10 * PATIENCE).await;
        assert!(!heartbeat.is_late());
        beating.shutdown().await;
        sleep(2 * PATIENCE).await;
        assert!(heartbeat.is_late());
    }
}
