//! What must hold at every moment, seen from the clusters: their audits, the bytes on the wire, and
//! the history of each object.

use std::time::Duration;

use fake_cluster::{Cluster, HistoryEntry, Verb, object};
use http::Method;
use osm::api::names::{CLOUD_INIT_SETTINGS, INPUTS, MADE_FOR_REVISION};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    history::MACHINES,
    model::{FOREIGN, Model, machine_name, made_names},
    wire::Sent,
};

/// Fails by saying what was seen.
pub type Held = Result<(), String>;

/// Whether somebody else than the manager made a state of an object.
type Foreign<'a> = dyn Fn(&HistoryEntry) -> bool + 'a;

/// What the requests since the last look tell; they are forgotten.
pub fn requests(model: &mut Model) -> Held {
    let replica = &model.world.settings.replica;
    let settings = &model.world.settings;
    let lasts = replica
        .lease_duration
        .saturating_sub(settings.request_timeout);
    for life in model.before.drain(..).chain([model.life.clone()]) {
        for sent in life.sent() {
            precondition(&sent)?;
            fence(&sent, lasts)?;
        }
        life.forget();
    }
    for (cluster, handle) in model.world.clusters() {
        for entry in handle.writes() {
            let owner = if cluster == "management" {
                entry.target.namespace.as_str()
            } else {
                cluster
            };
            let name = &entry.target.name;
            let is_config = entry.target.resource == "operatingsystemconfigs";
            let is_document = entry.target.namespace == CLOUD_INIT_SETTINGS
                && entry.target.resource == "secrets"
                && !name.starts_with("cloud-init-getter");
            if (is_config || is_document) && entry.verb != Verb::Create && !name.contains(owner) {
                return Err(format!("{cluster}: a write to another tenant's {name}"));
            }
        }
        handle.clear_audit();
    }
    Ok(())
}

/// What is changed or deleted is the object that was seen, as it was seen.
fn precondition(sent: &Sent) -> Held {
    let wanted: &[&str] = match sent.method {
        Method::DELETE => &["/preconditions/uid"],
        Method::PUT => &["/metadata/resourceVersion", "/metadata/uid"],
        _ => &[],
    };
    let is_missing = |pointer: &&&str| !sent.body.pointer(pointer).is_some_and(Value::is_string);
    match wanted.iter().find(is_missing) {
        Some(missing) => Err(format!(
            "a {} without {missing}: {}",
            sent.method, sent.path
        )),
        None => Ok(()),
    }
}

/// Nothing is written later than one request timeout before the end of the replica's Lease.
fn fence(sent: &Sent, lasts: Duration) -> Held {
    let is_held = sent.leased.is_some_and(|leased| sent.at <= leased + lasts);
    if sent.method == Method::GET || sent.stores_nothing || is_held {
        return Ok(());
    }
    let since = sent.leased.map(|leased| sent.at.duration_since(leased));
    Err(format!(
        "written behind a closed fence: {}, {since:?}",
        sent.line()
    ))
}

/// What the histories of all objects tell.
pub fn histories(model: &Model) -> Held {
    for (tenant, inputs) in model.tenants.iter().zip(&model.inputs) {
        let worker = model.world.worker(tenant.name);
        for number in 0..MACHINES {
            let name = machine_name(tenant.name, number);
            let names = made_names(tenant.name, number);
            let machine = worker.history(object("machinedeployments", "kube-system", &name));
            let told = |held: Held| held.map_err(|problem| format!("{name}: {problem}"));
            let is_foreign = |entry: &HistoryEntry| {
                let key = (tenant.name.to_owned(), entry.revision);
                model.foreign.contains(&key)
            };
            told(foreign_finalizers(&machine, &is_foreign))?;
            let secret = |name: &str| worker.history(object("secrets", CLOUD_INIT_SETTINGS, name));
            let kubeconfig = secret(&names.kubelet_kubeconfig);
            told(kubelet_kubeconfig(&kubeconfig, &machine, &is_foreign))?;
            let documents = Documents {
                bootstrap: secret(&names.bootstrap),
                provisioning: secret(&names.provisioning),
                went_back: inputs.went_back,
            };
            told(documents.check(&is_foreign))?;
            told(unchanged(
                &documents.provisioning,
                (&inputs.provisioning, &is_foreign),
            ))?;
            told(unchanged(
                &documents.bootstrap,
                (&inputs.bootstrap, &is_foreign),
            ))?;
        }
        told_apart(worker, tenant.name)?;
    }
    Ok(())
}

