//! `osm doctor`: finds problems, and says how to fix them.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{
    clusters::{ManagementFlags, ManagerFlags, ReachFlags, SelectionFlags},
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
use crate::settings::kubeconfig_keys;
use crate::tenant::report::counted;

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
    /// The file with the manager's rules for inventories
    #[arg(long, value_name = "FILE")]
    inventory_rules: Option<PathBuf>,
    #[command(flatten)]
    manager: ManagerFlags,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(flags: DoctorFlags) -> anyhow::Result<ExitCode> {
    let options = Options {
        management: flags.management.source(),
        selection: flags.selection.selection(),
        selector: flags.registration_selector,
        keys: kubeconfig_keys(flags.inventory_rules.as_deref())?,
        manager: flags.manager.account(),
        rules: flags.reach.rules()?,
        descriptors: rlimit::Resource::NOFILE.get_hard().ok(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (progress, count) = (Progress::new(), Count::default());
    let diagnosis = doctor::run_checks(&options, &count);
    let diagnosis = runtime.block_on(progress.counting(&count, diagnosis))?;
    let checks = diagnosis.checks;
    let wrong = checks.iter().filter(|it| it.state == State::Fail);
    let wrong = wrong.map(|it| format!("{}/{}", it.place, it.what));
    flags
        .output
        .print(&checks, wrong, |layout| text(layout, &checks))?;
    if !diagnosis.is_authorized {
        return Ok(output::ERROR);
    }
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
            Cell::from(&check.what),
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
    let of = |state| checks.iter().filter(|it| it.state == state).count();
    text.line(summary(checks.len(), of(State::Warn), of(State::Fail)));
    text
}

fn summary(checks: usize, warnings: usize, failures: usize) -> String {
    [
        counted(checks, "check: ", "checks: "),
        counted(warnings, "warning, ", "warnings, "),
        counted(failures, "failure", "failures"),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_with_the_words_of_the_table() {
        assert_eq!(summary(12, 1, 0), "12 checks: 1 warning, 0 failures");
        assert_eq!(summary(1, 0, 1), "1 check: 0 warnings, 1 failure");
    }
}
