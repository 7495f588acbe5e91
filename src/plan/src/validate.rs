//! Validates what is known about a machine deployment: returns what can be rendered, or the reason
//! why it cannot be served.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube_core::ResourceExt;
use zeroize::Zeroizing;

use super::{
    bootstrap::{self, Draw, Randomness, TokenPlan, kubeconfig_meaning},
    digest::{Digest, DigestKey},
    found::{NotServed, check_revision, created, provider},
    invalid::Invalid,
    machine_access::MachineAccess,
    observed::Observed,
    provenance::{Provenance, RENDERER_GENERATION},
};
use osm_api::{
    machine_deployment::MachineDeployment,
    names::{DerivedNames, LABEL_VALUE_BYTES_MAX, REVISION},
    profile::CloudProvider,
};
use osm_render::{
    Limits,
    annotation_hash::annotation_hash,
    input::{
        ClusterInput, MachineDeploymentInput, ProviderConfig, RegistryCredential, RenderInput,
    },
    template::CompiledProfile,
};
use osm_rules::{
    profile::{Demand, check_demand, check_utility},
    user_data::{SizeChecked, weigh},
};
use osm_tenant::{
    certificates,
    cluster_info::ClusterInfo,
    secret_text::SecretText,
    settings::{SettingsError, TenantSettings},
};

/// Everything that is known about a machine deployment and that validation needs.
#[derive(Clone, Debug)]
pub struct Found {
    /// The machine deployment, with a profile.
    pub machine_deployment: Arc<MachineDeployment>,
    /// Other machine deployments with which it shares a derived name.
    pub name_conflicts: Vec<NameConflict>,
    /// `Within` if the tenant's quota has room for it after older machine deployments.
    pub quota: Quota,
    /// The profile that it names.
    pub profile: Result<Profile, NotServed>,
    /// The tenant's settings.
    pub settings: Result<Arc<TenantSettings>, SettingsError>,
    /// The cluster info of the worker cluster.
    pub cluster_info: Arc<ClusterInfo>,
    /// The certificate authority of the kubeconfig, in PEM.
    pub kubeconfig_ca: Arc<[u8]>,
    /// The credentials of image registries, by registry.
    pub registry_credentials: Arc<BTreeMap<String, RegistryCredential>>,
    /// The existing bootstrap token.
    pub token: Option<bootstrap::Token>,
    /// How many generated token IDs are taken by other tokens.
    pub token_attempt: u8,
    /// Random bytes, in case a token must be created.
    pub random: Randomness,
    /// The objects that exist already.
    pub observed: Observed,
    /// The time of the validation.
    pub now: Timestamp,
}

/// The result of comparing a machine deployment with the tenant's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// The quota has room for it.
    Within,
    /// Older machine deployments use up the quota.
    Exceeded,
}

/// Another machine deployment of the tenant that shares a derived name. The order is that of
/// creation: the smallest owns the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameConflict {
    /// When it was created.
    pub created: Timestamp,
    /// Its UID.
    pub uid: String,
    /// Its name, as `namespace/name`.
    pub name: String,
}

/// A profile that can be used.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The profile's name.
    pub name: String,
    /// The profile, compiled.
    pub compiled: Arc<CompiledProfile>,
}

/// A machine deployment that can be rendered.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// The machine deployment.
    pub machine_deployment: Arc<MachineDeployment>,
    /// The names of the objects that are created for it.
    pub names: DerivedNames,
    /// The provenance annotations of the objects that are created for it.
    pub provenance: Provenance,
    /// The decoded provider spec.
    pub provider: ProviderConfig,
    /// The profile.
    pub profile: Arc<CompiledProfile>,
    /// The tenant's settings.
    pub settings: Arc<TenantSettings>,
    /// The API server's URL for nodes.
    pub api_server: String,
    /// The certificate authority of the API server, in PEM.
    pub kubernetes_ca: String,
    /// The fetcher's token, with which nodes fetch their provisioning Secret.
    pub fetch_token: SecretText,
    /// A token only for this machine deployment's nodes, instead of the fetcher's.
    pub own_fetch_token: Option<SecretText>,
    /// The credentials of image registries, by registry.
    pub registry_credentials: Arc<BTreeMap<String, RegistryCredential>>,
    /// What to do about the bootstrap token.
    pub token: TokenPlan,
    /// The kubelet's bootstrap kubeconfig.
    pub bootstrap_kubeconfig: SecretText,
    /// The key of the worker cluster's digests.
    pub digest_key: DigestKey,
}

