//! The known objects of one namespace: their metadata, and the digest of their bytes if they were
//! written or verified. A watch and our own calls update the cache, in any order.
//!
//! A watch lags behind our writes. Therefore, an older event never replaces the result of a newer
//! write, and does not bring back an object that we deleted.
//!
//! Resource versions are compared only between an event and the answer to a call, or between two
//! operations that overlap. A call or a list that begins after something was recorded is newer than
//! the record, whatever the versions: those of a cluster that is restored from a backup go back.

mod deletions;
mod stored;

use std::collections::BTreeSet;

use kube::api::ObjectMeta;
use parking_lot::Mutex;

use self::{
    deletions::Deletions,
    stored::{Packed, Stored},
};
use crate::client::memory::Reservation;
use crate::plan::digest::Digest;

/// An object as it was last seen.
#[derive(Debug, PartialEq)]
pub struct Entry {
    /// The metadata, without managed fields.
    pub metadata: ObjectMeta,
    /// The digest of the bytes; `None` until they are verified.
    pub content: Option<Digest>,
}

/// The effect of an event on the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The event is news: reconcile the object.
    Yes,
    /// The event shows our own write, or something older.
    No,
    /// There is no room for the object.
    NoRoom,
    /// The event is news, and the cluster was restored from a backup: the known version is higher
    /// than that of a list that began later.
    Restored,
}

/// A logical time that orders records and the beginnings of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogicalTime(u64);

/// The number of reported deletions that are remembered. A tenant has fewer concurrent writes.
const GONE_MAX: usize = 64;
/// The number of our own deletions that are remembered until they are reported. A tenant's budget
/// allows for fewer while a watch lags.
const TOMBSTONES_MAX: usize = 1_024;

/// The known objects of one namespace, by name.
///
/// The cache never exceeds its memory limit: an object that does not fit is unknown. A reconcile
/// that tries to create it finds that it exists.
#[derive(Debug)]
pub struct ObjectCache {
    /// Every write leaves the maps consistent, so a panic under the lock does no harm.
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    objects: Stored,
    /// The objects that we deleted, until the watch reports the deletion.
    tombstones: Deletions,
    /// The objects that the watch last reported as deleted. The answer to one of our writes may
    /// arrive after that.
    gone: Deletions,
    /// The beginning of the current list.
    list: Option<LogicalTime>,
    /// The last time that was issued.
    last: LogicalTime,
}

impl Inner {
    fn now(&mut self) -> LogicalTime {
        self.last.0 += 1;
        self.last
    }

    /// Inserts or replaces an object. Returns `false` if there is no room; then nothing is known of
    /// the object.
    fn insert(&mut self, name: &str, metadata: ObjectMeta, content: Option<Digest>) -> bool {
        let at = self.now();
        let packed = Packed::new(metadata, content, at);
        self.objects.insert(name, packed)
    }

    /// Returns true if something was recorded before the current list began.
    fn precedes_list(&self, at: LogicalTime) -> bool {
        self.list.is_some_and(|began| at < began)
    }
}

impl ObjectCache {
    /// Creates an empty cache for up to `bytes_max` bytes, charged to `reservation`.
    pub fn within(bytes_max: usize, reservation: Reservation) -> Self {
        let inner = Inner {
            objects: Stored::within(bytes_max, reservation),
            tombstones: Deletions::of_at_most(TOMBSTONES_MAX),
            gone: Deletions::of_at_most(GONE_MAX),
            list: None,
            last: LogicalTime::default(),
        };
        Self {
            inner: Mutex::new(inner),
        }
    }

    /// Returns an object, if it is known.
    pub fn get(&self, name: &str) -> Option<Entry> {
        self.inner.lock().objects.get(name).map(Packed::open)
    }

    /// Returns what `map` returns for all known objects, of which one at a time is decoded.
    pub fn map_each<T>(&self, map: impl Fn(Entry) -> Option<T>) -> Vec<T> {
        let inner = self.inner.lock();
        let all = inner.objects.iter();
        all.filter_map(|(_, it)| map(it.open())).collect()
    }

    /// Returns the number of known objects.
    pub fn len(&self) -> usize {
        self.inner.lock().objects.len()
    }

