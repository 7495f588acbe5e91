//! One attempt to engage a worker cluster: read the kubeconfig, connect, identify, claim, prepare.
//!
//! Each step records its result in the tenant's status. The first step that fails ends the attempt.

mod engage_error;
mod engage_latency;
mod federate;
mod hold;
mod identify;
mod keep_cluster_info;
mod keep_credential;
mod keep_probing;
mod own_worker_cluster;
mod read_kubeconfig;
mod renew_token;
mod until_admitted;
mod until_another_serves;

use std::{sync::Arc, time::Duration};

use kube::{Client, ResourceExt};
use tokio::{sync::watch, time::Instant};

pub(super) use self::engage_error::not_prepared;
use self::engage_error::{not_connected, prerequisite_failed};
pub use self::{
    engage_error::EngageError,
    engage_latency::EngageLatency,
    federate::audience,
    hold::{Asking, Holding, is_of_an_older_definition},
    identify::identity,
    keep_cluster_info::{Reading, keep_cluster_info},
    keep_credential::{keep_credential, warn_of_expiry},
    keep_probing::keep_probing,
    own_worker_cluster::{Following, follow_settings},
    read_kubeconfig::read_kubeconfig,
    renew_token::{Keeping, TOKEN_SECONDS},
    until_admitted::until_admitted,
    until_another_serves::{let_others_serve, until_another_serves},
};
use super::{
    adoption::{self, Obstacle, Predecessor},
    claim::{
        self, ClaimError, Claimant, Registrations,
        lease::{self, LeaseError},
    },
    cluster_info::{self, ClusterInfoError, InUse},
    discovery::{KubeconfigText, Registration},
    engagement::Shared,
    prerequisites,
    registry::{Ownership, RegisteredCluster},
    worker_clusters,
};
use crate::api::{
    condition::ConditionType,
    names::SETTINGS_RESTORED,
    reason::Reason,
    worker_cluster::{Credentials, Home, URL_CHARACTERS_MAX, WorkerCluster},
};
use crate::client::{
    connect::{ClientParts, Clients},
    fence::Fence,
    health::Health,
    rate_limit::Budget,
    renewable::Renewable,
    tenant_status::TenantStatus,
    transport::Transport,
};
use crate::telemetry::{
    chain::chain,
    metrics::{Attempted, ClusterKind},
};
use crate::tenant::{
    access::{ClusterAccess, Principal, expiry::Expiry},
    cluster_info::ClusterInfo,
    policy::TenantPolicy,
    report::{ConditionState, excerpt},
    secret_text::SecretBytes,
};

/// How often to look for a missing token, and the wait between two attempts. A token controller
/// that takes longer is in trouble, and the attempt reports that.
const TOKEN_TRIES: u32 = 8;
const TOKEN_WAIT: Duration = Duration::from_millis(250);

/// The arguments of [`attempt`].
pub struct Params<'a> {
    /// The state that all tenants share.
    pub shared: &'a Shared,
    /// The tenant's policy.
    pub policy: &'a TenantPolicy,
    /// The registered cluster.
    pub registered: &'a Arc<RegisteredCluster>,
    /// The tenant's share of the management API.
    pub management: &'a Clients,
    /// The registration.
    pub registration: &'a Registration,
    /// The budget of the worker cluster.
    pub worker_budget: &'a Arc<Budget>,
    /// Checks every write to the worker cluster.
    pub fence: &'a Fence,
    /// The health of the worker cluster, as observed with this kubeconfig.
    pub health: &'a Arc<Health>,
}

/// The result of an attempt that succeeded.
#[derive(Clone)]
pub struct Attempt {
    /// The worker cluster's API.
    pub worker: Clients,
    /// The certificate authority of the kubeconfig, in PEM.
    pub kubeconfig_ca: Arc<[u8]>,
    /// The API server that the kubeconfig names.
    pub server: String,
    /// The claimant of the cluster.
    pub claimant: Claimant,
    /// Where the tenant's profiles and configs are.
    pub home: Home,
    /// The cluster info that was read.
    pub cluster_info: Arc<ClusterInfo>,
    /// Where the previous manager keeps its objects.
    pub predecessor: Predecessor,
    /// The cluster's health.
    pub health: Arc<Health>,
    /// The credentials in the kubeconfig that expire.
    pub expiries: watch::Sender<Arc<[Expiry]>>,
    /// The transport of the worker cluster's clients.
    pub transport: Renewable,
    /// Whose credential the kubeconfig has, if it says so.
    pub principal: Option<Principal>,
    /// Where the credential came from.
    pub credentials: Credentials,
}