/// The operator's limits for a tenant's machine deployments.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// How long a bootstrap token is valid.
    pub token_lifetime: Duration,
    /// How many machine deployments the tenant may have.
    pub machine_deployments_max: usize,
}

/// Validates a machine deployment that lacks nothing, see [`super::found::lacking`].
///
/// # Errors
///
/// Returns the first reason why it cannot be served now.
pub fn validate(found: &Found, policy: &Policy) -> Result<Deployment, NotServed> {
    let machine_deployment = &found.machine_deployment;
    check_revision(machine_deployment, found.now)?;
    let namespace = machine_deployment.namespace().unwrap_or_default();
    let names = DerivedNames::new(&namespace, &machine_deployment.name_any());
    check_names(found, &names)?;
    if found.quota == Quota::Exceeded {
        let max = policy.machine_deployments_max;
        return Err(Invalid::TooMany { max }.into());
    }
    let settings = found.settings.clone().map_err(Invalid::from)?;
    let Profile { name, compiled } = found.profile.as_ref().map_err(NotServed::clone)?;
    let provider = provider(machine_deployment)?;
    let demand = Demand {
        operating_system: &provider.operating_system,
        cloud_provider: &provider.cloud_provider,
    };
    check_demand(name, compiled.spec(), demand).map_err(Invalid::from)?;
    let utility = provider
        .provisioning_utility()
        .map_err(|error| Invalid::ProviderSpec(Arc::new(error)))?;
    check_utility(compiled.spec(), utility.as_str()).map_err(Invalid::from)?;

    let draw = Draw {
        key: &names.key,
        attempt: found.token_attempt,
        random: &found.random,
    };
    let token = bootstrap::plan_token(
        found.token.as_ref(),
        found.now,
        policy.token_lifetime,
        &draw,
    );
    let MachineAccess {
        api_server,
        kubernetes_ca,
    } = MachineAccess::new(&settings, &found.cluster_info, &found.kubeconfig_ca);
    let bootstrap_kubeconfig =
        bootstrap::kubeconfig(&found.cluster_info, &api_server, token.token());
    let digest_key = DigestKey::derive(&found.cluster_info.fetch_token);
    let mut deployment = Deployment {
        machine_deployment: Arc::clone(machine_deployment),
        names,
        provenance: Provenance::default(),
        provider,
        profile: Arc::clone(compiled),
        settings,
        api_server,
        kubernetes_ca,
        fetch_token: found.cluster_info.fetch_token.clone(),
        own_fetch_token: None,
        registry_credentials: Arc::clone(&found.registry_credentials),
        token,
        bootstrap_kubeconfig,
        digest_key,
    };
    let template = template(&deployment);
    deployment.provenance = provenance(&deployment, Some(template));
    Ok(deployment)
}

/// Checks that the machine deployment owns its derived names. The older one owns a name; of two
/// that were created in the same second, the one with the smaller UID.
fn check_names(found: &Found, names: &DerivedNames) -> Result<(), Invalid> {
    if names.key.len() > LABEL_VALUE_BYTES_MAX {
        return Err(Invalid::NameTooLong {
            bytes: names.key.len(),
        });
    }
    if let Some(secret) = names.shared_secret() {
        return Err(Invalid::NamesCollide {
            secret: secret.to_owned(),
        });
    }
    let created = created(&found.machine_deployment);
    let uid = found.machine_deployment.uid().unwrap_or_default();
    let owner = found
        .name_conflicts
        .iter()
        .min()
        .filter(|other| (other.created, &other.uid) < (created, &uid));
    match owner {
        Some(owner) => Err(Invalid::NameTaken {
            owner: owner.name.clone(),
        }),
        None => Ok(()),
    }
}

