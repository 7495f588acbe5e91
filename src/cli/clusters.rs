//! Flags that say which clusters are meant.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::app::cluster_client::{Author, KubeconfigSource, WorkerKubeconfigSource};
use crate::settings::EgressFlags;
use crate::tenant::{
    access::AccessRules,
    address::{AddressRange, Loopback},
};

/// The way into the management cluster.
#[derive(Args, Debug)]
pub(super) struct ManagementFlags {
    /// The way into the management cluster; without it what kubectl takes
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig; without it the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ManagementFlags {
    pub(super) fn way(&self) -> KubeconfigSource {
        KubeconfigSource {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }
}

/// How `--worker-kubeconfig` is read.
#[derive(Args, Debug)]
pub(super) struct WorkerFlags {
    /// The context of that kubeconfig; without it the current one
    #[arg(long, value_name = "NAME")]
    worker_context: Option<String>,
    /// Trust that kubeconfig as kubectl does: run the commands and read the files that it names.
    /// Only for one that you wrote yourself
    #[arg(long, requires = "worker_kubeconfig")]
    allow_exec: bool,
}

impl WorkerFlags {
    pub(super) fn way(self, kubeconfig: PathBuf) -> WorkerKubeconfigSource {
        WorkerKubeconfigSource {
            kubeconfig,
            context: self.worker_context,
            author: if self.allow_exec {
                Author::ClusterClient
            } else {
                Author::Anybody
            },
        }
    }
}

/// What `osm run` accepts of kubeconfigs.
#[derive(Args, Debug)]
pub(super) struct ReachFlags {
    /// Accept a server on this machine, as osm run does with the same flag
    #[arg(long)]
    allow_loopback_servers: bool,
    /// Accept only a server in this range (CIDR), as osm run does; may be repeated
    #[arg(long = "allowed-servers", value_name = "CIDR")]
    allowed: Vec<AddressRange>,
    /// Refuse a server in this range (CIDR), as osm run does; may be repeated
    #[arg(long = "denied-servers", value_name = "CIDR")]
    denied: Vec<AddressRange>,
    #[command(flatten)]
    egress: EgressFlags,
}

impl ReachFlags {
    pub(super) fn rules(&self) -> anyhow::Result<AccessRules> {
        let mut rules = AccessRules {
            egress_proxy: self.egress.proxy().context("--egress-proxy")?,
            ..AccessRules::default()
        };
        if self.allow_loopback_servers {
            rules.addresses.loopback = Loopback::Allowed;
        }
        rules.addresses.allowed.clone_from(&self.allowed);
        rules.addresses.denied.clone_from(&self.denied);
        Ok(rules)
    }
}