/// Tries once to engage the cluster.
///
/// # Errors
///
/// The registration is refused, or the cluster cannot be reached, claimed or prepared.
pub async fn attempt(params: Params<'_>) -> Result<Attempt, EngageError> {
    let worker_cluster = own_worker_cluster::find_or_create(&params).await?;
    let holding = Holding {
        shared: params.shared,
        registered: params.registered,
        management: params.management,
    };
    let is_held = params.registered.status.read(|it| it.fleet.is_some());
    if !is_held || worker_clusters::holder(&worker_cluster).is_none() {
        holding.take(&worker_cluster).await?;
    }
    let begun = Instant::now();
    let attempt = attempt_for(&params, &worker_cluster).await;
    let metrics = &params.shared.metrics;
    metrics.engaged(Attempted::of(&attempt), begun.elapsed());
    attempt
}

async fn attempt_for(
    params: &Params<'_>,
    worker_cluster: &WorkerCluster,
) -> Result<Attempt, EngageError> {
    let kubeconfig = accept(params, worker_cluster)?;
    let access = match worker_cluster.spec.credentials {
        Credentials::AsRegistered | Credentials::Renewed => registered(params, kubeconfig)?,
        Credentials::Federated => {
            let managed = (params.shared, params.management);
            let registration = (params.registration, kubeconfig);
            federate::federated(managed, params.policy, registration).await?
        }
    };
    let tenant_status = &params.registered.status;
    tenant_status.set_condition(ConditionType::Registered, accepted(worker_cluster));
    let expiries = access.expiries();
    warn_of_expiry(tenant_status, &params.shared.clock, &expiries);
    let server = access.server.url();
    let shown = excerpt(&server, URL_CHARACTERS_MAX);
    tenant_status.set(|report| &mut report.server, Some(shown));

    let transport = Renewable::new(transport(params, &access)?);
    let worker_clients = worker_clients(params, transport.transport());
    let worker = worker_clients.client();
    let home = worker_cluster.spec.home;
    let cluster_uid = identify::identify(params, &worker, worker_cluster).await?;
    let predecessor = match home {
        Home::Management => {
            let predecessor = adopt(params, &worker, worker_cluster).await?;
            prepare(params, &worker, &cluster_uid).await?;
            predecessor
        }
        Home::Worker => {
            take_lease(params, &worker, worker_cluster).await?;
            Predecessor::None
        }
    };
    let kubeconfig_ca: Arc<[u8]> = access.certificate_authority.as_slice().into();
    let status = worker_cluster.status.as_ref();
    let in_use = InUse {
        api_server: status.and_then(|status| status.api_server.as_deref()),
        certificate_authority_data: None,
    };
    let cluster_info = read_cluster_info(&worker, &kubeconfig_ca, in_use)
        .await
        .map_err(|error| not_prepared(&error))?;
    show_api_server(tenant_status, &cluster_info);
    Ok(Attempt {
        worker: worker_clients,
        kubeconfig_ca,
        server,
        claimant: params.shared.claimant(params.registered.id.tenant.clone()),
        home,
        cluster_info: Arc::new(cluster_info),
        predecessor,
        health: Arc::clone(params.health),
        expiries: watch::Sender::new(expiries.into()),
        transport,
        principal: access.principal(),
        credentials: worker_cluster.spec.credentials,
    })
}

fn show_api_server(tenant_status: &TenantStatus, cluster_info: &ClusterInfo) {
    let shown = excerpt(&cluster_info.api_server, URL_CHARACTERS_MAX);
    tenant_status.set(|report| &mut report.api_server, Some(shown));
}

