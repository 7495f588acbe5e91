//! The handle of a cluster: what tests see and do without a request. It sets state, injects faults,
//! reads the audit and waits for conditions; all that clients do goes through a front.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use crate::{
    audit::AuditEntry,
    auth::User,
    authority::Authority,
    body,
    fault::{Fault, FaultId, Matcher},
    meta,
    state::{Options, State},
};

/// One Kubernetes cluster in memory. Clones are handles of the same cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub state: Mutex<State>,
    /// The revision of the store, sent after each write.
    pub changed: watch::Sender<u64>,
    /// The count of requests, sent after each.
    pub requested: watch::Sender<u64>,
    /// Counts the times that all watches were cut.
    pub closing: watch::Sender<u64>,
    pub authority: Authority,
}

impl Inner {
    /// A panic elsewhere must not hide what the cluster knows.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and tells the watches.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (result, revision) = {
            let mut state = self.lock();
            let result = change(&mut state);
            (result, state.store.revision())
        };
        self.changed.send_replace(revision);
        result
    }
}

/// One state in the history of an object.
#[derive(Debug, Clone)]
pub struct HistoryEntry {
    /// When it began.
    pub at: Instant,
    /// The revision of the change.
    pub revision: u64,
    /// The object, or `None` from its removal on.
    pub object: Option<Arc<Value>>,
}

/// Which object: its resource (`secrets`, or `leases.coordination.k8s.io`), namespace and name.
#[derive(Debug, Clone, Copy)]
pub struct ObjectRef<'a> {
    /// The plural name, with its group where the name alone is not clear.
    pub resource: &'a str,
    /// The namespace, "" for cluster-wide objects.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

/// Names an object.
pub const fn object<'a>(resource: &'a str, namespace: &'a str, name: &'a str) -> ObjectRef<'a> {
    ObjectRef {
        resource,
        namespace,
        name,
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new(Options::default())
    }
}

