//! What the objects of a watch take in memory: of those beyond what they may take together, the
//! name alone is kept.

use std::collections::HashMap;

use kube::{
    Resource, ResourceExt,
    api::ObjectMeta,
    runtime::watcher::{self, Event},
};
use serde::Serialize;

use crate::api::{
    names::{TOO_LARGE, is_name_alone},
    weight,
};

/// What the name of an object weighs, about.
const NAME_BYTES: usize = 2 << 10;
/// As many names are kept beyond what the objects may take.
const NAMES_MAX: usize = 10_000;

/// A cluster that has more objects than one could keep the names of.
#[derive(Debug, thiserror::Error)]
#[error("the cluster has too many objects: not even {NAMES_MAX} names have room beside them")]
struct Full;

/// Weighs what a watch delivers.
#[derive(Debug)]
pub struct Account {
    bytes_max: usize,
    kept: Side,
    /// What the list that is being read has shown so far: it takes the place of what is kept.
    listed: Side,
}

#[derive(Debug, Default)]
struct Side {
    /// By uid.
    weights: HashMap<Box<str>, usize>,
    total: usize,
}

impl Account {
    /// For objects that may weigh `bytes_max` together.
    pub fn of(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            kept: Side::default(),
            listed: Side::default(),
        }
    }

    /// Weighs the object of an event. One that there is no room for becomes its name.
    ///
    /// # Errors
    ///
    /// When there is no room for its name either.
    pub fn keep<K>(&mut self, event: Event<K>) -> watcher::Result<Event<K>>
    where
        K: Resource + Serialize + From<ObjectMeta>,
    {
        Ok(match event {
            Event::Init => {
                self.listed = Side::default();
                Event::Init
            }
            Event::InitApply(object) => Event::InitApply(self.listed.keep(object, self.bytes_max)?),
            Event::InitDone => {
                self.kept = std::mem::take(&mut self.listed);
                Event::InitDone
            }
            Event::Apply(object) => Event::Apply(self.kept.keep(object, self.bytes_max)?),
            Event::Delete(object) => {
                self.kept
                    .remove(object.meta().uid.as_deref().unwrap_or_default());
                Event::Delete(object)
            }
        })
    }
}

impl Side {
    fn keep<K>(&mut self, object: K, bytes_max: usize) -> watcher::Result<K>
    where
        K: Resource + Serialize + From<ObjectMeta>,
    {
        let uid = object.uid().unwrap_or_default();
        self.remove(&uid);
        // Its names and values stand in it once, and its text is about as long as they are.
        let weight = serde_json::to_vec(&object).map_or(0, |text| weight::of(&text));
        let (object, weight) = if is_name_alone(object.meta()) {
            (object, NAME_BYTES)
        } else if self.total + weight > bytes_max {
            (K::from(name_alone(object.meta(), weight)), NAME_BYTES)
        } else {
            (object, weight)
        };
        if self.total + weight > bytes_max.saturating_add(NAMES_MAX * NAME_BYTES) {
            let full = kube::Error::Service(Full.into());
            return Err(watcher::Error::InitialListFailed(full));
        }
        self.total += weight;
        self.weights.insert(uid.into(), weight);
        Ok(object)
    }

    fn remove(&mut self, uid: &str) {
        self.total -= self.weights.remove(uid).unwrap_or_default();
    }
}

fn name_alone(metadata: &ObjectMeta, weight: usize) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        creation_timestamp: metadata.creation_timestamp.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        finalizers: metadata.finalizers.clone(),
        annotations: Some([(TOO_LARGE.to_owned(), weight.to_string())].into()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::machine_deployment::MachineDeployment;

    fn a_machine_deployment(index: usize, bytes: usize) -> MachineDeployment {
        serde_json::from_value::<MachineDeployment>(json!({
            "metadata": {
                "name": format!("md-{index}"), "namespace": "kube-system",
                "uid": index.to_string(), "finalizers": ["ours"],
                "annotations": {"long": "a".repeat(bytes)},
            },
            "spec": {},
        }))
        .unwrap()
    }

    /// Whether the whole object is kept.
    fn is_whole(kept: watcher::Result<Event<MachineDeployment>>) -> bool {
        match kept.unwrap() {
            Event::Apply(object) | Event::InitApply(object) => {
                assert_eq!(object.finalizers(), ["ours"]);
                assert!(object.uid().is_some());
                let is_whole = !is_name_alone(&object.metadata);
                assert_eq!(object.spec.is_unreadable, !is_whole);
                assert_eq!(object.annotations().contains_key("long"), is_whole);
                is_whole
            }
            event => panic!("{event:?}"),
        }
    }

    #[test]
    fn beyond_what_objects_may_take_their_names_are_kept() {
        let mut account = Account::of(1 << 20);
        let large = |index| a_machine_deployment(index, 400 << 10);
        let mut apply = |object| is_whole(account.keep(Event::Apply(object)));
        assert!(apply(large(1)) && apply(large(2)));
        assert!(!apply(large(3)), "there is no room for a third");
        assert!(apply(large(1)), "it takes its own place");
        assert!(apply(a_machine_deployment(1, 10)));
        assert!(apply(large(3)), "there is room again");
        assert!(!apply(large(4)));
        account.keep(Event::Delete(large(2))).unwrap();
        assert!(is_whole(account.keep(Event::Apply(large(4)))));
    }

    #[test]
    fn a_list_takes_the_place_of_what_is_kept() {
        let mut account = Account::of(1 << 20);
        let large = |index| a_machine_deployment(index, 900 << 10);
        assert!(is_whole(account.keep(Event::Apply(large(1)))));
        for _ in 0..2 {
            account.keep(Event::<MachineDeployment>::Init).unwrap();
            assert!(is_whole(account.keep(Event::InitApply(large(2)))));
        }
        account.keep(Event::<MachineDeployment>::InitDone).unwrap();
        assert!(!is_whole(account.keep(Event::Apply(large(1)))));
        assert!(is_whole(account.keep(Event::Apply(large(2)))));
    }

    #[test]
    fn a_list_without_end_of_names_is_given_up() {
        let mut account = Account::of(0);
        let mut fits = |index| {
            let object = a_machine_deployment(index, 10);
            account.keep(Event::InitApply(object)).is_ok()
        };
        assert!((0..NAMES_MAX).all(&mut fits));
        assert!(!fits(NAMES_MAX));
    }

    #[test]
    fn what_is_read_weighs_no_less_than_it_takes() {
        let value: Value = json!({"metadata": {"name": "a"}, "spec": {}});
        let text = value.to_string();
        assert!(weight::of(text.as_bytes()) > size_of::<MachineDeployment>());
    }
}
