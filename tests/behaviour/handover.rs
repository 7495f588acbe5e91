//! The hand-over between two replicas, told by the Leases themselves: every state of them, in the
//! order in which the API server took them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use osm::api::names::{FLEET_LABEL, VIEW};
use osm::fleet::sharding::{Holder, View, shard::Shard};
use osm::tenant::id::TenantId;
use tokio::task::JoinSet;

use crate::audit::{Request, told};

/// A Lease as it was at some time.
#[derive(Clone, Debug)]
pub struct Seen {
    name: String,
    holder: Option<Holder>,
    view: String,
    /// When its holder sent this, by its own word.
    renewed: Timestamp,
}

/// Follows the Leases of a fleet until it is dropped.
pub struct Recorder {
    seen: Arc<Mutex<Vec<Seen>>>,
    _task: JoinSet<()>,
}

impl Recorder {
    /// Begins with what is there.
    pub fn start(admin: Client, namespace: &str, fleet: &str) -> Self {
        let leases: Api<Lease> = Api::namespaced(admin, namespace);
        let config = watcher::Config::default().labels(&format!("{FLEET_LABEL}={fleet}"));
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let log = Arc::clone(&seen);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut events = watcher(leases, config).boxed();
            while let Some(event) = events.next().await {
                let Ok(Event::InitApply(lease) | Event::Apply(lease)) = event else {
                    continue;
                };
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.extend(of_lease(&lease));
            }
        });
        Self { seen, _task: task }
    }

    /// Everything so far.
    pub fn log(&self) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }
}

fn of_lease(lease: &Lease) -> Option<Seen> {
    let spec = lease.spec.clone()?;
    Some(Seen {
        name: lease.name_any(),
        holder: spec
            .holder_identity
            .filter(|it| !it.is_empty())
            .map(|it| Holder::parse(&it)),
        view: lease.annotations().get(VIEW).cloned().unwrap_or_default(),
        renewed: spec.renew_time?.0,
    })
}

/// What there would be to see if nobody ever published a set or gave a Lease up, but for signs of
/// life: with this alone no tenant moves.
pub fn renewals(log: &[Seen]) -> Vec<Seen> {
    let mut first: BTreeMap<String, Seen> = BTreeMap::new();
    let held = log.iter().filter(|it| it.holder.is_some());
    held.map(|it| {
        let first = first.entry(it.name.clone()).or_insert_with(|| it.clone());
        Seen {
            renewed: it.renewed,
            ..first.clone()
        }
    })
    .collect()
}

/// Who wrote for a tenant, one after the other. Between two of them the elder must have published a
/// set in which the tenant is another's, or have given its Lease up, or have lost it after it was
/// not heard of for its duration.
pub fn writers(
    (fleet, tenant): (&str, &TenantId),
    writes: &[Request],
    log: &[Seen],
    duration: Duration,
) -> Result<Vec<String>, String> {
    let mut replicas: Vec<String> = writes.first().map(replica).into_iter().collect();
    for pair in writes.windows(2) {
        let [before, after] = pair else { continue };
        let (elder, younger) = (replica(before), replica(after));
        if elder == younger {
            continue;
        }
        let between = Between {
            lease: format!("{fleet}-{elder}"),
            elder: &elder,
            tenant,
            from: before.received,
            to: after.received,
            duration,
        };
        if !between.is_handed_over(log) {
            return Err(format!(
                "{elder} did not hand over to {younger} from {} to {}:\n{}{log:#?}",
                before.received,
                after.received,
                told(writes)
            ));
        }
        replicas.push(younger);
    }
    Ok(replicas)
}

/// Two writes of two replicas, and what must lie between.
struct Between<'a> {
    lease: String,
    elder: &'a str,
    tenant: &'a TenantId,
    from: Timestamp,
    to: Timestamp,
    duration: Duration,
}

impl Between<'_> {
    fn is_handed_over(&self, log: &[Seen]) -> bool {
        let everybody: BTreeSet<&Holder> = log.iter().filter_map(|it| it.holder.as_ref()).collect();
        let mut last: Option<&Seen> = None;
        for seen in log.iter().filter(|it| it.name == self.lease) {
            let before = last.replace(seen);
            let is_between = self.from <= seen.renewed && seen.renewed <= self.to;
            let is_taken = seen.holder.is_none()
                && before.is_some_and(|before| before.renewed == seen.renewed);
            let handed_over = match &seen.holder {
                _ if is_taken => {
                    self.to.duration_since(seen.renewed).unsigned_abs() >= self.duration
                }
                None => is_between,
                Some(_) => {
                    let is_news = before.is_none_or(|before| before.view != seen.view);
                    is_between && is_news && self.is_anothers(&everybody, &seen.view)
                }
            };
            if handed_over {
                return true;
            }
        }
        false
    }

    /// Whether a published set, told by its digest, gives the tenant to somebody else.
    fn is_anothers(&self, everybody: &BTreeSet<&Holder>, digest: &str) -> bool {
        let sets = (0_u32..1 << everybody.len()).map(|bits| {
            let is_in = |(index, _): &(usize, &&Holder)| bits & (1 << index) != 0;
            let members = everybody.iter().enumerate().filter(is_in);
            View(members.map(|(_, holder)| (*holder).clone()).collect())
        });
        let mut found = sets.filter(|view| view.digest() == digest);
        found.next().is_some_and(|view| {
            let mut grant = Shard::nothing(self.elder);
            grant.settle(&view);
            !grant.covers(self.tenant)
        })
    }
}

/// The replica that sent a request.
pub fn replica(request: &Request) -> String {
    let agent = request.user_agent.split_once('(');
    let agent = agent.and_then(|(_, rest)| rest.strip_suffix(')'));
    agent.expect("a replica tells its name").to_owned()
}