/// Reads the cluster info. A new token Secret gets its token within moments, so this waits for it.
async fn read_cluster_info(
    worker: &Client,
    kubeconfig_ca: &[u8],
    in_use: InUse<'_>,
) -> Result<ClusterInfo, ClusterInfoError> {
    for _ in 1..TOKEN_TRIES {
        match cluster_info::read(worker, kubeconfig_ca, in_use).await {
            Err(ClusterInfoError::TokenPending) => tokio::time::sleep(TOKEN_WAIT).await,
            read => return read,
        }
    }
    cluster_info::read(worker, kubeconfig_ca, in_use).await
}

/// Returns the state of the condition `Registered` of an accepted registration.
pub fn accepted(own: &WorkerCluster) -> ConditionState {
    if !worker_clusters::is_restored(own) {
        return ConditionState::well(Reason::Accepted);
    }
    let (namespace, name) = (own.namespace().unwrap_or_default(), own.name_any());
    ConditionState {
        message: format!(
            "somebody deleted this WorkerCluster while its registration was there, and it was \
             created again with the same settings; confirm them with `kubectl -n {namespace} \
             annotate workercluster {name} {SETTINGS_RESTORED}-`, or edit its spec first"
        ),
        ..ConditionState::well(Reason::SettingsRestored)
    }
}

/// Returns the kubeconfig of a registration that may be served. Sends no requests.
fn accept<'a>(params: &'a Params<'_>, own: &WorkerCluster) -> Result<&'a SecretBytes, EngageError> {
    let refused =
        |reason, message: String| EngageError::refused(ConditionType::Registered, reason, message);
    if let Ownership::Second { owner } = &*params.registered.ownership.borrow() {
        return Err(refused(
            Reason::NamespaceTaken,
            format!(
                "Secret {owner} registers a worker cluster in this namespace already; one \
                     namespace is one tenant"
            ),
        ));
    }
    if own.spec.paused {
        return Err(refused(Reason::Paused, "spec.paused is set".to_owned()));
    }
    match &params.registration.kubeconfig {
        KubeconfigText::Kept(text) => Ok(text),
        KubeconfigText::Missing => Err(refused(
            Reason::KubeconfigRefused,
            no_key(params.registration),
        )),
        KubeconfigText::Unread => Err(EngageError::failed(
            ConditionType::Registered,
            Reason::KubeconfigRefused,
            "the Secret has not been read yet",
        )),
    }
}

/// Returns the access that a kubeconfig gives.
fn registered(params: &Params<'_>, kubeconfig: &SecretBytes) -> Result<ClusterAccess, EngageError> {
    ClusterAccess::parse(kubeconfig.expose(), &params.policy.access).map_err(|error| {
        params.shared.metrics.failed(error.category());
        let why = chain(&error).to_string();
        EngageError::refused(ConditionType::Registered, Reason::KubeconfigRefused, why)
    })
}

fn no_key(registration: &Registration) -> String {
    let (id, keys) = (&registration.id, registration.inventory.keys());
    match keys.as_slice() {
        [key] => format!("Secret {id} has no key `{key}`"),
        keys => format!("Secret {id} has neither the key `{}`", keys.join("` nor `")),
    }
}

fn transport(params: &Params<'_>, access: &ClusterAccess) -> Result<Transport, EngageError> {
    (params.shared.connector)(access, &params.policy.access).map_err(|error| {
        let why = chain(error.as_ref()).to_string();
        EngageError::refused(ConditionType::Registered, Reason::KubeconfigRefused, why)
    })
}

fn worker_clients(params: &Params<'_>, transport: Transport) -> Clients {
    Clients::new(ClientParts {
        transport,
        budget: Arc::clone(params.worker_budget),
        share: None,
        timeout: params.shared.request_timeout,
        health: Some(Arc::clone(params.health)),
        fence: Some(params.fence.clone()),
        memory: Some(Arc::clone(&params.shared.memory)),
        kind: ClusterKind::Worker,
        metrics: params.shared.metrics.clone(),
    })
}

