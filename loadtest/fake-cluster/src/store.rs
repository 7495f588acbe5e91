//! The objects of one cluster and the log of their changes, under one increasing revision. The log
//! serves watches, old snapshots and the histories that tests read. It checks nothing: rules about
//! what may be written live in `write.rs`.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;
use tokio::time::Instant;

use crate::meta;

/// Namespace ("" for cluster-wide) and name.
pub(crate) type Key = (String, String);
/// All objects of one resource, in the order in which lists show them.
pub(crate) type Objects = BTreeMap<Key, Arc<Value>>;

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub revision: u64,
    pub storage: Arc<str>,
    pub key: Key,
    pub before: Option<Arc<Value>>,
    /// The state after the change; for a deletion the last state with the revision of its removal.
    pub object: Arc<Value>,
    pub deleted: bool,
    pub at: Instant,
}

#[derive(Debug, Clone)]
pub(crate) struct Store {
    objects: BTreeMap<Arc<str>, Objects>,
    log: VecDeque<Change>,
    log_max: usize,
    revision: u64,
    compacted: u64,
}

impl Store {
    pub(crate) fn new(log_max: usize) -> Self {
        Self {
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            log_max: log_max.max(1),
            revision: 1,
            compacted: 0,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Changes up to this revision can no longer be watched or listed.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Forgets, for clients, everything up to now; histories for tests stay readable.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    /// Gives out higher revisions from here on than `other` ever did, and forgets, for clients,
    /// everything up to now.
    pub(crate) fn go_on_after(&mut self, other: &Self) {
        self.revision = self.revision.max(other.revision) + 1;
        self.compact();
    }

    /// Lets the revision grow as the writes of others would.
    pub(crate) fn skip_revisions(&mut self, count: u64) {
        self.revision += count;
    }

    pub(crate) fn get(&self, storage: &str, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(storage)?.get(key)
    }

    pub(crate) fn find(&self, storage: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.get(storage, &(namespace.to_owned(), name.to_owned()))
    }

    pub(crate) fn all(&self, storage: &str) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.get(storage).into_iter().flatten()
    }

    pub(crate) fn storages(&self) -> Vec<Arc<str>> {
        self.objects.keys().cloned().collect()
    }

    pub(crate) fn is_empty_of(&self, namespace: &str) -> bool {
        !self
            .objects
            .values()
            .any(|objects| objects.keys().any(|(ns, _)| ns == namespace))
    }

    /// Writes a state, gives it the next revision and returns it as stored.
    pub(crate) fn put(&mut self, storage: &str, key: Key, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        set_revision(&mut object, self.revision);
        let object = Arc::new(object);
        let storage = self.storage(storage);
        let before = self
            .objects
            .entry(Arc::clone(&storage))
            .or_default()
            .insert(key.clone(), Arc::clone(&object));
        self.record(Change {
            revision: self.revision,
            storage,
            key,
            before,
            object: Arc::clone(&object),
            deleted: false,
            at: Instant::now(),
        });
        object
    }

    /// Removes an object and returns its last state, with the revision of the removal.
    pub(crate) fn remove(&mut self, storage: &str, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.get_mut(storage)?.remove(key)?;
        self.revision += 1;
        let mut last = Value::clone(&before);
        set_revision(&mut last, self.revision);
        let object = Arc::new(last);
        let storage = self.storage(storage);
        self.record(Change {
            revision: self.revision,
            storage,
            key: key.clone(),
            before: Some(before),
            object: Arc::clone(&object),
            deleted: true,
            at: Instant::now(),
        });
        Some(object)
    }

    fn storage(&self, storage: &str) -> Arc<str> {
        match self.objects.get_key_value(storage) {
            Some((shared, _)) => Arc::clone(shared),
            None => Arc::from(storage),
        }
    }

    fn record(&mut self, change: Change) {
        self.log.push_back(change);
        while self.log.len() > self.log_max {
            if let Some(oldest) = self.log.pop_front() {
                self.compacted = self.compacted.max(oldest.revision);
            }
        }
    }

    /// The changes of one resource after a revision, oldest first.
    pub(crate) fn changes_after<'a>(
        &'a self,
        storage: &'a str,
        revision: u64,
    ) -> impl Iterator<Item = &'a Change> {
        let start = self
            .log
            .partition_point(|change| change.revision <= revision);
        self.log
            .range(start..)
            .filter(move |change| &*change.storage == storage)
    }

    /// Every change still in the log, oldest first.
    pub(crate) fn log(&self) -> impl Iterator<Item = &Change> {
        self.log.iter()
    }

    /// The objects of a resource as they were at a revision that is not compacted. They are copied
    /// only if one of them has changed since: a page of a long list must not cost the whole list.
    pub(crate) fn at(&self, storage: &str, revision: u64) -> Cow<'_, Objects> {
        let Some(now) = self.objects.get(storage) else {
            return Cow::Owned(Objects::new());
        };
        let mut objects = Cow::Borrowed(now);
        for change in self
            .log
            .iter()
            .rev()
            .take_while(|change| change.revision > revision)
        {
            if &*change.storage != storage {
                continue;
            }
            match &change.before {
                Some(before) => objects
                    .to_mut()
                    .insert(change.key.clone(), Arc::clone(before)),
                None => objects.to_mut().remove(&change.key),
            };
        }
        objects
    }
}

fn set_revision(object: &mut Value, revision: u64) {
    meta::set_metadata(object, "resourceVersion", revision.to_string());
}
