//! `osm explain`: explains why a machine deployment has its current state.

use std::process::ExitCode;

use clap::Args;

use super::{
    clusters::{FollowFlags, ManagerFlags, ScopeFlags},
    format::OutputFlags,
    output,
    plan::{machine_deployment, of_behind, of_running, question, resource},
    progress::Progress,
    table::{Cell, Table, Text},
};
use crate::commands::{
    count::Count,
    plan::{
        Verdict,
        explain::{Explanation, Input, explain},
    },
};
use crate::settings::RunFlags;

/// The flags of `osm explain`.
#[derive(Args, Debug)]
pub(super) struct ExplainFlags {
    #[command(flatten)]
    follow: FollowFlags,

    /// The machine deployment: NAME or NAMESPACE/NAME
    machine_deployment: String,

    #[command(flatten)]
    scope: ScopeFlags,

    #[command(flatten)]
    output: OutputFlags,

    /// The context of that kubeconfig; by default the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    manager: ManagerFlags,

    #[command(flatten)]
    run: RunFlags,
}

pub(super) fn run(flags: ExplainFlags) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let selection = flags.scope.selection(flags.run.namespaces.clone());
    let about = (flags.manager.account(), selection);
    let question = question(&flags.follow, (flags.run.kubeconfig, flags.context), about);
    let question = runtime.block_on(question)?;
    let (progress, count) = (Progress::new(), Count::default());
    let found = explain(&question, &flags.machine_deployment, &count);
    let found = runtime.block_on(progress.counting(&count, found))?;
    let names = found.iter().filter_map(|it| resource(&it.answer));
    flags.output.print(&found, names, |_| text(&found))?;
    if found.iter().all(|it| it.blockers.is_empty()) {
        return Ok(output::SUCCESS);
    }
    Ok(output::found())
}

fn text(found: &[Explanation]) -> Text {
    let mut text = Text::default();
    for (number, explained) in found.iter().enumerate() {
        if number > 0 {
            text.line("");
        }
        describe(&mut text, explained);
    }
    text
}

fn describe(text: &mut Text, explained: &Explanation) {
    let Explanation {
        answer,
        profile,
        made,
        blockers,
        remarks,
        ..
    } = explained;
    let name = machine_deployment(answer);
    let verdict = match answer.verdict {
        Verdict::Unchanged => "current",
        Verdict::Written => "about to be written, without a rotation",
        Verdict::Rotated => "about to be rotated",
        Verdict::Waiting => "waiting",
        Verdict::Refused => "refused",
        Verdict::Ignored => "ignored",
        Verdict::Unknown => "unknown",
    };
    text.line(format!("{name} of {}: {verdict}", answer.tenant));
    let version = profile.version.as_deref().unwrap_or("(missing)");
    let (namespace, name) = (&profile.namespace, &profile.name);
    text.section(&format!("Profile {namespace}/{name} {version}"));
    text.line(format!("  chosen by  {}", profile.why));
    let digest = profile.digest.as_deref().unwrap_or("-");
    text.line(format!("  content    {}, sha256 {digest}", profile.content));
    if let Some(base) = &profile.extends {
        text.line(format!("  extends    {base}"));
    }
    text.section("Revision");
    match made {
        Some(made) => {
            let or_none = |text: &str| if text.is_empty() { "none" } else { text }.to_owned();
            let (revision, version) = (or_none(&made.revision), or_none(&made.profile_version));
            let at = made.at.as_deref().unwrap_or("-");
            text.line(format!(
                "  made for revision {revision}, profile {version}; its Secret exists since {at}"
            ));
        }
        None => text.line("  nothing has been made yet"),
    }
    if !answer.inputs.is_empty() {
        text.line(format!("  differs since: {}", answer.inputs.join(", ")));
    }
    let running = answer.running.iter().flat_map(of_running);
    let running = running.chain(answer.behind.iter().map(of_behind));
    let writes = answer.writes.iter().map(|write| format!("  next: {write}"));
    for line in running.chain(writes) {
        text.line(line);
    }
    inputs(text, ("Inputs", &explained.inputs));
    inputs(text, ("Settings", &explained.settings));
    text.section("What blocks it");
    if blockers.is_empty() {
        text.line("  nothing");
    }
    for blocker in blockers {
        text.line(format!("  {}: {}", blocker.reason, blocker.message));
        if let Some(fix) = &blocker.fix {
            let who = blocker.actor.as_str();
            let who = who.map_or_else(String::new, |who| format!(" ({who})"));
            text.line(format!("    fix{who}: {fix}"));
        }
    }
    if !remarks.is_empty() {
        text.section("What to correct");
        for remark in remarks {
            text.line(format!("  {remark}"));
        }
    }
}

fn inputs(text: &mut Text, (heading, inputs): (&str, &[Input])) {
    text.section(heading);
    let mut table = Table::default();
    for Input { name, value, from } in inputs {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let value = format!("{value}  ({from})");
        table.push(["".into(), Cell::from(name), value.into()]);
    }
    text.rows(table.lines(&[]));
}
