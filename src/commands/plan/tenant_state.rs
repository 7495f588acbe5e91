//! Reads everything about a tenant that its reconciles would use.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
};

use super::{
    super::{
        cluster_client::list_own,
        selection::{bare_secret, registration_of},
        worker_access::WorkerAccess,
    },
    Question,
    profiles::profiles,
    registrations::Registered,
};
use crate::api::{
    config::OperatingSystemConfig,
    names::{CLOUD_CONFIG_KEY, CLOUD_INIT_SETTINGS, KUBE_SYSTEM, TOKEN_LABEL},
    worker_cluster::{Home, ProfileAnnotation, WorkerCluster},
};
use crate::client::{
    connect::{self, ClientParts},
    pages::{self, Listed},
    transport::{self, Audience, Caller, Patience},
};
use crate::controllers::{profile_store::ProfileStore, registry_credentials, state::tokens};
use crate::fleet::cluster_info::{self, InUse};
use crate::plan::{
    bootstrap::Token,
    default_profile::DefaultProfileSettings,
    desired::{config_digest, secret_digest, stored_digest},
    digest::DigestKey,
    machine_rollout::ReplacementPolicy,
    observed::Seen,
};
use crate::render::input::RegistryCredential;
use crate::telemetry::metrics::{ClusterKind, Metrics};
use crate::tenant::{
    access::ClusterAccess,
    cluster_info::ClusterInfo,
    id::TenantId,
    policy::{RequestBudget, TenantPolicy},
    registry_credentials::{Place, named_by},
    secret_text::{SecretBytes, SecretText},
    settings::{SettingsError, TenantSettings},
};

/// A tenant, with everything that its reconciles would use.
pub(super) struct Tenant {
    pub(super) namespace: String,
    pub(super) id: TenantId,
    /// The namespace of its profiles and configs, in the management cluster or in its own.
    pub(super) home: String,
    pub(super) policy: TenantPolicy,
    pub(super) token_lifetime: Duration,
    /// The tenant's setting for machine deployments that name no profile.
    pub(super) unnamed: ProfileAnnotation,
    pub(super) worker: Client,
    pub(super) settings: Result<Arc<TenantSettings>, SettingsError>,
    pub(super) cluster_info: Arc<ClusterInfo>,
    pub(super) kubeconfig_ca: Arc<[u8]>,
    pub(super) registry_credentials: Arc<BTreeMap<String, RegistryCredential>>,
    pub(super) profiles: ProfileStore,
    /// The tenant's settings for default profiles.
    pub(super) default_profiles: DefaultProfileSettings,
    /// The names of profiles that the manager would create.
    pub(super) new_profiles: Vec<String>,
    pub(super) configs: HashMap<String, OperatingSystemConfig>,
    /// The configs of which only the metadata can be decoded.
    pub(super) unreadable_configs: HashMap<String, ObjectMeta>,
    pub(super) secrets: HashMap<String, Seen>,
    /// The documents, by the name of the Secret.
    pub(super) documents: HashMap<String, SecretBytes>,
    /// The fetch tokens of machine deployments that have their own, by the name of the Secret.
    pub(super) fetch_tokens: HashMap<String, SecretText>,
    /// The WorkerCluster. If it does not exist yet, it has no uid.
    pub(super) own: WorkerCluster,
    /// When its machines are replaced.
    pub(super) replacement: ReplacementPolicy,
    /// True if the WorkerCluster is paused.
    pub(super) is_paused: bool,
    pub(super) tokens: HashMap<String, Token>,
    pub(super) key: DigestKey,
    pub(super) now: Timestamp,
}

