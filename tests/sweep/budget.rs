//! A tenant's requests never exceed its budget, a pair of writes is not torn by it, and another
//! tenant does not feel it.

use std::{collections::BTreeMap, time::Duration};

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use osm::api::names::INPUTS;
use osm::telemetry::metrics::Metrics;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    fixtures,
    scenarios::{annotate, change, change_machine_deployment, profile, set, until_made},
    snapshot::boot_secret,
    wire::{Life, Sent},
    world::{World, put, settings},
};

/// Requests per second and at once.
const RATE: u32 = 5;
const BURST: u32 = 10;
const FLAGS: [&str; 4] = [
    "--worker-requests=5",
    "--worker-burst=10",
    "--management-requests=5",
    "--management-burst=10",
];
/// Enough machine deployments that the budget lasts for a fraction of what they need.
const MACHINE_DEPLOYMENTS: usize = 12;

fn name(index: usize) -> String {
    format!("workers-{index}")
}

fn a_busy_world() -> World {
    let mut world = World::with(&["berlin", "lisbon"]);
    world.settings = settings(&FLAGS);
    for index in 0..MACHINE_DEPLOYMENTS {
        world.deploy("berlin", &name(index));
    }
    world
}

/// A budget of all tenants that is short.
const SHORT: [&str; 2] = [
    "--fleet-management-requests=5",
    "--fleet-management-burst=1",
];
const TENANTS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Eight tenants with four machine deployments each, whose common budget is short.
fn a_short_fleet() -> World {
    let mut world = World::new(&TENANTS);
    world.settings = settings(&SHORT);
    for name in TENANTS {
        world.register(name);
        world.add_profile(name, "v1.0.0", "text\n");
        for index in 0..4 {
            world.deploy(name, &self::name(index));
        }
    }
    world
}

