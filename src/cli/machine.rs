//! `osm machine`: shows how far a machine has come.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{
    clusters::WorkerFlags,
    format::OutputFlags,
    output,
    table::{Cell, Layout, Table, Text, Tone},
};
use crate::api::names::KUBE_SYSTEM;
use crate::commands::machine::{self, Progress, Question, State};

/// The flags of `osm machine`.
#[derive(Args, Debug)]
pub(super) struct MachineFlags {
    /// The name of the Machine
    name: String,

    /// A kubeconfig of the worker cluster with your own rights; what you may not read is shown as
    /// unknown
    #[arg(long, value_name = "FILE")]
    worker_kubeconfig: PathBuf,

    #[command(flatten)]
    worker: WorkerFlags,

    /// The namespace of machines and machine deployments
    #[arg(short, long, value_name = "NAMESPACE", default_value = KUBE_SYSTEM)]
    namespace: String,

    /// The node, if it does not have the Machine's name and the Machine does not refer to it yet
    #[arg(long, value_name = "NAME")]
    node: Option<String>,

    /// The machine deployment, if the Machine is gone or may not be read
    #[arg(long, value_name = "NAME")]
    machine_deployment: Option<String>,

    #[command(flatten)]
    output: OutputFlags,
}

pub(super) fn run(flags: MachineFlags) -> anyhow::Result<ExitCode> {
    let question = Question {
        worker: flags.worker.source(flags.worker_kubeconfig),
        name: flags.name,
        namespace: flags.namespace,
        node: flags.node,
        machine_deployment: flags.machine_deployment,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let progress = runtime.block_on(machine::steps(&question))?;
    let missing = progress.steps.iter().filter(|it| it.state != State::Done);
    let missing = missing.map(|it| it.step.to_owned());
    flags
        .output
        .print(&progress, missing, |layout| text(layout, &progress))?;
    if progress.ready {
        return Ok(output::SUCCESS);
    }
    Ok(output::found())
}

fn text(layout: Layout, progress: &Progress) -> Text {
    let mut table = Table::new(layout, &["STATE", "STEP", "DETAIL"]);
    for step in &progress.steps {
        let state = match step.state {
            State::Done => Cell::new("done", Tone::Good),
            State::Waiting => Cell::new("waiting", Tone::Doubtful),
            State::Failed => Cell::new("FAILED", Tone::Wrong),
            State::Unknown => Cell::from("unknown"),
        };
        table.push([state, step.step.into(), Cell::from(&step.detail)]);
    }
    let mut text = Text::from(&table);
    if let Some(next) = &progress.next {
        text.line("");
        text.line(format!("Next: {next}"));
    }
    text
}
