//! Decides which profiles there is room for, and reads profiles again when room becomes free.

use std::{collections::BTreeSet, future::pending, sync::Arc, time::Duration};

use kube::{Api, Client, core::DeserializeGuard};
use tokio::time::sleep;

use super::{Aged, Inner, Key, ProfileStore, notify};
use crate::api::profile::OperatingSystemProfile;
use crate::client::{
    memory::{Memory, Reservation},
    recurring::Recurring,
    retry_delay::RetryDelay,
};
use crate::controllers::{
    profile_quota::{Ledger, Moves},
    subscriptions::Subscriptions,
};
use crate::plan::default_profile::DefaultProfile;
use crate::plan::invalid::Shortage;
use crate::telemetry::chain::chain;
use crate::tenant::{id::TenantId, policies::TenantPolicies, policy::ProfileQuota};

/// How long profiles without memory wait before the next attempt.
pub(super) const MEMORY_RETRY: Duration = Duration::from_mins(1);

/// The limits of the store.
#[derive(Clone, Debug, Default)]
pub struct Quotas {
    /// The policies of tenants by namespace, for tenants that are not engaged yet.
    pub policies: Arc<TenantPolicies>,
    /// The names of default profiles, which always have room.
    pub defaults: BTreeSet<String>,
    /// The memory that tenants share.
    pub memory: Arc<Memory>,
    /// The only namespace that is guaranteed memory, if others of its cluster belong to nobody.
    pub home: Option<Arc<str>>,
}

impl Quotas {
    /// Creates the limits of a store of several tenants.
    pub fn new(
        policies: Arc<TenantPolicies>,
        defaults: &[DefaultProfile],
        memory: Arc<Memory>,
    ) -> Self {
        Self {
            policies,
            defaults: defaults.iter().map(|it| it.name.clone()).collect(),
            memory,
            home: None,
        }
    }

    /// Returns true if a namespace is guaranteed memory, and its default profiles have room.
    fn is_home(&self, namespace: &str) -> bool {
        self.home.as_deref().is_none_or(|home| home == namespace)
    }

    /// Returns true if a profile has room in any case.
    pub(super) fn has_room(&self, (namespace, name): &Key) -> bool {
        self.defaults.contains(name) && self.is_home(namespace)
    }
}

impl Inner {
    fn is_short_of_memory(&self) -> bool {
        self.ledgers.values().any(Ledger::is_short_of_memory)
    }

    /// Drops the profiles that no longer have room, and requests the content of those that have
    /// room now. Returns the names of the profiles whose content changes.
    pub(super) fn moved(&mut self, namespace: &str, moves: Moves) -> BTreeSet<String> {
        let key = |name| (namespace.to_owned(), name);
        let mut changed = BTreeSet::new();
        for evicted in moves.evicted {
            tracing::warn!(namespace, name = evicted, "a profile exceeds its quota");
            let evicted = key(evicted);
            self.wanted.remove(&evicted);
            changed.extend(self.put(&evicted, None));
        }
        self.wanted.extend(moves.admitted.into_iter().map(key));
        changed
    }

    /// Before the table grows, removes the senders without subscribers.
    pub(super) fn make_room_for_senders(&mut self) {
        if self.senders.len() == self.senders.capacity() {
            self.senders.retain(|_, sender| sender.receiver_count() > 0);
        }
    }

    /// Before the table grows, removes the ledgers that are equal to new ones.
    fn make_room_for_ledgers(&mut self, policies: &TenantPolicies) {
        if self.ledgers.len() == self.ledgers.capacity() {
            let quota = |namespace: &str| {
                let policy = policies.of_unlabelled(&TenantId::new(namespace));
                policy.profiles
            };
            self.ledgers
                .retain(|namespace, ledger| !ledger.is_fresh(quota(namespace)));
        }
    }
}

impl ProfileStore {
    /// Returns what a profile is short of. Returns `None` if it has room, or does not exist.
    pub fn shortage(&self, namespace: &str, name: &str) -> Option<Shortage> {
        let inner = self.inner.read();
        inner.ledgers.get(namespace)?.shortage(name)
    }

