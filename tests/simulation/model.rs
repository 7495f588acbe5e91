//! A world with what was last asked of it, and the hands of everybody but the manager.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use fake_cluster::{Cluster, Fault, Matcher, ObjectRef, Verb, object};
use osm::api::names::DerivedNames;
use serde_json::{Value, json};

use crate::{
    fixtures,
    history::{Finalizer, History, MACHINES, Step, Trouble, Where, Which},
    inputs::{Inputs, cluster_info},
    links::bind_bootstrapper,
    restores::{Backups, suspend},
    wire::{Blow, Counted, Life, Strike},
    world::{Process, World, account, put},
};

/// The finalizer of somebody else.
pub const FOREIGN: &str = "example.com/keep";

static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let names = (0..40).map(|number| format!("t{number:02}"));
    names
        .map(|name| &*Box::leak(name.into_boxed_str()))
        .collect()
});

/// A machine deployment as its user wants it.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    revision: u32,
    note: u32,
    finalizer: Finalizer,
}

/// A tenant as it was last asked for.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name, its namespace's and its cluster's.
    pub name: &'static str,
    /// Its machine deployments, by their numbers.
    pub machines: [Option<Machine>; MACHINES],
    pub(crate) text: u32,
    pub(crate) version: u32,
    /// Which kubeconfig it has; those of before are worthless.
    pub(crate) kubeconfig: u32,
    pub(crate) settings: Option<u32>,
    pub(crate) is_paused: bool,
    pub(crate) is_registered: bool,
    pub(crate) has_namespace: bool,
}

/// A world with what was last asked of it.
pub struct Model {
    /// The clusters.
    pub world: World,
    /// The tenants.
    pub tenants: Vec<Tenant>,
    /// What somebody else than the manager wrote, by cluster and revision.
    pub foreign: BTreeSet<(String, u64)>,
    /// What the process that runs has sent.
    pub life: Arc<Life>,
    /// What processes before it have sent since the last look.
    pub before: Vec<Arc<Life>>,
    /// When what stands in the documents of a tenant was changed, by the tenant's number.
    pub inputs: Vec<Inputs>,
    /// The last backup.
    pub backups: Backups,
    /// Whether the Lease of the process that runs may be gone: a backup may lack it.
    pub may_lose_lease: bool,
    pub(crate) process: Option<Process>,
    count: u32,
}

/// The name of a machine deployment; no tenant has one of another's.
pub fn machine_name(tenant: &str, machine: usize) -> String {
    format!("{tenant}-{machine}")
}

/// The names of what is made for a machine deployment.
pub fn made_names(tenant: &str, machine: usize) -> DerivedNames {
    DerivedNames::new("kube-system", &machine_name(tenant, machine))
}

impl Machine {
    fn object(self, name: &str) -> Value {
        let mut object = fixtures::a_machine_deployment(name);
        let annotations = &mut object["metadata"]["annotations"];
        annotations[fixtures::REVISION] = json!(self.revision.to_string());
        annotations["example.com/note"] = json!(self.note.to_string());
        if self.finalizer == Finalizer::Foreign {
            object["metadata"]["finalizers"] = json!([FOREIGN]);
        }
        object
    }
}

impl Tenant {
    /// Its profile.
    pub fn profile(&self) -> Value {
        let text = format!("text {} of {}\n", self.text, self.name);
        fixtures::a_profile(self.name, &format!("v1.0.{}", self.version), &text)
    }

    /// What its WorkerCluster says; nothing if there is none.
    pub fn spec(&self) -> Option<Value> {
        let settings = self.settings?;
        let server = format!("https://other-{settings}.{}.example:6443", self.name);
        let mut spec = json!({"apiServerOverride": server});
        if self.is_paused {
            spec["paused"] = json!(true);
        }
        Some(spec)
    }
}

