//! A profile rendered as the controller would, with files in place of clusters: the same decision,
//! the same refusals.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    cluster_info::Facts,
    input::{BaseFlags, Bases, NamedProfile, SettingsFlags},
    output,
};
use crate::api::machine_deployment::MachineDeployment;
use crate::plan::{
    bootstrap::Randomness,
    observed::Observed,
    validate::{Found, Invalid, Policy, ProfileFound, Quota, validate},
};
use crate::render::{Limits, RenderError, Rendered, render, template::CompiledProfile};
use crate::rules::user_data::{TooLarge, fit};
use crate::tenant::settings::{SettingsError, TenantSettings};

/// Where machine deployments stand unless their file says otherwise.
const NAMESPACE: &str = "kube-system";

/// What stands in for clusters.
#[derive(Args, Clone, Debug)]
pub(super) struct WorldFlags {
    #[command(flatten)]
    settings: SettingsFlags,

    #[command(flatten)]
    bases: BaseFlags,

    /// What the worker cluster would tell: a YAML map with apiServer, kubernetesCA, fetchToken,
    /// bootstrapKubeconfig, registryCredentials. What is left out gets a placeholder.
    #[arg(long, value_name = "FACTS")]
    cluster: Option<PathBuf>,
}

/// What stands in for clusters, read.
pub(super) struct World {
    settings: Result<Arc<TenantSettings>, SettingsError>,
    cluster_info: Facts,
    pub(super) bases: Bases,
}

/// Why nothing is rendered.
pub(super) enum Refused {
    Invalid(Invalid),
    Render(RenderError),
    TooLarge(TooLarge),
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => write!(formatter, "{}: {invalid}", invalid.reason()),
            Self::Render(error) => write!(formatter, "RenderFailed: {error}"),
            Self::TooLarge(error) => write!(formatter, "UserDataTooLarge: {error}"),
        }
    }
}

impl WorldFlags {
    /// Reads the files, and tells what they leave out.
    pub(super) fn load(&self) -> anyhow::Result<World> {
        let cluster_info = Facts::load(self.cluster.as_deref())?;
        if !cluster_info.placeholders.is_empty() {
            let names = cluster_info.placeholders.join(", ");
            output::note(&format!(
                "placeholders stand for {names}; --cluster FACTS sets them"
            ));
        }
        Ok(World {
            settings: self.settings.load()?.map(Arc::new),
            cluster_info,
            bases: self.bases.load()?,
        })
    }
}

impl World {
    /// Renders a profile for a machine deployment.
    pub(super) fn render(
        &self,
        profile: &NamedProfile,
        machine_deployment: &MachineDeployment,
    ) -> Result<Rendered, Refused> {
        let found = self.inputs(profile, machine_deployment);
        let policy = Policy {
            token_lifetime: Duration::from_hours(1),
            machine_deployments_max: 1,
        };
        let mut deployment = validate(&found, &policy).map_err(Refused::Invalid)?;
        if let Some(kubeconfig) = &self.cluster_info.bootstrap_kubeconfig {
            deployment.bootstrap_kubeconfig = kubeconfig.clone();
        }
        let name = machine_deployment.name_any();
        let namespace = found.machine_deployment.namespace().unwrap_or_default();
        let input = deployment.render_input(&name, &namespace);
        let rendered = render(&input, &Limits::default()).map_err(Refused::Render)?;
        let documents = fit(rendered).map_err(Refused::TooLarge)?;
        if let Some(near_limit) = documents.near_limit {
            output::note(&near_limit);
        }
        Ok(documents.rendered)
    }

    /// What the controller would have found.
    fn inputs(&self, profile: &NamedProfile, machine_deployment: &MachineDeployment) -> Found {
        let mut machine_deployment = machine_deployment.clone();
        let namespace = &mut machine_deployment.metadata.namespace;
        namespace.get_or_insert_with(|| NAMESPACE.to_owned());
        Found {
            machine_deployment: Arc::new(machine_deployment),
            name_conflicts: Vec::new(),
            quota: Quota::Within,
            profile: self.profile_found(profile),
            settings: self.settings.clone(),
            cluster_info: Arc::new(self.cluster_info.cluster.clone()),
            kubeconfig_ca: self.cluster_info.certificate.as_bytes().into(),
            registry_credentials: Arc::new(self.cluster_info.registry_credentials.clone()),
            token: None,
            token_attempt: 0,
            // The same files give the same bytes.
            random: Randomness([0; 64]),
            observed: Observed::default(),
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn profile_found(&self, profile: &NamedProfile) -> ProfileFound {
        let whole = match self.bases.resolve(profile) {
            Ok(whole) => whole,
            Err(error) => return ProfileFound::Unresolved { error },
        };
        let name = whole.name;
        match CompiledProfile::compile(&whole.spec) {
            Ok(compiled) => ProfileFound::Usable {
                name,
                profile: Arc::new(compiled),
            },
            Err(error) => ProfileFound::Unusable {
                name,
                error: Arc::new(error),
            },
        }
    }
}