/// A document has other bytes than the last one that we wrote only where somebody has changed what
/// stands in it: each such change is the reason of one other document at most.
fn unchanged(document: &[HistoryEntry], (inputs, is_foreign): (&[Instant], &Foreign<'_>)) -> Held {
    let mut before: Option<&Value> = None;
    let mut changes = 0;
    for entry in document.iter().filter(|entry| !is_foreign(entry)) {
        let Some(found) = entry.object.as_deref() else {
            continue;
        };
        let bytes = &found["data"];
        changes += usize::from(before.is_some_and(|before| before != bytes));
        before = Some(bytes);
        let reasons = inputs.iter().filter(|changed| **changed <= entry.at);
        let reasons = reasons.count();
        if changes > reasons {
            let name = &found["metadata"]["name"];
            let text = crate::snapshot::decoded(found, "cloud-config");
            return Err(format!(
                "{name} was written with other bytes {changes} times, for {reasons} changes of \
                 its inputs: {text}"
            ));
        }
    }
    Ok(())
}

/// Nothing of another tenant stands in a cluster.
fn told_apart(worker: &Cluster, tenant: &str) -> Held {
    for secret in worker.objects("secrets") {
        let document = crate::snapshot::decoded(&secret, "cloud-config");
        let mut lines = document.lines().filter(|line| line.contains("text "));
        if let Some(foreign) = lines.find(|line| !line.contains(&format!(" of {tenant}"))) {
            return Err(format!("{tenant} has {foreign}"));
        }
    }
    Ok(())
}

fn foreign_finalizers(
    machine: &[HistoryEntry],
    is_foreign: &dyn Fn(&HistoryEntry) -> bool,
) -> Held {
    let has = |entry: &HistoryEntry| {
        let found = entry.object.as_deref()?;
        let finalizers = found["metadata"]["finalizers"].as_array()?;
        finalizers.contains(&json!(FOREIGN)).then_some(())
    };
    for pair in machine.windows(2) {
        if has(&pair[0]).is_some() && has(&pair[1]).is_none() && !is_foreign(&pair[1]) {
            return Err("a foreign finalizer was taken away".to_owned());
        }
    }
    Ok(())
}

/// The state of an object at a revision.
fn at(history: &[HistoryEntry], revision: u64) -> Option<&Value> {
    let until = history
        .iter()
        .take_while(|entry| entry.revision <= revision);
    until.last()?.object.as_deref()
}

/// The manager deletes it only once its machine deployment is deleted or gone.
fn kubelet_kubeconfig(
    history: &[HistoryEntry],
    machine: &[HistoryEntry],
    is_foreign: &dyn Fn(&HistoryEntry) -> bool,
) -> Held {
    for entry in history {
        if entry.object.is_some() || is_foreign(entry) {
            continue;
        }
        let owner = at(machine, entry.revision);
        if owner.is_some_and(|owner| owner["metadata"]["deletionTimestamp"].is_null()) {
            return Err("the kubelet's kubeconfig was deleted beside a living owner".to_owned());
        }
    }
    Ok(())
}

/// The two documents of a machine deployment.
struct Documents {
    bootstrap: Vec<HistoryEntry>,
    provisioning: Vec<HistoryEntry>,
    went_back: Option<(u64, Instant, Duration)>,
}

impl Documents {
    /// A machine that finds a bootstrap document finds, at that moment or later, a provisioning
    /// document that is not older, unless a restoration took it away or brought back another, and
    /// no list has shown that.
    fn check(&self, is_foreign: &dyn Fn(&HistoryEntry) -> bool) -> Held {
        for entry in &self.bootstrap {
            let Some(bootstrap) = entry.object.as_deref() else {
                continue;
            };
            if is_foreign(entry) {
                continue;
            }
            let provisioning = at(&self.provisioning, entry.revision);
            let was_foreign = self
                .provisioning
                .iter()
                .rev()
                .find(|found| found.revision <= entry.revision)
                .is_some_and(is_foreign);
            let is_unseen = match provisioning {
                Some(provisioning) => self.is_unseen(provisioning, entry.at),
                None => self.went_back_before(entry.at),
            };
            if was_foreign || is_unseen {
                continue;
            }
            for key in [INPUTS, MADE_FOR_REVISION] {
                let of = |object: &Value| object["metadata"]["annotations"][key].clone();
                let found = provisioning.map(of);
                if found.as_ref() != Some(&of(bootstrap)) {
                    let wanted = of(bootstrap);
                    return Err(format!(
                        "a bootstrap document became current, {wanted}, beside {found:?} ({key})"
                    ));
                }
            }
        }
        self.replaced(is_foreign)
    }

    /// Other bytes of the provisioning document are written while there is no bootstrap document,
    /// or one of the same revision, or one that a restoration brought back and no watch has shown.
    fn replaced(&self, is_foreign: &dyn Fn(&HistoryEntry) -> bool) -> Held {
        let mut before: Option<&Value> = None;
        for entry in &self.provisioning {
            let Some(found) = entry.object.as_deref() else {
                continue;
            };
            let bytes = |object: &Value| object["data"].clone();
            let is_other = before.is_some_and(|before| bytes(before) != bytes(found));
            before = Some(found);
            let Some(bootstrap) = at(&self.bootstrap, entry.revision) else {
                continue;
            };
            let of = |object: &Value| object["metadata"]["annotations"][MADE_FOR_REVISION].clone();
            let is_excused = is_foreign(entry) || self.is_unseen(bootstrap, entry.at);
            if is_other && !is_excused && of(bootstrap) != of(found) {
                return Err("provisioning changed under an old bootstrap document".to_owned());
            }
        }
        Ok(())
    }

    /// Whether an object was there before the cluster went back, and no list has shown it since.
    fn is_unseen(&self, object: &Value, now: Instant) -> bool {
        let version = object["metadata"]["resourceVersion"].as_str();
        let version: Option<u64> = version.and_then(|version| version.parse().ok());
        let is_of_before = |(revision, _, _)| version.is_some_and(|version| version <= revision);
        self.went_back.is_some_and(is_of_before) && self.went_back_before(now)
    }

    /// Whether the cluster went back so short a time ago that the manager may not know it.
    fn went_back_before(&self, now: Instant) -> bool {
        self.went_back
            .is_some_and(|(_, at, unseen_for)| (at..=at + unseen_for).contains(&now))
    }
}