impl Model {
    /// Registered tenants, each with a profile, and no manager.
    pub fn new(history: &History) -> Self {
        let names = NAMES
            .get(..history.tenants)
            .expect("there are as many names");
        let tenants = names.iter().map(|name| Tenant {
            name,
            machines: [None; MACHINES],
            text: 0,
            version: 0,
            kubeconfig: 0,
            settings: None,
            is_paused: false,
            is_registered: true,
            has_namespace: true,
        });
        Self::of(tenants.collect())
    }

    /// A world where the tenants have been as they are now from the beginning.
    pub fn undisturbed(&self) -> Self {
        let mut model = Self::of(self.tenants.clone());
        for tenant in &model.tenants {
            let worker = model.world.worker(tenant.name);
            for (number, machine) in tenant.machines.iter().enumerate() {
                if let Some(machine) = machine {
                    put(worker, machine.object(&machine_name(tenant.name, number)));
                }
            }
            if let Some(spec) = tenant.spec() {
                let own = fixtures::a_worker_cluster(tenant.name, &spec);
                put(&model.world.management, own);
            }
        }
        model.start();
        model
    }

    fn of(tenants: Vec<Tenant>) -> Self {
        let names: Vec<&'static str> = tenants.iter().map(|tenant| tenant.name).collect();
        let mut world = World::new(&names);
        // Who comes after one that died without a word waits so long: shorter than the peace that
        // comes in the end.
        world.settings.replica.lease_duration = Duration::from_mins(5);
        world.settings.join_check = true;
        for tenant in &tenants {
            world.register(tenant.name);
            bind_bootstrapper(world.worker(tenant.name));
            put(world.worker(tenant.name), cluster_info(tenant.name));
            put(&world.management, tenant.profile());
        }
        Self {
            inputs: vec![Inputs::default(); tenants.len()],
            backups: Backups::take(&world, &tenants),
            may_lose_lease: false,
            world,
            tenants,
            foreign: BTreeSet::new(),
            life: Life::new(),
            before: Vec::new(),
            process: None,
            count: 0,
        }
    }

    /// The cluster there.
    pub fn cluster(&self, place: Where) -> Cluster {
        match place {
            Where::Management => self.world.management.clone(),
            Where::Worker(tenant) => self.world.worker(self.tenants[tenant].name).clone(),
        }
    }

    /// Somebody else than the manager changes something.
    pub fn by_somebody<T>(&mut self, place: Where, change: impl FnOnce(&Cluster) -> T) -> T {
        let cluster = self.cluster(place);
        let name = match place {
            Where::Management => "management",
            Where::Worker(tenant) => self.tenants[tenant].name,
        };
        let before = cluster.revision();
        let done = change(&cluster);
        let written = before + 1..=cluster.revision();
        self.foreign
            .extend(written.map(|revision| (name.to_owned(), revision)));
        done
    }

    /// Somebody else changes an object, if it is there.
    pub fn edit(&mut self, place: Where, which: ObjectRef<'_>, edit: impl FnOnce(&mut Value)) {
        self.by_somebody(place, |cluster| {
            if let Some(mut found) = cluster.get(which) {
                edit(&mut found);
                put(cluster, found);
            }
        });
    }

