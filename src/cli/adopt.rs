//! `osm adopt`: prints what clusters that another manager serves need to be served from here.

use std::{fmt::Write as _, process::ExitCode};

use clap::{Args, Subcommand};

use super::{clusters::ManagementFlags, output};
use crate::api::names::WORKER_CLUSTER_LABEL;
use crate::api::worker_cluster::WorkerCluster;
use crate::commands::adopt_kkp::{SECRET, UserCluster, user_clusters};
use crate::tenant::report::counted;

/// The commands of `osm adopt`.
#[derive(Debug, Subcommand)]
pub(super) enum AdoptCommand {
    /// Print WorkerClusters with the settings of the managers in a KKP seed, and how to hand over.
    #[command(after_help = "Examples:
  osm adopt kkp abc123 | kubectl apply -f -
  osm adopt kkp --context seed > worker-clusters.yaml

Exit codes: 0 printed, 3 the settings of some cannot be used, 1 they cannot be listed.")]
    Kkp(KkpFlags),
}

/// The flags of `osm adopt kkp`.
#[derive(Args, Debug)]
pub(super) struct KkpFlags {
    /// The user clusters, by their names; all by default
    #[arg(value_name = "CLUSTER")]
    clusters: Vec<String>,
    #[command(flatten)]
    management: ManagementFlags,
}

pub(super) fn run(command: AdoptCommand) -> anyhow::Result<ExitCode> {
    let AdoptCommand::Kkp(flags) = command;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let source = flags.management.source();
    let clusters = runtime.block_on(user_clusters(&source, &flags.clusters))?;
    let mut ended = output::SUCCESS;
    for cluster in &clusters {
        match &cluster.worker_cluster {
            Ok(found) => output::document(document(cluster, found)?)?,
            Err(why) => {
                let id = &cluster.id;
                output::note(&format!(
                    "the settings of user cluster {id} cannot be used: {why}"
                ));
                ended = output::found();
            }
        }
    }
    if clusters.is_empty() {
        output::message("No user clusters found.");
    }
    Ok(ended)
}

/// Returns the WorkerCluster as YAML, behind the commands that hand the cluster over.
fn document(cluster: &UserCluster, found: &WorkerCluster) -> anyhow::Result<String> {
    let (id, namespace, secret) = (&cluster.id, &cluster.namespace, SECRET);
    let replicas = usize::try_from(cluster.replicas).unwrap_or_default();
    let replicas = counted(replicas, "replica", "replicas");
    let mut text = format!("---\n# The manager of user cluster {id} has {replicas}.\n");
    let patch = r#"{"spec":{"componentsOverride":{"operatingSystemManager":{"replicas":0}}}}"#;
    write!(
        text,
        "# Apply this, then register the cluster and hand it over:\n\
         #   kubectl -n {namespace} label secret {secret} {WORKER_CLUSTER_LABEL}=true\n\
         #   kubectl patch clusters.kubermatic.k8c.io {id} --type merge -p '{patch}'\n"
    )?;
    text.push_str(&serde_saphyr::to_string(found)?);
    Ok(text)
}
