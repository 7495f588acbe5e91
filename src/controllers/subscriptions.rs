//! Routes the events of the management cluster. The watches there serve the whole fleet, and each
//! event goes to the tenants that it concerns.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
};

use kube::api::ObjectMeta;
use parking_lot::Mutex;

use super::object_cache::{News, ObjectCache};
use crate::client::watch::covers;
use crate::controllers::queue::triggers::{Affected, TriggerRouter};

/// A tenant that subscribes to events.
#[derive(Clone, Debug)]
pub struct Subscriber {
    /// The tenant's triggers.
    pub triggers: Arc<TriggerRouter>,
    /// The tenant's configs.
    pub configs: Arc<ObjectCache>,
}

/// Subscribers by namespace. A subscription ends when its tenant is dropped.
#[derive(Debug, Default)]
pub struct Subscriptions {
    by_namespace: Mutex<HashMap<String, Vec<Weak<Subscriber>>>>,
    everywhere: Mutex<Vec<Weak<Subscriber>>>,
}

impl Subscriptions {
    /// Subscribes to the events of a namespace, until the subscriber is dropped.
    pub fn subscribe(&self, namespace: &str, subscriber: &Arc<Subscriber>) {
        let mut by_namespace = self.by_namespace.lock();
        if by_namespace.len() == by_namespace.capacity() {
            // Before the table grows, dropped subscribers are removed.
            by_namespace.retain(|_, known| known.iter().any(|known| known.strong_count() > 0));
        }
        let of_namespace = by_namespace.entry(namespace.to_owned()).or_default();
        of_namespace.retain(|known| known.strong_count() > 0);
        of_namespace.push(Arc::downgrade(subscriber));
    }

    /// Subscribes to the profiles of all namespaces, until the subscriber is dropped.
    pub fn subscribe_everywhere(&self, subscriber: &Arc<Subscriber>) {
        let mut everywhere = self.everywhere.lock();
        everywhere.retain(|known| known.strong_count() > 0);
        everywhere.push(Arc::downgrade(subscriber));
    }

    /// Enqueues a trigger for a profile that changed.
    pub fn profile_changed(&self, namespace: &str, name: &str) {
        let everywhere: Vec<_> = self
            .everywhere
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for subscriber in self.of(namespace).into_iter().chain(everywhere) {
            subscriber.triggers.enqueue(Affected::Profile {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            });
        }
    }

    /// Records a config that changed, and enqueues a trigger if that is news.
    pub fn config_changed(&self, metadata: &ObjectMeta) {
        self.config_event(metadata, |configs| configs.watched(metadata.clone()));
    }

    /// Records a config that was deleted, and enqueues a trigger if that is news.
    pub fn config_deleted(&self, metadata: &ObjectMeta) {
        self.config_event(metadata, |configs| configs.watched_deletion(metadata));
    }

    /// Records that a list of every config begins, in one namespace or in all.
    pub fn configs_list_begins(&self, limit: Option<&String>) {
        for (namespace, subscriber) in self.all() {
            if covers(limit, &namespace) {
                subscriber.configs.list_begins();
            }
        }
    }

    /// Records that every config was listed, in one namespace or in all. Enqueues those that are
    /// gone.
    pub fn configs_listed(
        &self,
        limit: Option<&String>,
        listed: &HashMap<String, BTreeSet<String>>,
    ) {
        let none = BTreeSet::new();
        let covered = self
            .all()
            .into_iter()
            .filter(|(namespace, _)| covers(limit, namespace));
        for (namespace, subscriber) in covered {
            let names = listed.get(&namespace).unwrap_or(&none);
            for gone in subscriber.configs.watched_all(names) {
                subscriber.triggers.enqueue(Affected::Made(gone));
            }
        }
    }

    fn config_event(&self, metadata: &ObjectMeta, update: impl Fn(&ObjectCache) -> News) {
        let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else {
            return;
        };
        for subscriber in self.of(namespace) {
            if matches!(update(&subscriber.configs), News::Yes | News::Restored) {
                subscriber.triggers.enqueue(Affected::Made(name.clone()));
            }
        }
    }

    fn of(&self, namespace: &str) -> Vec<Arc<Subscriber>> {
        let by_namespace = self.by_namespace.lock();
        by_namespace
            .get(namespace)
            .into_iter()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect()
    }

    fn all(&self) -> Vec<(String, Arc<Subscriber>)> {
        let by_namespace = self.by_namespace.lock();
        let living = by_namespace.iter().flat_map(|(namespace, subscribers)| {
            subscribers
                .iter()
                .filter_map(|known| Some((namespace.clone(), known.upgrade()?)))
        });
        living.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_have_left_are_not_kept() {
        let subscriptions = Subscriptions::default();
        let subscriber = || {
            Arc::new(Subscriber {
                triggers: Arc::default(),
                configs: Arc::default(),
            })
        };
        let stays = subscriber();
        subscriptions.subscribe("stays", &stays);
        for round in 0..1000 {
            subscriptions.subscribe(&format!("n{round}"), &subscriber());
        }
        let by_namespace = subscriptions.by_namespace.lock();
        assert!(by_namespace.len() < 8, "{}", by_namespace.len());
        assert!(by_namespace.contains_key("stays"));
    }
}
