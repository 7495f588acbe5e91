//! What a failure that does not go away costs.

use std::time::Duration;

use fake_cluster::{AuditEntry, Cluster, Fault, Matcher, Verb, object};

use serde_json::json;

use crate::{
    registry::condition,
    scenarios::{self, PROVISIONING, Scenario, delete_machine_deployment},
    snapshot::{self, Snapshot, boot_secret},
    wire::Life,
    world::World,
};

const HOUR: Duration = Duration::from_hours(1);
const NAMES: [&str; 2] = ["one", "two"];

/// What happens to the two machine deployments once a kind of write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Created,
    /// Nothing: time makes it due.
    None,
    Changed,
    Deleted,
}

/// A kind of write, and what brings it about.
#[derive(Clone, Copy, Debug)]
struct Kind {
    cluster: &'static str,
    verbs: &'static [Verb],
    resource: &'static str,
    namespace: Option<&'static str>,
    change: Change,
}

const KINDS: [Kind; 9] = [
    kind("berlin", &[Verb::Patch], "machinedeployments"),
    kind("berlin", &[Verb::Create], "secrets").within("cloud-init-settings"),
    kind("berlin", &[Verb::Create], "secrets").within("kube-system"),
    kind("management", &[Verb::Create], "operatingsystemconfigs"),
    kind("berlin", &[Verb::Update, Verb::Patch], "secrets")
        .within("cloud-init-settings")
        .by(Change::Changed),
    // Tokens, which are renewed after half an hour.
    kind("berlin", &[Verb::Update, Verb::Patch], "secrets")
        .within("kube-system")
        .by(Change::None),
    kind(
        "management",
        &[Verb::Create, Verb::Update, Verb::Patch, Verb::Delete],
        "operatingsystemconfigs",
    )
    .by(Change::Changed),
    kind("berlin", &[Verb::Delete], "secrets").by(Change::Deleted),
    kind("berlin", &[Verb::Patch], "machinedeployments").by(Change::Deleted),
];

const fn kind(cluster: &'static str, verbs: &'static [Verb], resource: &'static str) -> Kind {
    Kind {
        cluster,
        verbs,
        resource,
        namespace: None,
        change: Change::Created,
    }
}

impl Kind {
    const fn within(mut self, namespace: &'static str) -> Self {
        self.namespace = Some(namespace);
        self
    }

    const fn by(mut self, change: Change) -> Self {
        self.change = change;
        self
    }

    fn matcher(&self) -> Matcher {
        Matcher {
            namespace: self.namespace.map(str::to_owned),
            ..Matcher::on(self.verbs, self.resource)
        }
    }
}

/// What an hour costs.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    attempts: usize,
    events: usize,
    statuses: usize,
}

impl Cost {
    fn of(world: &World, failing: &Cluster) -> Self {
        let written = |entry: &AuditEntry| !matches!(entry.verb, Verb::Get | Verb::List);
        Self {
            attempts: failing.count_requests(|it| it.code == 500),
            events: world
                .worker("berlin")
                .count_requests(|it| it.target.resource == "events" && written(it)),
            statuses: world.management.count_requests(|it| {
                it.target.resource == "workerclusters"
                    && it.target.subresource == "status"
                    && written(it)
            }),
        }
    }
}

async fn change(world: &World, change: Change) {
    let berlin = world.worker("berlin");
    match change {
        Change::None => {}
        Change::Created => {
            for name in NAMES {
                world.deploy("berlin", name);
            }
        }
        Change::Changed => {
            world.add_profile("berlin", "v1.0.1", "other\n");
        }
        Change::Deleted => {
            for name in NAMES {
                delete_machine_deployment(berlin, name).await;
            }
        }
    }
}

/// A world with one kind of write failing from now on, for two machine deployments.
async fn failing(kind: &Kind) -> (World, crate::world::Process) {
    let world = World::with_berlin();
    if kind.change != Change::Created {
        change(&world, Change::Created).await;
    }
    let process = world.start_settled().await;
    cluster(&world, kind).inject(kind.matcher(), Fault::status(500));
    world.clear_audits();
    change(&world, kind.change).await;
    (world, process)
}

