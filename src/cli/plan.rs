//! `osm plan`: shows what reconciles would write into live clusters, without writing it.

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, sync::OnceLock};

use clap::{
    Args, Command,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{
    applied::applied,
    clusters::{FollowFlags, ManagerFlags, ScopeFlags},
    format::OutputFlags,
    input, output,
    progress::Progress,
};
use crate::api::{change::Class, worker_cluster::BehindEntry};
use crate::commands::{
    cluster_client::KubeconfigSource,
    count::Count,
    managers::follow::Followed,
    plan::{
        Answer, Contents, MachinesFate, Question, Running, Supposed, Verdict, applied::Applied,
        plan,
    },
    selection::Selection,
};
use crate::rules::effect::Effect;
use crate::settings::RunFlags;
use crate::tenant::access::renewal::ServiceAccountName;

/// The flags of `osm plan`.
#[derive(Args, Debug)]
pub(super) struct PlanFlags {
    #[command(flatten)]
    follow: FollowFlags,

    #[command(flatten)]
    scope: ScopeFlags,

    /// Plan as if the WorkerClusters and profiles in this file or folder (- for stdin) were
    /// applied; may be repeated.
    #[arg(short, long, value_name = "PATH")]
    filename: Vec<PathBuf>,

    /// Plan as if this profile (a file) were installed in each tenant's namespace; may be repeated.
    #[arg(long = "profile-file", value_name = "FILE")]
    profile_files: Vec<String>,

    /// Plan as if this release's default profiles were installed, if the tenant's settings, edits
    /// and pins allow it.
    #[arg(long)]
    with_defaults: bool,

    /// Exit with 4 if a change takes more than this on running machines. Without it, any change
    /// passes.
    #[arg(long, value_name = "CLASS", value_parser = classes())]
    max_class: Option<Class>,

    #[command(flatten)]
    output: OutputFlags,

    /// Print a line for each tenant with changes or without an answer, and then the totals.
    #[arg(long, conflicts_with = "output")]
    summary: bool,

    /// The context of that kubeconfig; by default the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    manager: ManagerFlags,

    #[command(flatten)]
    run: RunFlags,
}

pub(super) fn run(flags: PlanFlags) -> anyhow::Result<ExitCode> {
    let mut profiles = BTreeMap::new();
    for file in &flags.profile_files {
        let profile = input::profile(file)?;
        profiles.insert(profile.name, profile.spec);
    }
    let applied = applied(&flags.filename)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let selection = flags.scope.selection(flags.run.namespaces.clone());
    let about = (flags.manager.account(), selection);
    let question = question(&flags.follow, (flags.run.kubeconfig, flags.context), about);
    let question = Question {
        profiles,
        applied,
        defaults: if flags.with_defaults {
            Supposed::Installed
        } else {
            Supposed::Nothing
        },
        ..runtime.block_on(question)?
    };
    let (progress, count) = (Progress::new(), Count::default());
    let answers = runtime.block_on(progress.counting(&count, plan(&question, &count)))?;
    for unused in question.applied.unused() {
        output::note(&format!("{unused} belongs to no tenant in this plan"));
    }
    let changing = answers.iter().filter(|it| it.verdict != Verdict::Unchanged);
    let changing = changing.filter_map(resource);
    flags.output.print(&answers, changing, |_| {
        if flags.summary {
            summary(&answers).into_iter().collect()
        } else {
            answers.iter().flat_map(lines).collect()
        }
    })?;
    Ok(code(&answers, flags.max_class))
}

fn classes() -> impl TypedValueParser<Value = Class> {
    let names = Class::ALL.map(Class::name);
    PossibleValuesParser::new(names).map(|name| Class::named(&name).unwrap_or(Class::None))
}

/// Returns what the manager's reconciles of the selected tenants would do, as a question.
///
/// # Errors
///
/// The manager's settings cannot be learnt, or a flag is invalid.
pub(super) async fn question(
    follow: &FollowFlags,
    (kubeconfig, context): (Option<PathBuf>, Option<String>),
    (manager, selection): (ServiceAccountName, Selection),
) -> anyhow::Result<Question> {
    let management = KubeconfigSource {
        kubeconfig,
        context,
    };
    let about = (manager.namespace.as_str(), &selection);
    let followed: Followed<RunFlags> = follow.follow(&management, about).await?;
    Ok(Question {
        selection: followed.limit(selection)?,
        settings: followed.flags.check()?,
        manager,
        management,
        profiles: BTreeMap::new(),
        applied: Applied::default(),
        defaults: Supposed::Nothing,
        contents: Contents::default(),
        shared: OnceLock::new(),
    })
}

/// The flags of `osm run` on which the answer can depend.
const OF_RUN: [&str; 19] = [
    "fleet",
    "kubeconfig",
    "inventories",
    "inventory_rules",
    "registration_selector",
    "namespaces",
    "tenant_defaults",
    "tenant_policies",
    "profile_namespaces",
    "allow_loopback_servers",
    "allowed_servers",
    "denied_servers",
    "egress_proxy",
    "egress_proxy_credentials_file",
    "exceptions",
    "tenant_machine_deployments",
    "tenant_profiles",
    "tenant_profile_bytes",
    "token_lifetime",
];

/// Hides the flags of `osm run` on which the answer does not depend. They are accepted, so that the
/// arguments of the manager's Deployment can be used as they are.
pub(super) fn hide_flags_of_run(command: Command) -> Command {
    let of_run = RunFlags::augment_args(Command::default());
    let hidden = of_run.get_arguments().map(clap::Arg::get_id);
    let hidden = hidden.filter(|id| !OF_RUN.contains(&id.as_str()));
    let hide = |command: Command, id| command.mut_arg(id, |arg| arg.hide(true));
    let command = hidden.fold(command, hide);
    command.mut_arg("namespaces", |arg| {
        let help = "Only tenants in this namespace; may be repeated";
        arg.alias("tenant").help(help).long_help(help)
    })
}

/// Returns the machine deployment, or `-` for writes that all of a tenant share.
pub(super) fn machine_deployment(answer: &Answer) -> &str {
    answer.machine_deployment.as_deref().unwrap_or("-")
}

/// Returns the machine deployment as kubectl names it.
pub(super) fn resource(answer: &Answer) -> Option<String> {
    let (_, name) = answer.machine_deployment.as_ref()?.split_once('/')?;
    Some(format!("machinedeployment.cluster.k8s.io/{name}"))
}

fn code(answers: &[Answer], max_class: Option<Class>) -> ExitCode {
    let mut running = answers.iter().filter_map(|it| it.running.as_ref());
    let is_beyond = running.any(|it| max_class.is_some_and(|max| it.class > max));
    let is = |verdicts: &[Verdict]| answers.iter().any(|it| verdicts.contains(&it.verdict));
    if is(&[Verdict::Waiting, Verdict::Refused, Verdict::Unknown]) {
        output::ERROR
    } else if is_beyond {
        output::beyond()
    } else if is(&[Verdict::Written, Verdict::Rotated]) {
        output::found()
    } else {
        output::SUCCESS
    }
}

/// From the best to the worst.
const VERDICTS: [Verdict; 7] = [
    Verdict::Unchanged,
    Verdict::Written,
    Verdict::Rotated,
    Verdict::Waiting,
    Verdict::Refused,
    Verdict::Ignored,
    Verdict::Unknown,
];

fn called(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unchanged => "unchanged",
        Verdict::Written => "would be written",
        Verdict::Rotated => "would be rotated",
        Verdict::Waiting => "would wait",
        Verdict::Refused => "would be refused",
        Verdict::Ignored => "ignored",
        Verdict::Unknown => "unknown",
    }
}

