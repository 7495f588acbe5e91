//! `osm bom`: everything that machines download because of profiles, for sites that mirror it.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use clap::Args;
use serde_json::{Value, json};

use super::{
    format::OutputFlags,
    input::{BaseFlags, SettingsFlags, profile},
    output,
};
use crate::render::{default_profiles::default_profiles, template::CompiledProfile};
use crate::rules::{
    bom::{Download, bill, images},
    kubelet,
};

/// The flags of `osm bom`.
#[derive(Args, Debug)]
pub(super) struct BomFlags {
    /// The profiles: files, or names of default profiles. None means all default profiles.
    #[arg(value_name = "PROFILE")]
    profiles: Vec<String>,

    /// The version of the kubelets, such as 1.34.1.
    #[arg(long, value_name = "VERSION")]
    kubernetes: String,

    #[command(flatten)]
    settings: SettingsFlags,

    #[command(flatten)]
    bases: BaseFlags,

    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(flags: &BomFlags) -> anyhow::Result<ExitCode> {
    let settings = match flags.settings.load()? {
        Ok(settings) => settings,
        Err(error) => {
            output::message(&format!("refused: the WorkerCluster's settings: {error}"));
            return Ok(output::ERROR);
        }
    };
    let bases = flags.bases.load()?;
    let mut names = flags.profiles.clone();
    if names.is_empty() {
        names = default_profiles()
            .iter()
            .map(|profile| profile.name.to_owned())
            .collect();
    }
    if let Some(unsupported) = kubelet::unsupported(&flags.kubernetes) {
        output::note(&unsupported);
    }
    let mut found: BTreeMap<Download, BTreeSet<String>> = BTreeMap::new();
    for argument in &names {
        let profile = match bases.resolve(&profile(argument)?) {
            Ok(profile) => profile,
            Err(error) => {
                output::message(&format!("refused: {error}"));
                return Ok(output::ERROR);
            }
        };
        let compiled = CompiledProfile::compile(&profile.spec);
        let bill = compiled
            .map_err(Into::into)
            .and_then(|compiled| bill(&compiled, &settings, &flags.kubernetes));
        let bill = match bill {
            Ok(bill) => bill,
            Err(error) => {
                output::message(&format!("refused: {argument}: {error}"));
                return Ok(output::ERROR);
            }
        };
        if bill.is_by_reading {
            output::note(&format!(
                "{argument} has no template `artefacts`: its URLs were read out of its files, and \
                 packages and whatever a script puts together are missing"
            ));
        }
        for download in bill.downloads {
            found
                .entry(download)
                .or_default()
                .insert(profile.name.clone());
        }
    }
    if settings.pause_image.is_empty() {
        output::note("no pause image is set: containerd fetches the one that it has built in");
    }
    found.extend(
        images(&settings)
            .into_iter()
            .map(|image| (image, BTreeSet::new())),
    );
    let values = found.keys().map(|it| it.value.clone());
    flags.output.print(&list(&found), values, |_| {
        found.keys().map(ToString::to_string).collect()
    })?;
    Ok(output::SUCCESS)
}

/// Returns every entry with the profiles that need it. Images belong to all machines.
fn list(found: &BTreeMap<Download, BTreeSet<String>>) -> Vec<Value> {
    let entry = |(download, profiles): (&Download, &BTreeSet<String>)| {
        let pairs = [
            ("kind", Some(json!(download.kind))),
            ("value", Some(json!(download.value))),
            ("place", download.place.as_ref().map(|place| json!(place))),
            ("profiles", (!profiles.is_empty()).then(|| json!(profiles))),
        ];
        let pairs = pairs.into_iter();
        pairs
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect::<serde_json::Map<_, _>>()
    };
    found.iter().map(entry).map(Value::from).collect()
}
