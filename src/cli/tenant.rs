//! `osm tenant`: adds, removes and releases tenants, on live clusters.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use super::{
    clusters::{
        FollowFlags, ManagementFlags, ManagerFlags, ReachFlags, RegistrationFlags, WorkerFlags,
    },
    format::{Format, OutputFlags},
    output,
    progress::Progress,
};
use crate::api::worker_cluster::{Credentials, OnRemoval};
use crate::commands::{
    selection::{Selection, registrations},
    tenant_add::{self, Answer, Known, RemoveParams, Rights},
    tenant_permit,
    tenant_release::{self, Mode, Params},
};
use crate::telemetry::chain::whole;

/// The subcommands of `osm tenant`.
#[derive(Debug, Subcommand)]
pub(super) enum TenantCommand {
    /// Turn a worker cluster into a tenant: create rights and an identity there, and the
    /// registration.
    #[command(after_help = "Examples:
  osm tenant add berlin --worker-kubeconfig berlin-admin.kubeconfig
  osm tenant add berlin --worker-kubeconfig berlin-admin.kubeconfig --dry-run -o yaml
  osm tenant add berlin -n customer-17 --worker-kubeconfig admin.kubeconfig --node-credentials

It may be repeated: what is there already is not written.
Exit codes: 0 ready (or registered, with --wait 0s or without machine-controller), 1 refused or not
ready in time.")]
    Add(Box<AddFlags>),
    /// Remove a tenant: release the worker cluster, and delete what `osm tenant add` created.
    #[command(after_help = "Examples:
  osm tenant remove berlin --on-removal release --worker-kubeconfig berlin-admin.kubeconfig
  osm tenant remove berlin --yes
  osm tenant remove --all --dry-run

Exit codes: 0 removed, 1 not removed, or not agreed to.")]
    Remove(Box<RemoveFlags>),
    /// Release a worker cluster to the operating-system-manager that served it before.
    #[command(after_help = "Examples:
  osm tenant release berlin --worker-kubeconfig berlin-admin.kubeconfig --dry-run
  osm tenant release berlin -n customer-17 --worker-kubeconfig berlin-admin.kubeconfig

It may be repeated after a failure.
Exit codes: 0 handed back, 1 a step failed.")]
    Release(ReleaseFlags),
    /// Permit the manager to replace machines because of the documents that there are now, although
    /// that takes more than spec.rollout.machines.maxClass.
    #[command(after_help = "Examples:
  osm tenant permit berlin --dry-run
  osm tenant permit berlin --machine-deployment kube-system/workers

Exit codes: 0 permitted, 1 refused, or nothing to permit.")]
    Permit(PermitFlags),
}

/// The flags of `osm tenant add`.
#[derive(Debug, Args)]
pub(super) struct AddFlags {
    /// The name of the registration and of its WorkerCluster
    name: String,
    /// The tenant's namespace in the management cluster, created if it does not exist; by default
    /// tenant-NAME
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    management: ManagementFlags,
    /// A kubeconfig of the worker cluster with an administrator's rights. It is not stored
    #[arg(long, value_name = "FILE")]
    worker_kubeconfig: PathBuf,
    #[command(flatten)]
    worker: WorkerFlags,
    /// The worker cluster's API server as the management cluster reaches it; by default the one in
    /// --worker-kubeconfig
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    reach: ReachFlags,
    #[command(flatten)]
    rights: RightsFlags,
    #[command(flatten)]
    credentials: CredentialFlags,
    /// An additional label of the registration; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the objects, without the content of Secrets, and progress on stderr
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
    /// How long to wait until the tenant is ready; 0s does not wait
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = humantime::parse_duration)]
    wait: Duration,
}

/// Rights besides those that every tenant needs.
#[derive(Debug, Args)]
struct RightsFlags {
    /// Create separate credentials for each machine deployment
    #[arg(long)]
    node_credentials: bool,
    /// Take the cluster over from the operating-system-manager that served it
    #[arg(long)]
    adopt: bool,
}

