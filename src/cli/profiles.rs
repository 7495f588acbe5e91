//! `osm profiles`: the default profiles that are built into this program.

mod diff;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Subcommand;
use serde::Serialize;

use super::{
    format::OutputFlags,
    input::default_profile,
    output,
    table::{Cell, Layout, Table, Text},
};
use crate::api::profile::OperatingSystemProfile;
use crate::render::default_profiles::{DefaultProfile, default_profiles};

/// The subcommands of `osm profiles`.
#[derive(Debug, Subcommand)]
pub(super) enum ProfilesCommand {
    /// List them with name, operating system, version and cloud providers.
    List(OutputFlags),
    /// Print one as YAML.
    Show {
        /// The profile's name.
        name: String,
    },
    /// Write each to a file NAME.yaml.
    Export {
        /// The folder.
        #[arg(long, value_name = "DIR", default_value = ".")]
        dir: PathBuf,
        /// The profiles; by default all of them.
        names: Vec<String>,
    },
    /// Say what the difference of two sets of profiles takes on running machines.
    #[command(after_help = "Examples:
  osm-0.1.0 profiles export --dir old
  osm profiles diff old

Exit codes: 0 no difference, 3 differences, 1 a profile cannot be read or rendered.")]
    Diff(diff::ProfilesDiffFlags),
}

pub(super) fn run(command: &ProfilesCommand) -> anyhow::Result<ExitCode> {
    match command {
        ProfilesCommand::List(output) => {
            let listed = listed()?;
            let names = listed.iter().map(|it| it.name.to_owned());
            output.print(&listed, names, |layout| text(layout, &listed))?;
        }
        ProfilesCommand::Diff(flags) => return diff::run(flags),
        ProfilesCommand::Show { name } => output::document(default_profile(name)?.yaml)?,
        ProfilesCommand::Export { dir, names } => {
            let profiles: Vec<&DefaultProfile> = if names.is_empty() {
                default_profiles().iter().collect()
            } else {
                names
                    .iter()
                    .map(|name| default_profile(name))
                    .collect::<Result<_, _>>()?
            };
            for profile in profiles {
                let path = dir.join(format!("{}.yaml", profile.name));
                output::write_file(&path, profile.yaml.as_bytes())?;
            }
        }
    }
    Ok(output::SUCCESS)
}

/// A default profile, as it is listed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: &'static str,
    operating_system: String,
    version: String,
    providers: Vec<String>,
}

fn listed() -> anyhow::Result<Vec<Listed>> {
    let profiles = default_profiles().iter().map(|profile| {
        let object: OperatingSystemProfile =
            serde_saphyr::from_str(profile.yaml).context("a default profile is YAML")?;
        let spec = object.spec;
        let providers = spec.supported_cloud_providers.into_iter();
        Ok(Listed {
            name: profile.name,
            operating_system: format!("{} {}", spec.os_name.as_str(), spec.os_version),
            version: spec.version,
            providers: providers
                .map(|provider| provider.name.as_str().to_owned())
                .collect(),
        })
    });
    profiles.collect()
}

fn text(layout: Layout, listed: &[Listed]) -> Text {
    let mut table = Table::new(layout, &["NAME", "OS", "VERSION", "PROVIDERS"]);
    for profile in listed {
        table.push([
            profile.name.into(),
            Cell::from(&profile.operating_system),
            Cell::from(&profile.version),
            profile.providers.join(",").into(),
        ]);
    }
    Text::from(&table)
}
