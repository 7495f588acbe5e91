//! `osm profiles`: the default profiles that are built into this program.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::Subcommand;

use super::output;
use crate::api::profile::OperatingSystemProfile;
use crate::render::default_profiles::{DefaultProfile, default_profiles};

/// The subcommands of `osm profiles`.
#[derive(Debug, Subcommand)]
pub(super) enum ProfilesCommand {
    /// List them with name, operating system, version and cloud providers.
    List,
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
}

pub(super) fn run(command: &ProfilesCommand) -> anyhow::Result<ExitCode> {
    match command {
        ProfilesCommand::List => output::lines(table()?)?,
        ProfilesCommand::Show { name } => output::document(find(name)?.yaml)?,
        ProfilesCommand::Export { dir, names } => {
            let profiles: Vec<&DefaultProfile> = if names.is_empty() {
                default_profiles().iter().collect()
            } else {
                names
                    .iter()
                    .map(|name| find(name))
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

/// Returns a default profile by its name.
fn find(name: &str) -> anyhow::Result<&'static DefaultProfile> {
    let found = default_profiles()
        .iter()
        .find(|profile| profile.name == name);
    let Some(profile) = found else {
        bail!("no default profile is called {name}; `osm profiles list` names them");
    };
    Ok(profile)
}

fn table() -> anyhow::Result<Vec<String>> {
    let head = ["NAME", "OS", "VERSION", "PROVIDERS"].map(str::to_owned);
    let mut rows = vec![head];
    for profile in default_profiles() {
        let object: OperatingSystemProfile =
            serde_saphyr::from_str(profile.yaml).context("a default profile is YAML")?;
        let spec = object.spec;
        let providers = spec.supported_cloud_providers.iter();
        let providers: Vec<_> = providers.map(|provider| provider.name.as_str()).collect();
        let system = format!("{} {}", spec.os_name.as_str(), spec.os_version);
        rows.push([
            profile.name.to_owned(),
            system,
            spec.version,
            providers.join(","),
        ]);
    }
    let mut widths = [0; 4];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let line = |row: &[String; 4]| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        line.trim_end().to_owned()
    };
    Ok(rows.iter().map(line).collect())
}