    /// A number that has not been before.
    pub fn next(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// Lets it happen.
    pub async fn happen(&mut self, step: Step) {
        match step {
            Step::Wait(minutes) => {
                self.pass(Duration::from_mins(u64::from(minutes))).await;
            }
            Step::Restart => {
                self.stop().await;
                self.start();
            }
            Step::Kill => {
                self.kill().await;
                self.start();
            }
            Step::DieBefore(at) => self.arm(at, Blow::DieBefore),
            Step::DieAfter(at) => self.arm(at, Blow::DieAfter),
            Step::Trouble(place, trouble) => self.trouble(place, trouble),
            Step::Deafen(place, resource) => {
                let lost = Fault::DropWatchEvents(Arc::new(|_| true));
                let matcher = Matcher {
                    probability: Some(0.5),
                    ..Matcher::on(&[Verb::Watch], resource)
                };
                self.cluster(place).inject(matcher, lost);
            }
            Step::Close(place) => self.cluster(place).close_watches(),
            Step::Expire(place) => self.expire(place),
            Step::Stale(place, resource) => {
                let stale = Fault::StaleList { revisions: 6 };
                let lists = Matcher::on(&[Verb::List], resource);
                self.cluster(place).inject_times(lists, stale, 1);
                self.expire(place);
            }
            Step::StaleStart(place) => {
                self.kill().await;
                self.show_old_settings(place);
                self.stale_lists(place);
                self.start();
            }
            Step::Spoil(place, resource) => self.spoil(place, resource),
            Step::Unreadable(tenant) => self.make_unreadable(tenant),
            Step::Suspend(seconds) => suspend(seconds).await,
            Step::Skew(minutes) => self.skew(minutes).await,
            Step::Mend => self.mend().await,
            step => self.user(step),
        }
    }

    fn arm(&self, at: u64, blow: Blow) {
        self.life.arm(Strike {
            at,
            counted: Counted::Calls,
            blow,
        });
    }

    fn expire(&mut self, place: Where) {
        self.by_somebody(place, |cluster| {
            cluster.skip_revisions(10);
            cluster.compact();
            cluster.close_watches();
        });
    }

    /// All troubles end.
    pub async fn mend(&mut self) {
        for (_, cluster) in self.world.clusters() {
            cluster.clear_faults();
        }
        for inputs in &mut self.inputs {
            inputs.is_disturbed = false;
        }
        self.remove_unreadable();
        self.mend_links();
        for tenant in 0..self.tenants.len() {
            self.restore_namespace(tenant);
            self.register(tenant);
        }
        if !self.world.ahead.is_zero() {
            self.skew(0).await;
        }
    }

    fn trouble(&mut self, place: Where, trouble: Trouble) {
        if let Where::Worker(tenant) = place {
            self.inputs[tenant].disturb();
        }
        let cluster = self.cluster(place);
        let namespace = match place {
            Where::Management => "operating-system-manager",
            Where::Worker(_) => "kube-system",
        };
        let fault = match trouble {
            Trouble::Code(code) => Fault::status(code),
            Trouble::CodeAfter => Fault::StatusAfter { code: 500 },
            Trouble::Reset => Fault::ConnectionReset,
            Trouble::ResetAfter => Fault::ConnectionResetAfter,
            Trouble::Refused => Fault::ConnectionRefused,
            Trouble::Hang => Fault::Hang,
            Trouble::HangAfter => Fault::HangAfter,
            Trouble::Delay => Fault::Delay(Duration::from_secs(3)),
        };
        let matcher = Matcher {
            user: Some(account(namespace).name),
            probability: Some(0.5),
            ..Matcher::any()
        };
        cluster.inject(matcher, fault);
    }

    fn user(&mut self, step: Step) {
        match step {
            Step::Create(which, finalizer) => self.create(which, finalizer),
            Step::Revise(which) => self.revise(which, |machine| machine.revision += 1),
            Step::Annotate(which) => self.revise(which, |machine| machine.note += 1),
            Step::Delete(which) => self.delete(which),
            Step::Vanish(which) => self.vanish(which),
            Step::EditProfile(tenant) => {
                self.inputs[tenant].changes_provisioning();
                self.tenants[tenant].text = self.next();
                self.put_profile(tenant);
            }
            Step::BumpProfile(tenant) => self.put_profile(tenant),
            Step::Set(tenant) => {
                self.tenants[tenant].settings = Some(self.next());
                self.inputs[tenant].changes_bootstrap();
                self.put_settings(tenant);
            }
            Step::Pause(tenant) => self.pause(tenant),
            Step::RotateKubeconfig(tenant) => self.rotate_kubeconfig(tenant),
            Step::Unregister(tenant) => self.unregister(tenant),
            Step::Register(tenant) => self.register(tenant),
            Step::RotateFetchToken(tenant) => self.rotate_fetch_token(tenant),
            Step::Tamper(which, made) => self.tamper(which, made),
            Step::Lose(which, made) => self.lose(which, made),
            Step::BackUp => self.back_up(),
            Step::Restore(restored, revisions) => self.restore(restored, revisions),
            Step::DropSettings(tenant) => self.drop_settings(tenant),
            Step::RecreateSettings(tenant) => self.recreate_settings(tenant),
            Step::DeleteNamespace(tenant) => self.delete_namespace(tenant),
            Step::Break(tenant, link) => self.break_link(tenant, link),
            Step::CutOff(place, outage) => self.cut_off(place, outage),
            _ => {}
        }
    }

    fn machine(&self, (tenant, machine): Which) -> (Where, String) {
        let name = machine_name(self.tenants[tenant].name, machine);
        (Where::Worker(tenant), name)
    }

    fn create(&mut self, which: Which, finalizer: Finalizer) {
        let (place, name) = self.machine(which);
        let there = object("machinedeployments", "kube-system", &name);
        if self.cluster(place).get(there).is_some() {
            return;
        }
        let machine = Machine {
            revision: 1,
            note: 0,
            finalizer,
        };
        self.by_somebody(place, |cluster| put(cluster, machine.object(&name)));
        self.tenants[which.0].machines[which.1] = Some(machine);
    }

    fn revise(&mut self, which: Which, revise: impl FnOnce(&mut Machine)) {
        let Some(machine) = &mut self.tenants[which.0].machines[which.1] else {
            return;
        };
        revise(machine);
        let machine = *machine;
        let (place, name) = self.machine(which);
        let there = object("machinedeployments", "kube-system", &name);
        self.edit(place, there, |found| {
            let wanted = machine.object(&name);
            for key in [fixtures::REVISION, "example.com/note"] {
                found["metadata"]["annotations"][key] =
                    wanted["metadata"]["annotations"][key].clone();
            }
        });
    }

    fn delete(&mut self, which: Which) {
        let (place, name) = self.machine(which);
        let there = object("machinedeployments", "kube-system", &name);
        let now = self.world.clock().now();
        let has_finalizers = |found: &Value| {
            let finalizers = found["metadata"]["finalizers"].as_array();
            finalizers.is_some_and(|finalizers| !finalizers.is_empty())
        };
        self.by_somebody(place, |cluster| match cluster.get(there) {
            Some(mut found) if has_finalizers(&found) => {
                let metadata = &mut found["metadata"];
                if metadata["deletionTimestamp"].is_null() {
                    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                    metadata["deletionTimestamp"] = json!(now);
                    put(cluster, found);
                }
            }
            Some(_) => drop(cluster.delete_raw(there)),
            None => {}
        });
        self.tenants[which.0].machines[which.1] = None;
    }

    fn vanish(&mut self, which: Which) {
        let (place, name) = self.machine(which);
        self.by_somebody(place, |cluster| {
            cluster.delete_raw(object("machinedeployments", "kube-system", &name))
        });
        self.tenants[which.0].machines[which.1] = None;
    }

    /// Those who keep what is deleted let it go; tells what else is there that is being deleted.
    pub fn let_go(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for tenant in 0..self.tenants.len() {
            let place = Where::Worker(tenant);
            for found in self.cluster(place).objects("machinedeployments") {
                let metadata = &found["metadata"];
                if metadata["deletionTimestamp"].is_null() {
                    continue;
                }
                let name = metadata["name"].as_str().unwrap_or_default().to_owned();
                if metadata["finalizers"] == json!([FOREIGN]) {
                    self.by_somebody(place, |worker| {
                        worker.delete_raw(object("machinedeployments", "kube-system", &name))
                    });
                } else {
                    left.push(format!("{name}: {}", metadata["finalizers"]));
                }
            }
        }
        left
    }
}
