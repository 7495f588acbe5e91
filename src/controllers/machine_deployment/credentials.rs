//! Node credentials: a ServiceAccount for the machines of one machine deployment, which may read
//! that machine deployment's Secrets and nothing else, and the Secret with its token.
//!
//! Only the token's Secret is watched. The other objects are checked when it changes, and about
//! twice in the lifetime of a bootstrap token. The first write needs a verb that worker.yaml does
//! not grant: without worker-node-credentials.yaml, nothing is created that could not be deleted
//! again, and the machines use the fetcher's token.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Secret, ServiceAccount},
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use super::error::Error;
use crate::api::{
    condition::ConditionType,
    names::{CLOUD_INIT_SETTINGS, DerivedNames, MADE_FOR},
    reason::Reason,
    worker_cluster,
};
use crate::client::token::TOKEN_BYTES_MAX;
use crate::controllers::{
    context::Context, queue::triggers::Affected, state::node_credentials::CachedToken,
};
use crate::fleet::{
    prerequisites::token_of,
    removal::{self, Credentials},
};
use crate::plan::{desired::secret_digest, validate::Deployment};
use crate::telemetry::{chain::chain, metrics::SecretKind};
use crate::tenant::{report::ConditionState, secret_text::SecretText};

/// Covers a token that the watch does not show. It usually exists within milliseconds.
const TOKEN_WAIT: Duration = Duration::from_secs(1);
/// How long to wait before missing rights are tried again.
const REFUSED_WAIT: Duration = Duration::from_mins(5);

const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// If the tenant's settings say that machines share the fetcher's token, sets the condition
/// `NodeCredentials` accordingly, unless the tenant never had that condition.
pub fn report_setting(context: &Context) {
    let own = context.engagement.worker_cluster.borrow().clone();
    let defaults = context.engagement.defaults.settings.node_credentials;
    let setting = own.as_ref().and_then(|own| own.spec.node_credentials);
    if setting.unwrap_or(defaults) == worker_cluster::NodeCredentials::PerMachineDeployment {
        return;
    }
    let kind = ConditionType::NodeCredentials;
    let tenant_status = &context.engagement.tenant_status;
    if tenant_status.was_set(kind, own.as_deref()) {
        tenant_status.set_condition(kind, ConditionState::well(Reason::SharedGetter));
    }
}

/// Returns the deployment with a token of its own, if the tenant's settings request one and our
/// rights in the worker cluster suffice.
///
/// # Errors
///
/// The credentials cannot be created or read, or have no token yet.
pub async fn ensure_node_credentials(
    context: &Context,
    deployment: Deployment,
) -> Result<Deployment, Error> {
    if deployment.settings.node_credentials == worker_cluster::NodeCredentials::Shared {
        return Ok(deployment);
    }
    let now = context.engagement.health.server_time();
    let memory = &context.node_credentials;
    let worker = &context.engagement.worker.client();
    let keeper = Keeper {
        context,
        names: &deployment.names,
        made_for: &deployment.provenance.made_for,
        secrets: readable(&deployment),
        accounts: Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS),
        roles: Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS),
        bindings: Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS),
        tokens: Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS),
        now,
    };
    if memory.refused_until().is_some_and(|until| until > now) {
        let token = keeper.token_in_use().await?;
        return Ok(with(deployment, token));
    }
    let kind = ConditionType::NodeCredentials;
    let token = match keeper.token().await {
        Ok(token) => token,
        Err(error) if error.is_forbidden() => {
            let wait = jiff::SignedDuration::try_from(REFUSED_WAIT).unwrap_or_default();
            memory.refused(now.checked_add(wait).ok());
            let message = format!(
                "machine deployments without a token of their own share the fetcher's; apply \
                 what `osm rbac worker-node-credentials` prints to the worker cluster, or set \
                 spec.nodeCredentials to Shared: {}",
                chain(&error)
            );
            let finding = ConditionState::wrong(Reason::Forbidden, message);
            if context
                .engagement
                .tenant_status
                .set_condition(kind, finding)
            {
                tracing::warn!(
                    registration = %context.engagement.registration,
                    error = %chain(&error),
                    "machines share the fetcher's token"
                );
            }
            let token = keeper.token_in_use().await?;
            return Ok(with(deployment, token));
        }
        Err(error) => return Err(error),
    };
    if memory.refused_until().is_some() {
        memory.refused(None);
        context.triggers.enqueue(Affected::Everywhere);
    }
    let finding = ConditionState::well(Reason::PerMachineDeployment);
    context
        .engagement
        .tenant_status
        .set_condition(kind, finding);
    Ok(deployment.with_own_fetch_token(token))
}

fn with(deployment: Deployment, token: Option<SecretText>) -> Deployment {
    match token {
        Some(token) => deployment.with_own_fetch_token(token),
        None => deployment,
    }
}

