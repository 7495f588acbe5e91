//! Renders a profile as the controller would, with files in place of clusters. Decisions and
//! refusals are the same.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use jiff::Timestamp;

use super::{
    cluster_info::ClusterInfoFile,
    input::{BaseFlags, Bases, NamedProfile, SettingsFlags},
    output,
};
use crate::api::machine_deployment::MachineDeployment;
use crate::plan::{
    bootstrap::Randomness,
    found::NotServed,
    invalid::Invalid,
    observed::Observed,
    validate::{Found, Policy, Profile, Quota, validate},
};
use crate::render::{Limits, Rendered, template::CompiledProfile};
use crate::tenant::settings::{SettingsError, TenantSettings};

/// The namespace of machine deployments whose file contains none.
const NAMESPACE: &str = "kube-system";

/// The flags for the files that replace clusters.
#[derive(Args, Clone, Debug)]
pub(super) struct WorldFlags {
    #[command(flatten)]
    settings: SettingsFlags,

    #[command(flatten)]
    bases: BaseFlags,

    /// The cluster info of the worker cluster: a YAML map with apiServer, kubernetesCA, fetchToken,
    /// bootstrapKubeconfig, registryCredentials. A missing key gets a placeholder.
    #[arg(long, value_name = "FACTS")]
    cluster: Option<PathBuf>,
}

/// The contents of the files that replace clusters.
pub(super) struct World {
    settings: Result<Arc<TenantSettings>, SettingsError>,
    cluster_info: ClusterInfoFile,
    pub(super) bases: Bases,
}

impl WorldFlags {
    /// Reads the files, and prints which placeholders are used.
    pub(super) fn load(&self) -> anyhow::Result<World> {
        let cluster_info = ClusterInfoFile::load(self.cluster.as_deref())?;
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
    ///
    /// # Errors
    ///
    /// If a reconcile would not serve the machine deployment either.
    pub(super) fn render(
        &self,
        profile: &NamedProfile,
        machine_deployment: &MachineDeployment,
    ) -> Result<Rendered, NotServed> {
        let found = self.inputs(profile, machine_deployment)?;
        let policy = Policy {
            token_lifetime: Duration::from_hours(1),
            machine_deployments_max: 1,
        };
        let mut deployment = validate(&found, &policy)?;
        if let Some(kubeconfig) = &self.cluster_info.bootstrap_kubeconfig {
            deployment.bootstrap_kubeconfig = kubeconfig.clone();
        }
        let documents = deployment.render(&Limits::default())?;
        if let Some(near_limit) = documents.near_limit {
            output::note(&near_limit);
        }
        Ok(documents.rendered)
    }

    /// Returns the inputs that a reconcile would have read.
    fn inputs(
        &self,
        profile: &NamedProfile,
        machine_deployment: &MachineDeployment,
    ) -> Result<Found, Invalid> {
        let mut machine_deployment = machine_deployment.clone();
        if machine_deployment.spec.is_unreadable {
            return Err(Invalid::Unreadable);
        }
        let namespace = &mut machine_deployment.metadata.namespace;
        namespace.get_or_insert_with(|| NAMESPACE.to_owned());
        Ok(Found {
            machine_deployment: Arc::new(machine_deployment),
            name_conflicts: Vec::new(),
            quota: Quota::Within,
            profile: self.profile(profile).map_err(NotServed::from),
            settings: self.settings.clone(),
            cluster_info: Arc::new(self.cluster_info.cluster.clone()),
            kubeconfig_ca: self.cluster_info.certificate.as_bytes().into(),
            registry_credentials: Arc::new(self.cluster_info.registry_credentials.clone()),
            token: None,
            token_attempt: 0,
            // Equal files must give equal bytes.
            random: Randomness([0; 64]),
            observed: Observed::default(),
            now: Timestamp::UNIX_EPOCH,
        })
    }

    fn profile(&self, profile: &NamedProfile) -> Result<Profile, Invalid> {
        let NamedProfile { name, spec } = self.bases.resolve(profile).map_err(Invalid::Overlay)?;
        match CompiledProfile::compile(&spec) {
            Ok(compiled) => Ok(Profile {
                name,
                compiled: Arc::new(compiled),
            }),
            Err(error) => Err(Invalid::unusable(&name, Arc::new(error))),
        }
    }
}