fn summary(answers: &[Answer]) -> Vec<String> {
    let mut tenants: BTreeMap<&str, Vec<&Answer>> = BTreeMap::new();
    for answer in answers {
        tenants.entry(&answer.tenant).or_default().push(answer);
    }
    let is_unchanged = |of: &[&Answer]| of.iter().all(|it| it.verdict == Verdict::Unchanged);
    let changing = tenants.iter().filter(|(_, of)| !is_unchanged(of));
    let mut lines: Vec<String> = changing
        .map(|(tenant, of)| {
            let mut changing = of.iter().filter(|it| it.verdict != Verdict::Unchanged);
            let why = changing.find_map(|it| it.message.as_deref());
            let why = why.map(|it| format!(": {it}")).unwrap_or_default();
            format!("{tenant}: {}{why}", counts(of))
        })
        .collect();
    let unchanged = tenants.len() - lines.len();
    let of_machines: Vec<&Answer> = answers
        .iter()
        .filter(|it| it.machine_deployment.is_some())
        .collect();
    lines.push(format!(
        "tenants: {}, {unchanged} unchanged; machine deployments: {}, {}",
        tenants.len(),
        of_machines.len(),
        counts(&of_machines)
    ));
    lines.extend(by_class(answers));
    lines
}

/// Returns a line for each class of changes, the greatest last.
fn by_class(answers: &[Answer]) -> Vec<String> {
    let running: Vec<_> = answers
        .iter()
        .filter_map(|it| it.running.as_ref())
        .collect();
    let lines = Class::ALL.into_iter().filter_map(|class| {
        let of_class = running.iter().filter(|it| it.class == class);
        let machines: Vec<i64> = of_class.map(|it| it.machines_at_most).collect();
        let count = machines.len();
        let sum = machines.into_iter().fold(0, i64::saturating_add);
        (count > 0).then(|| {
            format!(
                "on running machines: {class}: machine deployments: {count}, machines: up to {sum}"
            )
        })
    });
    lines.collect()
}