/// How the manager gets its credential.
#[derive(Debug, Args)]
struct CredentialFlags {
    /// Register a token that lives for a week, and let the manager renew it once a day
    #[arg(long, conflicts_with = "federated")]
    renew_token: bool,
    /// Register no credential: the worker cluster trusts the management cluster. Prints the file
    /// that its API server needs for that
    #[arg(long)]
    federated: bool,
    #[command(flatten)]
    manager: ManagerFlags,
}

impl CredentialFlags {
    fn asked(&self) -> Option<Credentials> {
        match (self.renew_token, self.federated) {
            (true, _) => Some(Credentials::Renewed),
            (_, true) => Some(Credentials::Federated),
            _ => None,
        }
    }
}

/// The flags of `osm tenant remove`.
#[derive(Debug, Args)]
pub(super) struct RemoveFlags {
    #[command(flatten)]
    follow: FollowFlags,
    /// The name of the registration
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    name: Option<String>,
    /// All tenants, or those of --namespace
    #[arg(long, conflicts_with = "worker_kubeconfig")]
    all: bool,
    /// The tenant's namespace in the management cluster; by default tenant-NAME
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    run: RegistrationFlags,
    #[command(flatten)]
    manager: ManagerFlags,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    management: ManagementFlags,
    /// A kubeconfig of the worker cluster with an administrator's rights. With it, what
    /// `osm tenant add` created there is deleted, too
    #[arg(long, value_name = "FILE")]
    worker_kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    worker: WorkerFlags,
    /// What happens to the machine deployments; by default what the WorkerCluster specifies, or
    /// release if that is Keep
    #[arg(long, value_enum, value_name = "POLICY")]
    on_removal: Option<Policy>,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// How long to wait until the cluster is released
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = humantime::parse_duration)]
    wait: Duration,
}

/// What happens to the machine deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// They are not changed.
    Keep,
    /// They lose the finalizer. What was created for them stays.
    Release,
    /// They lose the finalizer. What was created for them is deleted.
    Purge,
}

