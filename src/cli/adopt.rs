//! `osm adopt`: hands clusters that another manager serves over, and back.

use std::{num::NonZeroUsize, process::ExitCode, time::Duration};

use clap::{Args, Command, Subcommand};

use super::{
    clusters::{FollowFlags, MANAGER},
    output,
    plan::{hide_flags_of_run, lines, question},
    progress::Progress,
};
use crate::commands::{
    adopt_kkp::{Action, Direction, Ended, HandOver, Step, command, hand_over, look},
    count::Count,
    plan::Answer,
    selection::Selection,
};
use crate::settings::RunFlags;
use crate::tenant::{access::renewal::ServiceAccountName, report::counted};

/// The commands of `osm adopt`.
#[derive(Debug, Subcommand)]
pub(super) enum AdoptCommand {
    /// Hand the user clusters of a KKP seed over to the manager, and back.
    #[command(after_help = "Examples:
  osm adopt kkp --dry-run
  osm adopt kkp --cluster abc123
  osm adopt kkp --all --at-once 20
  osm adopt kkp --all --back

Exit codes: 0 done, or there is nothing to do; 3 some stay where they are, or, with --dry-run,
something would be done; 1 a step failed; it can be run again.")]
    Kkp(Box<KkpFlags>),
}

/// The flags of `osm adopt kkp`.
#[derive(Args, Debug)]
pub(super) struct KkpFlags {
    #[command(flatten)]
    follow: FollowFlags,
    /// This user cluster, by KKP's name; may be repeated
    #[arg(
        long = "cluster",
        value_name = "ID",
        required_unless_present_any = ["all", "dry_run"],
        conflicts_with = "all"
    )]
    clusters: Vec<String>,
    /// All user clusters
    #[arg(long)]
    all: bool,
    /// Give them back to KKP's managers
    #[arg(long)]
    back: bool,
    /// Print what would be done, and what the manager would write then, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// The number of user clusters in a wave. The first wave has one
    #[arg(long, value_name = "NUMBER", default_value = "10")]
    at_once: NonZeroUsize,
    /// How long a wave may take until all its clusters are served
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// The context of the kubeconfig; by default the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    run: RunFlags,
}

/// Hides the flags that mean nothing here, or that the command sets.
pub(super) fn hide_flags(command: Command) -> Command {
    command.mut_subcommand("kkp", |kkp| {
        let set = ["inventories", "registration_selector"];
        let hide = |command: Command, id| command.mut_arg(id, |arg| arg.hide(true));
        set.into_iter().fold(hide_flags_of_run(kkp), hide)
    })
}

pub(super) fn run(command: AdoptCommand) -> anyhow::Result<ExitCode> {
    let AdoptCommand::Kkp(flags) = command;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let is_dry = flags.dry_run;
    let given = runtime.block_on(flags.hand_over())?;
    let direction = given.direction;
    let progress = Progress::new();
    if is_dry {
        let count = Count::default();
        let looked = progress.counting(&count, look(given, &count));
        let (steps, answers) = runtime.block_on(looked)?;
        output::lines(told(&steps, &answers, direction))?;
        return Ok(code(&steps));
    }
    let mut print = |line: String| progress.suspended(|| output::progress(&line));
    let ended = runtime.block_on(progress.waiting(hand_over(given, &mut print)))?;
    output::progress(&end(ended, direction));
    Ok(if ended.refused == 0 {
        output::SUCCESS
    } else {
        output::found()
    })
}

impl KkpFlags {
    async fn hand_over(self) -> anyhow::Result<HandOver> {
        // No user cluster of KKP trusts its seed instead of a credential.
        let manager = ServiceAccountName {
            namespace: MANAGER.to_owned(),
            name: MANAGER.to_owned(),
        };
        let selection = Selection {
            namespaces: self.run.namespaces,
            ..Selection::default()
        };
        let access = (self.run.kubeconfig, self.context);
        let question = question(&self.follow, access, (manager, selection)).await?;
        Ok(HandOver {
            question,
            ids: self.clusters,
            direction: if self.back {
                Direction::Back
            } else {
                Direction::ToUs
            },
            at_once: self.at_once,
            patience: self.timeout,
        })
    }
}

/// Returns what would be done, line by line.
fn told(steps: &[Step], answers: &[Answer], direction: Direction) -> Vec<String> {
    let of_step = |step: &Step| {
        let Step { id, action } = step;
        let mut told = match action {
            Action::Nothing => vec![format!("{id}: nothing to do")],
            Action::Refuse(why) => vec![format!("{id}: stays, because {why}")],
            Action::HandOver => vec![
                format!("{id}: would be handed over"),
                format!("  {}", command(id, direction)),
            ],
        };
        let namespace = step.namespace();
        let of_it = answers.iter().filter(|it| it.tenant == namespace);
        told.extend(of_it.flat_map(lines).map(|line| format!("  {line}")));
        told
    };
    steps.iter().flat_map(of_step).collect()
}

fn code(steps: &[Step]) -> ExitCode {
    if steps.iter().all(|it| it.action == Action::Nothing) {
        output::SUCCESS
    } else {
        output::found()
    }
}

fn end(ended: Ended, direction: Direction) -> String {
    let clusters = |number| counted(number, "user cluster", "user clusters");
    let whom = match direction {
        Direction::ToUs => "handed over",
        Direction::Back => "given back",
    };
    let stay = match ended.refused {
        0 => String::new(),
        refused => format!("; {refused} stay where they are"),
    };
    format!("done: {} {whom}{stay}", clusters(ended.handed_over))
}
