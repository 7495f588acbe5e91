//! Machines that were made from another document than machines get now are replaced, where the
//! tenant asks for it: a few at a time, and nobody twice.

use std::{collections::BTreeMap, time::Duration};

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use serde_json::{Value, json};

use crate::{
    fixtures,
    scenarios::{Scenario, annotate, change_machine_deployment, profile, set},
    snapshot::{self, boot_secret, text},
    stale::{deafen, expire},
    wire::Life,
    world::{World, line, put},
};

const REPLACED_FOR: &str = "operatingsystemmanager.k8c.io/replaced-for";
const MADE_FROM: &str = "operatingsystemmanager.k8c.io/machines-made-from";
/// Machines of a machine deployment.
const MACHINES: u64 = 2;
/// How long machine-controller takes for one of them.
const PACE: Duration = Duration::from_secs(30);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// machine-controller, as far as it replaces machines: it raises the revision of another template,
/// and makes one new machine at each look, once the bootstrap Secret is of that revision.
struct MachineController<'a> {
    worker: &'a Cluster,
    /// The template that the machines of each are made from, and its revision.
    templates: BTreeMap<String, (Value, u64)>,
    /// The one that makes no progress.
    stuck: Option<String>,
    /// How many times each machine deployment has begun to replace its machines.
    begun: BTreeMap<String, usize>,
    /// The most that were under way at once.
    most_at_once: usize,
}

impl<'a> MachineController<'a> {
    fn of(world: &'a World) -> Self {
        let worker = world.worker("berlin");
        let all = worker.objects("machinedeployments");
        let templates = all.iter().map(|it| (name(it), (template(it), 1)));
        Self {
            worker,
            templates: templates.collect(),
            stuck: None,
            begun: BTreeMap::new(),
            most_at_once: 0,
        }
    }

    /// Goes on for this many looks.
    async fn work(&mut self, looks: usize) {
        for _ in 0..looks {
            tokio::time::sleep(PACE).await;
            let all = self.worker.objects("machinedeployments");
            for found in &all {
                self.look(found);
            }
            let at_it = all.iter().filter(|it| !is_done(it)).count();
            self.most_at_once = self.most_at_once.max(at_it);
        }
    }

    fn look(&mut self, found: &Value) {
        let name = name(found);
        let generation = at(found, "/metadata/generation");
        let known = self.templates.get_mut(&name).expect("it is known");
        let is_new = known.0 != template(found);
        if is_new {
            *known = (template(found), known.1 + 1);
            *self.begun.entry(name.clone()).or_default() += 1;
        }
        let revision = known.1.to_string();
        let updated = at(found, "/status/updatedReplicas").as_u64();
        let updated = match updated.unwrap_or_default() {
            _ if is_new => 0,
            updated if updated < MACHINES && self.is_ready(&name, &revision) => updated + 1,
            updated => updated,
        };
        change_machine_deployment(self.worker, &name, |found| {
            annotate(found, fixtures::REVISION, &revision);
            set(found, "/status", status(&generation, updated));
        });
    }

    fn is_ready(&self, name: &str, revision: &str) -> bool {
        let made_for = "/metadata/annotations/k8c.io~1machine-deployment-revision";
        let bootstrap = format!("{name}-kube-system-bootstrap-config");
        let found = secret(self.worker, &bootstrap);
        at(&found, made_for) == revision && self.stuck.as_deref() != Some(name)
    }
}

fn status(generation: &Value, updated: u64) -> Value {
    json!({
        "observedGeneration": generation, "replicas": MACHINES,
        "updatedReplicas": updated, "availableReplicas": MACHINES,
    })
}

fn at(found: &Value, pointer: &str) -> Value {
    found.pointer(pointer).cloned().unwrap_or_default()
}

fn name(found: &Value) -> String {
    text(found, "/metadata/name").to_owned()
}

fn template(found: &Value) -> Value {
    at(found, "/spec/template")
}

fn secret(worker: &Cluster, name: &str) -> Value {
    boot_secret(worker, name).unwrap_or_default()
}