    /// Returns true if no object is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the current logical time. Take it before a call is sent.
    pub fn now(&self) -> LogicalTime {
        self.inner.lock().now()
    }

    /// Records an object that the watch reported: by an event, or while it lists every object.
    pub fn watched(&self, metadata: ObjectMeta) -> News {
        let mut inner = self.inner.lock();
        let (Some(name), Some(uid)) = (metadata.name.clone(), metadata.uid.clone()) else {
            return News::No;
        };
        if let Some(at) = inner.tombstones.at(&uid) {
            if !inner.precedes_list(at) {
                return News::No;
            }
            // A list from after the deletion contains the object: it was restored from a backup.
            inner.tombstones.remove(&uid);
        }
        let known = inner.objects.get(name.as_str());
        let news = known.map_or(News::Yes, |known| {
            let entry = known.open();
            let precedes_list = inner.precedes_list(known.at);
            if is_newer(&metadata, &entry.metadata) {
                News::Yes
            } else if !precedes_list || is_same(&metadata, &entry.metadata) {
                News::No
            } else {
                News::Restored
            }
        });
        if news == News::No || inner.insert(&name, metadata, None) {
            news
        } else {
            News::NoRoom
        }
    }

    /// Records a deletion that the watch reported.
    pub fn watched_deletion(&self, metadata: &ObjectMeta) -> News {
        let mut inner = self.inner.lock();
        let uid = metadata.uid.clone().unwrap_or_default();
        if inner.tombstones.remove(&uid) {
            return News::No;
        }
        let Some(name) = &metadata.name else {
            return News::No;
        };
        let now = inner.now();
        inner.gone.add(uid, now);
        let known = inner.objects.get(name.as_str()).map(Packed::open);
        if known.is_some_and(|entry| entry.metadata.uid != metadata.uid) {
            return News::No;
        }
        // An unknown object may be one that we are creating.
        inner.objects.remove(name.as_str());
        News::Yes
    }

    /// Records that the watch begins to list every object.
    pub fn list_begins(&self) {
        let mut inner = self.inner.lock();
        inner.list = Some(inner.now());
    }

    /// Records that the watch has listed every object. Returns the names of those that are gone.
    pub fn watched_all(&self, names: &BTreeSet<String>) -> Vec<String> {
        let mut inner = self.inner.lock();
        let began = inner.list.take().unwrap_or(LogicalTime(u64::MAX));
        inner.tombstones.forget_before(began);
        let gone: Vec<String> = inner
            .objects
            .iter()
            // The list may lack an object that was written after it began.
            .filter(|(name, known)| !names.contains(*name) && known.at < began)
            .map(|(name, _)| name.to_owned())
            .collect();
        for name in &gone {
            inner.objects.remove(name);
        }
        gone
    }

    /// Records an object that a call wrote or read, with the digest of its bytes. The call was sent
    /// after `asked`.
    pub fn verified(&self, metadata: ObjectMeta, content: Digest, asked: LogicalTime) {
        let Some(name) = metadata.name.clone() else {
            return;
        };
        let mut inner = self.inner.lock();
        let uid = metadata.uid.as_deref().unwrap_or_default();
        if inner.gone.at(uid).is_some_and(|at| at > asked) {
            return;
        }
        let known = inner.objects.get(name.as_str());
        if known.filter(|known| known.at > asked).is_some_and(|known| {
            let entry = known.open();
            entry.metadata.uid == metadata.uid && is_newer(&entry.metadata, &metadata)
        }) {
            return;
        }
        inner.insert(&name, metadata, Some(content));
    }

    /// Records that we deleted an object, or that a call did not find it.
    pub fn deleted(&self, name: &str) {
        let mut inner = self.inner.lock();
        if let Some(uid) = inner
            .objects
            .remove(name)
            .and_then(|packed| packed.open().metadata.uid)
        {
            let now = inner.now();
            inner.tombstones.add(uid, now);
        }
    }

    /// Drops all digests, because their key has changed.
    pub fn forget_contents(&self) {
        self.inner.lock().objects.forget_contents();
    }
}

/// Returns true if both describe the same state of the same object.
fn is_same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    (&one.uid, &one.resource_version) == (&other.uid, &other.resource_version)
}