impl Cluster {
    /// A fresh cluster with its namespaces and nothing else.
    pub fn new(options: Options) -> Self {
        let authority = Authority::new(&options.name);
        let state = State::new(options, authority.ca_pem());
        let revision = state.store.revision();
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                changed: watch::Sender::new(revision),
                requested: watch::Sender::new(0),
                closing: watch::Sender::new(0),
                authority,
            }),
        }
    }

    /// The certificate authority of the cluster, as PEM.
    pub fn ca_pem(&self) -> String {
        self.inner.lock().ca_pem.clone()
    }

    /// Accepts the tokens that another cluster issues for this audience. The names of its users
    /// begin with a prefix.
    pub fn trust(&self, issuer: &Self, audience: &str, prefix: &str) {
        let issuer = issuer.inner.lock();
        let mut own = self.inner.lock();
        own.credentials
            .trust(&issuer.credentials, (audience, prefix));
    }

    /// A bearer token for a user; the same one each time.
    pub fn token(&self, user: &User) -> String {
        self.inner.lock().credentials.token_for(user)
    }

    /// Makes a token worthless; false when it was not one of [`Cluster::token`].
    pub fn revoke_token(&self, token: &str) -> bool {
        self.inner.lock().credentials.revoke(token)
    }

    /// An object as it is stored, or `None`.
    pub fn get(&self, wanted: ObjectRef<'_>) -> Option<Value> {
        let state = self.inner.lock();
        let kind = state.kind_by_resource(wanted.resource)?;
        let found = state
            .store
            .find(&kind.storage, wanted.namespace, wanted.name)?;
        Some(Value::clone(&body::from_storage(&kind, found)))
    }

    /// All objects of a resource, over all namespaces.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        let state = self.inner.lock();
        let Some(kind) = state.kind_by_resource(resource) else {
            return Vec::new();
        };
        state
            .store
            .all(&kind.storage)
            .map(|(_, object)| Value::clone(&body::from_storage(&kind, object)))
            .collect()
    }

    /// Stores an object without asking any rule, and returns it with its new resourceVersion. A
    /// missing UID and creation time are filled in, and what a custom kind has by default. `None`
    /// when its kind is not served.
    pub fn put_raw(&self, mut value: Value) -> Option<Value> {
        self.inner.change(|state| {
            let (api_version, kind) = (
                meta::text(&value, "/apiVersion"),
                meta::text(&value, "/kind"),
            );
            let kind = state.kind_named(api_version, kind)?;
            let key = (
                meta::namespace(&value).to_owned(),
                meta::name(&value).to_owned(),
            );
            let old = state.store.get(&kind.storage, &key).cloned();
            let uid = old
                .as_ref()
                .map(|old| meta::text(old, "/metadata/uid").to_owned());
            for (field, fresh) in [
                ("uid", uid.unwrap_or_else(|| state.new_uid())),
                ("creationTimestamp", state.now()),
            ] {
                if meta::text(&value, &format!("/metadata/{field}")).is_empty() {
                    meta::set_metadata(&mut value, field, Value::String(fresh));
                }
            }
            if let Some(custom) = &kind.custom {
                crate::schema::default(&mut value, &custom.schema);
            }
            body::to_storage(&kind, &mut value);
            let stored = state.store.put(&kind.storage, key, value);
            state.after_write(&kind, &stored);
            Some(Value::clone(&body::from_storage(&kind, &stored)))
        })
    }

    /// Removes an object without regard to finalizers; false when it was not there.
    pub fn delete_raw(&self, wanted: ObjectRef<'_>) -> bool {
        self.inner.change(|state| {
            let Some(kind) = state.kind_by_resource(wanted.resource) else {
                return false;
            };
            let key = (wanted.namespace.to_owned(), wanted.name.to_owned());
            state.remove(&kind, &key).is_some()
        })
    }

    /// The states of an object, oldest first, as far as the log goes back.
    pub fn history(&self, wanted: ObjectRef<'_>) -> Vec<HistoryEntry> {
        let state = self.inner.lock();
        let Some(kind) = state.kind_by_resource(wanted.resource) else {
            return Vec::new();
        };
        state
            .store
            .log()
            .filter(|change| change.storage == kind.storage)
            .filter(|change| change.key.0 == wanted.namespace && change.key.1 == wanted.name)
            .map(|change| HistoryEntry {
                at: change.at,
                revision: change.revision,
                object: (!change.deleted).then(|| Arc::clone(&change.object)),
            })
            .collect()
    }

    /// The names of all resources that have objects or are served, with their groups.
    pub fn resources(&self) -> BTreeSet<String> {
        self.inner
            .lock()
            .kinds()
            .map(|kind| kind.qualified())
            .collect()
    }

    /// The current revision: the resourceVersion of the last write.
    pub fn revision(&self) -> u64 {
        self.inner.lock().store.revision()
    }

    /// Forgets old revisions: resuming a watch or a list from before now answers 410.
    pub fn compact(&self) {
        self.inner.lock().store.compact();
    }

    /// Lets the revision grow as writes to other objects would.
    pub fn skip_revisions(&self, count: u64) {
        self.inner.change(|state| state.store.skip_revisions(count));
    }

    /// Cuts all open watches at once.
    pub fn close_watches(&self) {
        self.inner.closing.send_modify(|count| *count += 1);
    }

    /// How many watches are open.
    pub fn open_watches(&self) -> usize {
        self.inner.closing.receiver_count()
    }

    /// Injects a fault that stays until it is cleared.
    pub fn inject(&self, matcher: Matcher, fault: Fault) -> FaultId {
        self.inner.lock().faults.inject(matcher, fault, None)
    }

    /// Injects a fault that hits a number of times.
    pub fn inject_times(&self, matcher: Matcher, fault: Fault, times: u64) -> FaultId {
        self.inner.lock().faults.inject(matcher, fault, Some(times))
    }

    /// Ends one fault.
    pub fn clear_fault(&self, id: FaultId) {
        self.inner.lock().faults.clear(id);
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.inner.lock().faults.clear_all();
    }

    /// The requests so far, oldest first.
    pub fn audit(&self) -> Vec<AuditEntry> {
        self.inner.lock().audit.entries()
    }

    /// The requests that created, changed or removed an object.
    pub fn writes(&self) -> Vec<AuditEntry> {
        self.audit()
            .into_iter()
            .filter(|entry| entry.wrote)
            .collect()
    }

    /// How many of the requests so far are of some kind.
    pub fn count_requests(&self, is_one: impl Fn(&AuditEntry) -> bool) -> usize {
        self.inner.lock().audit.count(is_one)
    }

    /// The requests so far, oldest first. They are forgotten then: none is told twice or lost.
    pub fn take_audit(&self) -> Vec<AuditEntry> {
        self.inner.lock().audit.take()
    }

    /// Forgets the requests so far; their numbers go on.
    pub fn clear_audit(&self) {
        self.inner.lock().audit.clear();
    }

    /// Waits until a condition holds. It is looked at after every write and every request, never by
    /// the clock; put a `tokio::time::timeout` around it.
    pub async fn wait_until(&self, mut condition: impl FnMut(&Self) -> bool) {
        let (mut changed, mut requested) = (
            self.inner.changed.subscribe(),
            self.inner.requested.subscribe(),
        );
        while !condition(self) {
            // The senders live as long as this handle, so an error cannot happen.
            let _ = futures::future::select(
                std::pin::pin!(changed.changed()),
                std::pin::pin!(requested.changed()),
            )
            .await;
        }
    }
}