fn is_done(found: &Value) -> bool {
    at(found, "/status/observedGeneration") == at(found, "/metadata/generation")
        && at(found, "/status/updatedReplicas") == MACHINES
}

fn machine_deployment(worker: &Cluster, name: &str) -> Value {
    let found = worker.get(object("machinedeployments", "kube-system", name));
    found.expect("it is there")
}

/// Who was told to replace its machines.
fn told(worker: &Cluster) -> Vec<String> {
    let pointer = format!("/metadata/annotations/{}", REPLACED_FOR.replace('/', "~1"));
    let all = worker.objects("machinedeployments").into_iter();
    let told = all.filter(|it| template(it).pointer(&pointer).is_some());
    told.map(|it| name(&it)).collect()
}

fn condition(world: &World) -> Value {
    world.condition("berlin", "MachinesCurrent")
}

fn events(worker: &Cluster, reason: &str) -> usize {
    let events = worker.objects("events");
    events.iter().filter(|it| it["reason"] == reason).count()
}

fn ask(world: &World, machines: &Value) {
    let spec = json!({"rollout": {"machines": machines}});
    let mut own = fixtures::a_worker_cluster("berlin", &spec);
    if let Some(status) = world.own("berlin").get("status") {
        set(&mut own, "/status", status.clone());
    }
    put(&world.management, own);
}

fn when_outdated(max: u32) -> Value {
    json!({"replace": "WhenOutdated", "maxConcurrent": max})
}

/// Pauses some, or lets them go on.
fn pause(worker: &Cluster, names: &[&str], is_paused: &Value) {
    for name in names {
        change_machine_deployment(worker, name, |found| {
            set(found, "/spec/paused", is_paused.clone());
        });
    }
}

/// Machine deployments at rest, and nothing made for them yet.
fn a_world() -> World {
    let mut world = World::with_berlin();
    world.settings = crate::world::settings(&["--token-lifetime=24h", "--lease-duration=1h"]);
    for name in NAMES {
        let mut made = fixtures::a_machine_deployment(name);
        set(&mut made, "/spec/replicas", json!(MACHINES));
        set(&mut made, "/metadata/generation", json!(1));
        set(&mut made, "/status", status(&json!(1), MACHINES));
        put(world.worker("berlin"), made);
    }
    world
}

/// What new machines get never waits for a permission.
#[tokio::test(start_paused = true)]
async fn with_the_lowest_limit_documents_are_those_without_one_and_no_machine_is_replaced() {
    for scenario in [
        Scenario::Create,
        Scenario::Revision,
        Scenario::ProfileVersion,
        Scenario::Provisioning,
        Scenario::RevisionAndProvisioning,
        Scenario::Settings,
        Scenario::Kubeconfig,
        Scenario::FetchToken,
        Scenario::Tampering,
        Scenario::Loss,
        Scenario::Machines,
    ] {
        let limit = json!({"replace": "WhenOutdated", "maxClass": "None"});
        let (without, _) = documents(scenario, &json!({})).await;
        let (with, told) = documents(scenario, &limit).await;
        assert!(without.len() >= 3, "{scenario:?}: {without:?}");
        assert_eq!(with, without, "{scenario:?}");
        assert_eq!(told, Vec::<String>::new(), "{scenario:?}");
    }
    let (_, told) = documents(Scenario::Provisioning, &when_outdated(1)).await;
    assert_eq!(told, ["workers"], "without a limit");
}

/// What a scenario comes to with these settings: the Secrets for machines, and the machine
/// deployments that were told to replace theirs.
async fn documents(scenario: Scenario, machines: &Value) -> (BTreeMap<String, Value>, Vec<String>) {
    let world = scenario.world();
    world.configure("berlin", &json!({"rollout": {"machines": machines}}));
    let process = world.start_settled().await;
    change_machine_deployment(world.worker("berlin"), "workers", |found| {
        set(found, "/metadata/generation", json!(1));
        set(found, "/spec/replicas", json!(MACHINES));
        set(found, "/status", status(&json!(1), MACHINES));
    });
    world.settle().await;
    scenario.happen(&world).await;
    tokio::time::sleep(scenario.takes()).await;
    world.settle().await;
    process.stop().await;
    let all = snapshot::take(&world).into_iter();
    let secrets = all.filter(|(key, _)| key.starts_with("berlin secrets cloud-init-settings/"));
    let secrets = secrets.map(|(key, it)| (key, it.get("data").cloned().unwrap_or_default()));
    (secrets.collect(), told(world.worker("berlin")))
}

