//! What was seen of the objects in one namespace: metadata, and the digest of the bytes where they
//! were written or verified. Fed by a watch and by our own writes, whichever comes first.
//!
//! A watch lags behind our writes, so an older event never replaces what a newer write told, and
//! an object that we deleted does not come back by an event from before.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::api::ObjectMeta;

use crate::plan::digest::Digest;

/// An object, as it was seen last.
#[derive(Debug, PartialEq)]
pub struct Entry {
    /// The metadata, without managed fields.
    pub metadata: ObjectMeta,
    /// The digest of the bytes; none until they are verified.
    pub content: Option<Digest>,
}

/// Whether an event told something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It did: look again.
    Yes,
    /// It told of our own write, or of something older.
    No,
}

/// So many deletions are remembered: more than writes of one tenant can be under way.
const GONE_MAX: usize = 64;

/// What was seen of the objects in one namespace, by name.
#[derive(Debug, Default)]
pub struct SeenObjects {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<Box<str>, Packed>,
    /// Uids of objects that we deleted, until the watch tells of it.
    buried: HashSet<String>,
    /// Uids of objects that the watch told of last as gone: the answer to a write of ours may be
    /// read after that.
    gone: VecDeque<String>,
    /// What happened since the list began that is being read.
    list: Option<List>,
}

/// An entry while nobody looks at it. A dozen rest for each tenant: metadata in its own form takes
/// three times as much as its text, for two maps and two dozen strings.
#[derive(Debug)]
struct Packed {
    /// The metadata, as JSON.
    metadata: Box<[u8]>,
    content: Option<Digest>,
}

/// A list tells of one moment after it began and before it is complete.
#[derive(Debug)]
struct List {
    /// What we buried before it began: it cannot tell of those any more.
    buried: HashSet<String>,
    /// What we wrote since: it need not name it.
    written: HashSet<String>,
}

impl SeenObjects {
    /// An object, if there is one.
    pub fn get(&self, name: &str) -> Option<Entry> {
        self.lock().objects.get(name).map(Packed::open)
    }

    /// All objects.
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().objects.values().map(Packed::open).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.lock().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lock().objects.is_empty()
    }

    /// The watch told of an object.
    pub fn watched(&self, metadata: ObjectMeta) -> News {
        let mut inner = self.lock();
        let (Some(name), Some(uid)) = (metadata.name.clone(), metadata.uid.clone()) else {
            return News::No;
        };
        if inner.buried.contains(&uid) {
            return News::No;
        }
        let before = inner.objects.get(name.as_str()).map(Packed::open);
        if before.is_some_and(|entry| !is_newer(&metadata, &entry.metadata)) {
            return News::No;
        }
        inner
            .objects
            .insert(name.into(), Packed::new(metadata, None));
        News::Yes
    }

    /// The watch told that an object is gone.
    pub fn watched_deletion(&self, metadata: &ObjectMeta) -> News {
        let mut inner = self.lock();
        let uid = metadata.uid.clone().unwrap_or_default();
        if inner.buried.remove(&uid) {
            return News::No;
        }
        let Some(name) = &metadata.name else {
            return News::No;
        };
        inner.gone.truncate(GONE_MAX - 1);
        inner.gone.push_front(uid);
        let known = inner.objects.get(name.as_str()).map(Packed::open);
        if known.is_some_and(|entry| entry.metadata.uid != metadata.uid) {
            return News::No;
        }
        // One that is not known may be one that we are making.
        inner.objects.remove(name.as_str());
        News::Yes
    }

    /// The watch begins to tell of every object that there is.
    pub fn list_begins(&self) {
        let mut inner = self.lock();
        inner.list = Some(List {
            buried: inner.buried.clone(),
            written: HashSet::new(),
        });
    }

    /// The watch told of every object that there is; tells the names of those that are gone.
    pub fn watched_all(&self, names: &BTreeSet<String>) -> Vec<String> {
        let mut inner = self.lock();
        let list = inner.list.take();
        let written = list.map_or_else(HashSet::new, |list| {
            inner.buried.retain(|uid| !list.buried.contains(uid));
            list.written
        });
        let gone: Vec<String> = inner
            .objects
            .keys()
            .filter(|name| !names.contains(&***name) && !written.contains(&***name))
            .map(ToString::to_string)
            .collect();
        for name in &gone {
            inner.objects.remove(name.as_str());
        }
        gone
    }

    /// An object was written or read by us, and its bytes have this digest.
    pub fn verified(&self, metadata: ObjectMeta, content: Digest) {
        let Some(name) = metadata.name.clone() else {
            return;
        };
        let mut inner = self.lock();
        if metadata
            .uid
            .as_ref()
            .is_some_and(|uid| inner.gone.contains(uid))
        {
            return;
        }
        let before = inner.objects.get(name.as_str()).map(Packed::open);
        if before.is_some_and(|entry| {
            entry.metadata.uid == metadata.uid && is_newer(&entry.metadata, &metadata)
        }) {
            return;
        }
        if let Some(list) = &mut inner.list {
            list.written.insert(name.clone());
        }
        inner
            .objects
            .insert(name.into(), Packed::new(metadata, Some(content)));
    }

    /// An object was deleted by us, or found to be gone.
    pub fn deleted(&self, name: &str) {
        let mut inner = self.lock();
        if let Some(uid) = inner
            .objects
            .remove(name)
            .and_then(|packed| packed.open().metadata.uid)
        {
            inner.buried.insert(uid);
        }
    }

    /// The key of the digests has changed: none of them is worth anything.
    pub fn forget_contents(&self) {
        for entry in self.lock().objects.values_mut() {
            entry.content = None;
        }
    }

    /// Every write under the lock leaves the maps whole, so a panic elsewhere does no harm here.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `new` tells of a later state than `old`. Resource versions of one object are numbers