impl Tenant {
    pub(super) async fn read(
        client: &Client,
        question: &Question,
        registered: &Registered,
    ) -> anyhow::Result<Self> {
        let registration = &registered.secret;
        let namespace = registration.namespace().unwrap_or_default();
        let settings = &question.settings;
        let id = TenantId::new(&namespace);
        let policy = policy_of(client, question, &id).await?;
        let defaults = &settings.tenant_defaults;
        let worker_cluster = worker_cluster(client, registration).await?;
        let worker_cluster = worker_cluster.map(|own| question.applied.settle(own));
        let own = registered.served_with(worker_cluster)?;
        let (access, worker) = connect((client, question), &policy, (registered, &own)).await?;
        let (mut policy, mut defaults) = (TenantPolicy::clone(&policy), defaults.clone());
        let (mut home_client, mut home) = (client, namespace.as_str());
        if own.spec.home == Home::Worker {
            (home_client, home) = (&worker, KUBE_SYSTEM);
            (policy, defaults) = (policy.with_home_in_worker(), defaults.with_home_in_worker());
        }
        let status = own.status.as_ref();
        let in_use = InUse {
            api_server: status.and_then(|status| status.api_server.as_deref()),
            certificate_authority_data: None,
        };
        let authority = &access.certificate_authority;
        let cluster_info = cluster_info::read_unprepared(&worker, authority, in_use)
            .await
            .context("cannot read the cluster info")?;
        let key = DigestKey::derive(&cluster_info.fetch_token);
        let credentials = credentials((client, home_client), &namespace, &own).await?;
        let configs = Api::namespaced(home_client.clone(), home);
        let configs: Listed<OperatingSystemConfig> =
            list_own(&configs, ListParams::default()).await?;
        let made = made(&worker, &key).await?;
        let (profiles, new) = profiles(question, (&policy, &own), (home_client, home)).await?;
        Ok(Self {
            id,
            token_lifetime: settings.token_lifetime,
            unnamed: own.spec.profile_annotation,
            settings: defaults.with(&own.spec).map(Arc::new),
            cluster_info: Arc::new(cluster_info),
            kubeconfig_ca: access.certificate_authority.as_slice().into(),
            registry_credentials: Arc::new(credentials),
            profiles,
            new_profiles: new,
            default_profiles: DefaultProfileSettings::new(&defaults, Some(&own)),
            policy,
            home: home.to_owned(),
            unreadable_configs: configs
                .unreadable
                .into_iter()
                .map(|it| (it.name.clone().unwrap_or_default(), it))
                .collect(),
            configs: configs
                .objects
                .into_iter()
                .map(|config| (config.name_any(), config))
                .collect(),
            secrets: made.secrets,
            documents: made.documents,
            fetch_tokens: made.fetch_tokens,
            replacement: ReplacementPolicy::new(Some(&own), defaults.machine_rollout),
            is_paused: own.spec.paused,
            own,
            tokens: bootstrap_tokens(&worker).await?,
            key,
            now: Timestamp::now(),
            worker,
            namespace,
        })
    }

    /// Returns a config as it was read.
    pub(super) fn config(&self, name: &str) -> Option<Seen> {
        let Some(config) = self.configs.get(name) else {
            return self.unreadable_configs.get(name).map(|metadata| Seen {
                metadata: metadata.clone(),
                content: secret_digest(&self.key, &[]),
            });
        };
        Some(Seen {
            metadata: config.metadata.clone(),
            content: config_digest(&self.key, &config.spec),
        })
    }
}

/// Returns a client for the worker cluster, by the rules that `osm run` uses.
async fn connect(
    (management, question): (&Client, &Question),
    policy: &TenantPolicy,
    (registered, own): (&Registered, &WorkerCluster),
) -> anyhow::Result<(ClusterAccess, Client)> {
    let access = WorkerAccess {
        secret: &registered.secret,
        keys: &registered.inventory.keys(),
        credentials: own.spec.credentials,
    };
    let manager = (management, &question.manager);
    let access = access.access_of(manager, &policy.access).await?;
    let caller = Caller {
        user_agent: transport::user_agent(&question.settings.replica.instance),
        audience: Audience::Operator,
        metrics: Metrics::new(),
    };
    let patience = Patience::of(question.settings.request_timeout);
    let transport = transport::connect(&access, &policy.access, &caller, patience)
        .map_err(|error| anyhow!(error))?;
    let budget = RequestBudget {
        per_second: NonZeroU32::MIN.saturating_add(19),
        ..policy.worker_requests
    };
    let timeout = question.settings.request_timeout;
    let counted = (ClusterKind::Worker, Metrics::new());
    let worker = connect::client(ClientParts::new(transport, budget, timeout, counted));
    Ok((access, worker))
}