/// Returns the credentials of a machine deployment, if it has any. The ServiceAccount is created
/// first and deleted last: while it exists, the other objects may exist, too.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn read(context: &Context, names: &DerivedNames) -> Result<Option<Credentials>, Error> {
    let worker = &context.engagement.worker.client();
    let failed = || Error::call(format!("read {}", names.fetcher));
    let may_be_there = context.node_credentials.get(&names.key).is_some()
        || context.secrets.get(&names.fetcher_token).is_some()
        || removal::has_credentials(worker, names)
            .await
            .map_err(failed())?;
    if !may_be_there {
        return Ok(None);
    }
    let found = Credentials::read(worker, names).await;
    found.map(Some).map_err(failed())
}

/// Returns the Secrets that machines read with their token: the provisioning document and the
/// kubelet's kubeconfig. Edge machines also read the bootstrap document, because no cloud passes it
/// to them.
fn readable(deployment: &Deployment) -> Vec<String> {
    let names = &deployment.names;
    let mut secrets = vec![names.provisioning.clone(), names.kubelet_kubeconfig.clone()];
    if deployment.is_at_edge() {
        secrets.push(names.bootstrap.clone());
    }
    secrets
}

struct Keeper<'a> {
    context: &'a Context,
    names: &'a DerivedNames,
    made_for: &'a str,
    secrets: Vec<String>,
    accounts: Api<ServiceAccount>,
    roles: Api<Role>,
    bindings: Api<RoleBinding>,
    tokens: Api<Secret>,
    now: Timestamp,
}

