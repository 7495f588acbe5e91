//! `osm explain`: why a machine deployment has what it has.

use std::{collections::BTreeMap, fmt::Write as _, process::ExitCode};

use clap::{Args, ValueEnum};

use super::output;
use crate::app::plan::{
    Question, Supposed, Verdict,
    explain::{Explanation, Input, explain},
};
use crate::settings::RunFlags;

/// What `osm explain` takes.
#[derive(Args, Debug)]
pub(super) struct ExplainFlags {
    /// The machine deployment: NAME or NAMESPACE/NAME
    machine_deployment: String,

    /// Look at this tenant only, by its namespace; may be repeated
    #[arg(short = 'n', long = "tenant", value_name = "NAMESPACE")]
    tenants: Vec<String>,

    /// How it is written
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,

    #[command(flatten)]
    run: RunFlags,
}

/// How explanations are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

pub(super) fn run(flags: ExplainFlags) -> anyhow::Result<ExitCode> {
    let question = Question {
        kubeconfig: flags.run.kubeconfig.clone(),
        settings: flags.run.check()?,
        tenants: flags.tenants,
        profiles: BTreeMap::new(),
        defaults: Supposed::Nothing,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let found = runtime.block_on(explain(&question, &flags.machine_deployment))?;
    output::print(match flags.output {
        Format::Json => serde_json::to_string_pretty(&found)? + "\n",
        Format::Text => found.iter().map(text).collect::<Vec<_>>().join("\n"),
    })?;
    if found.iter().all(|it| it.blockers.is_empty()) {
        return Ok(output::SUCCESS);
    }
    Ok(output::found())
}

fn text(explained: &Explanation) -> String {
    let Explanation {
        answer,
        profile,
        made,
        blockers,
        ..
    } = explained;
    let mut text = String::new();
    let name = answer.machine_deployment.as_deref().unwrap_or("-");
    let verdict = match answer.verdict {
        Verdict::Unchanged => "current",
        Verdict::Written => "about to be written, without a rotation",
        Verdict::Rotated => "about to be rotated",
        Verdict::Refused => "refused",
        Verdict::Unknown => "unknown",
    };
    let _ = writeln!(text, "{name} of {}: {verdict}", answer.tenant);
    let version = profile.version.as_deref().unwrap_or("(missing)");
    let (namespace, name) = (&profile.namespace, &profile.name);
    let _ = writeln!(text, "\nProfile {namespace}/{name} {version}");
    let _ = writeln!(text, "  chosen by  {}", profile.why);
    let digest = profile.digest.as_deref().unwrap_or("-");
    let _ = writeln!(text, "  content    {}, sha256 {digest}", profile.content);
    if let Some(base) = &profile.extends {
        let _ = writeln!(text, "  extends    {base}");
    }
    let _ = writeln!(text, "\nRevision");
    match made {
        Some(made) => {
            let (revision, version) = (&made.revision, &made.profile_version);
            let at = made.at.as_deref().unwrap_or("-");
            let _ = writeln!(
                text,
                "  made for revision {revision}, profile {version}, at {at}"
            );
        }
        None => text.push_str("  nothing has been made yet\n"),
    }
    match answer.inputs.as_slice() {
        [] => {}
        inputs => {
            let _ = writeln!(text, "  differs since: {}", inputs.join(", "));
        }
    }
    for write in &answer.writes {
        let _ = writeln!(text, "  next: {write}");
    }
    table(&mut text, ("Inputs", &explained.inputs));
    table(&mut text, ("Settings", &explained.settings));
    let _ = writeln!(text, "\nWhat blocks it");
    if blockers.is_empty() {
        text.push_str("  nothing\n");
    }
    for blocker in blockers {
        let _ = writeln!(text, "  {}: {}", blocker.reason, blocker.message);
        if let Some(fix) = &blocker.fix {
            let _ = writeln!(text, "    fix: {fix}");
        }
    }
    text
}

fn table(text: &mut String, (heading, inputs): (&str, &[Input])) {
    let _ = writeln!(text, "\n{heading}");
    let width = inputs.iter().map(|it| it.name.len()).max().unwrap_or(0);
    for Input { name, value, from } in inputs {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(text, "  {name:<width$}  {value}  ({from})");
    }
}
