//! An index of a tenant's machine deployments, by derived name and by age. Each reconcile asks
//! which others share a derived name and whether the tenant's limit is exceeded, and must not
//! iterate over all machine deployments for that.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use kube::{
    ResourceExt,
    runtime::{reflector::Store, watcher::Event},
};
use parking_lot::RwLock;

use crate::api::{machine_deployment::MachineDeployment, names::DerivedNames};
use crate::fleet::index::Index;
use crate::plan::{
    found::created,
    validate::{NameConflict, Quota},
};

/// An index of a tenant's machine deployments.
#[derive(Debug)]
pub struct MachineDeploymentIndex {
    store: Store<MachineDeployment>,
    by_name: Index<MachineDeployment, Derived>,
    ages: RwLock<Ages>,
}

/// A derived name. Equal names of two kinds are different names. All Secrets share one namespace,
/// and are of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Derived {
    Config(String),
    Secret(String),
    Token(String),
}

impl MachineDeploymentIndex {
    /// Creates an empty index of the store's objects, with the tenant's limit.
    pub fn new(store: Store<MachineDeployment>, machine_deployments_max: usize) -> Self {
        Self {
            store,
            by_name: Index::new(|found| derived(&names(found))),
            ages: RwLock::new(Ages {
                max: machine_deployments_max,
                first: BTreeSet::new(),
                others: BTreeSet::new(),
            }),
        }
    }

    /// Applies an event that has already been applied to the store.
    pub fn follow(&self, event: &Event<MachineDeployment>) {
        let change = self.by_name.follow(event, &self.store);
        let mut ages = self.ages.write();
        for removed in &change.removed {
            ages.remove(&age(removed));
        }
        for added in &change.added {
            ages.add(age(added));
        }
    }

    /// Returns the machine deployments whose derived names overlap with these, sorted by name.
    pub fn overlapping(&self, names: &DerivedNames) -> Vec<Arc<MachineDeployment>> {
        let mut found = self.with(&derived(names));
        found.retain(|other| {
            #[cfg(test)]
            crate::fleet::index::visits::count();
            self::names(other).overlaps(names)
        });
        found
    }

    /// Returns the other machine deployments that share a derived name with this one.
    pub fn conflicts(&self, machine_deployment: &MachineDeployment) -> Vec<NameConflict> {
        let overlapping = self.overlapping(&names(machine_deployment));
        let uid = machine_deployment.uid();
        let others = overlapping.iter().filter(|other| other.uid() != uid);
        let conflicts = others.map(|other| NameConflict {
            created: created(other),
            uid: other.uid().unwrap_or_default(),
            name: format!(
                "{}/{}",
                other.namespace().unwrap_or_default(),
                other.name_any()
            ),
        });
        conflicts.collect()
    }

    /// Returns the machine deployments that a config or Secret of this name is created for, sorted
    /// by name.
    pub fn made(&self, name: &str) -> Vec<Arc<MachineDeployment>> {
        self.with(&[
            Derived::Config(name.to_owned()),
            Derived::Secret(name.to_owned()),
        ])
    }

    /// Returns the machine deployments that a token with this key is created for.
    pub fn of_token(&self, key: &str) -> Vec<Arc<MachineDeployment>> {
        self.with(&[Derived::Token(key.to_owned())])
    }

    /// Returns `Exceeded` if older machine deployments reach the tenant's limit.
    pub fn quota(&self, machine_deployment: &MachineDeployment) -> Quota {
        let ages = self.ages.read();
        if ages.others.contains(&age(machine_deployment)) {
            Quota::Exceeded
        } else {
            Quota::Within
        }
    }

    fn with(&self, keys: &[Derived]) -> Vec<Arc<MachineDeployment>> {
        let found = keys.iter().flat_map(|key| self.by_name.of(key));
        let mut found: Vec<_> = found.collect();
        found.sort_by_cached_key(|it| (it.namespace(), it.name_any()));
        found.dedup_by(|a, b| Arc::ptr_eq(a, b));
        found
    }
}

/// Returns the names of everything that is created for a machine deployment.
fn names(machine_deployment: &MachineDeployment) -> DerivedNames {
    let namespace = machine_deployment.namespace().unwrap_or_default();
    DerivedNames::new(&namespace, &machine_deployment.name_any())
}

fn derived(names: &DerivedNames) -> Vec<Derived> {
    #[cfg(test)]
    crate::fleet::index::visits::count();
    let secrets = names.secrets().map(|name| Derived::Secret(name.to_owned()));
    let mut derived = Vec::from(secrets);
    derived.extend([
        Derived::Secret(names.fetcher_token.clone()),
        Derived::Config(names.config.clone()),
        Derived::Token(names.key.clone()),
    ]);
    derived
}

/// Sorts machine deployments: by age, oldest first, then by uid.
type Age = (Timestamp, Option<String>);

fn age(machine_deployment: &MachineDeployment) -> Age {
    (created(machine_deployment), machine_deployment.uid())
}

