//! Accounts for the memory that the objects of a watch take. Of objects beyond the limit, only the
//! name is kept.

use std::{collections::HashMap, error::Error};

use kube::{
    Resource,
    api::ObjectMeta,
    runtime::watcher::{self, Event},
};
use serde::Serialize;

use crate::api::{
    names::{TOO_LARGE, is_name_alone},
    weight,
};
use crate::client::memory::Reservation;

/// The memory of an object of which only the name is kept: in the store, in indexes by its derived
/// names, and in the tenant's status. The longest names take this much.
const NAME_BYTES: usize = 8 << 10;
/// The maximum number of objects of which only the name is kept.
const NAMES_MAX: usize = 4_000;
/// The maximum size of the finalizers that are kept with a name.
const FINALIZERS_BYTES_MAX: usize = 4 << 10;

/// The error for a cluster with more objects than there is room for names.
#[derive(Debug, thiserror::Error)]
#[error(
    "more than {NAMES_MAX} objects exist beside those that the tenant's memory has room for; \
     delete some"
)]
struct Full;

/// Returns true if a watch failed because the cluster has too many objects.
pub(super) fn is_full(error: &(dyn Error + 'static)) -> bool {
    error.is::<Full>()
}

/// Charges the objects that a watch delivers to a reservation.
#[derive(Debug)]
pub struct Account {
    bytes_max: usize,
    reservation: Reservation,
    kept: Side,
    /// The objects of the list that is being read. Once the list is complete, they replace `kept`.
    listed: Side,
}

#[derive(Debug, Default)]
struct Side {
    /// By namespace and name, as the objects are stored; `None` for objects of which only the name
    /// is kept.
    weights: HashMap<Box<str>, Option<usize>>,
    /// The weight of the whole objects, in bytes.
    whole: usize,
    names: usize,
}

impl Account {
    /// Creates an account that keeps whole objects up to `bytes_max` bytes in total, charged to
    /// `reservation`.
    pub fn of(bytes_max: usize, reservation: Reservation) -> Self {
        Self {
            bytes_max,
            reservation,
            kept: Side::default(),
            listed: Side::default(),
        }
    }

    /// Charges the object of an event. An object that there is no room for is replaced by its name.
    ///
    /// # Errors
    ///
    /// Returns an error if the maximum number of objects is already kept by name.
    pub fn keep<K>(&mut self, event: Event<K>) -> watcher::Result<Event<K>>
    where
        K: Resource + Serialize + From<ObjectMeta>,
    {
        Ok(match event {
            Event::Init => {
                self.listed = Side::default();
                Event::Init
            }
            Event::InitApply(object) => {
                let mut listed = std::mem::take(&mut self.listed);
                let kept = self.admit(&mut listed, object);
                self.listed = listed;
                Event::InitApply(kept?)
            }
            Event::InitDone => {
                self.kept = std::mem::take(&mut self.listed);
                self.reservation.force_resize(self.kept.bytes());
                Event::InitDone
            }
            Event::Apply(object) => {
                let mut side = std::mem::take(&mut self.kept);
                let kept = self.admit(&mut side, object);
                self.kept = side;
                Event::Apply(kept?)
            }
            Event::Delete(object) => {
                self.kept.remove(&full_name(&object));
                self.reservation.force_resize(self.kept.bytes());
                Event::Delete(object)
            }
        })
    }

    /// Returns the object if there is room for it, and otherwise only its name.
    fn admit<K>(&mut self, side: &mut Side, object: K) -> watcher::Result<K>
    where
        K: Resource + Serialize + From<ObjectMeta>,
    {
        let name = full_name(&object);
        side.remove(&name);
        // A watched object holds its names and values once, about as long as its JSON text.
        let weight = serde_json::to_vec(&object).map_or(0, |text| weight::of(&text));
        let is_whole = !is_name_alone(object.meta())
            && side.whole + weight <= self.bytes_max
            && self
                .reservation
                .resize((side.bytes() + weight).max(self.kept.bytes()));
        // An object that claims to be one of which only the name was read is made one.
        let object = if is_whole {
            object
        } else {
            K::from(name_alone(object.meta(), weight))
        };
        if !is_whole && side.names == NAMES_MAX {
            let full = kube::Error::Service(Full.into());
            return Err(watcher::Error::InitialListFailed(full));
        }
        side.insert(name, is_whole.then_some(weight));
        // A name is kept even if no memory is left: an object that we do not know becomes an
        // orphan.
        let bytes = side.bytes().max(self.kept.bytes());
        self.reservation.force_resize(bytes);
        Ok(object)
    }
}

fn full_name<K: Resource>(object: &K) -> Box<str> {
    let metadata = object.meta();
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let name = metadata.name.as_deref().unwrap_or_default();
    format!("{namespace}/{name}").into()
}

impl Side {
    /// Returns the memory that the side takes in bytes, names included.
    fn bytes(&self) -> usize {
        self.whole + self.names * NAME_BYTES
    }

    fn insert(&mut self, name: Box<str>, weight: Option<usize>) {
        match weight {
            Some(weight) => self.whole += weight,
            None => self.names += 1,
        }
        self.weights.insert(name, weight);
    }

    fn remove(&mut self, name: &str) {
        match self.weights.remove(name) {
            Some(Some(weight)) => self.whole -= weight,
            Some(None) => self.names -= 1,
            None => {}
        }
    }
}

fn name_alone(metadata: &ObjectMeta, weight: usize) -> ObjectMeta {
    let read = metadata
        .annotations
        .as_ref()
        .and_then(|it| it.get(TOO_LARGE));
    let read = read.and_then(|weight| weight.parse().ok());
    let finalizers = metadata.finalizers.clone().filter(|finalizers| {
        finalizers.iter().map(String::len).sum::<usize>() <= FINALIZERS_BYTES_MAX
    });
    ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        creation_timestamp: metadata.creation_timestamp.clone(),
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        finalizers,
        annotations: Some([(TOO_LARGE.to_owned(), read.unwrap_or(weight).to_string())].into()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kube::ResourceExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::machine_deployment::MachineDeployment;
    use crate::client::memory::{GUARANTEED_BYTES, Memory};

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

    /// Creates an account without a shared limit.
    fn an_account(bytes_max: usize) -> Account {
        Account::of(
            bytes_max,
            Reservation::guaranteed(&Arc::new(Memory::unlimited())),
        )
    }

    /// Returns true if the whole object is kept.
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
        let mut account = an_account(1 << 20);
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
    fn an_account_exceeds_its_guaranteed_memory_only_while_there_is_some_left() {
        let memory = Arc::new(Memory::within(0, 0));
        let account = || Account::of(usize::MAX, Reservation::guaranteed(&memory));
        let (mut one, mut other) = (account(), account());
        let half = |index| a_machine_deployment(index, GUARANTEED_BYTES / 2 - 20_000);
        let keeps =
            |account: &mut Account, index| is_whole(account.keep(Event::Apply(half(index))));
        assert!(keeps(&mut one, 1) && keeps(&mut one, 2) && !keeps(&mut one, 3));
        assert!(
            keeps(&mut other, 1) && keeps(&mut other, 2),
            "its own part is guaranteed"
        );
        one.keep(Event::Delete(half(1))).unwrap();
        assert!(keeps(&mut one, 3), "there is room again");
        drop(other);
        assert!(
            memory.reserved() <= GUARANTEED_BYTES,
            "a dropped account releases its memory"
        );
        let before = memory.reserved();
        assert!(!keeps(&mut one, 4) && !keeps(&mut one, 5));
        assert_eq!(memory.reserved(), before + 2 * NAME_BYTES, "names count");
        one.keep(Event::Delete(half(4))).unwrap();
        assert_eq!(memory.reserved(), before + NAME_BYTES);
    }

    #[test]
    fn a_list_takes_the_place_of_what_is_kept() {
        let mut account = an_account(1 << 20);
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
    fn who_claims_to_be_too_large_or_to_have_another_uid_has_no_more_room() {
        let mut account = an_account(1 << 20);
        let mut forged = a_machine_deployment(1, 400 << 10);
        let weight = (TOO_LARGE.to_owned(), "7".repeat(400));
        forged.annotations_mut().extend([weight]);
        assert!(is_name_alone(&forged.metadata));
        assert!(!is_whole(account.keep(Event::Apply(forged))));
        for uid in 0..4 {
            let mut again = a_machine_deployment(2, 400 << 10);
            again.metadata.uid = Some(uid.to_string());
            assert!(
                is_whole(account.keep(Event::Apply(again))),
                "it takes its own place"
            );
        }
        let mut other = a_machine_deployment(3, 10);
        other.metadata.uid = Some("3".to_owned());
        account.keep(Event::Delete(other)).unwrap();
        assert!(!is_whole(
            account.keep(Event::Apply(a_machine_deployment(4, 700 << 10)))
        ));
        let mut held = a_machine_deployment(5, 2 << 20);
        held.finalizers_mut().push("f".repeat(FINALIZERS_BYTES_MAX));
        let Event::Apply(held) = account.keep(Event::Apply(held)).unwrap() else {
            panic!("it stays an event")
        };
        assert_eq!(held.metadata.finalizers, None);
    }

    #[test]
    fn a_list_without_end_of_names_is_given_up() {
        let mut account = an_account(0);
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
