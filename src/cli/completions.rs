//! Completion of command lines: the script that a shell sources, and the answers that it asks for.
//! Names of tenants come from the management cluster that the line names, or that kubectl uses.

use std::{
    ffi::{OsStr, OsString},
    process::ExitCode,
    time::Duration,
};

use clap::{Arg, ArgMatches, Command};
use clap_complete::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, Shell,
    engine::ValueCompleter as _,
    env::{CompleteEnv, Shells},
};

use super::{Cli, clusters::MANAGER, output};
use crate::commands::{
    cluster_client::KubeconfigSource,
    selection::Selection,
    tenants::{self, Row},
};
use crate::render::default_profiles::default_profiles;

/// The variable by which the script asks this program.
const VARIABLE: &str = "OSM_COMPLETE";
/// A shell waits for the answer, so a cluster that is slower has no names.
const PATIENCE: Duration = Duration::from_secs(3);

/// Answers a shell that completes a line, and then ends the process. Does nothing otherwise.
pub fn complete() {
    let definition = || with_names(Cli::definition());
    CompleteEnv::with_factory(definition)
        .var(VARIABLE)
        .complete();
}

pub(super) fn run(shell: Shell) -> anyhow::Result<ExitCode> {
    let (mut script, shells) = (Vec::new(), Shells::builtins());
    if let Some(shell) = shells.completer(&shell.to_string()) {
        shell.write_registration(VARIABLE, "osm", "osm", "osm", &mut script)?;
    }
    output::document(script)?;
    Ok(output::SUCCESS)
}

/// Adds to each argument the names that it can have.
fn with_names(command: Command) -> Command {
    let owner = command.get_name().to_owned();
    let command = command.mut_args(|argument| with_candidates(&owner, argument));
    command.mut_subcommands(with_names)
}

fn with_candidates(owner: &str, argument: Arg) -> Arg {
    match (owner, argument.get_id().as_str()) {
        (_, "namespace" | "namespaces") => argument.add(ArgValueCandidates::new(namespaces)),
        ("remove" | "release", "name") => argument.add(ArgValueCandidates::new(names)),
        ("explain", "machine_deployment") => {
            argument.add(ArgValueCandidates::new(machine_deployments))
        }
        ("show" | "export", "name" | "names") => argument.add(ArgValueCandidates::new(profiles)),
        (
            "render" | "lint" | "bom" | "convert" | "diff",
            "profile" | "profiles" | "old" | "new",
        ) => argument.add(ArgValueCompleter::new(profiles_and_files)),
        _ => argument,
    }
}

fn profiles() -> Vec<CompletionCandidate> {
    let names = default_profiles().iter().map(|profile| profile.name);
    names.map(CompletionCandidate::new).collect()
}

fn profiles_and_files(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let mut found = profiles();
    found.retain(|it| it.get_value().to_string_lossy().starts_with(&*typed));
    found.extend(PathCompleter::file().stdio().complete(current));
    found
}

fn namespaces() -> Vec<CompletionCandidate> {
    // The one that the line names so far is not finished.
    let all = async |source, _| tenants::list(&source, &Selection::default(), MANAGER).await;
    let rows = asked(all).into_iter().flat_map(|listed| listed.rows);
    let mut namespaces: Vec<String> = rows.map(|row| row.tenant).collect();
    namespaces.dedup();
    namespaces
        .into_iter()
        .map(CompletionCandidate::new)
        .collect()
}

fn names() -> Vec<CompletionCandidate> {
    let candidate = |row: Row| {
        let help = format!("in {}: {}", row.tenant, row.state);
        CompletionCandidate::new(row.name).help(Some(help.into()))
    };
    let found = async |source, selection| tenants::list(&source, &selection, MANAGER).await;
    let rows = asked(found).into_iter().flat_map(|listed| listed.rows);
    rows.map(candidate).collect()
}

fn machine_deployments() -> Vec<CompletionCandidate> {
    let found =
        asked(async |source, selection| tenants::machine_deployments(&source, &selection).await);
    let found = found.unwrap_or_default().into_iter();
    found.map(CompletionCandidate::new).collect()
}

/// Asks the management cluster that the line names. Without an answer, there are no names: a shell
/// has no place for an error.
fn asked<T>(ask: impl AsyncFnOnce(KubeconfigSource, Selection) -> anyhow::Result<T>) -> Option<T> {
    let (source, selection) = typed(std::env::args_os());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let answer =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, ask(source, selection)).await });
    answer.ok()?.ok()
}

/// Returns the clusters and tenants that a line names so far.
fn typed(words: impl Iterator<Item = OsString>) -> (KubeconfigSource, Selection) {
    let line = words.skip_while(|it| it != "--").skip(1);
    let matches = Cli::definition()
        .ignore_errors(true)
        .try_get_matches_from(line)
        .unwrap_or_default();
    let mut last: &ArgMatches = &matches;
    while let Some((_, inner)) = last.subcommand() {
        last = inner;
    }
    let namespaces = last.try_get_many::<String>("namespaces").ok().flatten();
    let source = KubeconfigSource {
        kubeconfig: last.try_get_one("kubeconfig").ok().flatten().cloned(),
        context: last.try_get_one("context").ok().flatten().cloned(),
    };
    let selection = Selection {
        namespaces: namespaces.into_iter().flatten().cloned().collect(),
        ..Selection::default()
    };
    (source, selection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_so_far_says_which_clusters_are_meant() {
        let words = "osm -- osm explain -n tenant-berlin --context two --kubeconfig a/b";
        let (source, selection) = typed(words.split(' ').map(OsString::from));
        assert_eq!(source.kubeconfig.as_deref(), Some("a/b".as_ref()));
        assert_eq!(source.context.as_deref(), Some("two"));
        assert_eq!(selection.namespaces, ["tenant-berlin"]);
        let (source, selection) = typed("osm -- osm tena".split(' ').map(OsString::from));
        assert_eq!((source.kubeconfig, source.context), (None, None));
        assert!(selection.namespaces.is_empty());
    }
}
