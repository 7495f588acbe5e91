//! The default profiles of a fleet: installed in every tenant's namespace at once, and replaced by
//! those of a newer release.

use anyhow::Context as _;
use fake_cluster::AuditEntry;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::making::{compare, halves, latencies, make, make_while, until_watched};
use crate::load::{
    fleet::Fleet,
    latency::Latencies,
    outcome::{Figure, Outcome, count, float},
    requests::Requests,
    served::{self, engages},
    stage::Stage,
};

/// Annotation of a default profile: the digest of the content that was installed.
const INSTALLED_CONTENT: &str = "operatingsystemmanager.k8c.io/installed-content";
/// Annotation of what is made: the version of the profile that it was made from.
const MADE_FOR_PROFILE_VERSION: &str = "k8c.io/osp-version";
const PROFILES: &str = "operatingsystemprofiles";
/// The profile of the fleet's machine deployments.
const UBUNTU: &str = "osp-ubuntu";
/// Below that of any release.
const OLD: &str = "v0.1.0";

/// Tenants that install nothing are engaged, and then as many new ones with every default profile.
/// Without machine deployments: nothing else is done in either fleet.
pub async fn defaults(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    stage.renew(0).await?;
    for worker in &stage.fleet.workers {
        let nothing = json!({ "defaultProfiles": "Disabled" });
        stage.fleet.give_settings(worker, nothing)?;
    }
    let (without, begun) = engage(stage).await?;
    let none = installed_until(stage, begun);
    anyhow::ensure!(none.is_none(), "profiles were installed though disabled");
    let requests = Requests::take(&stage.fleet);
    outcome.add_requests("0 without", requests);
    stage.stop().await?;

    stage.renew(0).await?;
    let (with, begun) = engage(stage).await?;
    let took = installed_until(stage, begun).context("no profile was installed")?;
    let installed = stage.fleet.management_requests(writes_profile)?;
    let requests = Requests::take(&stage.fleet);
    let tenants = count(stage.params.tenants);
    outcome.figures.extend([
        Figure::new("p99 engaged, nothing to install", without.p99, "ms"),
        Figure::new("p99 engaged, beside the installs", with.p99, "ms"),
        Figure::new("times as long", with.p99 / without.p99, "x"),
        Figure::new("all engaged beside the installs", with.max / 1000.0, "s").wanted(30.0, 10.0),
        Figure::new("all installed", took, "s"),
        Figure::new(
            "profiles installed per tenant",
            count(installed) / tenants,
            "",
        ),
        Figure::new("requests per tenant", float(requests.total()) / tenants, ""),
        Figure::new("writes per tenant", float(requests.writes) / tenants, ""),
    ]);
    outcome.add_latencies("0 start to engaged, without", without);
    outcome.add_latencies("1 start to engaged, beside", with);
    outcome.add_requests("1 with", requests);
    let sample = stage.sample().await?;
    outcome.add_sample("installed", sample);
    Ok(())
}

/// Starts the manager in a registered fleet; from the start to the first look at each tenant's
/// machine deployments.
async fn engage(stage: &mut Stage) -> anyhow::Result<(Latencies, Instant)> {
    stage.register_all().await?;
    let begun = stage.start().await?;
    let is_engaged = |fleet: &Fleet| {
        let mut workers = fleet.workers.iter();
        workers.all(|worker| worker.server.cluster.count_requests(engages) > 0)
    };
    stage.until("all are engaged", is_engaged).await?;
    stage.settle().await?;
    let workers = stage.fleet.workers.iter();
    let engaged = workers.filter_map(|it| served::engaged(&it.server.cluster.audit()));
    let engaged = Latencies::of(engaged.map(|at| at.duration_since(begun)))?;
    Ok((engaged, begun))
}

/// Seconds from a moment to the last profile that was written.
fn installed_until(stage: &Stage, begun: Instant) -> Option<f64> {
    let writes = stage.fleet.management.cluster.writes();
    let last = writes.iter().rev().find(|it| writes_profile(it))?;
    Some(last.at.duration_since(begun).as_secs_f64())
}

fn writes_profile(request: &AuditEntry) -> bool {
    request.wrote && request.target.resource == PROFILES
}

/// A fleet that an older release has left, with its default profiles and what was made from them,
/// is taken over by this one.
pub async fn upgrade(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let old = old_profiles(stage).await?;
    let now = install_old(stage, &old).await?;
    let (making, quiet) = halves(stage.params.tenants);
    let alone = make(stage, &making).await?;
    stage.settle().await?;
    stage.stop().await?;

    Requests::take(&stage.fleet);
    let begun = stage.start().await?;
    until_watched(stage).await?;
    let wanted = old.len() * stage.params.tenants;
    let replaced = |fleet: &Fleet| fleet.management.cluster.count_requests(writes_profile);
    let made = make_while(stage, &making, |fleet| replaced(fleet) < wanted).await?;
    let profiles = installed_until(stage, begun).unwrap_or_default();
    until_made_for(stage, &now).await?;
    let all = begun.elapsed().as_secs_f64();
    stage.settle().await?;
    let sample = stage.sample().await?;
    outcome.add_sample("upgraded", sample);
    let mut of_quiet = Requests::default();
    for worker in quiet
        .iter()
        .filter_map(|index| stage.fleet.workers.get(*index))
    {
        of_quiet.count("worker", &worker.server.cluster.take_audit());
    }
    let machine_deployments = count((quiet.len() * stage.params.machine_deployments).max(1));
    let requests = Requests::take(&stage.fleet);
    let kinds = requests.by_kind.iter();
    let of_profiles = kinds.filter(|(kind, _)| kind.ends_with(&format!("update {PROFILES}")));
    let written: u64 = of_profiles.map(|(_, count)| count).sum();
    outcome.figures.extend([
        Figure::new("all profiles replaced", profiles, "s"),
        Figure::new("all machine deployments rendered again", all, "s"),
        Figure::new(
            "profiles written per tenant",
            float(written) / count(stage.params.tenants),
            "",
        ),
        Figure::new(
            "writes to the worker cluster per machine deployment",
            float(of_quiet.writes) / machine_deployments,
            "",
        ),
    ]);
    compare(outcome, alone, latencies(&made)?, "during the upgrade");
    outcome.add_requests("workers where nothing appears", of_quiet);
    outcome.add_requests("all others", requests);
    Ok(())
}