/// Returns true if `new` describes a later state than `old`. Resource versions of one object are
/// numbers that grow. If one is not a number, any difference is news.
fn is_newer(new: &ObjectMeta, old: &ObjectMeta) -> bool {
    match (version(new), version(old)) {
        (Some(new), Some(old)) => new > old,
        _ => new.resource_version != old.resource_version,
    }
}

fn version(metadata: &ObjectMeta) -> Option<u128> {
    metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
impl Default for ObjectCache {
    fn default() -> Self {
        let memory = std::sync::Arc::default();
        Self::within(usize::MAX, Reservation::surplus(&memory))
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

    /// Records the answer to a call during which nothing else happened.
    fn verify(seen: &ObjectCache, uid: &str, version: &str) {
        let asked = seen.now();
        seen.verified(metadata(uid, version), digest(), asked);
    }

    fn version_of(seen: &ObjectCache) -> Option<(String, Option<Digest>)> {
        let entry = seen.get("a")?;
        Some((entry.metadata.resource_version?, entry.content))
    }

    #[test]
    fn our_own_write_is_no_news_when_the_watch_reports_it() {
        let seen = ObjectCache::default();
        verify(&seen, "u", "7");
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
        let seen = ObjectCache::default();
        verify(&seen, "u", "7");
        assert_eq!(seen.watched(metadata("u", "8")), News::Yes);
        let asked = seen.now();
        assert_eq!(seen.watched_deletion(&metadata("u", "9")), News::Yes);
        seen.verified(metadata("u", "8"), digest(), asked);
        assert_eq!(seen.get("a"), None);
        // An object that was created and deleted before we knew of its creation.
        assert_eq!(seen.watched_deletion(&metadata("v", "11")), News::Yes);
        seen.verified(metadata("v", "10"), digest(), asked);
        assert_eq!(seen.get("a"), None);
        for uid in 0..1_000 {
            seen.watched_deletion(&metadata(&uid.to_string(), "12"));
        }
        assert_eq!(seen.inner.lock().gone.len(), GONE_MAX);
    }

    #[test]
    fn a_cluster_that_never_reports_our_deletions_has_few_of_them_remembered() {
        let seen = ObjectCache::default();
        for uid in 0..10_000 {
            verify(&seen, &uid.to_string(), "7");
            seen.deleted("a");
        }
        assert_eq!(seen.inner.lock().tombstones.len(), TOMBSTONES_MAX);
        assert_eq!(seen.watched(metadata("9999", "7")), News::No);
    }

    #[test]
    fn what_we_deleted_does_not_come_back_by_an_older_event() {
        let seen = ObjectCache::default();
        verify(&seen, "u", "7");
        seen.deleted("a");
        assert_eq!(seen.watched(metadata("u", "7")), News::No);
        assert_eq!(seen.get("a"), None);
        assert_eq!(seen.watched_deletion(&metadata("u", "9")), News::No);
        assert_eq!(seen.watched(metadata("v", "10")), News::Yes);
    }

    #[test]
    fn a_foreign_deletion_is_news_and_a_late_one_is_not() {
        let seen = ObjectCache::default();
        seen.watched(metadata("u", "7"));
        verify(&seen, "v", "9");
        assert_eq!(seen.watched_deletion(&metadata("u", "8")), News::No);
        assert_eq!(seen.watched_deletion(&metadata("v", "10")), News::Yes);
        assert_eq!(seen.get("a"), None);
    }

    #[test]
    fn a_list_does_not_take_away_what_was_written_while_it_was_read() {
        let seen = ObjectCache::default();
        seen.list_begins();
        verify(&seen, "u", "7");
        assert_eq!(seen.watched_all(&BTreeSet::new()), Vec::<String>::new());
        assert!(seen.get("a").is_some());
        seen.list_begins();
        assert_eq!(seen.watched_all(&BTreeSet::new()), ["a"]);
    }

    #[test]
    fn what_was_deleted_while_a_list_was_read_does_not_come_back_by_it() {
        let seen = ObjectCache::default();
        verify(&seen, "u", "7");
        seen.list_begins();
        seen.deleted("a");
        assert_eq!(seen.watched(metadata("u", "7")), News::No);
        seen.watched_all(&BTreeSet::from(["a".to_owned()]));
        assert_eq!(seen.watched(metadata("u", "8")), News::No);
        assert_eq!(seen.get("a"), None);
    }

    #[test]
    fn a_full_list_says_what_went_while_nobody_watched() {
        let seen = ObjectCache::default();
        seen.watched(metadata("u", "7"));
        assert_eq!(
            seen.watched_all(&BTreeSet::from(["a".to_owned()])),
            Vec::<String>::new()
        );
        assert_eq!(seen.watched_all(&BTreeSet::new()), ["a"]);
    }

    #[test]
    fn the_late_answer_to_a_call_replaces_nothing_newer() {
        let seen = ObjectCache::default();
        let asked = seen.now();
        seen.watched(metadata("u", "8"));
        seen.verified(metadata("u", "7"), digest(), asked);
        assert_eq!(version_of(&seen), Some(("8".to_owned(), None)));
    }

    #[test]
    fn the_answer_to_a_call_verifies_what_the_watch_showed_first() {
        let seen = ObjectCache::default();
        let asked = seen.now();
        seen.watched(metadata("u", "7"));
        seen.verified(metadata("u", "7"), digest(), asked);
        assert_eq!(version_of(&seen), Some(("7".to_owned(), Some(digest()))));
        // Versions of two objects are not compared.
        let asked = seen.now();
        seen.watched(metadata("u", "8"));
        seen.verified(metadata("v", "7"), digest(), asked);
        assert_eq!(version_of(&seen), Some(("7".to_owned(), Some(digest()))));
    }

    #[test]
    fn digests_by_another_key_are_dropped_and_objects_are_counted() {
        let seen = ObjectCache::default();
        assert!(seen.is_empty());
        assert_eq!(seen.len(), 0);
        for name in ["a", "b"] {
            let named = ObjectMeta {
                name: Some(name.to_owned()),
                ..metadata(name, "7")
            };
            seen.verified(named, digest(), seen.now());
        }
        assert_eq!((seen.len(), seen.is_empty()), (2, false));
        seen.forget_contents();
        let contents = seen.map_each(|entry| Some(entry.content));
        assert_eq!(contents, [None, None]);
    }

    #[test]
    fn versions_that_are_no_numbers_are_news_where_they_differ() {
        let seen = ObjectCache::default();
        assert_eq!(seen.watched(metadata("u", "x")), News::Yes);
        assert_eq!(seen.watched(metadata("u", "x")), News::No);
        assert_eq!(seen.watched(metadata("u", "w")), News::Yes);
    }

    /// After a restore, every call and list shows lower versions.
    #[test]
    fn after_a_restore_a_list_and_a_call_replace_what_has_a_higher_version() {
        let seen = ObjectCache::default();
        verify(&seen, "u", "900");
        seen.list_begins();
        assert_eq!(seen.watched(metadata("u", "500")), News::Restored);
        seen.watched_all(&BTreeSet::from(["a".to_owned()]));
        assert_eq!(version_of(&seen), Some(("500".to_owned(), None)));
        seen.list_begins();
        assert_eq!(seen.watched(metadata("u", "500")), News::No);
        // An object that was written during a list is newer than the list.
        seen.list_begins();
        verify(&seen, "u", "501");
        assert_eq!(seen.watched(metadata("u", "500")), News::No);
        // After a conflict, the object is read again, and the answer is its current state.
        verify(&seen, "u", "300");
        assert_eq!(version_of(&seen), Some(("300".to_owned(), Some(digest()))));
    }

    #[test]
    fn what_a_backup_brings_back_is_seen_though_we_had_deleted_it() {
        let seen = ObjectCache::default();
        verify(&seen, "u", "7");
        seen.deleted("a");
        seen.list_begins();
        assert_eq!(seen.watched(metadata("u", "7")), News::Yes);
        seen.watched_all(&BTreeSet::from(["a".to_owned()]));
        assert!(seen.get("a").is_some());
        assert_eq!(seen.watched_deletion(&metadata("u", "8")), News::Yes);
        verify(&seen, "u", "7");
        assert!(seen.get("a").is_some(), "a call from after that found it");
    }
}
