//! Flags that select clusters.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use super::output;
use crate::api::names::WORKER_CLUSTER_LABEL;
use crate::commands::{
    cluster_client::{Author, KubeconfigSource, WorkerKubeconfigSource},
    managers::follow::{Followed, follow, follow_nobody},
    selection::Selection,
};
use crate::settings::{EgressFlags, TypedFlags, kubeconfig_keys};
use crate::tenant::{
    access::{AccessRules, renewal::ServiceAccountName},
    address::{AddressRange, Loopback},
};

/// The manager's namespace in the manifests, and its ServiceAccount there.
pub(super) const MANAGER: &str = "operating-system-manager";

/// Access to the management cluster.
#[derive(Args, Debug)]
pub(super) struct ManagementFlags {
    /// The kubeconfig of the management cluster; by default the one that kubectl uses
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig; by default the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ManagementFlags {
    pub(super) fn source(&self) -> KubeconfigSource {
        KubeconfigSource {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
        }
    }
}

/// The tenants that a command is about.
#[derive(Args, Debug)]
pub(super) struct SelectionFlags {
    /// Only tenants in this namespace; may be repeated
    #[arg(short, long = "namespace", alias = "tenant", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    #[command(flatten)]
    scope: ScopeFlags,
}

impl SelectionFlags {
    pub(super) fn selection(self) -> Selection {
        self.scope.selection(self.namespaces)
    }
}

/// The tenants that a command is about, besides `--namespace`.
#[derive(Args, Debug)]
pub(super) struct ScopeFlags {
    /// Tenants in all namespaces, which is the default
    #[arg(short = 'A', long, conflicts_with = "namespaces")]
    all_namespaces: bool,
    /// Only tenants whose WorkerCluster has these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
}

impl ScopeFlags {
    pub(super) fn selection(self, namespaces: Vec<String>) -> Selection {
        Selection {
            namespaces,
            labels: self.selector,
            ..Selection::default()
        }
    }
}

/// Where the manager is.
#[derive(Args, Debug)]
pub(super) struct ManagerNamespace {
    /// The namespace in which the manager runs
    #[arg(long, value_name = "NAMESPACE", default_value = MANAGER)]
    pub(super) manager_namespace: String,
}

/// Whose settings a command uses. It must be the first field of the struct that flattens it.
#[derive(Args, Debug)]
pub(super) struct FollowFlags {
    #[command(flatten)]
    typed: TypedFlags,
    /// Use only the settings of this command's flags, and not those that the manager publishes
    #[arg(long)]
    pub(super) without_manager: bool,
}

impl FollowFlags {
    /// Returns the flags with the manager's settings, and prints whose settings they are.
    pub(super) async fn follow<F: Args>(
        &self,
        source: &KubeconfigSource,
        (namespace, selection): (&str, &Selection),
    ) -> anyhow::Result<Followed<F>> {
        let followed = if self.without_manager {
            follow_nobody(&self.typed)
        } else {
            let followed = follow(source, (namespace, selection), &self.typed).await;
            followed.context(
                "the manager's settings are not known; --without-manager uses those of the flags",
            )
        }?;
        output::note(&followed.origin);
        Ok(followed)
    }
}

/// Who the manager is in the management cluster.
#[derive(Args, Debug)]
pub(super) struct ManagerFlags {
    #[command(flatten)]
    namespace: ManagerNamespace,
    /// The manager's ServiceAccount in that namespace
    #[arg(long, value_name = "NAME", default_value = MANAGER)]
    service_account: String,
}

impl ManagerFlags {
    pub(super) fn account(&self) -> ServiceAccountName {
        ServiceAccountName {
            namespace: self.namespace.manager_namespace.clone(),
            name: self.service_account.clone(),
        }
    }
}

/// How `--worker-kubeconfig` is read.
#[derive(Args, Debug)]
pub(super) struct WorkerFlags {
    /// The context of that kubeconfig; by default the current one
    #[arg(long, value_name = "NAME")]
    worker_context: Option<String>,
    /// Trust that kubeconfig as kubectl does: run the commands and read the files that it names.
    /// Use this only for one that you wrote yourself
    #[arg(long, requires = "worker_kubeconfig")]
    allow_exec: bool,
}

impl WorkerFlags {
    pub(super) fn source(self, kubeconfig: PathBuf) -> WorkerKubeconfigSource {
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

/// The rules of `osm run` for kubeconfigs.
#[derive(Args, Debug)]
pub(super) struct ReachFlags {
    /// Accept a server on this machine, like the flag of osm run
    #[arg(long)]
    allow_loopback_servers: bool,
    /// Accept only servers in this range (CIDR), like the flag of osm run; may be repeated
    #[arg(long, value_name = "CIDR")]
    allowed_servers: Vec<AddressRange>,
    /// Refuse servers in this range (CIDR), like the flag of osm run; may be repeated
    #[arg(long, value_name = "CIDR")]
    denied_servers: Vec<AddressRange>,
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
        rules.addresses.allowed.clone_from(&self.allowed_servers);
        rules.addresses.denied.clone_from(&self.denied_servers);
        Ok(rules)
    }
}

/// The flags of `osm run` by which registrations are found and judged.
#[derive(Args, Debug)]
pub(super) struct RegistrationFlags {
    #[command(flatten)]
    pub(super) reach: ReachFlags,
    /// The label selector of the Secrets that register worker clusters
    #[arg(long, value_name = "SELECTOR", default_value_t = format!("{WORKER_CLUSTER_LABEL}=true"))]
    pub(super) registration_selector: String,
    /// The file with the manager's rules for inventories
    #[arg(long, value_name = "FILE")]
    pub(super) inventory_rules: Option<PathBuf>,
}

impl RegistrationFlags {
    /// Returns the keys under which Secrets may have their kubeconfigs.
    pub(super) fn keys(&self) -> anyhow::Result<Vec<String>> {
        Ok(kubeconfig_keys(self.inventory_rules.as_deref())?)
    }
}
