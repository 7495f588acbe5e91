//! What should stand in the clusters for one machine deployment.

use std::collections::BTreeMap;

use super::{
    bootstrap::TokenPlan,
    digest::{Digest, DigestKey},
    observed::{Observed, Seen},
    validate::Deployment,
};
use crate::api::{
    config::OperatingSystemConfigSpec,
    names::{
        CONTENT, DerivedNames, INPUTS, KEPT, MADE_FOR, MADE_FOR_ANNOTATIONS,
        MADE_FOR_PROFILE_VERSION, MADE_FOR_REVISION, NEAR_LIMIT,
    },
    worker_cluster::MachineReplacement,
};
use crate::render::{
    edge_script::{EdgeScriptInput, edge_script},
    user_data::UserData,
};
use crate::rules::user_data::Fitting;
use crate::tenant::secret_text::SecretText;

/// Raised on purpose, and only so, when a new release must render everything anew.
pub const RENDERER_GENERATION: &str = "1";

/// What the annotations of everything that is made for a machine deployment say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The machine deployment's revision.
    pub revision: String,
    /// The hash of the machine deployment's annotations.
    pub annotations_hash: String,
    /// The profile's version.
    pub profile_version: String,
    /// The digest of everything that goes into the render.
    pub inputs: Option<Digest>,
    /// The machine deployment, as `namespace/name`.
    pub made_for: String,
    /// What is close to its limit, in a sentence: told again where nothing is rendered.
    pub near_limit: Option<String>,
}

impl Stamp {
    /// The annotations, for an object with this content.
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

    /// Whether an object says that it was made from the same: the three annotations that others
    /// read, and ours.
    pub(super) fn is_on(&self, seen: &Seen) -> bool {
        self.upstream_is_on(seen)
            && seen.annotation(INPUTS) == self.inputs.as_ref().map(Digest::as_str)
    }

    /// Whether an object is kept with its bytes, whatever we render: another program made it for
    /// the same revision, annotations and profile, or it was kept before and nothing has changed.
    pub(super) fn keeps(&self, seen: &Seen) -> bool {
        if seen.annotation(KEPT).is_some() {
            self.is_on(seen) && seen.is_intact()
        } else {
            !seen.is_ours() && self.upstream_is_on(seen)
        }
    }

    /// Whether the three annotations that others read are the same.
    fn upstream_is_on(&self, seen: &Seen) -> bool {
        seen.annotation(MADE_FOR_REVISION) == Some(&self.revision)
            && seen.annotation(MADE_FOR_ANNOTATIONS) == Some(&self.annotations_hash)
            && seen.annotation(MADE_FOR_PROFILE_VERSION) == Some(&self.profile_version)
    }
}

/// Whether the config and the documents are what they should be, without a render.
///
/// What the system before us made is not, even where its annotations fit: it is rendered and
/// compared once.
pub fn is_current(deployment: &Deployment, observed: &Observed) -> bool {
    let all = [
        &observed.config,
        &observed.provisioning,
        &observed.bootstrap,
    ];
    all.iter().all(|seen| {
        seen.as_ref()
            .is_some_and(|seen| deployment.stamp.is_on(seen) && seen.is_intact())
    })
}

/// What should stand in the clusters for one machine deployment.
#[derive(Debug)]
pub struct Desired {
    /// The names.
    pub names: DerivedNames,
    /// The annotations.
    pub stamp: Stamp,
    /// The bootstrap token.
    pub token: TokenPlan,
    /// The kubelet's bootstrap kubeconfig, and its digest.
    pub kubelet_kubeconfig: (SecretText, Digest),
    /// The script for edge machines, and its digest; none on other clouds.
    pub edge_script: Option<(SecretText, Digest)>,
    /// The config and the documents; none where those that exist are current.
    pub documents: Option<Documents>,
    /// By what digests of what machines were made from are told apart; nothing where machines are
    /// not replaced for another document.
    pub machines_key: Option<Digest>,
}

/// What is close to its limit in what was made, where that is current and nothing is rendered.
pub fn known_near_limit(observed: &Observed) -> Option<String> {
    let told = observed.bootstrap.as_ref()?.annotation(NEAR_LIMIT)?;
    Some(told.to_owned())
}

/// The config and the documents, each with its digest.
#[derive(Debug)]
pub struct Documents {
    /// The config as it is stored.
    pub config: (OperatingSystemConfigSpec, Digest),
    /// The provisioning document.
    pub provisioning: (UserData, Digest),
    /// The bootstrap document.
    pub bootstrap: (UserData, Digest),
}

/// What should stand in the clusters, given what was rendered.
pub fn desired(deployment: &Deployment, fitting: Option<Fitting>) -> Desired {
    let key = &deployment.digest_key;
    let kubeconfig = deployment.bootstrap_kubeconfig.clone();
    let mut stamp = deployment.stamp.clone();
    stamp.near_limit = fitting
        .as_ref()
        .and_then(|fitting| fitting.near_limit.clone());
    let kubeconfig_digest = secret_digest(key, kubeconfig.expose().as_bytes());
    Desired {
        names: deployment.names.clone(),
        stamp,
        token: deployment.token.clone(),
        kubelet_kubeconfig: (kubeconfig, kubeconfig_digest),
        edge_script: script(deployment).map(|script| {
            let digest = secret_digest(key, script.expose().as_bytes());
            (script, digest)
        }),
        documents: fitting.map(|Fitting { rendered, .. }| Documents {
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

/// Whether machines are replaced that were made from another document. Those at the edge are their
/// owner's; and where a document has the kubelet's kubeconfig in it, it changes with each token.
fn replaces_machines(deployment: &Deployment) -> bool {
    deployment.settings.machine_rollout.replace == MachineReplacement::WhenOutdated
        && !deployment.is_at_edge()
        && !deployment.profile.reads_bootstrap_kubeconfig()
}

/// Edge machines get no user data: their owner runs a script that fetches it.
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

/// The digest of a Secret's one value.
pub fn secret_digest(key: &DigestKey, bytes: &[u8]) -> Digest {
    key.digest([bytes])
}

/// The digest of a config's spec: of its canonical JSON, so that what the API server stored and
/// what was rendered are the same.
pub fn config_digest(key: &DigestKey, spec: &OperatingSystemConfigSpec) -> Digest {
    let json = serde_json::to_vec(spec).expect("a config's spec is plain values");
    key.digest([json.as_slice()])
}