    /// Changes the quota of a namespace. Returns the names of the profiles whose content changes.
    pub fn resize(&self, namespace: &str, quota: ProfileQuota) -> BTreeSet<String> {
        let mut inner = self.inner.write();
        let moves = self.ledger(&mut inner, namespace).resize(quota);
        let changed = inner.moved(namespace, moves);
        self.wanted.notify_one();
        changed
    }

    /// Inserts the content of a wanted profile, if it is still wanted. Returns the names of the
    /// profiles whose content changes.
    pub(super) fn insert_wanted(
        &self,
        key: &Key,
        content: impl FnOnce() -> Aged,
    ) -> BTreeSet<String> {
        let is_wanted = {
            let inner = self.inner.read();
            let ledger = inner.ledgers.get(&key.0);
            let is_kept = ledger.is_some_and(|ledger| ledger.keeps(&key.1));
            is_kept && !inner.profiles.contains_key(key)
        };
        if is_wanted {
            self.insert(key, content())
        } else {
            BTreeSet::new()
        }
    }

    pub(super) fn ledger<'a>(&self, inner: &'a mut Inner, namespace: &str) -> &'a mut Ledger {
        inner.make_room_for_ledgers(&self.quotas.policies);
        let ledger = inner.ledgers.entry(namespace.to_owned());
        ledger.or_insert_with(|| {
            let policy = self
                .quotas
                .policies
                .of_unlabelled(&TenantId::new(namespace));
            let memory = &self.quotas.memory;
            let reservation = if self.quotas.is_home(namespace) {
                Reservation::guaranteed(memory)
            } else {
                Reservation::surplus(memory)
            };
            Ledger::new(policy.profiles, reservation)
        })
    }

    /// Waits until contents are wanted, and takes their keys.
    pub(super) async fn wanted(&self) -> BTreeSet<Key> {
        loop {
            let (wanted, is_short) = {
                let mut inner = self.inner.write();
                (
                    std::mem::take(&mut inner.wanted),
                    inner.is_short_of_memory(),
                )
            };
            if !wanted.is_empty() {
                return wanted;
            }
            // Released memory is not announced.
            let retry = async {
                if is_short {
                    sleep(MEMORY_RETRY).await;
                } else {
                    pending::<()>().await;
                }
            };
            tokio::select! {
                () = self.wanted.notified() => {}
                () = retry => self.settle_all(),
            }
        }
    }

    /// Admits the profiles that there is memory for now.
    fn settle_all(&self) {
        let mut inner = self.inner.write();
        let short = inner.ledgers.iter_mut();
        let short = short.filter(|(_, ledger)| ledger.is_short_of_memory());
        let moved: Vec<_> = short.map(|it| (it.0.clone(), it.1.settle())).collect();
        for (namespace, moves) in moved {
            inner.moved(&namespace, moves);
        }
    }

    fn want(&self, key: Key) {
        let mut inner = self.inner.write();
        inner.wanted.insert(key);
    }
}

/// Reads profiles that had no room when they were seen and have room now, until cancelled.
pub(super) async fn fetch_wanted(
    client: Client,
    store: &ProfileStore,
    subscriptions: &Subscriptions,
) {
    let (mut delay, mut failure) = (RetryDelay::default(), Recurring::default());
    loop {
        for key in store.wanted().await {
            let profiles: Api<DeserializeGuard<OperatingSystemProfile>> =
                Api::namespaced(client.clone(), &key.0);
            let found = profiles.get_opt(&key.1).await;
            // The watch reports one that cannot be decoded.
            match found.map(|found| found.and_then(|it| it.0.ok())) {
                Ok(Some(profile)) => {
                    delay = RetryDelay::default();
                    notify(
                        subscriptions,
                        &key,
                        &store.insert_wanted(&key, || store.aged(profile)),
                    );
                }
                Ok(None) => {}
                Err(error) => {
                    let cause = chain(&error).to_string();
                    if failure.is_news(&cause) {
                        let (namespace, name) = &key;
                        tracing::warn!(namespace, name, error = cause, "cannot read a profile");
                    }
                    store.want(key);
                    tokio::time::sleep(delay.next().unwrap_or_default()).await;
                }
            }
        }
    }
}
