//! The messages between the pool and a worker.

use std::{borrow::Cow, collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::pipe::Part;
use crate::api::{config::OperatingSystemConfigSpec, profile::OperatingSystemProfileSpec};
use crate::render::{
    Limits, RenderError, RenderInput, Rendered, UserData,
    input::{ClusterInput, MachineDeploymentInput, ProviderConfig, RegistryCredential},
    template::CompiledProfile,
};
use crate::rules::user_data::{SizeChecked, TooLarge, Weighed};
use crate::tenant::{
    secret_text::{SecretText, exposed},
    settings::TenantSettings,
};

/// A request to a worker.
#[derive(Serialize, Deserialize)]
pub(super) enum Task<'a> {
    /// Render the documents of a machine deployment.
    Render(Render<'a>),
    /// Lint a profile with sample renders.
    Lint {
        /// The profile's name.
        name: Cow<'a, str>,
        /// The profile.
        profile: Cow<'a, OperatingSystemProfileSpec>,
        /// The profile before, if it is changed.
        before: Option<Cow<'a, OperatingSystemProfileSpec>>,
    },
}

/// All inputs of a render, by value.
#[derive(Serialize, Deserialize)]
pub(super) struct Render<'a> {
    /// The digest of the profile.
    pub(super) digest: Cow<'a, str>,
    /// The profile; `None` if the worker keeps it already.
    pub(super) profile: Option<Box<RawValue>>,
    /// The limits of the template engine.
    pub(super) limits: Limits,
    name: Cow<'a, str>,
    namespace: Cow<'a, str>,
    annotations: Cow<'a, BTreeMap<String, String>>,
    kubelet_version: Cow<'a, str>,
    provider: Cow<'a, ProviderConfig>,
    settings: Cow<'a, TenantSettings>,
    api_server: Cow<'a, str>,
    kubernetes_ca_certificate: Cow<'a, str>,
    #[serde(with = "exposed")]
    fetch_token: SecretText,
    #[serde(with = "exposed::optional")]
    own_fetch_token: Option<SecretText>,
    #[serde(with = "exposed")]
    bootstrap_kubeconfig: SecretText,
    registry_credentials: Cow<'a, BTreeMap<String, RegistryCredential>>,
}

impl<'a> Render<'a> {
    pub(super) fn new(input: &RenderInput<'a>, limits: &Limits) -> Self {
        let (machine_deployment, cluster) = (input.machine_deployment, input.cluster);
        Self {
            digest: input.profile.digest().into(),
            profile: None,
            limits: *limits,
            name: machine_deployment.name.into(),
            namespace: machine_deployment.namespace.into(),
            annotations: Cow::Borrowed(machine_deployment.annotations),
            kubelet_version: machine_deployment.kubelet_version.into(),
            provider: Cow::Borrowed(machine_deployment.provider),
            settings: Cow::Borrowed(input.settings),
            api_server: cluster.api_server.into(),
            kubernetes_ca_certificate: cluster.kubernetes_ca_certificate.into(),
            fetch_token: cluster.fetch_token.clone(),
            own_fetch_token: cluster.own_fetch_token.cloned(),
            bootstrap_kubeconfig: cluster.bootstrap_kubeconfig.clone(),
            registry_credentials: Cow::Borrowed(input.registry_credentials),
        }
    }

    pub(super) fn input<'b>(&'b self, profile: &'b CompiledProfile) -> RenderInput<'b> {
        RenderInput {
            machine_deployment: MachineDeploymentInput {
                name: &self.name,
                namespace: &self.namespace,
                annotations: &self.annotations,
                kubelet_version: &self.kubelet_version,
                provider: &self.provider,
            },
            profile,
            settings: &self.settings,
            cluster: ClusterInput {
                api_server: &self.api_server,
                kubernetes_ca_certificate: &self.kubernetes_ca_certificate,
                fetch_token: &self.fetch_token,
                own_fetch_token: self.own_fetch_token.as_ref(),
                bootstrap_kubeconfig: &self.bootstrap_kubeconfig,
            },
            registry_credentials: &self.registry_credentials,
        }
    }
}

/// The first part of the answer to a render. The other parts are the two documents, or empty.
#[derive(Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "only one exists at a time")]
enum Answer<'a> {
    Fits {
        config: Cow<'a, OperatingSystemConfigSpec>,
        /// `None` if it equals `config`.
        stored_config: Option<Cow<'a, OperatingSystemConfigSpec>>,
        near_limit: Option<Cow<'a, str>>,
    },
    TooLarge {
        sizes: [usize; 2],
        error: Cow<'a, TooLarge>,
    },
    Refused(RenderError),
}

/// The number of parts of an answer.
pub(super) const PARTS: usize = 3;

/// The result of a render.
pub(super) type Outcome = Result<Weighed, RenderError>;

/// Encodes the answer to a render.
pub(super) fn to_parts(outcome: Outcome) -> io::Result<[Part; PARTS]> {
    let (documents, sizes) = match outcome {
        Ok(Weighed { documents, sizes }) => (documents, sizes),
        Err(error) => return alone(&Answer::Refused(error)),
    };
    let SizeChecked {
        rendered,
        near_limit,
    } = match documents {
        Ok(documents) => documents,
        Err(error) => {
            let error = Cow::Owned(error);
            return alone(&Answer::TooLarge { sizes, error });
        }
    };
    let stored_config = &rendered.stored_config;
    let answer = json(&Answer::Fits {
        config: Cow::Borrowed(&rendered.config),
        stored_config: (*stored_config != rendered.config).then_some(Cow::Borrowed(stored_config)),
        near_limit: near_limit.map(Cow::Owned),
    })?;
    let document = |document: &UserData| Part::new(document.as_bytes().to_vec());
    Ok([
        answer,
        document(&rendered.provisioning),
        document(&rendered.bootstrap),
    ])
}

/// Encodes an answer without documents.
pub(super) fn alone(answer: &impl Serialize) -> io::Result<[Part; PARTS]> {
    Ok([json(answer)?, Part::default(), Part::default()])
}

/// Encodes a value as JSON.
pub(super) fn json(value: &impl Serialize) -> io::Result<Part> {
    Ok(Part::new(serde_json::to_vec(value)?))
}

/// Decodes the answer to a render.
pub(super) fn from_parts([answer, provisioning, bootstrap]: [Part; PARTS]) -> io::Result<Outcome> {
    let document = |mut part: Part| UserData::new(std::mem::take(&mut *part));
    Ok(match serde_json::from_slice(&answer)? {
        Answer::Refused(error) => Err(error),
        Answer::TooLarge { sizes, error } => Ok(Weighed {
            sizes,
            documents: Err(error.into_owned()),
        }),
        Answer::Fits {
            config,
            stored_config,
            near_limit,
        } => {
            let config = config.into_owned();
            let stored_config = stored_config.map_or_else(|| config.clone(), Cow::into_owned);
            Ok(Weighed {
                sizes: [provisioning.len(), bootstrap.len()],
                documents: Ok(SizeChecked {
                    rendered: Rendered {
                        config,
                        stored_config,
                        provisioning: document(provisioning),
                        bootstrap: document(bootstrap),
                    },
                    near_limit: near_limit.map(Cow::into_owned),
                }),
            })
        }
    })
}
