//! Delays of machine deployments that failed, each its own: they grow, have a cap, and start again
//! after a success.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kube::runtime::reflector::ObjectRef;

use crate::api::machine_deployment::MachineDeployment;
use crate::fleet::retry_delay::RetryDelay;

/// The first delay: a conflict is over by then.
const FIRST: Duration = Duration::from_millis(200);
/// The cap: what a person mends is picked up by a watch; this is for the weather.
const CAP: Duration = Duration::from_secs(30);

/// Delays by machine deployment.
#[derive(Debug, Default)]
pub struct Backoff {
    delays: Mutex<HashMap<ObjectRef<MachineDeployment>, RetryDelay>>,
}

impl Backoff {
    /// The delay after another failure.
    pub fn failed(&self, reference: ObjectRef<MachineDeployment>) -> Duration {
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = delays
            .entry(reference)
            .or_insert_with(|| RetryDelay::new(FIRST, CAP));
        delay.next().unwrap_or(CAP)
    }

    /// A success, or the end of the object.
    pub fn reset(&self, reference: &ObjectRef<MachineDeployment>) {
        self.delays
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(reference);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_to_thirty_seconds_and_resets_on_success() {
        let backoff = Backoff::default();
        let reference = ObjectRef::new("a").within("b");
        let delays: Vec<Duration> = (0..12).map(|_| backoff.failed(reference.clone())).collect();
        assert!(delays[0] <= FIRST);
        assert!(delays[11] >= CAP / 2 && delays[11] <= CAP);
        backoff.reset(&reference);
        assert!(backoff.failed(reference) <= FIRST);
    }
}
