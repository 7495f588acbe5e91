//! `osm doctor`: finds problems, and says how to fix them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use clap::Args;

use super::{
    clusters::{FollowFlags, ManagementFlags, ManagerFlags, RegistrationFlags, SelectionFlags},
    format::OutputFlags,
    output,
    progress::Progress,
    table::{Cell, Layout, Table, Text, Tone},
};
use crate::api::reason::Reason;
use crate::commands::{
    count::Count,
    doctor::{self, Check, Options, State},
    managers::follow::Followed,
};
use crate::settings::inventories;
use crate::telemetry::chain::whole;
use crate::tenant::report::counted;

/// The number of tenants whose checks are all shown.
const FEW: usize = 10;

/// The places of checks that are no tenants.
const NO_TENANTS: [&str; 2] = ["management", "this machine"];

/// The flags of `osm doctor`.
#[derive(Args, Debug)]
pub(super) struct DoctorFlags {
    #[command(flatten)]
    follow: FollowFlags,
    #[command(flatten)]
    selection: SelectionFlags,
    #[command(flatten)]
    management: ManagementFlags,
    #[command(flatten)]
    run: CheckedFlags,
    /// The fleet to check; by default the only one that runs
    #[arg(long, value_name = "NAME")]
    fleet: Option<String>,
    #[command(flatten)]
    manager: ManagerFlags,
    #[command(flatten)]
    output: OutputFlags,
}

/// The flags of `osm run` that are checked.
#[derive(Args, Debug)]
struct CheckedFlags {
    #[command(flatten)]
    registrations: RegistrationFlags,
    /// The manager's inventory, as its flag says; may be repeated
    #[arg(
        long = "inventory",
        value_name = "INVENTORY",
        value_delimiter = ',',
        default_value = "label"
    )]
    inventories: Vec<String>,
}

pub(super) fn run(flags: DoctorFlags) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (management, manager) = (flags.management.source(), flags.manager.account());
    let mut selection = flags.selection.selection();
    let about = (manager.namespace.as_str(), &selection);
    let followed = flags.follow.follow(&management, about);
    let (of_run, fleet, unknown) = match runtime.block_on(followed) {
        Ok(Followed { flags, fleet, .. }) => {
            if let Some(fleet) = fleet.as_ref().filter(|_| selection.namespaces.is_empty()) {
                selection.except = fleet.except_namespaces();
            }
            (flags, fleet.map(|it| it.name), None)
        }
        Err(error) => (flags.run, None, Some(whole(error.as_ref()).to_string())),
    };
    let CheckedFlags {
        registrations: of_run,
        inventories: names,
    } = of_run;
    let options = Options {
        management,
        selection,
        keys: of_run.keys()?,
        inventories: inventories(&names, of_run.inventory_rules.as_deref())?,
        manager,
        fleet: fleet.or(flags.fleet),
        settings_unknown: unknown,
        rules: of_run.reach.rules()?,
        selector: of_run.registration_selector,
        descriptors: rlimit::Resource::NOFILE.get_hard().ok(),
    };
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

/// Returns each check if there are few tenants. Of more, returns problems alone, grouped by their
/// causes.
fn text(layout: Layout, checks: &[Check]) -> Text {
    let is_of_tenant = |it: &&Check| !NO_TENANTS.contains(&it.place.as_str());
    let (of_tenants, others): (Vec<&Check>, Vec<&Check>) = checks.iter().partition(is_of_tenant);
    let tenants: BTreeSet<&str> = of_tenants.iter().map(|it| it.place.as_str()).collect();
    let is_whole = layout.is_wide || tenants.len() <= FEW;
    let groups = if is_whole {
        checks.iter().map(|it| vec![it]).collect()
    } else {
        let others = others.into_iter().map(|it| vec![it]);
        others.chain(groups(of_tenants)).collect::<Vec<_>>()
    };
    let mut table = Table::new(layout, &["STATE", "WHERE", "CHECK", "FOUND"]);
    for group in &groups {
        table.push(cells(group));
    }
    let mut lines = table.lines(&[]).into_iter();
    let mut text = Text::default();
    text.rows(lines.by_ref().take(usize::from(layout.has_headings)));
    for (line, group) in lines.zip(&groups) {
        text.rows([line]);
        let Some(check) = group.first().filter(|it| it.state != State::Ok) else {
            continue;
        };
        if group.len() > 1 {
            text.line(format!("       in: {}", names(group)));
        }
        if let Some(fix) = &check.fix {
            text.line(format!("       fix: {fix}"));
        }
    }
    if !is_whole {
        text.line(format!(
            "Of {} tenants, problems alone are shown, by their causes: -o wide shows all checks.",
            tenants.len()
        ));
    }
    let of = |state| checks.iter().filter(|it| it.state == state).count();
    text.line(summary(checks.len(), of(State::Warn), of(State::Fail)));
    text
}

