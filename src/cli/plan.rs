//! `osm plan`: what reconciles would write into live clusters, without writing it.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode};

use clap::Args;

use super::{
    input,
    output::{self, Format},
};
use crate::app::plan::{Answer, MachinesFate, Question, Supposed, Verdict, plan};
use crate::settings::RunFlags;

/// What `osm plan` takes.
#[derive(Args, Debug)]
pub(super) struct PlanFlags {
    /// Look at this tenant only, by its namespace; may be repeated.
    #[arg(short = 'n', long = "tenant", value_name = "NAMESPACE")]
    tenants: Vec<String>,

    /// As if this profile were installed in each tenant's namespace: a file; may be repeated.
    #[arg(long = "profile-file", value_name = "FILE")]
    profile_files: Vec<String>,

    /// As if this release's default profiles were installed, where the tenant's settings, edits and
    /// pins let them in.
    #[arg(long)]
    with_defaults: bool,

    /// How the answers are written.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    #[command(flatten)]
    run: RunFlags,
}

/// Something would be written.
const CHANGES: u8 = 2;

pub(super) fn run(flags: PlanFlags) -> ExitCode {
    answer(flags).unwrap_or_else(|error| {
        output::error(&error);
        ExitCode::FAILURE
    })
}

fn answer(flags: PlanFlags) -> anyhow::Result<ExitCode> {
    let mut profiles = BTreeMap::new();
    for file in &flags.profile_files {
        let profile = input::profile(file)?;
        profiles.insert(profile.name, profile.spec);
    }
    let kubeconfig: Option<PathBuf> = flags.run.kubeconfig.clone();
    let question = Question {
        settings: flags.run.check()?,
        kubeconfig,
        tenants: flags.tenants,
        profiles,
        defaults: if flags.with_defaults {
            Supposed::Installed
        } else {
            Supposed::Nothing
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let answers = runtime.block_on(plan(&question))?;
    match flags.format {
        Format::Text => output::lines(answers.iter().flat_map(lines))?,
        Format::Json => output::document(serde_json::to_string_pretty(&answers)? + "\n")?,
    }
    Ok(code(&answers))
}

fn code(answers: &[Answer]) -> ExitCode {
    let is = |verdicts: &[Verdict]| answers.iter().any(|it| verdicts.contains(&it.verdict));
    if is(&[Verdict::Refused, Verdict::Unknown]) {
        ExitCode::FAILURE
    } else if is(&[Verdict::Written, Verdict::Rotated]) {
        ExitCode::from(CHANGES)
    } else {
        output::SUCCESS
    }
}

fn lines(answer: &Answer) -> Vec<String> {
    let verdict = match answer.verdict {
        Verdict::Unchanged => "unchanged",
        Verdict::Written => "would be written, without a rotation",
        Verdict::Rotated => "would be rotated",
        Verdict::Refused => "would be refused",
        Verdict::Unknown => "unknown",
    };
    let name = answer.machine_deployment.as_deref().unwrap_or("-");
    let mut lines = vec![format!("{} {name}: {verdict}", answer.tenant)];
    lines.extend(answer.message.iter().map(|message| format!("  {message}")));
    if !answer.inputs.is_empty() {
        lines.push(format!("  differs: {}", answer.inputs.join(", ")));
    }
    if let Some(machines) = answer.machines {
        let fate = match machines {
            MachinesFate::Replaced => "would be replaced, when their turn has come",
            MachinesFate::BeingReplaced => "are being replaced",
            MachinesFate::HeldBack => "would be replaced, once it is at rest and not paused",
        };
        lines.push(format!("  outdated machines {fate}"));
    }
    lines.extend(answer.writes.iter().map(|write| format!("  {write}")));
    lines.extend(answer.diff.split_terminator('\n').map(str::to_owned));
    lines
}
