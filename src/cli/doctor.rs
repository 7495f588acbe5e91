//! `osm doctor`: finds problems, and says how to fix them.

use std::process::ExitCode;

use clap::Args;

use super::{
    clusters::{ManagementFlags, ReachFlags},
    output::{self, Format},
};
use crate::api::names::WORKER_CLUSTER_LABEL;
use crate::commands::doctor::{self, Check, Options, State};

/// The flags of `osm doctor`.
#[derive(Args, Debug)]
pub(super) struct DoctorFlags {
    /// Check only the tenant with this namespace
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    tenant: Option<String>,
    #[command(flatten)]
    management: ManagementFlags,
    #[command(flatten)]
    reach: ReachFlags,
    /// The label selector of the Secrets that register worker clusters
    #[arg(long, value_name = "SELECTOR", default_value_t = format!("{WORKER_CLUSTER_LABEL}=true"))]
    registration_selector: String,
    /// The namespace in which the manager runs
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "operating-system-manager"
    )]
    namespace: String,
    /// The manager's ServiceAccount in that namespace
    #[arg(long, value_name = "NAME", default_value = "operating-system-manager")]
    service_account: String,
    /// The output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

pub(super) fn run(flags: &DoctorFlags) -> anyhow::Result<ExitCode> {
    let options = Options {
        management: flags.management.way(),
        tenant: flags.tenant.clone(),
        selector: flags.registration_selector.clone(),
        namespace: flags.namespace.clone(),
        service_account: flags.service_account.clone(),
        rules: flags.reach.rules()?,
        descriptors: rlimit::Resource::NOFILE.get_hard().ok(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let checks = runtime.block_on(doctor::run_checks(&options))?;
    match flags.output {
        Format::Json => output::document(serde_json::to_string_pretty(&checks)? + "\n")?,
        Format::Text => output::lines(lines(&checks))?,
    }
    if checks.iter().all(|it| it.state != State::Fail) {
        return Ok(output::SUCCESS);
    }
    Ok(output::found())
}

fn lines(checks: &[Check]) -> Vec<String> {
    let width = |of: fn(&Check) -> usize| checks.iter().map(of).max().unwrap_or(0);
    let place = width(|it| it.place.len());
    let what = width(|it| it.what.len());
    let mut lines = Vec::new();
    for check in checks {
        let state = match check.state {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Fail => "FAIL",
        };
        let (at, of, found) = (&check.place, check.what, &check.message);
        lines.push(format!("{state:<4}  {at:<place$}  {of:<what$}  {found}"));
        if let (Some(fix), true) = (&check.fix, check.state != State::Ok) {
            lines.push(format!("      fix: {fix}"));
        }
    }
    let wrong = checks.iter().filter(|it| it.state == State::Fail).count();
    let doubtful = checks.iter().filter(|it| it.state == State::Warn).count();
    let all = checks.len();
    lines.push(format!("{all} checks, {doubtful} doubtful, {wrong} wrong"));
    lines
}