impl Keeper<'_> {
    async fn token(&self) -> Result<SecretText, Error> {
        let memory = &self.context.node_credentials;
        if let Some(known) = memory.get(&self.names.key).filter(|it| self.is_fresh(it)) {
            return Ok(known.token);
        }
        let account = self.keep_account().await?;
        let secret = self.keep_token().await?;
        self.keep_role().await?;
        self.keep_binding().await?;
        let waiting = Error::Waiting {
            reason: Reason::AwaitingNodeCredentials,
            until: TOKEN_WAIT,
        };
        // The cluster soon deletes the token of a ServiceAccount that is gone.
        let is_of_another = secret
            .annotations()
            .get(ACCOUNT_UID)
            .is_some_and(|uid| Some(uid) != account.uid().as_ref());
        let Some(token) = token_in(&secret).filter(|_| !is_of_another) else {
            return Err(waiting);
        };
        let known = CachedToken {
            token: token.clone(),
            uid: secret.uid(),
            resource_version: secret.resource_version(),
            secrets: self.secrets.clone(),
            checked: self.now,
        };
        memory.set(&self.names.key, known);
        Ok(token)
    }

    /// Returns the machine deployment's existing token, if any. This is for the time when we lack
    /// the rights to maintain it: a right that is revoked, or refused once, must not cause a
    /// rotation.
    async fn token_in_use(&self) -> Result<Option<SecretText>, Error> {
        if self
            .context
            .secrets
            .get(&self.names.fetcher_token)
            .is_none()
        {
            return Ok(None);
        }
        let found = self.tokens.get_opt(&self.names.fetcher_token).await;
        let found = found.map_err(self.failed("read"))?;
        let is_own = |found: &Secret| {
            found.annotations().get(MADE_FOR).map(String::as_str) == Some(self.made_for)
        };
        Ok(found.filter(is_own).as_ref().and_then(token_in))
    }

    /// Returns true if the token's Secret is the one that was read, and the other objects were
    /// checked recently.
    fn is_fresh(&self, known: &CachedToken) -> bool {
        let half = self.context.rules.token_lifetime / 2;
        let age = Duration::try_from(self.now.duration_since(known.checked));
        let seen = self.context.secrets.get(&self.names.fetcher_token);
        let is_same = seen.is_some_and(|entry| {
            let seen = (&entry.metadata.uid, &entry.metadata.resource_version);
            seen == (&known.uid, &known.resource_version)
        });
        is_same && known.secrets == self.secrets && age.is_ok_and(|age| age < half)
    }

    async fn keep_account(&self) -> Result<ServiceAccount, Error> {
        let wanted = ServiceAccount {
            metadata: self.metadata(),
            automount_service_account_token: Some(false),
            ..ServiceAccount::default()
        };
        let is_right = |found: &ServiceAccount| {
            found.automount_service_account_token == wanted.automount_service_account_token
        };
        self.keep(&self.accounts, &wanted, is_right).await
    }

    async fn keep_role(&self) -> Result<Role, Error> {
        let wanted = Role {
            metadata: self.metadata(),
            rules: Some(vec![PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec!["secrets".to_owned()]),
                resource_names: Some(self.secrets.clone()),
                verbs: vec!["get".to_owned()],
                ..PolicyRule::default()
            }]),
        };
        let is_right = |found: &Role| found.rules == wanted.rules;
        self.keep(&self.roles, &wanted, is_right).await
    }

    async fn keep_binding(&self) -> Result<RoleBinding, Error> {
        let wanted = RoleBinding {
            metadata: self.metadata(),
            role_ref: RoleRef {
                api_group: Some("rbac.authorization.k8s.io".to_owned()),
                kind: "Role".to_owned(),
                name: self.names.fetcher.clone(),
            },
            subjects: Some(vec![Subject {
                kind: "ServiceAccount".to_owned(),
                name: self.names.fetcher.clone(),
                namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
                ..Subject::default()
            }]),
        };
        let found = self.get(&self.bindings).await?;
        // The role reference of a binding is immutable.
        if let Some(other) = found.filter(|found| found.role_ref != wanted.role_ref) {
            removal::delete(&self.bindings, &other.metadata)
                .await
                .map_err(self.failed("delete"))?;
        }
        let is_right = |found: &RoleBinding| {
            found.role_ref == wanted.role_ref && found.subjects == wanted.subjects
        };
        self.keep(&self.bindings, &wanted, is_right).await
    }

    /// Reads an object, and applies the desired one only if it differs.
    async fn keep<K>(
        &self,
        api: &Api<K>,
        wanted: &K,
        is_right: impl Fn(&K) -> bool,
    ) -> Result<K, Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let is_ours =
            |found: &K| found.annotations().get(MADE_FOR) == wanted.annotations().get(MADE_FOR);
        match self.get(api).await? {
            Some(found) if is_right(&found) && is_ours(&found) => Ok(found),
            _ => api
                .patch(
                    &self.names.fetcher,
                    &PatchParams::apply("osm").force(),
                    &Patch::Apply(wanted),
                )
                .await
                .map_err(self.failed("apply")),
        }
    }

    async fn get<K>(&self, api: &Api<K>) -> Result<Option<K>, Error>
    where
        K: Clone + Debug + DeserializeOwned,
    {
        api.get_opt(&self.names.fetcher)
            .await
            .map_err(self.failed("read"))
    }

    /// Returns the Secret that the cluster puts the token into. Creates it if it is missing, and
    /// replaces another Secret of the same name.
    async fn keep_token(&self) -> Result<Secret, Error> {
        let name = &self.names.fetcher_token;
        let wanted = token_of(
            &self.names.fetcher,
            ObjectMeta {
                name: Some(name.clone()),
                ..self.metadata()
            },
        );
        let asked = self.context.secrets.now();
        let found = self.tokens.get_opt(name).await;
        let found = found.map_err(self.failed("read"))?;
        let is_right = |found: &Secret| {
            let annotations = wanted.annotations().iter();
            found.type_ == wanted.type_
                && annotations
                    .into_iter()
                    .all(|(key, value)| found.annotations().get(key) == Some(value))
        };
        if let Some(other) = found.as_ref().filter(|found| !is_right(found)) {
            removal::delete(&self.tokens, &other.metadata)
                .await
                .map_err(self.failed("delete"))?;
            self.context.secrets.deleted(name);
        }
        let secret = if let Some(found) = found.filter(is_right) {
            found
        } else {
            let created = self.tokens.create(&PostParams::default(), &wanted).await;
            let created = created.map_err(self.failed("create"))?;
            let metrics = &self.context.engagement.shared.metrics;
            metrics.secret_written(SecretKind::GetterToken);
            created
        };
        let token = token_in(&secret).unwrap_or_default();
        let digest = secret_digest(&self.context.digest_key(), token.expose().as_bytes());
        self.context
            .secrets
            .verified(secret.metadata.clone(), digest, asked);
        Ok(secret)
    }

    fn metadata(&self) -> ObjectMeta {
        let made_for = (MADE_FOR.to_owned(), self.made_for.to_owned());
        ObjectMeta {
            name: Some(self.names.fetcher.clone()),
            annotations: Some(BTreeMap::from([made_for])),
            ..ObjectMeta::default()
        }
    }

    fn failed(&self, verb: &str) -> impl FnOnce(kube::Error) -> Error {
        Error::call(format!("{verb} the credentials {}", self.names.fetcher))
    }
}

/// Returns the token, once the cluster has put it into its Secret.
fn token_in(secret: &Secret) -> Option<SecretText> {
    let ByteString(bytes) = secret.data.as_ref()?.get("token")?;
    let token = std::str::from_utf8(bytes).ok()?;
    (1..=TOKEN_BYTES_MAX)
        .contains(&token.len())
        .then(|| SecretText::new(token))
}