/// A default profile of an older release: its name, spec and digest.
struct Old {
    name: String,
    spec: Value,
    digest: String,
}

/// Lets the manager install its own profiles for one tenant, and makes older ones of them.
async fn old_profiles(stage: &mut Stage) -> anyhow::Result<Vec<Old>> {
    let first = stage.fleet.workers.first().context("there is a tenant")?;
    stage.fleet.register(first).await?;
    stage.start().await?;
    stage
        .until("one tenant has its default profiles", |fleet| {
            let first = fleet.workers.first();
            first.is_none_or(|first| first.server.cluster.open_watches() >= 2)
        })
        .await?;
    stage.settle().await?;
    stage.stop().await?;
    let installed = stage.fleet.management.cluster.objects(PROFILES);
    anyhow::ensure!(!installed.is_empty(), "no default profile was installed");
    installed.iter().map(older).collect()
}

/// The profile as an older release had it: an older version, and another line in its first file.
fn older(installed: &Value) -> anyhow::Result<Old> {
    let annotation = installed.pointer("/metadata/annotations");
    let annotation = annotation.and_then(|all| all.get(INSTALLED_CONTENT));
    let mut spec = installed.get("spec").cloned().unwrap_or_default();
    // The same digest as the manager's, or the older one would be taken for somebody's edit.
    anyhow::ensure!(
        annotation == Some(&json!(digest(&spec))),
        "the digest of a default profile is made in another way now"
    );
    let version = spec.pointer_mut("/version").context("it has a version")?;
    let language = version.as_str().and_then(|it| it.split_once('+'));
    *version = match language {
        Some((_, language)) => json!(format!("{OLD}+{language}")),
        None => json!(OLD),
    };
    let file = spec.pointer_mut("/provisioningConfig/files/0/content/inline/data");
    let file = file.context("its first file is inline")?;
    *file = json!(format!("{}\n# older\n", file.as_str().unwrap_or_default()));
    let name = installed.pointer("/metadata/name").and_then(Value::as_str);
    Ok(Old {
        name: name.unwrap_or_default().to_owned(),
        digest: digest(&spec),
        spec,
    })
}

fn digest(spec: &Value) -> String {
    hex::encode(Sha256::digest(spec.to_string()))
}

/// Brings the fleet to where the older release left it: its profiles everywhere, and every machine
/// deployment made from them. Returns the version that comes next.
async fn install_old(stage: &mut Stage, old: &[Old]) -> anyhow::Result<String> {
    let ubuntu = stage
        .fleet
        .workers
        .first()
        .map(|first| first.tenant.clone());
    let ubuntu = fake_cluster::object(PROFILES, ubuntu.as_deref().unwrap_or_default(), UBUNTU);
    let now = stage
        .fleet
        .management
        .cluster
        .get(ubuntu)
        .unwrap_or_default();
    let now = now.pointer("/spec/version").and_then(Value::as_str);
    let now = now
        .context("the profile of the fleet is installed")?
        .to_owned();
    for worker in &stage.fleet.workers {
        for Old { name, spec, digest } in old {
            let annotations = json!({ INSTALLED_CONTENT: digest });
            stage
                .fleet
                .give_profile(worker, (name, spec), &annotations)?;
        }
    }
    let by_hand = stage.file(
        "tenant-defaults.yaml",
        "rollout: { defaultProfiles: Manual }\n",
    )?;
    stage.register_all().await?;
    stage
        .start_with("", &["--tenant-defaults", &by_hand])
        .await?;
    let version = old.iter().find(|it| it.name == UBUNTU);
    let version = version.and_then(|it| it.spec.pointer("/version")?.as_str());
    until_made_for(stage, version.unwrap_or_default()).await?;
    stage.settle().await?;
    Ok(now)
}

/// Waits until everything is made from a version of the profile.
async fn until_made_for(stage: &mut Stage, version: &str) -> anyhow::Result<()> {
    let what = format!("all made from {UBUNTU} {version}");
    let wanted = (MADE_FOR_PROFILE_VERSION, version);
    stage
        .wait(&what, async |fleet| {
            for worker in &fleet.workers {
                for name in &worker.machine_deployments {
                    served::until_made(worker, name, wanted).await;
                }
            }
        })
        .await
}
