//! A tenth of the tenants have profiles that want more than their share of a render, and machine
//! deployments that change all the time, so that each is tried over and over.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::time::interval;

use super::making::{compare, make, serve_all};
use crate::load::{
    fleet::{Fleet, Revisions},
    outcome::{Figure, Outcome, count, float},
    stage::Stage,
};

/// Each tenth tenant is hostile.
const HOSTILE: usize = 10;
/// The time between two changes of theirs: as many as the others have, and not in step.
const CHANGE_INTERVAL: Duration = Duration::from_millis(49);
const PROFILE: &str = "hostile";
/// Counts renders that ended at a limit.
const LIMITS_HIT: &str = "osm_template_limits_hit_total";
/// Templates that want more than their share.
const BURNING: [&str; 6] = [
    // Texts, doubled until the bound of work.
    "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(1000) %}{% set ns.x = ns.x ~ ns.x %}\
     {% endfor %}",
    // Lists, doubled.
    "{% set ns = namespace(a=[1]) %}{% for i in range(1000) %}{% set ns.a = ns.a + ns.a %}\
     {% endfor %}",
    // A walk that never ends, as far as its fuel is enough.
    "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    // Each with each.
    "{% for i in range(20000) %}{% if range(99999)|list == range(99999)|list %}{% endif %}\
     {% endfor %}",
    // Much text for nothing.
    "{% macro m() %}{{ 'a'|indent(8000, true) }}{% endmacro %}{% for i in range(20000) %}\
     {% do m() %}{% endfor %}",
    // An answer that has no end.
    "{% for i in range(90000) %}{{ 'a'|indent(8000, true) }}{% endfor %}",
];

/// The others are served alone, and then beside those that are hostile.
pub async fn hostile(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    serve_all(stage).await?;
    let is_hostile = |index: &usize| index.is_multiple_of(HOSTILE);
    let others: Vec<usize> = (0..stage.params.tenants)
        .filter(|index| !is_hostile(index))
        .collect();
    let alone = make(stage, &others).await?;
    stage.settle().await?;
    let before = stage.sample().await?;
    let limits_before = stage.metric(LIMITS_HIT).await?;
    let changing = turn_hostile(&stage.fleet).await?;
    let mut changed = 0;
    let noise = change_all(&changing, &mut changed);
    let beside = tokio::select! {
        ended = noise => return ended.context("the changes ended first"),
        beside = make(stage, &others) => beside?,
    };
    let after = stage.sample().await?;
    let limits = stage.metric(LIMITS_HIT).await? - limits_before;
    anyhow::ensure!(
        limits > 0,
        "no render came to its limits: this measures nothing"
    );
    compare(outcome, alone, beside, "beside hostile tenants");
    let processor = float(after.cpu_milliseconds - before.cpu_milliseconds);
    let grown = float(after.resident_kib.saturating_sub(before.resident_kib)) / 1024.0;
    outcome.figures.extend([
        Figure::new("changes of hostile tenants", count(changed), ""),
        Figure::new("renders that came to a limit", float(limits), ""),
        Figure::new("CPU meanwhile", processor / 1000.0, "s"),
        Figure::new("memory, more than before", grown, "MiB"),
    ]);
    outcome.add_sample("0 alone", before);
    outcome.add_sample("1 beside", after);
    Ok(())
}

/// Gives each machine deployment of each tenth tenant a profile that burns its limits in one way or
/// another.
async fn turn_hostile(fleet: &Fleet) -> anyhow::Result<Vec<(Revisions, String)>> {
    let mut changing = Vec::new();
    let mut burning = BURNING.iter().cycle();
    for worker in fleet.workers.iter().step_by(HOSTILE) {
        for name in &worker.machine_deployments {
            let spec = a_profile(burning.next().copied().unwrap_or_default());
            let profile = format!("{PROFILE}-{name}");
            fleet.give_profile(worker, (&profile, &spec))?;
            let revisions = worker.revisions();
            revisions.name_profile(name, &profile).await?;
            changing.push((revisions, name.clone()));
        }
    }
    Ok(changing)
}

/// Their machine deployments change, one after the other; counts the changes.
async fn change_all(changing: &[(Revisions, String)], changed: &mut usize) -> anyhow::Result<()> {
    let mut ticks = interval(CHANGE_INTERVAL);
    for revision in 2_u64.. {
        for (revisions, name) in changing {
            ticks.tick().await;
            revisions.raise(name, revision).await?;
            *changed += 1;
        }
    }
    Ok(())
}

pub(super) fn a_profile(burning: &str) -> Value {
    let file = |path: &str, data: &str| json!({ "path": path, "permissions": 644, "content": { "inline": { "data": data } } });
    json!({
        "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0",
        "templateLanguage": "Jinja", "provisioningUtility": "cloud-init",
        "supportedCloudProviders": [{ "name": "aws" }],
        "bootstrapConfig": { "files": [file("/bootstrap", "{{ ServerURL }}")] },
        "provisioningConfig": { "files": [file("/burning", burning)] },
    })
}
