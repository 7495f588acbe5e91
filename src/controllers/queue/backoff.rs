//! The retry delays of machine deployments. They grow up to a limit. They start again after a
//! success, and when the machine deployment or one of its inputs has changed.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
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
    failures: Mutex<HashMap<ObjectRef<MachineDeployment>, Failure>>,
}

/// When the retry of a machine deployment begins, if nothing changes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// As soon as it is due.
    WhenDue,
    /// When it is due and its turn comes among the resyncs of its tenant. The next attempt is not
    /// likely to succeed, and may take long: renders that are stopped at their deadline again and
    /// again must not take all slots of their tenant.
    InTurn,
}

#[derive(Debug)]
struct Failure {
    requested: Requested,
    delay: RetryDelay,
    retry: Retry,
}

/// A fingerprint of the part of a machine deployment whose change may end a failure. Its status is
/// not part of it.
#[derive(Debug, PartialEq, Eq)]
struct Requested(u64);

impl Requested {
    fn of(machine_deployment: &MachineDeployment) -> Self {
        let mut hasher = DefaultHasher::new();
        machine_deployment.metadata.generation.hash(&mut hasher);
        machine_deployment.annotations().hash(&mut hasher);
        Self(hasher.finish())
    }

    fn is_of(&self, machine_deployment: &MachineDeployment) -> bool {
        *self == Self::of(machine_deployment)
    }
}

impl Backoff {
    /// Returns the delay after a failure. It is the first one again if the machine deployment
    /// requests something else.
    pub fn failed(&self, machine_deployment: &MachineDeployment, retry: Retry) -> Duration {
        let reference = ObjectRef::from_obj(machine_deployment);
        let mut failures = self.failures.lock();
        let first = || Failure {
            requested: Requested::of(machine_deployment),
            delay: RetryDelay::new(FIRST, CAP),
            retry,
        };
        let known = failures.entry(reference).or_insert_with(first);
        if !known.requested.is_of(machine_deployment) {
            *known = first();
        }
        known.retry = retry;
        known.delay.next().unwrap_or(CAP)
    }

    /// Returns when a reconcile of a machine deployment that is due begins. One that requests
    /// something else since it failed is not a retry.
    pub fn retry(
        &self,
        reference: &ObjectRef<MachineDeployment>,
        machine_deployment: &MachineDeployment,
    ) -> Retry {
        let failures = self.failures.lock();
        let failure = failures.get(reference);
        let same = failure.filter(|it| it.requested.is_of(machine_deployment));
        same.map_or(Retry::WhenDue, |it| it.retry)
    }

    /// Ends the delays of machine deployments that do not exist any more.
    pub fn keep(&self, exists: impl Fn(&ObjectRef<MachineDeployment>) -> bool) {
        self.failures
            .lock()
            .retain(|reference, _| exists(reference));
    }

    /// Ends the delays: after a success, when the object is gone, or when one of its inputs has
    /// changed.
    pub fn reset(&self, reference: &ObjectRef<MachineDeployment>) {
        self.failures.lock().remove(reference);
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
            .map(|_| backoff.failed(machine_deployment, Retry::WhenDue))
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
        assert!(backoff.failed(&it, Retry::WhenDue) <= FIRST);
    }

    #[test]
    fn the_delay_starts_again_for_another_spec_and_not_for_another_status() {
        let it = a_machine_deployment();
        let mut another = it.clone();
        another.metadata.generation = Some(2);
        assert!(late(&it).failed(&another, Retry::WhenDue) <= FIRST);
        let mut another = it.clone();
        another.annotations_mut().insert("c".into(), "d".into());
        assert!(late(&it).failed(&another, Retry::WhenDue) <= FIRST);
        let mut same = it.clone();
        same.metadata.resource_version = Some("7".to_owned());
        assert!(late(&it).failed(&same, Retry::WhenDue) >= CAP / 2);
    }

    #[test]
    fn a_retry_in_turn_is_one_of_the_same_spec_until_something_changes() {
        let it = a_machine_deployment();
        let backoff = Backoff::default();
        let retry = |it: &MachineDeployment| backoff.retry(&ObjectRef::from_obj(it), it);
        assert_eq!(retry(&it), Retry::WhenDue);
        backoff.failed(&it, Retry::InTurn);
        assert_eq!(retry(&it), Retry::InTurn);
        let mut same = it.clone();
        same.metadata.finalizers = Some(vec!["e".to_owned()]);
        assert_eq!(retry(&same), Retry::InTurn);
        let mut another = it.clone();
        another.metadata.generation = Some(2);
        assert_eq!(retry(&another), Retry::WhenDue);
        let mut another = it.clone();
        another.annotations_mut().insert("c".into(), "d".into());
        assert_eq!(retry(&another), Retry::WhenDue);
        backoff.reset(&ObjectRef::from_obj(&it));
        assert_eq!(retry(&it), Retry::WhenDue);
        backoff.failed(&it, Retry::InTurn);
        backoff.failed(&it, Retry::WhenDue);
        assert_eq!(retry(&it), Retry::WhenDue);
    }
}