/// Returns the problems of tenants by their causes, the worst and most frequent first.
fn groups(checks: Vec<&Check>) -> Vec<Vec<&Check>> {
    let mut groups: BTreeMap<(State, &str, &str), Vec<&Check>> = BTreeMap::new();
    for check in checks.into_iter().filter(|it| it.state != State::Ok) {
        let cause = (check.state, check.what.as_ref(), cause(&check.message));
        groups.entry(cause).or_default().push(check);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|((state, ..), of)| (Reverse(*state), Reverse(of.len())));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns what tells the cause of a message: the reason of a condition, or the innermost of an
/// error's causes, which names no tenant.
fn cause(message: &str) -> &str {
    match message.split_once(": ") {
        Some((reason, _)) if Reason::named(reason).is_some() => reason,
        _ => message.rsplit(": ").next().unwrap_or(message),
    }
}

/// The number of tenants that a line names.
const NAMED_MAX: usize = 3;

fn places<'a>(group: &[&'a Check]) -> BTreeSet<&'a str> {
    group.iter().map(|it| it.place.as_str()).collect()
}

fn names(group: &[&Check]) -> String {
    let places = places(group);
    let named: Vec<&str> = places.iter().copied().take(NAMED_MAX).collect();
    match places.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn cells(group: &[&Check]) -> Vec<Cell> {
    let Some(first) = group.first() else {
        return Vec::new();
    };
    let state = match first.state {
        State::Ok => Cell::new("ok", Tone::Good),
        State::Warn => Cell::new("warn", Tone::Doubtful),
        State::Fail => Cell::new("FAIL", Tone::Wrong),
    };
    let place = match places(group).len() {
        1 => first.place.clone(),
        several => format!("{several} tenants"),
    };
    vec![
        state,
        place.into(),
        Cell::from(&first.what),
        Cell::from(&first.message),
    ]
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

    fn a_check(place: &str, state: State, message: &str) -> Check {
        Check {
            place: place.to_owned(),
            what: "connection".into(),
            state,
            message: message.to_owned(),
            fix: Some("look".to_owned()),
        }
    }

    #[test]
    fn many_tenants_are_shown_by_the_causes_of_their_problems() {
        let mut checks = vec![a_check("management", State::Ok, "it answers")];
        for number in 0..305 {
            let place = format!("tenant-{number:03}");
            checks.push(match number {
                0..35 => a_check(&place, State::Ok, "it answers"),
                35..39 => a_check(&place, State::Warn, "ExpiresSoon: in 3 days"),
                _ => {
                    let why = format!("cannot reach https://c{number}.example: refused");
                    a_check(&place, State::Fail, &why)
                }
            });
        }
        let plain = Layout {
            is_wide: false,
            has_headings: true,
        };
        let shown = text(plain, &checks);
        let lines = shown.lines();
        assert_eq!(lines.len(), 10, "{lines:#?}");
        assert!(lines[2].contains("   266 tenants  connection  cannot reach https://c39"));
        assert!(lines[3].ends_with("in: tenant-039, tenant-040, tenant-041 and 263 more"));
        assert!(lines[5].contains("4 tenants") && lines[5].contains("ExpiresSoon: in 3 days"));
        assert_eq!(lines[9], "306 checks: 4 warnings, 266 failures");
        let wide = Layout {
            is_wide: true,
            ..plain
        };
        assert!(text(wide, &checks).lines().len() > 305);
        assert_eq!(text(plain, &checks[..11]).lines().len(), 13, "few tenants");
    }

    #[test]
    fn the_summary_counts_with_the_words_of_the_table() {
        assert_eq!(summary(12, 1, 0), "12 checks: 1 warning, 0 failures");
        assert_eq!(summary(1, 0, 1), "1 check: 0 warnings, 1 failure");
    }
}
