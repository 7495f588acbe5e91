//! `osm machine`: shows how far a machine has come.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::{
    clusters::WorkerFlags,
    output::{self, Format},
};
use crate::api::names::KUBE_SYSTEM;
use crate::commands::machine::{self, Question, State, Way};

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

    /// The output format
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

pub(super) fn run(flags: MachineFlags) -> anyhow::Result<ExitCode> {
    let question = Question {
        worker: flags.worker.way(flags.worker_kubeconfig),
        name: flags.name,
        namespace: flags.namespace,
        node: flags.node,
        machine_deployment: flags.machine_deployment,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let way = runtime.block_on(machine::steps(&question))?;
    match flags.output {
        Format::Json => output::document(serde_json::to_string_pretty(&way)? + "\n")?,
        Format::Text => output::lines(lines(&way))?,
    }
    if way.ready {
        return Ok(output::SUCCESS);
    }
    Ok(output::found())
}

fn lines(way: &Way) -> Vec<String> {
    let width = way.steps.iter().map(|it| it.step.len()).max().unwrap_or(0);
    let mut lines: Vec<String> = way
        .steps
        .iter()
        .map(|step| {
            let state = match step.state {
                State::Done => "done",
                State::Waiting => "waiting",
                State::Failed => "FAILED",
                State::Unknown => "unknown",
            };
            format!("{state:<8} {:<width$}  {}", step.step, step.detail)
        })
        .collect();
    if let Some(next) = &way.next {
        lines.extend([String::new(), format!("Next: {next}")]);
    }
    lines
}