/// Returns what a change takes on running machines, for people.
pub(super) fn of_running(running: &Running) -> Vec<String> {
    let count = running.machines_at_most;
    let head = format!("  on running machines (up to {count}): {}", running.class);
    let effects = running.effects.iter().map(described);
    let effects = effects.map(|effect| format!("    {effect}"));
    std::iter::once(head).chain(effects).collect()
}

/// Returns how far machines are behind, for people.
pub(super) fn of_behind(behind: &BehindEntry) -> String {
    let BehindEntry {
        class,
        parts,
        document,
    } = behind;
    format!("  machines may be behind: {class}: {parts} (document {document})")
}

/// Returns an effect for people.
pub(super) fn described(effect: &Effect) -> String {
    let units = match effect.units.as_slice() {
        [] => String::new(),
        units => format!(" ({})", units.join(", ")),
    };
    format!("{}: {}{units}", effect.part, effect.class)
}

fn counts(answers: &[&Answer]) -> String {
    let count = |verdict| answers.iter().filter(|it| it.verdict == verdict).count();
    let counts: Vec<String> = VERDICTS
        .into_iter()
        .map(|verdict| (count(verdict), called(verdict)))
        .filter(|(count, _)| *count > 0)
        .map(|(count, called)| format!("{count} {called}"))
        .collect();
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.join(", ")
}

/// Returns the answer for people, line by line.
pub(super) fn lines(answer: &Answer) -> Vec<String> {
    let more = match answer.verdict {
        Verdict::Written => ", without a rotation",
        _ => "",
    };
    let verdict = format!("{}{more}", called(answer.verdict));
    let name = machine_deployment(answer);
    let mut lines = vec![format!("{} {name}: {verdict}", answer.tenant)];
    lines.extend(answer.message.iter().map(|message| match answer.reason {
        Some(reason) => format!("  {reason}: {message}"),
        None => format!("  {message}"),
    }));
    if !answer.inputs.is_empty() {
        lines.push(format!("  differs: {}", answer.inputs.join(", ")));
    }
    if let Some(machines) = answer.machines {
        let fate = match machines {
            MachinesFate::Replaced => "would be replaced, when their turn has come",
            MachinesFate::BeingReplaced => "are being replaced",
            MachinesFate::HeldBack => "would be replaced, once it is at rest and not paused",
            MachinesFate::AboveLimit => "would stay: the change takes more than maxClass permits",
            MachinesFate::BelowLimit => "would stay: the change takes less than minClass",
        };
        lines.push(format!("  outdated machines {fate}"));
    }
    lines.extend(answer.running.iter().flat_map(of_running));
    lines.extend(answer.behind.iter().map(of_behind));
    lines.extend(answer.writes.iter().map(|write| format!("  {write}")));
    lines.extend(answer.diff.split_terminator('\n').map(str::to_owned));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_help_shows_the_flags_of_run_that_change_an_answer_and_all_are_accepted() {
        let mut definition = Cli::definition();
        definition.build();
        for name in ["plan", "explain"] {
            let command = definition.find_subcommand(name).expect("it exists");
            let is_shown = |id: &str| {
                let found = command.get_arguments().find(|it| it.get_id() == id);
                !found.expect(id).is_hide_set()
            };
            assert!(OF_RUN.into_iter().all(is_shown), "{name}");
            for hidden in ["admin_address", "concurrent_renders", "instance"] {
                assert!(!is_shown(hidden), "{name}: {hidden}");
            }
        }
        let words = ["osm", "plan", "--tenant", "a", "--concurrent-renders", "8"];
        assert!(definition.try_get_matches_from(words).is_ok());
    }
}