/// Returns a tenant's policy. The labels of its namespace are read only if they decide.
async fn policy_of(
    client: &Client,
    question: &Question,
    tenant: &TenantId,
) -> anyhow::Result<Arc<TenantPolicy>> {
    let policies = &question.settings.policies;
    if let Ok(policy) = policies.of(tenant, None) {
        return Ok(Arc::clone(policy));
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces
        .get_metadata(tenant.namespace())
        .await
        .context("cannot read the labels of the tenant's namespace")?;
    let policy = policies.of(tenant, Some(namespace.labels()));
    Ok(Arc::clone(policy.unwrap_or(&policies.default)))
}

/// Reads the registry credentials that the WorkerCluster names.
async fn credentials(
    (management, home): (&Client, &Client),
    namespace: &str,
    own: &WorkerCluster,
) -> anyhow::Result<BTreeMap<String, RegistryCredential>> {
    let (client, named) = match named_by(&own.spec, namespace) {
        None => return Ok(BTreeMap::new()),
        Some(Place::Management(named)) => (management, named),
        Some(Place::Home(named)) => (home, named),
    };
    Ok(registry_credentials::read(client, &named.namespace, &named.name).await?)
}

/// Returns the oldest WorkerCluster that names the registration.
async fn worker_cluster(
    client: &Client,
    registration: &Secret,
) -> anyhow::Result<Option<WorkerCluster>> {
    let namespace = registration.namespace().unwrap_or_default();
    let all = Api::namespaced(client.clone(), &namespace);
    let found: Listed<WorkerCluster> = list_own(&all, ListParams::default()).await?;
    let registration = (registration.namespace(), registration.name_any());
    let own = found
        .objects
        .into_iter()
        .filter(|own| registration_of(own) == registration);
    let own = own.min_by_key(|own| (own.creation_timestamp().map(|time| time.0), own.uid()));
    match (own, found.unreadable.first()) {
        (None, Some(unreadable)) => bail!(
            "WorkerCluster {} cannot be read by this version",
            unreadable.name.as_deref().unwrap_or_default()
        ),
        (own, _) => Ok(own),
    }
}

/// The Secrets that were created for nodes, and the fetch tokens among them.
struct Made {
    secrets: HashMap<String, Seen>,
    documents: HashMap<String, SecretBytes>,
    fetch_tokens: HashMap<String, SecretText>,
}

async fn made(worker: &Client, key: &DigestKey) -> anyhow::Result<Made> {
    let api = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    let found: Vec<Secret> = pages::all(&api, ListParams::default())
        .await
        .context("cannot list what was made for nodes")?
        .into_all(bare_secret);
    let tokens = found.iter().filter_map(|secret| {
        let ByteString(token) = secret.data.as_ref()?.get("token")?;
        let token = String::from_utf8(token.clone()).ok()?;
        Some((secret.name_any(), SecretText::new(&token)))
    });
    let fetch_tokens = tokens.collect();
    let documents = found.iter().filter_map(|secret| {
        let ByteString(document) = secret.data.as_ref()?.get(CLOUD_CONFIG_KEY)?;
        Some((secret.name_any(), SecretBytes::new(document.clone())))
    });
    let documents = documents.collect();
    let seen = found.into_iter().map(|secret| {
        let content = stored_digest(key, &secret);
        let metadata: ObjectMeta = secret.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        (name, Seen { metadata, content })
    });
    Ok(Made {
        secrets: seen.collect(),
        documents,
        fetch_tokens,
    })
}

/// Returns the bootstrap tokens by key. If a machine deployment has two, the one that is valid for
/// longer.
async fn bootstrap_tokens(worker: &Client) -> anyhow::Result<HashMap<String, Token>> {
    let page = ListParams::default().labels(TOKEN_LABEL);
    let found: Vec<Secret> = pages::all(&Api::namespaced(worker.clone(), KUBE_SYSTEM), page)
        .await
        .context("cannot list bootstrap tokens")?
        .objects;
    let mut by_key: HashMap<String, Token> = HashMap::new();
    for secret in &found {
        let (Some(key), Some(known)) = (tokens::key(secret), tokens::read(secret)) else {
            continue;
        };
        let better = by_key
            .get(key)
            .is_none_or(|before| before.expires < known.token.expires);
        if better {
            by_key.insert(key.to_owned(), known.token);
        }
    }
    Ok(by_key)
}
