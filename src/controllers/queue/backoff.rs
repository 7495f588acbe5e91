//! Delays of machine deployments that failed, each its own: they grow, have a cap, and start again
//! after a success, and when the machine deployment or what it is made from has changed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kube::{ResourceExt, runtime::reflector::ObjectRef};

use crate::api::machine_deployment::MachineDeployment;
use crate::client::retry_delay::RetryDelay;

/// The first delay: a conflict is over by then.
const FIRST: Duration = Duration::from_millis(200);
/// The cap: what a person mends is picked up by a watch; this covers transient failures.
const CAP: Duration = Duration::from_secs(30);

/// Delays by machine deployment.
#[derive(Debug, Default)]
pub struct Backoff {
    delays: Mutex<HashMap<ObjectRef<MachineDeployment>, (Wish, RetryDelay)>>,
}

/// What a machine deployment asks for: its status is none of it, nor what only others read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    generation: Option<i64>,
    annotations: BTreeMap<String, String>,
}

impl Wish {
    fn of(machine_deployment: &MachineDeployment) -> Self {
        Self {
            generation: machine_deployment.metadata.generation,
            annotations: machine_deployment.annotations().clone(),
        }
    }
}

impl Backoff {
    /// The delay after another failure: the next one of the same wish, the first of another.
    pub fn failed(&self, machine_deployment: &MachineDeployment) -> Duration {
        let reference = ObjectRef::from_obj(machine_deployment);
        let wish = Wish::of(machine_deployment);
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        let first = || (wish.clone(), RetryDelay::new(FIRST, CAP));
        let known = delays.entry(reference).or_insert_with(first);
        if known.0 != wish {
            *known = first();
        }
        known.1.next().unwrap_or(CAP)
    }

    /// A success, the end of the object, or a change of what it is made from.
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
    use crate::api::machine_deployment::MachineDeploymentSpec;

    fn a_machine_deployment() -> MachineDeployment {
        let metadata = kube::api::ObjectMeta {
            name: Some("a".to_owned()),
            namespace: Some("b".to_owned()),
            generation: Some(1),
            ..kube::api::ObjectMeta::default()
        };
        MachineDeployment {
            metadata,
            spec: MachineDeploymentSpec::default(),
            status: None,
        }
    }

    /// Fails until the delay has its cap.
    fn late(machine_deployment: &MachineDeployment) -> Backoff {
        let backoff = Backoff::default();
        let delays: Vec<Duration> = (0..12)
            .map(|_| backoff.failed(machine_deployment))
            .collect();
        assert!(delays[0] <= FIRST);
        assert!(delays[11] >= CAP / 2 && delays[11] <= CAP);
        backoff
    }

    #[test]
    fn the_delay_grows_to_thirty_seconds_and_resets_on_success() {
        let it = a_machine_deployment();
        let backoff = late(&it);
        backoff.reset(&ObjectRef::from_obj(&it));
        assert!(backoff.failed(&it) <= FIRST);
    }

    #[test]
    fn the_delay_starts_again_for_another_wish_and_not_for_another_status() {
        let it = a_machine_deployment();
        let mut another = it.clone();
        another.metadata.generation = Some(2);
        assert!(late(&it).failed(&another) <= FIRST);
        let mut another = it.clone();
        another.annotations_mut().insert("c".into(), "d".into());
        assert!(late(&it).failed(&another) <= FIRST);
        let mut same = it.clone();
        same.metadata.resource_version = Some("7".to_owned());
        assert!(late(&it).failed(&same) >= CAP / 2);
    }
}
