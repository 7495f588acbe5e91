//! Turns a worker cluster into a tenant: creates what the manager needs there, a kubeconfig with
//! the rights for that and no others, and the registration. Each step may be repeated, and existing
//! objects are not written.
//!
//! The user is an administrator of both clusters, so that the manager need not be one.

pub(super) mod apply;
mod federation;
mod manager_rights;
mod prerequisites;
mod ready;
mod registration;
pub(super) mod tenant_remove;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use self::apply::{Applied, Applier};
use super::cluster_client::{self, ClusterClient, KubeconfigSource, WorkerKubeconfigSource};
use crate::api::{names::WORKER_CLUSTER_LABEL, worker_cluster::Credentials};
use crate::tenant::{
    access::{AccessRules, renewal::ServiceAccountName},
    report::counted,
    secret_text::SecretText,
};

pub use self::{
    apply::Mode,
    prerequisites::Rights,
    tenant_remove::{Answer, Known, RemoveParams, observe, remove},
};

/// The worker cluster that becomes a tenant, and its settings.
#[derive(Clone, Debug)]
pub struct Params {
    /// The name of the registration and of its WorkerCluster.
    pub name: String,
    /// The tenant's namespace in the management cluster.
    pub namespace: String,
    /// Access to the management cluster.
    pub management: KubeconfigSource,
    /// Access to the worker cluster as an administrator.
    pub worker: WorkerKubeconfigSource,
    /// The worker cluster's API server as the manager reaches it, if that URL differs from the
    /// administrator's.
    pub server: Option<String>,
    /// Rights besides those that every tenant needs.
    pub rights: Vec<Rights>,
    /// How the manager gets its credential. `None` leaves it as it is.
    pub credentials: Option<Credentials>,
    /// The manager's ServiceAccount in the management cluster.
    pub manager: ServiceAccountName,
    /// Additional labels of the registration.
    pub labels: Vec<(String, String)>,
    /// The manager's rules for kubeconfigs.
    pub rules: AccessRules,
    /// States whether anything is written.
    pub mode: Mode,
    /// How long to wait until the tenant is ready; `None` does not wait.
    pub wait: Option<Duration>,
}

