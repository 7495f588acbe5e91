//! The retry delays of machine deployments. They grow up to a limit. They start again after a
//! success, and when the machine deployment or one of its inputs has changed.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use kube::{ResourceExt, runtime::reflector::ObjectRef};
use parking_lot::Mutex;

use crate::api::machine_deployment::MachineDeployment;
use crate::client::retry_delay::RetryDelay;

/// The first delay. A conflict is over by then.
const FIRST: Duration = Duration::from_millis(200);
/// The longest delay. A watch reports what a person fixes; this covers transient failures.
const CAP: Duration = Duration::from_secs(30);

/// Delays by machine deployment.
#[derive(Debug, Default)]
pub struct Backoff {
    delays: Mutex<HashMap<ObjectRef<MachineDeployment>, (Requested, RetryDelay)>>,
}

/// The part of a machine deployment whose change may end a failure. Its status is not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requested {
    generation: Option<i64>,
    annotations: BTreeMap<String, String>,
}

impl Requested {
    fn of(machine_deployment: &MachineDeployment) -> Self {
        Self {
            generation: machine_deployment.metadata.generation,
            annotations: machine_deployment.annotations().clone(),
        }
    }
}

impl Backoff {
    /// Returns the delay after a failure. It is the first one again if the machine deployment
    /// requests something else.
    pub fn failed(&self, machine_deployment: &MachineDeployment) -> Duration {
        let reference = ObjectRef::from_obj(machine_deployment);
        let requested = Requested::of(machine_deployment);
        let mut delays = self.delays.lock();
        let first = || (requested.clone(), RetryDelay::new(FIRST, CAP));
        let known = delays.entry(reference).or_insert_with(first);
        if known.0 != requested {
            *known = first();
        }
        known.1.next().unwrap_or(CAP)
    }

    /// Ends the delays: after a success, when the object is gone, or when one of its inputs has
    /// changed.
    pub fn reset(&self, reference: &ObjectRef<MachineDeployment>) {
        self.delays.lock().remove(reference);
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

    /// Fails until the delay has reached its limit.
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
    fn the_delay_starts_again_for_another_spec_and_not_for_another_status() {
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