/// that grow; where one is not, the event is taken as news.
fn is_newer(new: &ObjectMeta, old: &ObjectMeta) -> bool {
    match (version(new), version(old)) {
        (Some(new), Some(old)) => new > old,
        _ => new.resource_version != old.resource_version,
    }
}

fn version(metadata: &ObjectMeta) -> Option<u128> {
    metadata.resource_version.as_ref()?.parse().ok()
}

impl Packed {
    fn new(metadata: ObjectMeta, content: Option<Digest>) -> Self {
        let pruned = ObjectMeta {
            managed_fields: None,
            ..metadata
        };
        // Neither this nor the way back can fail: all of it are strings, numbers and maps of them.
        let metadata = serde_json::to_vec(&pruned).unwrap_or_default();
        Self {
            metadata: metadata.into(),
            content,
        }
    }

    fn open(&self) -> Entry {
        Entry {
            metadata: serde_json::from_slice(&self.metadata).unwrap_or_default(),
            content: self.content.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(uid: &str, version: &str) -> ObjectMeta {
        ObjectMeta {
            name: Some("a".to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        }
    }

    fn digest() -> Digest {
        Digest::from_annotation("d")
    }

    #[test]
    fn our_own_write_is_no_news_when_the_watch_tells_of_it() {
        let seen = SeenObjects::default();
        seen.verified(metadata("u", "7"), digest());
        assert_eq!(seen.watched(metadata("u", "5")), News::No);
        assert_eq!(seen.watched(metadata("u", "7")), News::No);
        assert_eq!(seen.get("a").unwrap().content, Some(digest()));
        assert_eq!(seen.watched(metadata("u", "8")), News::Yes);
        assert_eq!(
            seen.get("a").unwrap().content,
            None,
            "a foreign write must be verified"
        );
    }

    #[test]
    fn what_is_gone_does_not_come_back_by_the_late_answer_to_a_write() {
        let seen = SeenObjects::default();
        seen.verified(metadata("u", "7"), digest());
        assert_eq!(seen.watched(metadata("u", "8")), News::Yes);
        assert_eq!(seen.watched_deletion(&metadata("u", "9")), News::Yes);
        seen.verified(metadata("u", "8"), digest());
        assert_eq!(seen.get("a"), None);
        // One that was made and deleted before we knew that it was made.
        assert_eq!(seen.watched_deletion(&metadata("v", "11")), News::Yes);
        seen.verified(metadata("v", "10"), digest());
        assert_eq!(seen.get("a"), None);
        for uid in 0..1_000 {
            seen.watched_deletion(&metadata(&uid.to_string(), "12"));
        }
        assert_eq!(seen.lock().gone.len(), GONE_MAX);
    }

    #[test]
    fn what_we_deleted_does_not_come_back_by_an_older_event() {
        let seen = SeenObjects::default();
        seen.verified(metadata("u", "7"), digest());
        seen.deleted("a");
        assert_eq!(seen.watched(metadata("u", "7")), News::No);
        assert_eq!(seen.get("a"), None);
        assert_eq!(seen.watched_deletion(&metadata("u", "9")), News::No);
        assert_eq!(seen.watched(metadata("v", "10")), News::Yes);
    }

    #[test]
    fn a_foreign_deletion_is_news_and_a_late_one_is_not() {
        let seen = SeenObjects::default();
        seen.watched(metadata("u", "7"));
        seen.verified(metadata("v", "9"), digest());
        assert_eq!(seen.watched_deletion(&metadata("u", "8")), News::No);
        assert_eq!(seen.watched_deletion(&metadata("v", "10")), News::Yes);
        assert_eq!(seen.get("a"), None);
    }

    #[test]
    fn a_list_does_not_take_away_what_was_written_while_it_was_read() {
        let seen = SeenObjects::default();
        seen.list_begins();
        seen.verified(metadata("u", "7"), digest());
        assert_eq!(seen.watched_all(&BTreeSet::new()), Vec::<String>::new());
        assert!(seen.get("a").is_some());
        seen.list_begins();
        assert_eq!(seen.watched_all(&BTreeSet::new()), ["a"]);
    }

    #[test]
    fn what_was_deleted_while_a_list_was_read_does_not_come_back_by_it() {
        let seen = SeenObjects::default();
        seen.verified(metadata("u", "7"), digest());
        seen.list_begins();
        seen.deleted("a");
        assert_eq!(seen.watched(metadata("u", "7")), News::No);
        seen.watched_all(&BTreeSet::from(["a".to_owned()]));
        assert_eq!(seen.watched(metadata("u", "8")), News::No);
        assert_eq!(seen.get("a"), None);
    }

    #[test]
    fn a_full_list_tells_what_went_while_nobody_watched() {
        let seen = SeenObjects::default();
        seen.watched(metadata("u", "7"));
        assert_eq!(
            seen.watched_all(&BTreeSet::from(["a".to_owned()])),
            Vec::<String>::new()
        );
        assert_eq!(seen.watched_all(&BTreeSet::new()), ["a"]);
    }
}
