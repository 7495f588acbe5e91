//! `osm render`: renders a machine deployment as the controller would, to stdout or to files.

use std::{
    path::{Component, Path, PathBuf},
    process::ExitCode,
};

use anyhow::bail;
use clap::{Args, ValueEnum};
use kube::ResourceExt as _;
use serde_saphyr::SerializerOptions;

use super::{
    input::{machine_deployments, profile},
    output,
    world::WorldFlags,
};
use crate::api::{
    config::{OperatingSystemConfig, OperatingSystemConfigSpec},
    names::{DerivedNames, KUBE_SYSTEM},
};
use crate::render::Rendered;
use crate::rules::kubelet;

/// The flags of `osm render`.
#[derive(Args, Debug)]
pub(super) struct RenderFlags {
    /// The profile: a file, `-` for stdin, or the name of a default profile.
    profile: String,

    /// The machine deployment.
    #[arg(long, value_name = "FILE")]
    machine_deployment: PathBuf,

    #[command(flatten)]
    world: WorldFlags,

    /// The output to print.
    #[arg(short, long, value_enum, default_value = "provisioning")]
    output: Output,

    /// The folder for the output `all`: config.yaml, bootstrap, provisioning.
    #[arg(long, value_name = "DIR", required_if_eq("output", "all"))]
    output_dir: Option<PathBuf>,

    /// Also write each file in the documents, as it will be on the machine, below files/ of the
    /// folder.
    #[arg(long, requires = "output_dir")]
    files: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The `OperatingSystemConfig` as it is stored, with markers in place of secrets.
    Config,
    /// The document that a machine gets as user data.
    Bootstrap,
    /// The document that turns the machine into a node.
    Provisioning,
    /// All three, into a folder.
    All,
}

pub(super) fn run(flags: &RenderFlags) -> anyhow::Result<ExitCode> {
    let profile = profile(&flags.profile)?;
    let path = &flags.machine_deployment;
    let mut found = machine_deployments(path)?.into_iter();
    let (Some(machine_deployment), None) = (found.next(), found.next()) else {
        bail!(
            "{}: it holds more than one MachineDeployment; split it",
            path.display()
        );
    };
    let versions = &machine_deployment.spec.template.spec.versions;
    if let Some(unsupported) = kubelet::unsupported(&versions.kubelet) {
        output::note(&unsupported);
    }
    let world = flags.world.load()?;
    let rendered = match world.render(&profile, &machine_deployment) {
        Ok(rendered) => rendered,
        Err(refused) => {
            output::message(&format!("refused: {}: {refused}", refused.reason()));
            return Ok(output::ERROR);
        }
    };
    for unknown in kubelet::unknown(&rendered.config, &versions.kubelet) {
        output::note(&unknown.sentence(&format!("kubelet {}", versions.kubelet)));
    }
    let name = machine_deployment.name_any();
    let namespace = machine_deployment.namespace();
    let names = DerivedNames::new(namespace.as_deref().unwrap_or(KUBE_SYSTEM), &name);
    let config = config_yaml(&names.config, &rendered)?;
    match flags.output {
        Output::Config => output::document(&config)?,
        Output::Bootstrap => output::document(rendered.bootstrap.as_bytes())?,
        Output::Provisioning => output::document(rendered.provisioning.as_bytes())?,
        Output::All => {}
    }
    if let Some(folder) = &flags.output_dir {
        for (name, bytes) in [
            ("config.yaml", config.as_bytes()),
            ("bootstrap", rendered.bootstrap.as_bytes()),
            ("provisioning", rendered.provisioning.as_bytes()),
        ] {
            output::write_file(&folder.join(name), bytes)?;
        }
        if flags.files {
            write_files(folder, &rendered.config)?;
        }
    }
    Ok(output::SUCCESS)
}

fn config_yaml(name: &str, rendered: &Rendered) -> anyhow::Result<String> {
    let config = OperatingSystemConfig::new(name, rendered.stored_config.clone());
    output::yaml(
        &serde_json::to_value(&config)?,
        SerializerOptions::default(),
    )
}

fn write_files(folder: &Path, config: &OperatingSystemConfigSpec) -> anyhow::Result<()> {
    let halves = [
        ("bootstrap", &config.bootstrap_config.files),
        ("provisioning", &config.provisioning_config.files),
    ];
    for (half, files) in halves {
        for file in files {
            let path = folder.join("files").join(half).join(inside(&file.path)?);
            let inline = file.content.inline.as_ref();
            let data = inline.map_or("", |inline| inline.data.as_str());
            output::write_file(&path, data.as_bytes())?;
        }
    }
    Ok(())
}

/// Returns a machine's path relative to the output folder.
///
/// # Errors
///
/// If the path leads out of the folder.
fn inside(path: &str) -> anyhow::Result<PathBuf> {
    let mut inside = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::ParentDir => bail!("file `{path}`: `..` would lead out of the folder"),
            _ => {}
        }
    }
    Ok(inside)
}