/// The ages of all machine deployments. Those in `first` are the oldest, up to the limit.
#[derive(Debug)]
struct Ages {
    max: usize,
    first: BTreeSet<Age>,
    others: BTreeSet<Age>,
}

impl Ages {
    fn add(&mut self, age: Age) {
        self.first.insert(age);
        if self.first.len() > self.max {
            self.others.extend(self.first.pop_last());
        }
    }

    fn remove(&mut self, age: &Age) {
        if !self.others.remove(age) && self.first.remove(age) {
            self.first.extend(self.others.pop_first());
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::runtime::{reflector, watcher::Event};

    use super::*;
    use crate::api::machine_deployment::MachineDeploymentSpec;
    use crate::fleet::index::visits;

    const COUNT: usize = 10_000;
    const MAX: usize = 500;

    fn a_machine_deployment(namespace: &str, name: &str, created: i64) -> MachineDeployment {
        let mut found = MachineDeployment::new(name, MachineDeploymentSpec::default());
        found.metadata.namespace = Some(namespace.to_owned());
        found.metadata.uid = Some(format!("uid-of-{namespace}-{name}"));
        let created = Timestamp::from_second(created).expect("a time");
        found.metadata.creation_timestamp = Some(Time(created));
        found
    }

    fn an_index(
        max: usize,
    ) -> (
        MachineDeploymentIndex,
        reflector::store::Writer<MachineDeployment>,
    ) {
        let (store, writer) = reflector::store();
        (MachineDeploymentIndex::new(store, max), writer)
    }

    fn many() -> Vec<MachineDeployment> {
        (0..COUNT)
            .map(|index| {
                let created = i64::try_from(COUNT - index).expect("it is small");
                a_machine_deployment("kube-system", &format!("workers-{index}"), created)
            })
            .collect()
    }

    #[test]
    fn what_each_reconcile_asks_about_others_visits_few_of_them() {
        let (index, mut writer) = an_index(MAX);
        let all = many();
        let first = std::iter::once(Event::Init);
        let events = first.chain(all.iter().cloned().map(Event::InitApply));
        visits::take();
        for event in events.chain([Event::InitDone]) {
            writer.apply_watcher_event(&event);
            index.follow(&event);
        }
        let mut exceeded = 0;
        for found in &all {
            let names = names(found);
            assert_eq!(index.overlapping(&names).len(), 1);
            assert_eq!(index.made(&names.bootstrap).len(), 1);
            exceeded += usize::from(index.quota(found) == Quota::Exceeded);
        }
        assert_eq!(exceeded, COUNT - MAX);
        let visits = visits::take();
        assert!(visits <= 4 * COUNT, "{visits} visits of {COUNT}");
    }

    #[test]
    fn names_of_two_namespaces_overlap_whichever_is_derived_first() {
        let (index, mut writer) = an_index(MAX);
        let mut follow = |event: Event<MachineDeployment>| {
            writer.apply_watcher_event(&event);
            index.follow(&event);
        };
        let a = a_machine_deployment("kube", "system-workers", 1);
        let b = a_machine_deployment("kube-system", "workers", 2);
        follow(Event::Apply(b.clone()));
        assert_eq!(index.overlapping(&names(&a)).len(), 1, "the same token");
        follow(Event::Apply(a.clone()));
        for names in [names(&a), names(&b)] {
            assert_eq!(index.overlapping(&names).len(), 2);
        }
        let key = names(&a);
        assert_eq!(index.made(&key.kubelet_kubeconfig).len(), 2);
        assert_eq!(index.made(&key.provisioning).len(), 1);
        follow(Event::Delete(b.clone()));
        assert_eq!(index.overlapping(&names(&b)).len(), 1);
    }

    #[test]
    fn the_oldest_are_within_the_quota_whatever_comes_and_goes() {
        let (index, mut writer) = an_index(2);
        let mut follow = |event: Event<MachineDeployment>| {
            writer.apply_watcher_event(&event);
            index.follow(&event);
        };
        let all = [3, 1, 4, 2].map(|age| a_machine_deployment("n", &format!("w{age}"), age));
        for found in &all {
            follow(Event::Apply(found.clone()));
            follow(Event::Apply(found.clone()));
        }
        let within = || {
            let within = all.iter().filter(|it| index.quota(it) == Quota::Within);
            let mut names: Vec<String> = within.map(ResourceExt::name_any).collect();
            names.sort();
            names
        };
        assert_eq!(within(), ["w1", "w2"]);
        follow(Event::Delete(all[1].clone()));
        assert_eq!(index.quota(&all[0]), Quota::Within, "w3 has room now");
        assert_eq!(index.quota(&all[2]), Quota::Exceeded, "w4 has none");
        for gone in [&all[0], &all[3]] {
            follow(Event::Delete(gone.clone()));
        }
        let youngest = a_machine_deployment("n", "w5", 5);
        follow(Event::Apply(youngest.clone()));
        assert_eq!(index.quota(&youngest), Quota::Within, "beside w4 alone");
    }
}
