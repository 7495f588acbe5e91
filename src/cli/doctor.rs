//! `osm doctor`: finds problems, and says how to fix them.

use std::process::ExitCode;

use clap::Args;

use super::{
    clusters::{MANAGER, ManagementFlags, ReachFlags, SelectionFlags},
    format::OutputFlags,
    output,
    progress::Progress,
    table::{Cell, Layout, Table, Text, Tone},
};
use crate::api::names::WORKER_CLUSTER_LABEL;
use crate::commands::{
    count::Count,
    doctor::{self, Check, Options, State},
};

/// The flags of `osm doctor`.
#[derive(Args, Debug)]
pub(super) struct DoctorFlags {
    #[command(flatten)]
    selection: SelectionFlags,
    #[command(flatten)]
    management: ManagementFlags,
    #[command(flatten)]
    reach: ReachFlags,
    /// The label selector of the Secrets that register worker clusters
    #[arg(long, value_name = "SELECTOR", default_value_t = format!("{WORKER_CLUSTER_LABEL}=true"))]
    registration_selector: String,
    /// The namespace in which the manager runs
    #[arg(long, value_name = "NAMESPACE", default_value = MANAGER)]
    manager_namespace: String,
    /// The manager's ServiceAccount in that namespace
    #[arg(long, value_name = "NAME", default_value = MANAGER)]
    service_account: String,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(flags: DoctorFlags) -> anyhow::Result<ExitCode> {
    let options = Options {
        management: flags.management.source(),
        selection: flags.selection.selection(),
        selector: flags.registration_selector,
        namespace: flags.manager_namespace,
        service_account: flags.service_account,
        rules: flags.reach.rules()?,
        descriptors: rlimit::Resource::NOFILE.get_hard().ok(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (progress, count) = (Progress::new(), Count::default());
    let checks = doctor::run_checks(&options, &count);
    let checks = runtime.block_on(progress.counting(&count, checks))?;
    let wrong = checks.iter().filter(|it| it.state == State::Fail);
    let wrong = wrong.map(|it| format!("{}/{}", it.place, it.what));
    flags
        .output
        .print(&checks, wrong, |layout| text(layout, &checks))?;
    if checks.iter().all(|it| it.state != State::Fail) {
        return Ok(output::SUCCESS);
    }
    Ok(output::found())
}

fn text(layout: Layout, checks: &[Check]) -> Text {
    let mut table = Table::new(layout, &["STATE", "WHERE", "CHECK", "FOUND"]);
    for check in checks {
        let state = match check.state {
            State::Ok => Cell::new("ok", Tone::Good),
            State::Warn => Cell::new("warn", Tone::Doubtful),
            State::Fail => Cell::new("FAIL", Tone::Wrong),
        };
        table.push([
            state,
            Cell::from(&check.place),
            check.what.into(),
            Cell::from(&check.message),
        ]);
    }
    let mut lines = table.lines(&[]).into_iter();
    let mut text = Text::default();
    text.rows(lines.by_ref().take(usize::from(layout.has_headings)));
    for (line, check) in lines.zip(checks) {
        text.rows([line]);
        if let (Some(fix), true) = (&check.fix, check.state != State::Ok) {
            text.line(format!("       fix: {fix}"));
        }
    }
    let wrong = checks.iter().filter(|it| it.state == State::Fail).count();
    let doubtful = checks.iter().filter(|it| it.state == State::Warn).count();
    let all = checks.len();
    text.line(format!("{all} checks, {doubtful} doubtful, {wrong} wrong"));
    text
}
