//! `osm explain`: explains why a machine deployment has its current state.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Args;

use super::output::{self, Format};
use crate::commands::{
    cluster_client::KubeconfigSource,
    plan::{
        Question, Supposed, Verdict,
        explain::{Explanation, Input, explain},
    },
};
use crate::settings::RunFlags;

/// The flags of `osm explain`.
#[derive(Args, Debug)]
pub(super) struct ExplainFlags {
    /// The machine deployment: NAME or NAMESPACE/NAME
    machine_deployment: String,

    /// Consider only the tenant with this namespace; may be repeated
    #[arg(short = 'n', long = "tenant", value_name = "NAMESPACE")]
    tenants: Vec<String>,

    /// The output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,

    /// The context of that kubeconfig; by default the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    run: RunFlags,
}

pub(super) fn run(flags: ExplainFlags) -> anyhow::Result<ExitCode> {
    let question = Question {
        management: KubeconfigSource {
            kubeconfig: flags.run.kubeconfig.clone(),
            context: flags.context,
        },
        settings: flags.run.check()?,
        tenants: flags.tenants,
        profiles: BTreeMap::new(),
        defaults: Supposed::Nothing,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let found = runtime.block_on(explain(&question, &flags.machine_deployment))?;
    match flags.output {
        Format::Json => output::document(serde_json::to_string_pretty(&found)? + "\n")?,
        Format::Text => {
            let found: Vec<_> = found.iter().map(lines).collect();
            output::lines(found.join(&String::new()))?;
        }
    }
    if found.iter().all(|it| it.blockers.is_empty()) {
        return Ok(output::SUCCESS);
    }
    Ok(output::found())
}

fn lines(explained: &Explanation) -> Vec<String> {
    let Explanation {
        answer,
        profile,
        made,
        blockers,
        remarks,
        ..
    } = explained;
    let mut lines = Vec::new();
    let name = answer.machine_deployment.as_deref().unwrap_or("-");
    let verdict = match answer.verdict {
        Verdict::Unchanged => "current",
        Verdict::Written => "about to be written, without a rotation",
        Verdict::Rotated => "about to be rotated",
        Verdict::Waiting => "waiting",
        Verdict::Refused => "refused",
        Verdict::Unknown => "unknown",
    };
    lines.push(format!("{name} of {}: {verdict}", answer.tenant));
    let version = profile.version.as_deref().unwrap_or("(missing)");
    let (namespace, name) = (&profile.namespace, &profile.name);
    lines.extend([
        String::new(),
        format!("Profile {namespace}/{name} {version}"),
    ]);
    lines.push(format!("  chosen by  {}", profile.why));
    let digest = profile.digest.as_deref().unwrap_or("-");
    lines.push(format!("  content    {}, sha256 {digest}", profile.content));
    if let Some(base) = &profile.extends {
        lines.push(format!("  extends    {base}"));
    }
    lines.extend([String::new(), "Revision".to_owned()]);
    match made {
        Some(made) => {
            let (revision, version) = (&made.revision, &made.profile_version);
            let at = made.at.as_deref().unwrap_or("-");
            lines.push(format!(
                "  made for revision {revision}, profile {version}, at {at}"
            ));
        }
        None => lines.push("  nothing has been made yet".to_owned()),
    }
    match answer.inputs.as_slice() {
        [] => {}
        inputs => {
            lines.push(format!("  differs since: {}", inputs.join(", ")));
        }
    }
    for write in &answer.writes {
        lines.push(format!("  next: {write}"));
    }
    table(&mut lines, ("Inputs", &explained.inputs));
    table(&mut lines, ("Settings", &explained.settings));
    lines.extend([String::new(), "What blocks it".to_owned()]);
    if blockers.is_empty() {
        lines.push("  nothing".to_owned());
    }
    for blocker in blockers {
        lines.push(format!("  {}: {}", blocker.reason, blocker.message));
        if let Some(fix) = &blocker.fix {
            let who = blocker.actor.as_str();
            let who = who.map_or_else(String::new, |who| format!(" ({who})"));
            lines.push(format!("    fix{who}: {fix}"));
        }
    }
    if !remarks.is_empty() {
        lines.extend([String::new(), "Annotations to correct".to_owned()]);
        lines.extend(remarks.iter().map(|remark| format!("  {remark}")));
    }
    lines
}

fn table(lines: &mut Vec<String>, (heading, inputs): (&str, &[Input])) {
    lines.extend([String::new(), heading.to_owned()]);
    let width = inputs.iter().map(|it| it.name.len()).max().unwrap_or(0);
    for Input { name, value, from } in inputs {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        lines.push(format!("  {name:<width$}  {value}  ({from})"));
    }
}
