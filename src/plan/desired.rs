//! The desired state of the objects of one machine deployment.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;

use super::{
    bootstrap::{TokenPlan, kubeconfig_meaning},
    digest::{Digest, DigestKey},
    observed::{Observed, Seen},
    validate::Deployment,
};
use crate::api::{
    config::OperatingSystemConfigSpec,
    names::{
        CLOUD_CONFIG_KEY, CONTENT, DerivedNames, EDGE_SCRIPT_KEY, INPUTS, KEPT, KUBECONFIG_KEY,
        MADE_FOR, MADE_FOR_ANNOTATIONS, MADE_FOR_PROFILE_VERSION, MADE_FOR_REVISION, NEAR_LIMIT,
    },
    worker_cluster::MachineReplacement,
};
use crate::render::{
    edge_script::{EdgeScriptInput, edge_script},
    user_data::UserData,
};
use crate::rules::user_data::SizeChecked;
use crate::tenant::secret_text::SecretText;

/// An input of every render. Raise it only when a new release must render everything again.
pub const RENDERER_GENERATION: &str = "1";

/// The provenance annotations of the objects of a machine deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The machine deployment's revision.
    pub revision: String,
    /// The hash of the machine deployment's annotations.
    pub annotations_hash: String,
    /// The profile's version.
    pub profile_version: String,
    /// The digest of all inputs of the render.
    pub inputs: Option<Digest>,
    /// The machine deployment, as `namespace/name`.
    pub made_for: String,
    /// A sentence about a document that is close to its size limit. It is stored so that it can be
    /// reported again when nothing is rendered.
    pub near_limit: Option<String>,
}

impl Provenance {
    /// Returns the annotations of an object with this content.
    pub fn annotations(&self, content: &Digest) -> BTreeMap<String, String> {
        let inputs = self.inputs.as_ref().map(Digest::as_str).unwrap_or_default();
        let near_limit = self.near_limit.as_deref().map(|text| (NEAR_LIMIT, text));
        [
            (MADE_FOR_REVISION, self.revision.as_str()),
            (MADE_FOR_ANNOTATIONS, &self.annotations_hash),
            (MADE_FOR_PROFILE_VERSION, &self.profile_version),
            (MADE_FOR, &self.made_for),
            (INPUTS, inputs),
            (CONTENT, content.as_str()),
        ]
        .into_iter()
        .chain(near_limit)
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
    }

    /// Returns true if an object has the same provenance: the three annotations that other programs
    /// read, and ours.
    pub(super) fn is_on(&self, seen: &Seen) -> bool {
        self.upstream_is_on(seen)
            && seen.annotation(INPUTS) == self.inputs.as_ref().map(Digest::as_str)
    }

    /// Returns true if an object keeps its bytes, whatever we render: another program created it
    /// for the same revision, annotations and profile, or it was kept before and nothing changed.
    pub(super) fn keeps(&self, seen: &Seen) -> bool {
        if seen.annotation(KEPT).is_some() {
            self.is_on(seen) && seen.is_intact()
        } else {
            !seen.is_ours() && self.upstream_is_on(seen)
        }
    }

    /// Returns true if the three annotations that other programs read are the same.
    fn upstream_is_on(&self, seen: &Seen) -> bool {
        seen.annotation(MADE_FOR_REVISION) == Some(&self.revision)
            && seen.annotation(MADE_FOR_ANNOTATIONS) == Some(&self.annotations_hash)
            && seen.annotation(MADE_FOR_PROFILE_VERSION) == Some(&self.profile_version)
    }
}

/// Returns true if the config and the documents are current, without rendering them.
///
/// Objects of another program are not current, even if their annotations match: the documents are
/// rendered and compared once.
pub fn is_current(deployment: &Deployment, observed: &Observed) -> bool {
    let all = [
        &observed.config,
        &observed.provisioning,
        &observed.bootstrap,
    ];
    all.iter().all(|seen| {
        seen.as_ref()
            .is_some_and(|seen| deployment.provenance.is_on(seen) && seen.is_intact())
    })
}

/// The desired state of the objects of one machine deployment.
#[derive(Debug)]
pub struct Desired {
    /// The objects' names.
    pub names: DerivedNames,
    /// The provenance annotations.
    pub provenance: Provenance,
    /// What to do about the bootstrap token.
    pub token: TokenPlan,
    /// The kubelet's bootstrap kubeconfig, and its digest.
    pub kubelet_kubeconfig: (SecretText, Digest),
    /// The edge script and its digest; `None` on other clouds.
    pub edge_script: Option<(SecretText, Digest)>,
    /// The config and the documents; `None` if the existing ones are current.
    pub documents: Option<Documents>,
    /// A digest that identifies the digest key, for the record of what machines were created from;
    /// `None` if machines are not replaced when the document changes.
    pub machines_key: Option<Digest>,
}