/// Checks that the previous manager has stopped. Nothing is written before that.
async fn adopt(
    params: &Params<'_>,
    worker: &Client,
    own: &WorkerCluster,
) -> Result<Predecessor, EngageError> {
    let tenant_status = &params.registered.status;
    let found = match adoption::find_predecessor(worker, &params.shared.clock).await {
        // The claim is gone together with its namespace. We held it, so there is no previous
        // manager.
        Err(Obstacle::MayNotLook) if tenant_status.held(ConditionType::Claimed, Some(own)) => {
            Ok(Predecessor::None)
        }
        found => found,
    };
    let predecessor = found.map_err(|obstacle| match obstacle {
        // This error says nothing about another manager, so it sets no condition about one.
        Obstacle::Call(error) => not_connected(params.health, &error),
        obstacle => {
            let why = chain(&obstacle).to_string();
            EngageError::failed(ConditionType::Adopted, obstacle.reason(), why)
        }
    })?;
    let was_set = tenant_status.was_set(ConditionType::Adopted, Some(own));
    if predecessor == Predecessor::None && was_set {
        tenant_status.set_condition(
            ConditionType::Adopted,
            ConditionState::well(Reason::NothingToAdopt),
        );
    }
    Ok(predecessor)
}

/// Takes the Lease of a cluster that is its tenant's home. Nothing is written before that.
async fn take_lease(
    params: &Params<'_>,
    worker: &Client,
    own: &WorkerCluster,
) -> Result<(), EngageError> {
    let claimant = params.shared.claimant(params.registered.id.tenant.clone());
    let taken = lease::acquire(worker, &claimant, &params.shared.clock).await;
    taken.map_err(|error| {
        let why = chain(&error).to_string();
        match error {
            LeaseError::Held(holder) => {
                let obstacle = Obstacle::Running(holder);
                let why = chain(&obstacle).to_string();
                EngageError::failed(ConditionType::Adopted, obstacle.reason(), why)
            }
            LeaseError::Call(_) => {
                EngageError::failed(ConditionType::Claimed, Reason::ClaimFailed, why)
            }
        }
    })?;
    let status = &params.registered.status;
    if status.was_set(ConditionType::Adopted, Some(own)) {
        let nothing = ConditionState::well(Reason::NothingToAdopt);
        status.set_condition(ConditionType::Adopted, nothing);
    }
    status.set_condition(
        ConditionType::Claimed,
        ConditionState::well(Reason::Claimed),
    );
    Ok(())
}

/// Claims the cluster, then creates what nodes need. Before the claim, only the namespace that
/// carries it is created.
async fn prepare(
    params: &Params<'_>,
    worker: &Client,
    cluster_uid: &str,
) -> Result<(), EngageError> {
    let namespace = prerequisites::ensure_namespace(worker)
        .await
        .map_err(|error| prerequisite_failed(&error))?;
    let claimant = params.shared.claimant(params.registered.id.tenant.clone());
    let registrations = Registrations {
        registry: &params.shared.registry,
        management: &params.management.client(),
        former: &params.shared.former_management_clusters,
    };
    claim::claim(worker, &claimant, (cluster_uid, &namespace), registrations)
        .await
        .map_err(|error| match &error {
            ClaimError::Held { .. } => EngageError::failed(
                ConditionType::Claimed,
                Reason::ClaimedByOther,
                chain(&error).to_string(),
            ),
            ClaimError::Holder(_) | ClaimError::Write(_) => EngageError::failed(
                ConditionType::Claimed,
                Reason::ClaimFailed,
                chain(&error).to_string(),
            ),
        })?;
    params.registered.status.set_condition(
        ConditionType::Claimed,
        ConditionState::well(Reason::Claimed),
    );
    prerequisites::ensure_fetcher(&params.registered.id, worker)
        .await
        .map_err(|error| prerequisite_failed(&error))
}

/// Returns true if an engaged cluster may still be served.
pub fn may_serve(own: &WorkerCluster, ownership: &Ownership) -> bool {
    !own.spec.paused && *ownership == Ownership::Owner
}
