//! `osm diff`: how two profiles differ on the machines of a machine deployment.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::Args;
use kube::ResourceExt as _;

use super::{
    input::{NamedProfile, machine_deployments, profile},
    output,
    plan::described,
    world::{World, WorldFlags},
};
use crate::api::profile::OperatingSystemProfileSpec;
use crate::rules::{
    diff::{Names, differences},
    effect::{Documents, class, effects},
};

/// The flags of `osm diff`.
#[derive(Args, Debug)]
pub(super) struct DiffFlags {
    /// The old profile: a file, or the name of a default profile. Alone, it must be an overlay, and
    /// is compared with its base.
    old: String,

    /// The new profile.
    new: Option<String>,

    /// The machine deployments; may be repeated, and each file may contain several.
    #[arg(long = "machine-deployment", value_name = "FILE", required = true)]
    machine_deployments: Vec<PathBuf>,

    #[command(flatten)]
    world: WorldFlags,
}

pub(super) fn run(flags: &DiffFlags) -> anyhow::Result<ExitCode> {
    let world = flags.world.load()?;
    let sides = sides(flags, &world)?;
    let [_, (_, new)] = &sides;
    let declared = world.bases.resolve(new).map(|it| it.spec.effects);
    let declared = declared.unwrap_or_default();
    let (mut differs, mut is_refused) = (false, false);
    for path in &flags.machine_deployments {
        for machine_deployment in machine_deployments(path)? {
            let name = machine_deployment.name_any();
            let mut renders = Vec::new();
            for (argument, profile) in &sides {
                match world.render(profile, &machine_deployment) {
                    Ok(rendered) => renders.push(rendered),
                    Err(refused) => {
                        let reason = refused.reason();
                        output::message(&format!(
                            "refused: {name} by {argument}: {reason}: {refused}"
                        ));
                    }
                }
            }
            let [old, new] = renders.as_slice() else {
                is_refused = true;
                continue;
            };
            let [(old_name, _), (new_name, _)] = &sides;
            let names = Names {
                old: old_name,
                new: new_name,
            };
            let text = differences(names, &old.stored_config, &new.stored_config);
            if !text.is_empty() {
                differs = true;
                let effects = effects(Documents::of(old), Documents::of(new), &declared);
                let class = class(&effects);
                output::lines([
                    format!("# machine deployment {name}"),
                    format!("# on running machines: {class}"),
                ])?;
                output::lines(effects.iter().map(|it| format!("#   {}", described(it))))?;
                output::lines(text.split_terminator('\n'))?;
            }
        }
    }
    Ok(match (is_refused, differs) {
        (true, _) => output::ERROR,
        (false, true) => output::found(),
        (false, false) => output::SUCCESS,
    })
}

/// Returns the two profiles, with the names that the output uses.
fn sides(flags: &DiffFlags, world: &World) -> anyhow::Result<[(String, NamedProfile); 2]> {
    let first = profile(&flags.old)?;
    if let Some(new) = &flags.new {
        let second = profile(new)?;
        return Ok([(flags.old.clone(), first), (new.clone(), second)]);
    }
    let Some(name) = first.spec.extends.clone() else {
        bail!(
            "{}: it extends no other profile; name a second one to compare it with",
            flags.old
        );
    };
    let Some(spec) = world.bases.find(&name) else {
        bail!(
            "{}: it extends `{name}`, which is no default profile; give it by --base",
            flags.old
        );
    };
    let base = NamedProfile {
        name: name.clone(),
        spec: OperatingSystemProfileSpec::clone(&spec),
    };
    Ok([(name, base), (flags.old.clone(), first)])
}
