//! Twenty machine deployments are created at once in a real worker cluster where nothing else
//! happens, and deleted at once: by the manager of a fleet whose only tenant it is, and by the same
//! program in drop-in mode. The two take turns within one run, so that what else the machine does
//! meets both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::{TryStreamExt as _, future::try_join_all};
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::{GroupVersionKind, ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::{Config, Event, watcher};
use tokio::time::{Instant, sleep, timeout};

use crate::demo::process::Manager;
use crate::load::{
    fleet::{ACCOUNT, KUBE_SYSTEM, PROFILE, WORKER_MANIFESTS, machine_deployment},
    latency::Latencies,
    outcome::{Figure, Outcome},
    per_cluster::{CommandLine, RIGHTS},
    real_cluster::RealCluster,
    requests::Requests,
    served::CLOUD_INIT_SETTINGS,
    stage::Stage,
};

/// Machine deployments of one burst.
const COUNT: usize = 20;
/// Bursts of each side that count. One before them compiles templates and fills connections.
const ROUNDS: usize = 5;
/// On a busy machine.
const ROUND_TIMEOUT: Duration = Duration::from_mins(3);
/// Between two bursts: what one has left to do must not meet the next.
const REST: Duration = Duration::from_secs(3);
/// How many times as long the fleet's manager may take, and should.
const RATIO_MUST: f64 = 1.3;
const RATIO_AIM: f64 = 1.1;
/// The definitions of profiles and configs, as clusters have them that the drop-in comes to.
const DEFINITIONS: &str = include_str!("../../../../tests/drop_in/definitions.yaml");

/// A worker cluster, and the name of who serves it.
struct Side {
    name: &'static str,
    cluster: RealCluster,
    machine_deployments: Api<DynamicObject>,
    their_metadata: Api<Metadata>,
    secrets: Api<Metadata>,
    /// The profile that the machine deployments name, where no fleet chooses one for them.
    profile: Option<&'static str>,
    bursts: Vec<Burst>,
}

/// The times of one part of a burst.
type Part = fn(&Burst) -> &[Duration];

/// How long one burst took, from its first request.
struct Burst {
    /// Until each machine deployment had both Secrets.
    served: Vec<Duration>,
    /// Until each was gone.
    deleted: Vec<Duration>,
}

/// The same burst for the only tenant of a fleet, and for a cluster with the drop-in.
pub async fn burst(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    ensure!(outcome.tenants == 1, "a burst is one tenant's: --tenants 1");
    outcome.machine_deployments = COUNT;
    let screen = stage.params.screen;
    let started = Box::pin(futures::future::try_join(fleet_side(), drop_in_side()));
    let sides = screen.step("two real worker clusters", started).await?;
    let mut sides = [sides.0, sides.1];
    let folder = tempfile::tempdir().context("making a folder")?;
    let [fleet, drop_in] = &sides;
    let mut manager = start_drop_in(stage, &drop_in.cluster, folder.path())?;
    stage.start().await?;
    let kubeconfig = fleet.cluster.kubeconfig();
    stage.fleet.register_other("burst", kubeconfig).await?;
    for round in 0..=ROUNDS {
        // Who goes first changes.
        sides.reverse();
        for side in &mut sides {
            let what = format!("round {round}, {}", side.name);
            let played = timeout(ROUND_TIMEOUT, side.play(round));
            let played = screen.step(&what, played).await?;
            played.with_context(|| format!("{what}: {}", manager.log_tail()))?;
            if round == 0 {
                side.bursts.clear();
                side.cluster.take_audit();
                Requests::take(&stage.fleet);
            }
            sleep(REST).await;
        }
    }
    sides.sort_by_key(|side| side.name);
    for side in &sides {
        let mut requests = Requests::default();
        requests.count("worker", &side.cluster.take_audit());
        outcome.add_requests(side.name, requests);
    }
    let requests = Requests::take(&stage.fleet);
    outcome.add_requests("fleet, management", requests);
    report(outcome, &sides)?;
    let status = manager.stop().await?;
    ensure!(status.success(), "the drop-in ended badly: {status}");
    Ok(())
}

async fn fleet_side() -> anyhow::Result<Side> {
    let cluster = RealCluster::start("fleet", &WORKER_MANIFESTS, (KUBE_SYSTEM, ACCOUNT));
    Ok(Side::new("fleet", cluster.await?, None))
}

async fn drop_in_side() -> anyhow::Result<Side> {
    let [definition, ..] = WORKER_MANIFESTS;
    let manifests = [definition, DEFINITIONS, RIGHTS];
    let cluster = RealCluster::start("drop-in", &manifests, (KUBE_SYSTEM, ACCOUNT));
    Ok(Side::new("drop-in", cluster.await?, Some("osp-ubuntu")))
}

fn start_drop_in(stage: &Stage, cluster: &RealCluster, folder: &Path) -> anyhow::Result<Manager> {
    let line = match &stage.params.per_cluster_cmd {
        Some(text) => CommandLine::parse(text)?,
        None => CommandLine::of_osm(&stage.params.osm, folder)?,
    };
    let kubeconfig = folder.join("kubeconfig");
    std::fs::write(&kubeconfig, cluster.kubeconfig()).context("writing a kubeconfig")?;
    Manager::supervise(&line.with(&kubeconfig), folder.join("log"))
}

impl Side {
    fn new(name: &'static str, cluster: RealCluster, profile: Option<&'static str>) -> Self {
        let client = cluster.client();
        let kind = |group, version, kind| {
            ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
        };
        let pools = kind("cluster.k8s.io", "v1alpha1", "MachineDeployment");
        let secrets = kind("", "v1", "Secret");
        Self {
            machine_deployments: Api::namespaced_with(client.clone(), KUBE_SYSTEM, &pools),
            their_metadata: Api::namespaced_with(client.clone(), KUBE_SYSTEM, &pools),
            secrets: Api::namespaced_with(client, CLOUD_INIT_SETTINGS, &secrets),
            name,
            cluster,
            profile,
            bursts: Vec::new(),
        }
    }

    /// One burst.
    async fn play(&mut self, round: usize) -> anyhow::Result<()> {
        let names: Vec<String> = (0..COUNT)
            .map(|index| format!("burst-{round}-{index}"))
            .collect();
        let burst = Burst {
            served: self.create(&names).await?,
            deleted: self.delete(&names).await?,
        };
        self.bursts.push(burst);
        Ok(())
    }

    /// How long each took until both of its Secrets were there.
    async fn create(&self, names: &[String]) -> anyhow::Result<Vec<Duration>> {
        let mut objects: Vec<DynamicObject> = Vec::new();
        for name in names {
            let object = serde_json::from_value(machine_deployment(name));
            let mut object: DynamicObject = object.context("reading an object")?;
            let profile = self.profile.map(|it| (PROFILE.to_owned(), it.to_owned()));
            object.annotations_mut().extend(profile);
            objects.push(object);
        }
        let params = PostParams::default();
        let created = objects
            .iter()
            .map(|object| self.machine_deployments.create(&params, object));
        let wanted = names.iter().flat_map(|name| secrets_of(name)).collect();
        let seen = watch(
            (self.secrets.clone(), wanted),
            applied,
            try_join_all(created),
        )
        .await?;
        let both = names.iter().filter_map(|name| {
            let [one, other] = secrets_of(name).map(|secret| seen.get(&secret).copied());
            Some(one?.max(other?))
        });
        Ok(both.collect())
    }

    /// How long each took until it was gone.
    async fn delete(&self, names: &[String]) -> anyhow::Result<Vec<Duration>> {
        let params = DeleteParams::default();
        let deleted = names
            .iter()
            .map(|name| self.machine_deployments.delete(name, &params));
        let wanted = names.iter().cloned().collect();
        let watched = (self.their_metadata.clone(), wanted);
        let seen = watch(watched, gone, try_join_all(deleted)).await?;
        Ok(seen.into_values().collect())
    }

    /// The percentiles of all machine deployments of all bursts.
    fn latencies(&self, of: Part) -> anyhow::Result<Latencies> {
        Latencies::of(self.bursts.iter().flat_map(of).copied())
    }

    /// How long a whole burst took: the median over the bursts.
    fn all(&self, of: Part) -> anyhow::Result<f64> {
        let longest = |burst| of(burst).iter().max().copied();
        Ok(Latencies::of(self.bursts.iter().filter_map(longest))?.p50)
    }
}

fn secrets_of(name: &str) -> [String; 2] {
    ["bootstrap", "provisioning"].map(|document| format!("{name}-{KUBE_SYSTEM}-{document}-config"))
}

type Metadata = PartialObjectMeta<DynamicObject>;

fn applied(event: &Event<Metadata>) -> Option<&ObjectMeta> {
    match event {
        Event::Apply(object) => Some(&object.metadata),
        _ => None,
    }
}

fn gone(event: &Event<Metadata>) -> Option<&ObjectMeta> {
    match event {
        Event::Delete(object) => Some(&object.metadata),
        _ => None,
    }
}

/// Does something, and tells how long after its beginning a watch showed what is waited for of
/// each wanted object.
async fn watch<T>(
    (api, mut wanted): (Api<Metadata>, BTreeSet<String>),
    is_it: impl Fn(&Event<Metadata>) -> Option<&ObjectMeta>,
    act: impl Future<Output = kube::Result<T>>,
) -> anyhow::Result<BTreeMap<String, Duration>> {
    let mut events = pin!(watcher(api, Config::default()));
    while !matches!(events.try_next().await?, Some(Event::InitDone)) {}
    let begun = Instant::now();
    let watched = async {
        let mut seen = BTreeMap::new();
        while !wanted.is_empty() {
            let event = events.try_next().await?.context("the watch ended")?;
            let name = is_it(&event).and_then(|metadata| metadata.name.as_ref());
            seen.extend(
                name.and_then(|name| wanted.take(name))
                    .map(|name| (name, begun.elapsed())),
            );
        }
        Ok(seen)
    };
    let acted = async { act.await.context("asking for the burst") };
    let (_, seen) = futures::try_join!(acted, watched)?;
    Ok(seen)
}

fn report(outcome: &mut Outcome, [drop_in, fleet]: &[Side; 2]) -> anyhow::Result<()> {
    let parts: [(&str, Part); 2] = [("served", |it| &it.served), ("deleted", |it| &it.deleted)];
    for (what, of) in parts {
        let [one, other] = [fleet.latencies(of)?, drop_in.latencies(of)?];
        for (part, (ours, theirs)) in [
            ("p50", (one.p50, other.p50)),
            ("p99", (one.p99, other.p99)),
            ("all", (fleet.all(of)?, drop_in.all(of)?)),
        ] {
            let name = |of: &str| format!("{what}, {part}, {of}");
            outcome.figures.extend([
                Figure::new(&name("fleet"), ours, "ms"),
                Figure::new(&name("drop-in"), theirs, "ms"),
                Figure::new(&name("ratio"), ours / theirs, "x").wanted(RATIO_MUST, RATIO_AIM),
            ]);
        }
        for (side, latencies) in [("fleet", one), ("drop-in", other)] {
            outcome.add_latencies(&format!("{what}, {side}"), latencies);
        }
    }
    Ok(())
}