/// Returns the stored sentence about a document that is close to its size limit. It is used when
/// nothing is rendered.
pub fn known_near_limit(observed: &Observed) -> Option<String> {
    let text = observed.bootstrap.as_ref()?.annotation(NEAR_LIMIT)?;
    Some(text.to_owned())
}

/// The config and the documents, each with its digest.
#[derive(Debug)]
pub struct Documents {
    /// The config as it is stored, without secrets.
    pub config: (OperatingSystemConfigSpec, Digest),
    /// The provisioning document.
    pub provisioning: (UserData, Digest),
    /// The bootstrap document.
    pub bootstrap: (UserData, Digest),
}

/// Returns the desired state. `documents` is `None` if nothing was rendered because the existing
/// documents are current.
pub fn desired(deployment: &Deployment, documents: Option<SizeChecked>) -> Desired {
    let key = &deployment.digest_key;
    let kubeconfig = deployment.bootstrap_kubeconfig.clone();
    let mut provenance = deployment.provenance.clone();
    provenance.near_limit = documents
        .as_ref()
        .and_then(|documents| documents.near_limit.clone());
    let kubeconfig_digest = kubeconfig_digest(key, kubeconfig.expose());
    Desired {
        names: deployment.names.clone(),
        provenance,
        token: deployment.token.clone(),
        kubelet_kubeconfig: (kubeconfig, kubeconfig_digest),
        edge_script: script(deployment).map(|script| {
            let digest = secret_digest(key, script.expose().as_bytes());
            (script, digest)
        }),
        documents: documents.map(|SizeChecked { rendered, .. }| Documents {
            config: {
                let digest = config_digest(key, &rendered.stored_config);
                (rendered.stored_config, digest)
            },
            provisioning: with_digest(key, rendered.provisioning),
            bootstrap: with_digest(key, rendered.bootstrap),
        }),
        machines_key: replaces_machines(deployment).then(|| key.digest([&b"machines"[..]])),
    }
}

/// Returns true if machines are replaced when the document changes. Edge machines are never
/// replaced, because their owner starts them. Neither are machines whose document contains the
/// kubelet's kubeconfig, because it changes with every token.
fn replaces_machines(deployment: &Deployment) -> bool {
    deployment.settings.machine_rollout.replace == MachineReplacement::WhenOutdated
        && !deployment.is_at_edge()
        && !deployment.profile.reads_bootstrap_kubeconfig()
}

/// Returns the edge script. Edge machines get no user data: their owner runs the script, which
/// fetches it.
fn script(deployment: &Deployment) -> Option<SecretText> {
    let own = deployment.own_fetch_token.as_ref();
    deployment.is_at_edge().then(|| {
        edge_script(&EdgeScriptInput {
            api_server: &deployment.api_server,
            certificate_authority: &deployment.kubernetes_ca,
            fetch_token: own.unwrap_or(&deployment.fetch_token),
            secret: &deployment.names.bootstrap,
        })
    })
}

fn with_digest(key: &DigestKey, data: UserData) -> (UserData, Digest) {
    let digest = secret_digest(key, data.as_bytes());
    (data, digest)
}

/// Returns the digest of a Secret's only value.
pub fn secret_digest(key: &DigestKey, bytes: &[u8]) -> Digest {
    key.digest([bytes])
}

/// Returns the digest of a kubeconfig by its meaning.
fn kubeconfig_digest(key: &DigestKey, kubeconfig: &str) -> Digest {
    let meaning = kubeconfig_meaning(kubeconfig);
    let text = meaning.as_ref().map_or(kubeconfig, |meaning| meaning);
    secret_digest(key, text.as_bytes())
}

/// Returns the digest of what a stored Secret holds under one of our keys. One that has none of
/// them has the digest of an empty value, which no Secret that we write has.
pub fn stored_digest(key: &DigestKey, secret: &Secret) -> Digest {
    let value = |name: &str| Some(secret.data.as_ref()?.get(name)?.0.as_slice());
    let kubeconfig = || value(KUBECONFIG_KEY);
    if let Some(document) = value(CLOUD_CONFIG_KEY) {
        return secret_digest(key, document);
    }
    let text = kubeconfig().and_then(|it| std::str::from_utf8(it).ok());
    if let Some(kubeconfig) = text {
        return kubeconfig_digest(key, kubeconfig);
    }
    let other = kubeconfig().or_else(|| value(EDGE_SCRIPT_KEY));
    secret_digest(key, other.unwrap_or_default())
}

/// Returns the digest of a config's spec. It is computed from the canonical JSON, so that a stored
/// config has the same digest as a rendered one.
pub fn config_digest(key: &DigestKey, spec: &OperatingSystemConfigSpec) -> Digest {
    let json = serde_json::to_vec(spec).expect("a config's spec is plain values");
    key.digest([json.as_slice()])
}