/// The flags of `osm tenant release`.
#[derive(Debug, Args)]
pub(super) struct ReleaseFlags {
    /// The name of the registration
    name: String,
    /// The tenant's namespace in the management cluster; by default tenant-NAME
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    management: ManagementFlags,
    /// A kubeconfig of the worker cluster with the right to write profiles and configs there
    #[arg(long, value_name = "FILE")]
    worker_kubeconfig: PathBuf,
    #[command(flatten)]
    worker: WorkerFlags,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// The flags of `osm tenant permit`.
#[derive(Debug, Args)]
pub(super) struct PermitFlags {
    /// The name of the registration
    name: String,
    /// The tenant's namespace in the management cluster; by default tenant-NAME
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    management: ManagementFlags,
    /// A machine deployment; may be repeated. By default, all that are behind
    #[arg(long = "machine-deployment", value_name = "NAMESPACE/NAME")]
    machine_deployments: Vec<String>,
    /// Print what would be permitted, and do nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(command: TenantCommand) -> anyhow::Result<ExitCode> {
    match command {
        TenantCommand::Add(flags) => add(*flags),
        TenantCommand::Remove(flags) => remove(*flags),
        TenantCommand::Release(flags) => release(flags),
        TenantCommand::Permit(flags) => permit(flags),
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn add(flags: AddFlags) -> anyhow::Result<ExitCode> {
    let AddFlags { name, .. } = flags;
    let rights = [
        (flags.rights.node_credentials, Rights::NodeCredentials),
        (flags.rights.adopt, Rights::Adoption),
    ];
    let params = tenant_add::Params {
        namespace: flags.namespace.unwrap_or_else(|| namespace_of(&name)),
        name,
        management: flags.management.source(),
        worker: flags.worker.source(flags.worker_kubeconfig),
        server: flags.server,
        credentials: flags.credentials.asked(),
        manager: flags.credentials.manager.account(),
        rights: rights
            .into_iter()
            .filter_map(|(is_given, right)| is_given.then_some(right))
            .collect(),
        labels: flags.labels,
        rules: flags.reach.rules()?,
        mode: if flags.dry_run {
            tenant_add::Mode::DryRun
        } else {
            tenant_add::Mode::Write
        },
        wait: (!flags.wait.is_zero()).then_some(flags.wait),
    };
    let progress = Progress::new();
    let Some(format) = flags.output else {
        let mut print = |line: String| progress.suspended(|| output::progress(&line));
        runtime()?.block_on(progress.waiting(tenant_add::tenant_add(params, &mut print)))?;
        return Ok(output::SUCCESS);
    };
    let mut print = |line: String| progress.suspended(|| output::message(&line));
    let adding = tenant_add::tenant_add(params, &mut print);
    let objects = runtime()?.block_on(progress.waiting(adding))?;
    let names = objects.iter().map(name_of);
    match format {
        Format::Yaml => output::document(serde_saphyr::to_string_multiple(&objects)?)?,
        format => OutputFlags::from(format).print(&objects, names.clone(), |_| names.collect())?,
    }
    Ok(output::SUCCESS)
}

/// Returns the name of an object as kubectl prints it.
fn name_of(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or_default().to_lowercase();
    let name = text("/metadata/name").unwrap_or_default();
    let version = text("/apiVersion").unwrap_or_default();
    match version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

fn namespace_of(name: &str) -> String {
    format!("tenant-{name}")
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or("a label is KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn remove(flags: RemoveFlags) -> anyhow::Result<ExitCode> {
    let (yes, is_dry) = (flags.yes, flags.dry_run);
    let runtime = runtime()?;
    let tenants = runtime.block_on(to_remove(flags))?;
    if tenants.is_empty() {
        output::message("No tenants found.");
        return Ok(output::SUCCESS);
    }
    let progress = Progress::new();
    let each = |tenants: &[RemoveParams], answer: Answer| {
        let mut done = Vec::new();
        for params in tenants {
            let mut ask = |question: &[String]| {
                if answer == Answer::No {
                    progress.suspended(|| question.iter().for_each(|it| output::progress(it)));
                }
                answer
            };
            let mut print = |line: String| progress.suspended(|| output::progress(&line));
            let removing = tenant_add::remove(params.clone(), &mut ask, &mut print);
            match runtime.block_on(progress.waiting(removing)) {
                Ok(_) => done.push(params.clone()),
                Err(error) if tenants.len() == 1 => return Err(error),
                Err(error) => {
                    let tenant = format!("{}/{}", params.namespace, params.name);
                    output::error(&error.context(tenant));
                }
            }
        }
        Ok(done)
    };
    // Looks at each without a change, asks once, and goes on with those that nothing keeps.
    let ready = each(&tenants, Answer::No)?;
    let removed = if is_dry || ready.is_empty() {
        ready
    } else if yes || asked() == Answer::Yes {
        each(&ready, Answer::Yes)?
    } else {
        return Ok(output::ERROR);
    };
    Ok(if removed.len() == tenants.len() {
        output::SUCCESS
    } else {
        output::ERROR
    })
}

/// Returns the tenants to remove.
async fn to_remove(flags: RemoveFlags) -> anyhow::Result<Vec<RemoveParams>> {
    let (management, manager) = (flags.management.source(), flags.manager.account());
    let mut selection = Selection {
        namespaces: flags.namespace.iter().cloned().collect(),
        ..Selection::default()
    };
    let names = match flags.name {
        Some(name) => vec![(flags.namespace.unwrap_or_else(|| namespace_of(&name)), name)],
        None => registrations(&management, &selection).await?,
    };
    selection.namespaces = names
        .iter()
        .map(|(namespace, _)| namespace.clone())
        .collect();
    let about = (manager.namespace.as_str(), &selection);
    // A tenant that a manager serves can be removed without its settings.
    let followed = flags.follow.follow(&management, about).await;
    let (of_run, unknown) = match followed {
        Ok(followed) => (followed.flags, None),
        Err(error) => (flags.run, Some(whole(error.as_ref()).to_string())),
    };
    let known = if flags.follow.without_manager {
        Known::Gone
    } else {
        tenant_add::observe(&management, &manager.namespace).await?
    };
    let worker = flags
        .worker_kubeconfig
        .map(|kubeconfig| flags.worker.source(kubeconfig));
    let of = |(namespace, name)| {
        Ok(RemoveParams {
            namespace,
            name,
            management: management.clone(),
            worker: worker.clone(),
            on_removal: flags.on_removal.map(|policy| match policy {
                Policy::Keep => OnRemoval::Keep,
                Policy::Release => OnRemoval::Release,
                Policy::Purge => OnRemoval::Purge,
            }),
            patience: flags.wait,
            manager: manager.clone(),
            known: known.clone(),
            rules: match &unknown {
                Some(why) => Err(why.clone()),
                None => Ok(of_run.reach.rules()?),
            },
            keys: of_run.keys()?,
        })
    };
    names.into_iter().map(of).collect()
}

/// Asks for confirmation. Without a terminal, the answer is no.
fn asked() -> Answer {
    if !io::stdin().is_terminal() {
        output::message("nothing was done: there is no terminal to ask at; give --yes");
        return Answer::No;
    }
    if output::ask("Go on? Type yes:").as_deref() == Some("yes") {
        return Answer::Yes;
    }
    output::message("nothing was done");
    Answer::No
}

fn permit(flags: PermitFlags) -> anyhow::Result<ExitCode> {
    let params = tenant_permit::Params {
        namespace: (flags.namespace).unwrap_or_else(|| namespace_of(&flags.name)),
        name: flags.name,
        management: flags.management.source(),
        machine_deployments: flags.machine_deployments,
        is_dry_run: flags.dry_run,
    };
    let progress = Progress::new();
    let mut print = |line: String| progress.suspended(|| output::progress(&line));
    let permitting = tenant_permit::permit(params, &mut print);
    runtime()?.block_on(progress.waiting(permitting))?;
    Ok(output::SUCCESS)
}

fn release(flags: ReleaseFlags) -> anyhow::Result<ExitCode> {
    let params = release_params(flags);
    let progress = Progress::new();
    let mut print = |line: String| progress.suspended(|| output::progress(&line));
    let releasing = tenant_release::release(params, &mut print);
    runtime()?.block_on(progress.waiting(releasing))?;
    Ok(output::SUCCESS)
}

fn release_params(flags: ReleaseFlags) -> Params {
    let ReleaseFlags { name, .. } = flags;
    Params {
        namespace: flags.namespace.unwrap_or_else(|| namespace_of(&name)),
        name,
        management: flags.management.source(),
        worker: flags.worker.source(flags.worker_kubeconfig),
        mode: if flags.dry_run {
            Mode::DryRun
        } else {
            Mode::Write
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: ReleaseFlags,
    }

    /// The documentation must use the same name as in `osm tenant add`, and so the same namespace.
    #[test]
    fn the_documented_release_names_the_registration_that_the_documented_add_made() {
        let page = include_str!("../../docs/adopt.md");
        let mut commands = page
            .lines()
            .filter(|it| it.starts_with("osm tenant release "));
        let documented = commands.next().expect("the page shows the command");
        let words = documented.split_whitespace().skip(2);
        let line = Line::try_parse_from(words).map(|line| release_params(line.flags));
        let params = line.expect("the page shows a command that parses");
        assert_eq!(
            (params.name.as_str(), params.namespace.as_str()),
            ("berlin", "tenant-berlin")
        );
        let line = ["release", "berlin", "-n", "b", "--worker-kubeconfig", "f"];
        let line = Line::try_parse_from(line).map(|line| release_params(line.flags));
        assert_eq!(line.expect("it parses").namespace, "b");
    }
}
