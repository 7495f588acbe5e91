//! An index over the objects of a watch. It finds the objects that have a key without visiting all
//! others. Otherwise, looking up each of many objects would cost one visit per pair.

use std::{collections::HashMap, fmt, hash::Hash, sync::Arc};

use kube::{
    Resource,
    runtime::{
        reflector::{Lookup, ObjectRef, Store},
        watcher::Event,
    },
};
use parking_lot::RwLock;

/// Objects of one kind, by keys that are computed from each object.
pub struct Index<K: Lookup, Key> {
    keys: fn(&K) -> Vec<Key>,
    entries: RwLock<Entries<K, Key>>,
}

struct Entries<K: Lookup, Key> {
    objects: HashMap<ObjectRef<K>, Arc<K>>,
    by_key: HashMap<Key, Vec<Arc<K>>>,
}

/// The changes that an event made in the index. An object that was replaced is both removed and
/// added.
#[derive(Debug)]
pub struct Change<K> {
    /// Objects that are no longer in the index.
    pub removed: Vec<Arc<K>>,
    /// Objects that are in the index now.
    pub added: Vec<Arc<K>>,
}

impl<K, Key> Index<K, Key>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    Key: Eq + Hash,
{
    /// Creates an empty index with these keys of an object.
    pub fn new(keys: fn(&K) -> Vec<Key>) -> Self {
        let entries = Entries {
            objects: HashMap::new(),
            by_key: HashMap::new(),
        };
        Self {
            keys,
            entries: RwLock::new(entries),
        }
    }

    /// Applies an event that the store has already applied. A list is applied once it is complete,
    /// as in the store.
    pub fn follow(&self, event: &Event<K>, store: &Store<K>) -> Change<K> {
        let mut entries = self.entries.write();
        let entries = &mut *entries;
        let (removed, added) = match event {
            Event::Init | Event::InitApply(_) => (Vec::new(), Vec::new()),
            Event::Apply(object) | Event::Delete(object) => {
                let name = ObjectRef::from_obj(object);
                let before = entries.objects.get(&name).cloned();
                if let Some(before) = &before {
                    entries.remove(before, (self.keys)(before));
                }
                (Vec::from_iter(before), Vec::from_iter(store.get(&name)))
            }
            Event::InitDone => {
                entries.by_key.clear();
                let before = entries.objects.drain().map(|(_, object)| object);
                (before.collect(), store.state())
            }
        };
        for object in &added {
            entries.add(object, (self.keys)(object));
        }
        Change { removed, added }
    }

    /// Returns the objects that have this key, in any order.
    pub fn of(&self, key: &Key) -> Vec<Arc<K>> {
        let entries = self.entries.read();
        entries.by_key.get(key).cloned().unwrap_or_default()
    }
}

impl<K, Key> Entries<K, Key>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    Key: Eq + Hash,
{
    fn add(&mut self, object: &Arc<K>, keys: Vec<Key>) {
        let name = ObjectRef::from_obj(&**object);
        self.objects.insert(name, Arc::clone(object));
        for key in keys {
            self.by_key.entry(key).or_default().push(Arc::clone(object));
        }
    }

    fn remove(&mut self, object: &Arc<K>, keys: Vec<Key>) {
        self.objects.remove(&ObjectRef::from_obj(&**object));
        for key in keys {
            if let Some(objects) = self.by_key.get_mut(&key) {
                objects.retain(|other| !Arc::ptr_eq(other, object));
                if objects.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
    }
}

impl<K: Lookup, Key> fmt::Debug for Index<K, Key> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an index")
    }
}

/// Counts the objects that this thread visits, for tests that limit the number of visits per
/// lookup.
#[cfg(test)]
pub mod visits {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts one visit.
    pub fn count() {
        COUNT.set(COUNT.get() + 1);
    }

    /// Returns the visits since the last call.
    pub fn take() -> usize {
        COUNT.replace(0)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{ResourceExt, api::ObjectMeta, runtime::reflector};

    use super::*;

    fn an_object(name: &str, label: &str) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some("berlin".to_owned()),
                labels: Some([("color".to_owned(), label.to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    fn names(index: &Index<ConfigMap, String>, key: &str) -> Vec<String> {
        let found = index.of(&key.to_owned());
        let mut names: Vec<String> = found.iter().map(|it| it.name_any()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_object_is_found_by_the_keys_that_it_has_now() {
        let (store, mut writer) = reflector::store::<ConfigMap>();
        let index = Index::new(|it: &ConfigMap| it.labels().values().cloned().collect());
        let mut follow = |event: Event<ConfigMap>| {
            writer.apply_watcher_event(&event);
            index.follow(&event, &store);
        };
        follow(Event::Init);
        follow(Event::InitApply(an_object("a", "red")));
        assert_eq!(names(&index, "red"), [""; 0], "the list is not complete");
        follow(Event::InitDone);
        follow(Event::Apply(an_object("b", "red")));
        assert_eq!(names(&index, "red"), ["a", "b"]);
        follow(Event::Apply(an_object("a", "blue")));
        assert_eq!(names(&index, "red"), ["b"]);
        assert_eq!(names(&index, "blue"), ["a"]);
        follow(Event::Delete(an_object("a", "red")));
        assert_eq!(names(&index, "blue"), [""; 0]);
        follow(Event::Init);
        follow(Event::InitApply(an_object("c", "blue")));
        follow(Event::InitDone);
        assert_eq!(names(&index, "red"), [""; 0], "a list replaces everything");
        assert_eq!(names(&index, "blue"), ["c"]);
    }
}
