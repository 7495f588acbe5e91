//! `osm profiles diff`: what newer profiles take on running machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;

use crate::api::{change::Class, profile::OperatingSystemProfileSpec};
use crate::cli::{
    format::OutputFlags,
    input::{SettingsFlags, profile},
    output,
    plan::described,
    table::{Layout, Table, Text},
};
use crate::render::{
    default_profiles::{default_profile, default_profiles},
    overlay::resolve,
    template::CompiledProfile,
};
use crate::rules::{
    effect::{Effect, class},
    profile_effects::profile_effects,
    sample::KUBELET_VERSION,
};
use crate::tenant::settings::TenantSettings;

/// The flags of `osm profiles diff`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ProfilesDiffFlags {
    /// The folder with the old profiles, as `osm profiles export` writes them.
    old: PathBuf,

    /// The folder with the new ones. By default, those of this program.
    new: Option<PathBuf>,

    /// The version of the kubelets
    #[arg(long, value_name = "VERSION", default_value = KUBELET_VERSION)]
    kubernetes: String,

    #[command(flatten)]
    settings: SettingsFlags,

    #[command(flatten)]
    output: OutputFlags,
}

type Profiles = BTreeMap<String, OperatingSystemProfileSpec>;

/// One profile, and what its difference takes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    /// The old version; `None` for a new profile.
    old: Option<String>,
    /// The new version; `None` for one that is gone.
    new: Option<String>,
    /// What the difference takes; `None` if no machine can have both.
    class: Option<Class>,
    effects: Vec<Effect>,
}

pub(in crate::cli) fn run(flags: &ProfilesDiffFlags) -> anyhow::Result<ExitCode> {
    let settings = flags.settings.load()?;
    let settings = settings.context("the WorkerCluster's settings are refused")?;
    let old = folder(&flags.old)?;
    let new = match &flags.new {
        Some(path) => folder(path)?,
        None => built_in()?,
    };
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let about = (&settings, flags.kubernetes.as_str());
    let rows = names.into_iter().map(|name| row(name, (&old, &new), about));
    let rows = rows.collect::<anyhow::Result<Vec<Row>>>()?;
    let is_changed = |it: &&Row| it.class.is_none() || !it.effects.is_empty();
    let changed: Vec<&Row> = rows.iter().filter(is_changed).collect();
    let names = changed.iter().map(|it| it.name.clone());
    flags
        .output
        .print(&rows, names, |layout| text(layout, &rows))?;
    Ok(if changed.is_empty() {
        output::SUCCESS
    } else {
        output::found()
    })
}

fn row(
    name: &str,
    sides: (&Profiles, &Profiles),
    (settings, kubernetes): (&TenantSettings, &str),
) -> anyhow::Result<Row> {
    let (old, new) = (sides.0.get(name), sides.1.get(name));
    let version = |spec: Option<&OperatingSystemProfileSpec>| spec.map(|it| it.version.clone());
    let mut row = Row {
        name: name.to_owned(),
        old: version(old),
        new: version(new),
        class: None,
        effects: Vec::new(),
    };
    if let Some((old, new)) = old.zip(new) {
        let compiled = |spec, folder: &Profiles| {
            let find = |base: &str| {
                let of_folder = folder.get(base).cloned();
                let base = of_folder.or_else(|| default_profile(base).map(|it| it.spec));
                base.map(Arc::new)
            };
            let whole = resolve(name, spec, find)?;
            anyhow::Ok(CompiledProfile::compile(&whole)?)
        };
        let old = compiled(old, sides.0).with_context(|| name.to_owned())?;
        let new = compiled(new, sides.1).with_context(|| name.to_owned())?;
        let effects = profile_effects(&old, &new, (settings, kubernetes));
        row.effects = effects.with_context(|| name.to_owned())?;
        row.class = Some(class(&row.effects));
    }
    Ok(row)
}

fn text(layout: Layout, rows: &[Row]) -> Text {
    let mut table = Table::new(layout, &["NAME", "OLD", "NEW", "ON RUNNING MACHINES"]);
    for row in rows {
        let version = |it: &Option<String>| it.clone().unwrap_or_else(|| "-".to_owned());
        let class = row
            .class
            .map_or_else(|| "-".to_owned(), |it| it.to_string());
        let (old, new) = (version(&row.old), version(&row.new));
        table.push([
            row.name.as_str().into(),
            old.into(),
            new.into(),
            class.into(),
        ]);
    }
    let mut text = Text::from(&table);
    // Most changes are of several profiles at once.
    let mut alike: BTreeMap<Vec<String>, Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|it| !it.effects.is_empty()) {
        let effects = row.effects.iter().map(described).collect();
        alike.entry(effects).or_default().push(&row.name);
    }
    for (effects, names) in alike {
        text.section(&names.join(", "));
        for effect in effects {
            text.line(format!("  {effect}"));
        }
    }
    text
}

fn built_in() -> anyhow::Result<Profiles> {
    let names = default_profiles().iter().map(|it| it.name);
    let profiles = names.map(|name| Ok((name.to_owned(), profile(name)?.spec)));
    profiles.collect()
}

/// Reads the profiles of a folder: files `*.yaml`, with one profile each.
fn folder(path: &Path) -> anyhow::Result<Profiles> {
    let cannot_read = || format!("cannot read {}", path.display());
    let mut profiles = Profiles::new();
    for entry in path.read_dir().with_context(cannot_read)? {
        let file = entry.with_context(cannot_read)?.path();
        if file.extension().is_some_and(|it| it == "yaml") {
            let text = file
                .to_str()
                .with_context(|| format!("{}: not UTF-8", file.display()))?;
            let found = profile(text)?;
            profiles.insert(found.name, found.spec);
        }
    }
    if profiles.is_empty() {
        bail!("{}: no file *.yaml is there", path.display());
    }
    Ok(profiles)
}