/// In no stretch of time more than a full bucket and what flowed in meanwhile.
fn check_budget(sent: &[Sent], cluster: &str) {
    let times: Vec<Instant> = sent
        .iter()
        .filter(|sent| sent.to == cluster)
        .map(|sent| sent.at)
        .collect();
    assert!(times.len() > 50, "{cluster}: {} requests", times.len());
    for (first, begun) in times.iter().enumerate() {
        for (last, ended) in times.iter().enumerate().skip(first) {
            let count = f64::from(u32::try_from(last - first + 1).unwrap_or(u32::MAX));
            let flowed = f64::from(RATE) * (*ended - *begun).as_secs_f64();
            // Timers have whole milliseconds, and a pair is paid for before it is sent.
            let most = f64::from(BURST) + flowed + 1.1;
            assert!(
                count <= most,
                "{cluster}: {count} requests from {first} to {last}, {most} allowed"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_never_exceeds_its_budget() {
    let world = a_busy_world();
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    profile(&world, "another text\n");
    world.settle().await;
    process.stop().await;
    check_budget(&life.sent(), "berlin");
}

/// Documents are rendered for a write that is paid for: rendered before, those of a whole fleet
/// would wait in memory for the budget that all tenants share.
#[tokio::test(start_paused = true)]
async fn no_document_is_rendered_before_its_write_is_paid_for() {
    let world = a_short_fleet();
    let metrics = Metrics::new();
    let process = world.start_measured(&Life::new(), &metrics);
    let mut rendered = 0;
    while rendered < 4 * TENANTS.len() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let page = metrics.encode();
        let series = r#"osm_renders_total{result="rendered"} "#;
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        rendered = line.map_or(0, |count| count.parse().expect("a count"));
        let written = world.management.count_requests(|it| {
            it.verb == Verb::Create && it.target.resource == "operatingsystemconfigs"
        });
        let waiting = rendered - written;
        assert!(waiting <= 1, "{waiting} of {rendered} wait");
    }
    process.stop().await;
}

/// A machine deployment does not wait for default profiles that it does not name.
#[tokio::test(start_paused = true)]
async fn a_profile_that_is_waited_for_is_installed_before_others() {
    let mut world = World::new(&TENANTS);
    world.settings = settings(&SHORT);
    let mut defaults = world.default_profiles.to_vec();
    let mut first = defaults[0].clone();
    first.name = "osp-amzn2".to_owned();
    defaults.insert(0, first);
    world.default_profiles = defaults.into();
    for name in TENANTS {
        world.register(name);
        let mut workers = fixtures::a_machine_deployment("workers");
        annotate(&mut workers, fixtures::PROFILE, "osp-ubuntu");
        put(world.worker(name), workers);
    }
    let process = world.start_settled().await;
    process.stop().await;
    let audit = world.management.audit();
    let created = audit.iter().filter(|it| {
        let of_tenant = TENANTS.contains(&it.target.namespace.as_str());
        it.verb == Verb::Create && it.target.resource == "operatingsystemprofiles" && of_tenant
    });
    let names: Vec<&str> = created.map(|it| it.target.name.as_str()).collect();
    let is_named = |name: &&str| *name == "osp-ubuntu";
    let last = names.iter().rposition(is_named).expect("it is installed");
    let others = names[..last].iter().filter(|it| !is_named(it)).count();
    assert!(others <= TENANTS.len() / 2, "{names:?}");
    assert_eq!(names.len(), 3 * TENANTS.len());
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_does_not_tear_a_pair_of_writes() {
    let world = a_busy_world();
    let berlin = world.worker("berlin");
    let process = world.start_settled().await;
    for trip in [Duration::ZERO, Duration::from_millis(40)] {
        let writes = Matcher::on(&[Verb::Create, Verb::Delete, Verb::Update], "secrets");
        let slow = berlin.inject(writes, Fault::Delay(trip));
        let begun = Instant::now();
        let own = ("operatingsystemprofiles", "berlin", "own");
        change(&world.management, own, |own| {
            let text = format!("after {trip:?}\n");
            let file = "/spec/provisioningConfig/files/0/content/inline/data";
            set(own, file, json!(text));
            let version = format!("v3.0.{}", trip.as_millis());
            set(own, "/spec/version", json!(version));
        });
        world.settle().await;
        berlin.clear_fault(slow);
        let mut last = begun;
        for index in 0..MACHINE_DEPLOYMENTS {
            let secret = format!("{}-kube-system-provisioning-config", name(index));
            let history = berlin.history(object("secrets", "cloud-init-settings", &secret));
            let since: Vec<_> = history
                .iter()
                .filter(|moment| moment.at >= begun && moment.revision > 0)
                .collect();
            let [gone, back] = since.as_slice() else {
                panic!("{secret} was not replaced once: {since:?}");
            };
            assert!(gone.object.is_none() && back.object.is_some());
            assert_eq!(back.at - gone.at, trip, "{secret}");
            last = last.max(back.at);
        }
        assert!(
            last - begun > Duration::from_secs(3),
            "the budget was exhausted"
        );
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_tenant_does_not_delay_the_others() {
    let world = a_busy_world();
    let process = world.start();
    let lisbon = world.worker("lisbon");
    // Engaged, and its own bucket full again, while berlin is still at work.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let last = format!(
        "{}-kube-system-bootstrap-config",
        name(MACHINE_DEPLOYMENTS - 1)
    );
    let berlin_is_done = (0..MACHINE_DEPLOYMENTS).all(|index| {
        let name = format!("{}-kube-system-bootstrap-config", name(index));
        boot_secret(world.worker("berlin"), &name).is_some()
    });
    assert!(!berlin_is_done, "{last}");
    put(lisbon, fixtures::a_machine_deployment("workers"));
    let asked = Instant::now();
    until_made(lisbon, crate::scenarios::BOOTSTRAP).await;
    assert_eq!(asked.elapsed(), Duration::ZERO);
    process.stop().await;
}

/// Everything is as a release with another generation of the renderer made it: other inputs, and
/// other bytes.
fn age(world: &World) {
    let older = |object: &mut Value| {
        let annotations = object.pointer_mut("/metadata/annotations");
        let inputs = annotations.and_then(|it| it.get_mut(INPUTS));
        inputs.map(|inputs| *inputs = json!("of another generation"))
    };
    let berlin = world.worker("berlin");
    for mut secret in berlin.objects("secrets") {
        if older(&mut secret).is_some() {
            set(&mut secret, "/data/cloud-config", json!("b2xkZXI="));
            put(berlin, secret);
        }
    }
    for mut config in world.management.objects("operatingsystemconfigs") {
        if older(&mut config).is_some() {
            put(&world.management, config);
        }
    }
}

/// Those that still have the bytes of before.
fn aged(world: &World) -> usize {
    let berlin = world.worker("berlin");
    let is_aged = |index: &usize| {
        let bootstrap = format!("{}-kube-system-bootstrap-config", name(*index));
        let found = boot_secret(berlin, &bootstrap);
        found.is_some_and(|it| it.pointer("/data/cloud-config") == Some(&json!("b2xkZXI=")))
    };
    (0..MACHINE_DEPLOYMENTS).filter(is_aged).count()
}

#[tokio::test(start_paused = true)]
async fn a_new_generation_of_the_renderer_yields_to_changes_and_keeps_to_the_budget() {
    let world = a_busy_world();
    let process = world.start_settled().await;
    process.stop().await;
    age(&world);
    let life = Life::new();
    let process = world.start_as(&life);
    let berlin = world.worker("berlin");
    berlin
        .wait_until(|_| aged(&world) < MACHINE_DEPLOYMENTS)
        .await;
    // The one whose turn would come last.
    let last = name(9);
    change_machine_deployment(berlin, &last, |found| {
        annotate(found, fixtures::REVISION, "2");
    });
    let bootstrap = format!("{last}-kube-system-bootstrap-config");
    let made_for = "/metadata/annotations/k8c.io~1machine-deployment-revision";
    berlin
        .wait_until(|berlin| {
            let found = boot_secret(berlin, &bootstrap);
            found.is_some_and(|it| it.pointer(made_for) == Some(&json!("2")))
        })
        .await;
    let left = aged(&world);
    assert!(left >= MACHINE_DEPLOYMENTS / 2, "{left} were left");
    world.settle().await;
    assert_eq!(aged(&world), 0);
    process.stop().await;
    check_budget(&life.sent(), "berlin");
}

/// The name and the bytes of each document in berlin.
fn documents(world: &World) -> BTreeMap<String, Value> {
    let secrets = world.worker("berlin").objects("secrets").into_iter();
    let documents = secrets.filter_map(|it| {
        let name = it.pointer("/metadata/name")?.as_str()?.to_owned();
        Some((name, it.pointer("/data/cloud-config")?.clone()))
    });
    documents.collect()
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_many_use_yields_to_changes_when_it_changes() {
    let world = a_busy_world();
    let process = world.start_settled().await;
    let before = documents(&world);
    let left = || {
        let now = documents(&world);
        let same = before.iter().filter(|(name, bytes)| {
            name.ends_with("-provisioning-config") && now.get(*name) == Some(*bytes)
        });
        same.count()
    };
    assert_eq!(left(), MACHINE_DEPLOYMENTS);
    profile(&world, "another text\n");
    let berlin = world.worker("berlin");
    berlin.wait_until(|_| left() < MACHINE_DEPLOYMENTS).await;
    let new = name(MACHINE_DEPLOYMENTS);
    put(berlin, fixtures::a_machine_deployment(&new));
    let bootstrap = format!("{new}-kube-system-bootstrap-config");
    until_made(berlin, &bootstrap).await;
    // Served in the order of coming, the last ones were current before the new one was.
    let left_then = left();
    assert!(left_then >= 2, "{left_then} were left");
    world.settle().await;
    assert_eq!(left(), 0);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_goes_before_the_resyncs_of_all_other_tenants() {
    let world = a_short_fleet();
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    for tenant in TENANTS {
        world.add_profile(tenant, "v2.0.0", "another text\n");
    }
    // The first of thirty-two is rewritten, and the others wait.
    let is_new = |config: &Value| config.to_string().contains("v2.0.0");
    let configs = |management: &Cluster| management.objects("operatingsystemconfigs");
    let begun = |management: &Cluster| configs(management).iter().any(is_new);
    world.management.wait_until(begun).await;
    let (own, new) = (world.worker("a"), name(4));
    let asked = Instant::now();
    put(own, fixtures::a_machine_deployment(&new));
    let bootstrap = format!("{new}-kube-system-bootstrap-config");
    until_made(own, &bootstrap).await;
    let sent = life.sent();
    let sent = sent
        .iter()
        .filter(|it| it.to == "management" && it.at > asked && !it.is_watch);
    let (own, others): (Vec<&Sent>, Vec<&Sent>) = sent.partition(|it| {
        let name = it.body.pointer("/metadata/name").and_then(Value::as_str);
        name.is_some_and(|name| name.starts_with(&new))
    });
    // Both writes of the one whose turn it was, which compares documents meanwhile, and one in
    // five.
    let (own, others) = (own.len(), others.len());
    assert!((1..=4).contains(&own), "{own}");
    assert!(others <= 3, "{others} of others went before {own}");
    process.stop().await;
}
