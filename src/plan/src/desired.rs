//! The desired state of the objects of one machine deployment.

use k8s_openapi::api::core::v1::Secret;

use super::{
    bootstrap::{TokenPlan, kubeconfig_meaning},
    digest::{Digest, DigestKey},
    input_digests,
    observed::{Observed, Seen},
    provenance::Provenance,
    records::Behind,
    validate::Deployment,
};
use osm_api::{
    config::OperatingSystemConfigSpec,
    names::{
        CLOUD_CONFIG_KEY, DerivedNames, EDGE_SCRIPT_KEY, KUBECONFIG_KEY, MADE_FOR_REVISION,
        NEAR_LIMIT,
    },
    worker_cluster::MachineReplacement,
};
use osm_render::{
    edge_script::{EdgeScriptInput, edge_script},
    user_data::UserData,
};
use osm_rules::user_data::SizeChecked;
use osm_tenant::secret_text::SecretText;

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

/// Returns a sentence if the current documents were rendered from another template for the same
/// revision.
pub fn awaited_revision(deployment: &Deployment, observed: &Observed) -> Option<String> {
    let seen = observed.bootstrap.as_ref()?;
    let provenance = &deployment.provenance;
    provenance.awaits_revision(seen).then(|| {
        format!(
            "the template has changed; waiting for machine-controller to raise the revision, which \
             is {}",
            provenance.revision
        )
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
    /// True if it is recorded how far machines are behind: not of edge machines, because their
    /// owner starts them, nor of machines whose document contains the kubelet's kubeconfig, because
    /// it changes with every token.
    pub compares_machines: bool,
    /// The annotation with the digests of the documents' inputs; empty without documents.
    pub input_digests: String,
    /// How far machines are behind once everything is written, if a document was replaced.
    pub behind: Option<Behind>,
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
    let compares_machines =
        !deployment.is_at_edge() && !deployment.profile.reads_bootstrap_kubeconfig();
    let replaces = deployment.settings.machine_rollout.replace == MachineReplacement::WhenOutdated;
    let record = documents
        .as_ref()
        .map(|_| input_digests::record(deployment));
    let input_digests = record.unwrap_or_default();
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
        machines_key: (replaces && compares_machines).then(|| key.digest([&b"machines"[..]])),
        compares_machines,
        input_digests,
        behind: None,
    }
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

/// Returns the provisioning Secret that the machines of this revision were created from, or a later
/// one.
pub(super) fn stored_for<'a>(desired: &Desired, observed: &'a Observed) -> Option<&'a Seen> {
    let revision = Some(desired.provenance.revision.as_str());
    let stored = observed.provisioning.as_ref();
    stored.filter(|it| it.annotation(MADE_FOR_REVISION) == revision)
}

/// Returns the digest of the provisioning document, once the changes are written.
pub(super) fn provisioning_digest<'a>(
    desired: &'a Desired,
    observed: &'a Observed,
) -> Option<&'a Digest> {
    let kept = observed.provisioning.as_ref();
    let kept = kept.filter(|seen| desired.documents.is_none() || desired.provenance.keeps(seen));
    let rendered = desired.documents.as_ref().map(|it| &it.provisioning.1);
    kept.map(|seen| &seen.content).or(rendered)
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