fn cluster<'a>(world: &'a World, kind: &Kind) -> &'a Cluster {
    match kind.cluster {
        "management" => &world.management,
        name => world.worker(name),
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_write_that_always_fails_costs_little_and_is_reported_once() {
    let mut costs = Vec::new();
    for kind in KINDS {
        let (world, process) = failing(&kind).await;
        tokio::time::sleep(HOUR).await;
        let cost = Cost::of(&world, cluster(&world, &kind));
        println!("{kind:?}: {cost:?}");
        costs.push((kind, cost));
        process.stop().await;
    }
    for (kind, cost) in costs {
        // Between a quarter and half of a minute between two attempts of each.
        assert!((2..=480).contains(&cost.attempts), "{kind:?}: {cost:?}");
        assert_eq!(cost.events, 2, "one for each: {kind:?}: {cost:?}");
        assert!(cost.statuses <= 2, "{kind:?}: {cost:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_write_that_always_fails_leaves_the_cluster_healthy_and_heals() {
    let kind = kind("berlin", &[Verb::Create], "secrets").within("cloud-init-settings");
    let (world, process) = failing(&kind).await;
    tokio::time::sleep(HOUR).await;
    let own = world.own("berlin").to_string();
    assert!(own.contains(r#""reason":"Healthy""#), "{own}");
    assert!(!own.contains("Degraded"), "{own}");
    world.worker("berlin").clear_faults();
    tokio::time::sleep(Duration::from_secs(30)).await;
    for name in NAMES {
        let secret = format!("{name}-kube-system-bootstrap-config");
        let made = boot_secret(world.worker("berlin"), &secret);
        assert!(made.is_some(), "{name}");
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_cluster_that_comes_and_goes_ends_no_delay() {
    let kind = kind("berlin", &[Verb::Create], "secrets").within("cloud-init-settings");
    let (world, process) = failing(&kind).await;
    let berlin = world.worker("berlin");
    tokio::time::sleep(Duration::from_mins(1)).await;
    world.clear_audits();
    for _ in 0..30 {
        let outage = berlin.inject(Matcher::any(), Fault::ConnectionRefused);
        tokio::time::sleep(Duration::from_mins(1)).await;
        berlin.clear_fault(outage);
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    let cost = Cost::of(&world, berlin);
    println!("{cost:?}");
    // No retry is made earlier because the cluster came back.
    assert!(cost.attempts <= 480, "{cost:?}");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn engagements_that_end_at_once_follow_one_another_ever_more_slowly() {
    const TOKEN: &str = "cloud-init-getter-token";
    let world = World::with_berlin();
    let berlin = world.worker("berlin");
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    life.forget();
    // Somebody in the cluster removes what nodes need, soon after it is made.
    let token = || boot_secret(berlin, TOKEN);
    for _ in 0..6_000 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Both watches are open: the cluster is engaged, and its token known.
        if token().is_some() && berlin.open_watches() == 2 {
            berlin.delete_raw(object("secrets", "cloud-init-settings", TOKEN));
        }
    }
    let sent = life.sent();
    let engaged = sent.iter().filter(|sent| sent.path == "/version");
    let engaged = engaged.count();
    // Six while the delay grows to fifteen seconds; then between seven and a half and fifteen.
    assert!((20..=100).contains(&engaged), "{engaged} in ten minutes");
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(token().is_some(), "it is made in the end");
    process.stop().await;
}

/// What is there in the end, and what was told on the way, with one write of the kind refused by
/// this code.
async fn refused_once(kind: &Kind, code: Option<u16>) -> (Cost, usize, Snapshot) {
    let world = World::with_berlin();
    if kind.change != Change::Created {
        change(&world, Change::Created).await;
    }
    let process = world.start_settled().await;
    world.clear_audits();
    let failing = cluster(&world, kind);
    if let Some(code) = code {
        let refusal = Fault::status(code);
        failing.inject_times(kind.matcher(), refusal, 1);
    }
    change(&world, kind.change).await;
    tokio::time::sleep(HOUR).await;
    let refused = |it: &AuditEntry| Some(it.code) == code && kind.verbs.contains(&it.verb);
    let (cost, refused) = (Cost::of(&world, failing), failing.count_requests(refused));
    process.stop().await;
    (cost, refused, snapshot::take(&world))
}

/// The writer that was faster has no interest in it, and nobody is to look into it.
#[tokio::test(start_paused = true)]
async fn a_write_that_somebody_else_was_faster_than_is_made_again_and_no_failure() {
    for kind in KINDS {
        let (calm, _, undisturbed) = refused_once(&kind, None).await;
        // What is updated may be gone; what is created or deleted is what another wants, too.
        let is_lost = kind.verbs.contains(&Verb::Update);
        for code in [Some(409), is_lost.then_some(404)].into_iter().flatten() {
            let (cost, refused, found) = refused_once(&kind, Some(code)).await;
            assert_eq!(refused, 1, "{kind:?} {code}");
            assert_eq!(cost.events, calm.events, "{kind:?} {code}");
            let difference = snapshot::difference(&undisturbed, &found);
            assert_eq!(difference, None, "{kind:?} {code}");
        }
    }
}

/// As a rotation whose old document a foreign finalizer holds: the new one cannot be written.
#[tokio::test(start_paused = true)]
async fn what_waits_for_too_long_is_not_served_and_says_for_what() {
    let world = World::with_berlin();
    let berlin = world.worker("berlin");
    world.deploy("berlin", "workers");
    let process = world.start_settled().await;
    let served = || condition(&world, "berlin", "MachineDeploymentsServed");
    assert_eq!(served(), ["True", "AllServed"]);
    let provisioning = ("secrets", "cloud-init-settings", PROVISIONING);
    let hold = |by: &[&str]| {
        scenarios::change(berlin, provisioning, |it| {
            it["metadata"]["finalizers"] = json!(by);
        });
    };
    hold(&["example.com/hold"]);
    Scenario::Provisioning.happen(&world).await;
    tokio::time::sleep(Duration::from_mins(3)).await;
    assert_eq!(served(), ["True", "AllServed"], "it is a matter of minutes");
    tokio::time::sleep(Duration::from_mins(15)).await;
    assert_eq!(served(), ["False", "SomeNotServed"]);
    process.stop().await;
    let process = world.start();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(
        served(),
        ["False", "SomeNotServed"],
        "a restart knows no better"
    );
    let own = world.own("berlin");
    let entry = &own["status"]["machineDeployments"][0];
    let message = entry["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("whose finalizers hold it: `example.com/hold`"),
        "{message}"
    );
    hold(&[]);
    tokio::time::sleep(Duration::from_mins(15)).await;
    assert_eq!(served(), ["True", "AllServed"]);
    process.stop().await;
}

/// What a reconcile records that was not sent during an outage is no new beginning.
#[tokio::test(start_paused = true)]
async fn who_waits_through_an_outage_has_waited_meanwhile() {
    const MOMENT: Duration = Duration::from_secs(15);
    let world = World::with_berlin();
    let berlin = world.worker("berlin");
    world.deploy("berlin", "workers");
    let process = world.start_settled().await;
    let provisioning = ("secrets", "cloud-init-settings", PROVISIONING);
    scenarios::change(berlin, provisioning, |it| {
        it["metadata"]["finalizers"] = json!(["example.com/hold"]);
    });
    Scenario::Provisioning.happen(&world).await;
    tokio::time::sleep(Duration::from_mins(4)).await;
    let outage = berlin.inject(Matcher::any(), Fault::ConnectionRefused);
    berlin.close_watches();
    tokio::time::sleep(MOMENT).await;
    world.add_profile("berlin", "v1.0.7", "third\n");
    tokio::time::sleep(MOMENT).await;
    let own = world.own("berlin");
    let reason = &own["status"]["machineDeployments"][0]["reason"];
    assert_eq!(reason, "AwaitingCluster");
    berlin.clear_fault(outage);
    tokio::time::sleep(Duration::from_mins(2)).await;
    let served = condition(&world, "berlin", "MachineDeploymentsServed");
    assert_eq!(served, ["False", "SomeNotServed"]);
    process.stop().await;
}