/// Registers the worker cluster, and reports each step to `progress`. Returns the applied objects,
/// without secrets.
///
/// # Errors
///
/// A cluster cannot be reached, something is not ours to change, or the manager refuses the tenant.
pub async fn tenant_add(
    mut params: Params,
    progress: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<Vec<Value>> {
    let management = ClusterClient::management(&params.management).await?;
    let worker = ClusterClient::worker(&params.worker).await?;
    let server = management.server.authority();
    if let Some(server) = server.and_then(|server| server.as_str().parse().ok()) {
        params.rules.addresses.denied_servers.push(server);
    }
    let addition = TenantAddition {
        management_uid: management.cluster_uid().await?,
        worker_uid: worker.cluster_uid().await.context("--worker-kubeconfig")?,
        management,
        worker,
        params,
    };
    addition.run(progress).await
}

struct TenantAddition {
    params: Params,
    management: ClusterClient,
    worker: ClusterClient,
    management_uid: String,
    worker_uid: String,
}

impl TenantAddition {
    async fn run(&self, progress: &mut (dyn FnMut(String) + Send)) -> anyhow::Result<Vec<Value>> {
        ensure!(
            self.management_uid != self.worker_uid,
            "--worker-kubeconfig leads to the management cluster itself (both have the uid {}); \
             give the worker cluster's own",
            self.worker_uid
        );
        let entry = prerequisites::Entry::of(&self.worker, self.params.server.as_deref())?;
        entry.check(&self.params.rules)?;
        let own = registration::check(self).await?;
        prerequisites::check_predecessor(self, &own).await?;
        let rights = own.rights(&self.params.rights);
        let credentials = own.credentials(self.params.credentials);
        let mut documents = prerequisites::documents(&rights, credentials)?;
        let mut registered = registration::documents(self, &own, &entry.kubeconfig(None)?);
        let manager = &self.params.manager;
        match credentials {
            Credentials::AsRegistered => documents.push(prerequisites::token_document()),
            Credentials::Renewed => {
                registered.extend(manager_rights::token_renewal(&self.params, None)?);
            }
            Credentials::Federated => {
                documents = federation::for_user(documents, manager);
                registered.extend(manager_rights::federation(manager)?);
            }
        }
        self.refuse_without_rights(&documents, &registered).await?;
        let worker = self.applier(&self.worker);
        let why = "in the worker cluster; RBAC lets nobody grant what he may not do himself: \
                   use an administrator's kubeconfig";
        let mut applied = apply(&worker, documents, ("worker cluster", progress))
            .await
            .context(why)?;
        let token = self.token(&worker, credentials).await?;
        let kubeconfig = entry.kubeconfig(token.as_ref())?;
        if self.params.mode == Mode::Write && credentials != Credentials::Federated {
            prerequisites::verify(self, &kubeconfig, progress).await?;
        }
        let registered = self
            .register((&own, credentials), &kubeconfig, progress)
            .await;
        applied.extend(registered.context("in the management cluster")?);
        let writes = applied.iter().filter(|it| it.is_written()).count();
        progress(match (writes, self.params.mode) {
            (0, _) => "nothing to write: everything is as it should be".to_owned(),
            (count, Mode::DryRun) => {
                let objects = counted(count, "object", "objects");
                format!("dry run: {objects} would be written")
            }
            (count, Mode::Write) => counted(count, "object was written", "objects were written"),
        });
        if let (Mode::Write, Some(wait)) = (self.params.mode, self.params.wait) {
            ready::wait(self, (&own.name, wait), progress).await?;
        }
        if credentials != Credentials::AsRegistered {
            let note = prerequisites::lasting_token(&worker.client).await?;
            note.into_iter().for_each(progress);
        }
        Ok(applied.into_iter().map(|it| it.object).collect())
    }

    /// Returns the token for the kubeconfig, which may be a placeholder in a dry run.
    async fn token(
        &self,
        worker: &Applier,
        credentials: Credentials,
    ) -> anyhow::Result<Option<SecretText>> {
        let later = || Some(SecretText::new(prerequisites::NO_TOKEN_YET));
        Ok(match (self.params.mode, credentials) {
            (_, Credentials::Federated) => None,
            (Mode::DryRun, Credentials::Renewed) => later(),
            (Mode::DryRun, Credentials::AsRegistered) => {
                let now = prerequisites::token_now(&worker.client).await?;
                now.or_else(later)
            }
            (Mode::Write, Credentials::Renewed) => {
                Some(prerequisites::expiring_token(&worker.client).await?)
            }
            (Mode::Write, Credentials::AsRegistered) => Some(prerequisites::token(worker).await?),
        })
    }

    /// Applies the registration, and the right to renew its token or to request one.
    async fn register(
        &self,
        (own, credentials): (&registration::Own, Credentials),
        kubeconfig: &SecretText,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<Vec<Applied>> {
        let management = self.applier(&self.management);
        let documents = registration::documents(self, own, kubeconfig);
        let place = "management cluster";
        let mut applied = apply(&management, documents, (place, progress)).await?;
        let rights = match credentials {
            Credentials::AsRegistered => return Ok(applied),
            Credentials::Renewed => {
                // The registration is the last one.
                let registered = applied.last().map(|it| &it.object);
                let uid = registered.map(|it| cluster_client::metadata(it, "uid"));
                let uid = uid.filter(|uid| !uid.is_empty());
                manager_rights::token_renewal(&self.params, uid)?
            }
            Credentials::Federated => manager_rights::federation(&self.params.manager)?,
        };
        applied.extend(apply(&management, rights, (place, progress)).await?);
        if credentials == Credentials::Federated {
            let file = serde_saphyr::to_string(&self.authentication().await?)?;
            progress(
                "the worker cluster's API server needs --authentication-config with this file:"
                    .to_owned(),
            );
            file.lines().for_each(|line| progress(line.to_owned()));
        }
        Ok(applied)
    }

    fn applier(&self, caller: &ClusterClient) -> Applier {
        Applier {
            client: caller.client.clone(),
            mode: self.params.mode,
        }
    }

    /// Reports every missing right at once, before anything is written.
    async fn refuse_without_rights(
        &self,
        documents: &[Value],
        registered: &[Value],
    ) -> anyhow::Result<()> {
        let mut missing = Vec::new();
        let of_worker = documents.iter().map(|it| (&self.worker, "worker", it));
        let of_management = registered
            .iter()
            .map(|it| (&self.management, "management", it));
        for (caller, place, document) in of_worker.chain(of_management) {
            let Some(resource) = cluster_client::kind_of(document) else {
                continue;
            };
            for verb in ["get", "create", "patch"] {
                let permission = cluster_client::Permission {
                    verb,
                    group: &resource.group,
                    resource: &resource.plural,
                    namespace: cluster_client::metadata(document, "namespace"),
                    name: cluster_client::metadata(document, "name"),
                };
                if !cluster_client::can_i(&caller.client, &permission).await? {
                    let (plural, name) = (permission.resource, permission.name);
                    let wanted = format!("{place} cluster: {verb} {plural} {name}");
                    missing.push(match permission.namespace {
                        "" => wanted,
                        namespace => format!("{wanted} in {namespace}"),
                    });
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        bail!(
            "these rights are missing; use kubeconfigs that have them:\n{}",
            missing.join("\n")
        );
    }
}

/// Applies objects in order, and reports what is written.
async fn apply(
    applier: &Applier,
    documents: Vec<Value>,
    (place, progress): (&str, &mut (dyn FnMut(String) + Send)),
) -> anyhow::Result<Vec<Applied>> {
    let mut done = Vec::new();
    for document in documents {
        let one = applier.mark_and_apply(document).await?;
        if one.is_written() {
            progress(format!("{place}: {one}"));
        }
        done.push(one);
    }
    Ok(done)
}

/// Returns the labels that make a Secret a registration.
fn labels(params: &Params) -> serde_json::Map<String, Value> {
    let ours = (WORKER_CLUSTER_LABEL.to_owned(), "true".to_owned());
    let all = std::iter::once(ours).chain(params.labels.iter().cloned());
    all.map(|(key, value)| (key, Value::String(value)))
        .collect()
}