/// Returns the provenance annotations of everything that is created. Certificates are inputs by
/// their meaning, so that a comment beside one makes nothing outdated. The provider spec and the
/// kubelet's version are not inputs themselves: when they change, machine-controller raises the
/// revision a moment later.
fn provenance(deployment: &Deployment, template: Option<Digest>) -> Provenance {
    let machine_deployment = &deployment.machine_deployment;
    let revision = machine_deployment
        .annotations()
        .get(REVISION)
        .cloned()
        .unwrap_or_default();
    let annotations_hash = annotation_hash(machine_deployment.metadata.annotations.as_ref());
    let settings = deployment.settings.by_meaning();
    let settings = serde_json::to_vec(&*settings).expect("settings are plain values");
    let kubernetes_ca = certificates::meaning(&deployment.kubernetes_ca);
    // A profile that contains the kubeconfig is rendered again for another token; nodes of other
    // profiles fetch the kubeconfig.
    let kubeconfig = deployment.profile.reads_bootstrap_kubeconfig().then(|| {
        let kubeconfig = deployment.bootstrap_kubeconfig.expose();
        kubeconfig_meaning(kubeconfig).unwrap_or_else(|| kubeconfig.to_owned().into())
    });
    let mut parts: Vec<&[u8]> = vec![
        RENDERER_GENERATION.as_bytes(),
        revision.as_bytes(),
        annotations_hash.as_bytes(),
        deployment.profile.digest().as_bytes(),
        &settings,
        deployment.api_server.as_bytes(),
        kubernetes_ca.as_bytes(),
        deployment.fetch_token.expose().as_bytes(),
    ];
    for (registry, credential) in &*deployment.registry_credentials {
        parts.push(registry.as_bytes());
        parts.extend(credential.parts().map(|part| part.expose().as_bytes()));
    }
    parts.extend(kubeconfig.as_ref().map(|kubeconfig| kubeconfig.as_bytes()));
    if let Some(own) = &deployment.own_fetch_token {
        parts.push(b"own fetch token");
        parts.push(own.expose().as_bytes());
    }
    Provenance {
        inputs: Some(deployment.digest_key.digest(parts)),
        template,
        annotations_hash,
        profile_version: deployment.profile.spec().version.clone(),
        made_for: format!(
            "{}/{}",
            machine_deployment.namespace().unwrap_or_default(),
            machine_deployment.name_any()
        ),
        revision,
        near_limit: None,
    }
}

/// Returns the digest of the parts of the template that are rendered.
fn template(deployment: &Deployment) -> Digest {
    let kubelet = &deployment
        .machine_deployment
        .spec
        .template
        .spec
        .versions
        .kubelet;
    // API servers may return keys in any order.
    let mut provider = serde_json::to_value(&deployment.provider).unwrap_or_default();
    provider.sort_all_objects();
    let provider = Zeroizing::new(provider.to_string());
    let key = &deployment.digest_key;
    key.digest([provider.as_bytes(), kubelet.as_bytes()])
}

impl Deployment {
    /// Sets a token only for this machine deployment's nodes, which is an input of the render.
    #[must_use]
    pub fn with_own_fetch_token(mut self, token: SecretText) -> Self {
        self.own_fetch_token = Some(token);
        let template = self.provenance.template.take();
        self.provenance = provenance(&self, template);
        self
    }

    /// Returns true if its machines are edge machines, which their owner starts.
    pub fn is_at_edge(&self) -> bool {
        self.provider.cloud_provider == CloudProvider::Edge.as_str()
    }

    /// Renders the documents, and checks their sizes. Takes some milliseconds of a core.
    ///
    /// # Errors
    ///
    /// The profile cannot be rendered, or what comes of it is too large.
    pub fn render(&self, limits: &Limits) -> Result<SizeChecked, Invalid> {
        Ok(weigh(&self.render_input(), limits)?.documents?)
    }

    /// Returns the renderer's input.
    pub fn render_input(&self) -> RenderInput<'_> {
        let metadata = &self.machine_deployment.metadata;
        RenderInput {
            machine_deployment: MachineDeploymentInput {
                name: metadata.name.as_deref().unwrap_or_default(),
                namespace: metadata.namespace.as_deref().unwrap_or_default(),
                annotations: self.machine_deployment.annotations(),
                kubelet_version: &self.machine_deployment.spec.template.spec.versions.kubelet,
                provider: &self.provider,
            },
            profile: &self.profile,
            settings: &self.settings,
            cluster: ClusterInput {
                api_server: &self.api_server,
                kubernetes_ca_certificate: &self.kubernetes_ca,
                fetch_token: &self.fetch_token,
                own_fetch_token: self.own_fetch_token.as_ref(),
                bootstrap_kubeconfig: &self.bootstrap_kubeconfig,
            },
            registry_credentials: &self.registry_credentials,
        }
    }
}