#[tokio::test(start_paused = true)]
async fn machines_of_another_document_are_replaced_a_few_at_a_time_and_once() {
    let world = a_world();
    let worker = world.worker("berlin");
    ask(&world, &when_outdated(2));
    let process = world.start_settled().await;
    assert_eq!(told(worker), Vec::<String>::new(), "they are current");
    assert_eq!(condition(&world)["reason"], "MachinesCurrent");
    let mut controller = MachineController::of(&world);

    profile(&world, "another\n");
    world.settle().await;
    assert_eq!(told(worker).len(), 2, "as many as may be at it");
    assert_eq!(condition(&world)["reason"], "MachinesOutdated");
    controller.work(2).await;
    process.kill().await;
    controller.work(1).await;
    // Another process goes by what stands there.
    let process = world.start();
    controller.work(30).await;
    assert_eq!(told(worker), NAMES);
    let once = NAMES.map(|name| (name.to_owned(), 1));
    assert_eq!(controller.begun, BTreeMap::from(once), "each once");
    assert_eq!(controller.most_at_once, 2);
    assert_eq!(condition(&world)["reason"], "MachinesCurrent");
    assert_eq!(events(worker, "ReplacingMachines"), NAMES.len());
    for name in NAMES {
        let found = machine_deployment(worker, name);
        assert!(is_done(&found), "{found:#}");
    }
    world.settle().await;
    world.clear_audits();
    process.stop().await;
    let process = world.start();
    controller.work(10).await;
    world.settle().await;
    let writes: Vec<String> = worker.writes().iter().map(line).collect();
    assert!(
        !writes.iter().any(|it| it.contains("machinedeployments")),
        "a loop: {writes:#?}"
    );
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn to_ask_for_it_replaces_no_machine_that_is_current() {
    let world = a_world();
    let worker = world.worker("berlin");
    let process = world.start_settled().await;
    profile(&world, "before it was asked for\n");
    world.settle().await;
    assert_eq!(told(worker), Vec::<String>::new(), "nobody asked");
    let made_from = format!("/metadata/annotations/{}", MADE_FROM.replace('/', "~1"));
    let kubeconfig = "kube-system-a-kubelet-bootstrap-config";
    assert_eq!(at(&secret(worker, kubeconfig), &made_from), Value::Null);
    ask(&world, &when_outdated(1));
    world.settle().await;
    assert_eq!(
        told(worker),
        Vec::<String>::new(),
        "nothing is known of before"
    );
    let said = at(&secret(worker, kubeconfig), &made_from);
    assert!(
        said.as_str().is_some_and(|it| it.starts_with("1 ")),
        "{said}"
    );

    // A user changes the template: machine-controller replaces the machines by itself, with
    // documents of which every byte may be another.
    let mut controller = MachineController::of(&world);
    profile(&world, "of {{ KubeVersion }}\n");
    let kubelet = "/spec/template/spec/versions/kubelet";
    for name in ["c", "d"] {
        change_machine_deployment(worker, name, |found| {
            set(found, kubelet, json!("1.35.3"));
            set(found, "/metadata/generation", json!(2));
        });
    }
    pause(worker, &["a", "b"], &json!(true));
    controller.work(10).await;
    assert_eq!(told(worker), Vec::<String>::new(), "{:?}", controller.begun);
    let begun = [("c".to_owned(), 1), ("d".to_owned(), 1)];
    assert_eq!(controller.begun, BTreeMap::from(begun));
    let shown = condition(&world);
    assert_eq!(shown["reason"], "MachinesOutdated", "{shown}");
    assert_eq!(
        shown["message"], "paused or not at rest: kube-system/a, kube-system/b",
        "{shown}"
    );

    // Nobody asks any more.
    ask(&world, &json!({"replace": "Never"}));
    pause(worker, &["a", "b"], &json!(false));
    world.settle().await;
    assert_eq!(told(worker), Vec::<String>::new());
    assert_eq!(condition(&world)["reason"], "MachinesLeftAlone");
    // What was outdated then is known to be.
    ask(&world, &when_outdated(10));
    world.settle().await;
    assert_eq!(told(worker), ["a", "b"]);
    process.stop().await;
}

/// What was told counts before the watch shows it, and what the watch has not shown yet is not
/// written over.
#[tokio::test(start_paused = true)]
async fn while_watches_show_nothing_nothing_is_reported_twice_or_against_a_pause() {
    for is_paused in [false, true] {
        let world = a_world();
        let worker = world.worker("berlin");
        ask(&world, &when_outdated(1));
        let life = Life::new();
        let process = world.start_settled_as(&life).await;
        deafen(worker, "machinedeployments");
        if is_paused {
            pause(worker, &NAMES, &json!(true));
        }
        life.forget();
        profile(&world, "another\n");
        tokio::time::sleep(Duration::from_mins(2)).await;
        let sent = life.sent();
        let patches = sent.iter().filter(|it| {
            it.method == http::Method::PATCH && it.path.contains("/machinedeployments/")
        });
        let expected = usize::from(!is_paused);
        assert_eq!(told(worker).len(), expected);
        assert!(
            is_paused || patches.count() == 1,
            "what was told is not told again"
        );
        expire(worker);
        world.settle().await;
        assert_eq!(told(worker).len(), expected);
        process.stop().await;
    }
}

/// Who replaces its machines already counts, however long it takes to look at it.
#[tokio::test(start_paused = true)]
async fn a_process_that_starts_reports_nothing_before_it_has_looked_at_all() {
    let world = a_world();
    let worker = world.worker("berlin");
    ask(&world, &when_outdated(1));
    let process = world.start_settled().await;
    profile(&world, "another\n");
    world.settle().await;
    let first = told(worker);
    assert_eq!(first.len(), 1);
    process.kill().await;
    // machine-controller has seen the word, and has not raised the revision yet.
    change_machine_deployment(worker, &first.concat(), |found| {
        let generation = at(found, "/metadata/generation");
        set(found, "/status", status(&generation, MACHINES));
    });
    let bootstrap = format!("{}-kube-system-bootstrap-config", first.concat());
    let bootstrap = object("secrets", "cloud-init-settings", &bootstrap);
    assert!(worker.delete_raw(bootstrap));
    let creations = Matcher::on(&[Verb::Create], "secrets");
    worker.inject(creations, Fault::Delay(Duration::from_secs(8)));
    let process = world.start();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(told(worker), first, "its machines are being replaced");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_makes_no_progress_holds_up_the_others_and_is_reported() {
    let world = a_world();
    let worker = world.worker("berlin");
    ask(&world, &when_outdated(1));
    let process = world.start_settled().await;
    let mut controller = MachineController::of(&world);
    profile(&world, "another\n");
    world.settle().await;
    let first = told(worker);
    assert_eq!(first.len(), 1);
    controller.stuck = first.first().cloned();
    controller.work(60).await;
    assert_eq!(told(worker), first, "the others wait");
    let shown = condition(&world);
    assert_eq!(shown["reason"], "MachinesHeldUp");
    let message = shown["message"].as_str().unwrap_or_default();
    let begins = format!(
        "makes no progress: kube-system/{}; replacing",
        first.concat()
    );
    assert!(message.starts_with(&begins), "{shown}");
    assert_eq!(events(worker, "MachinesHeldUp"), 1);
    let own = world.own("berlin");
    assert_eq!(own["status"]["conditions"][0]["reason"], "Ready");

    controller.stuck = None;
    controller.work(20).await;
    assert_eq!(told(worker), NAMES);
    assert_eq!(condition(&world)["reason"], "MachinesCurrent");
    assert_eq!(controller.most_at_once, 1);
    process.stop().await;
}
