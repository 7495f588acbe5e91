//! Plans the writes for a machine deployment, in a safe order.
//!
//! Create: token → kubelet kubeconfig → edge script → config → provisioning → bootstrap. The token
//! comes first, so that a crash cannot leave documents with a token that never existed. Bootstrap
//! comes last, because machine-controller waits only for that Secret.
//!
//! Rotate to different bytes: bootstrap is deleted first, then everything is written in the order
//! of a create. While bootstrap is missing, machine-controller polls; if it read a stale one, it
//! would fail and back off. If the bytes are the same, only annotations change, and no object is
//! ever missing.
//!
//! The kubelet kubeconfig is mutable: it is updated in place and never deleted, because nodes that
//! fetch it while it is missing do not recover. The edge script is updated in place, too, and is
//! deleted when the machine deployment moves to another cloud.

use std::collections::BTreeMap;

use super::{
    bootstrap::{Token, TokenPlan},
    desired::{Desired, Documents},
    digest::Digest,
    machine_rollout::machines,
    observed::{Observed, Seen},
    provenance::Provenance,
    records::Behind,
};
use osm_api::{
    config::OperatingSystemConfigSpec,
    names::{
        CLOUD_CONFIG_KEY, EDGE_SCRIPT_KEY, INPUT_DIGESTS, KEPT, KUBECONFIG_KEY, MACHINES_BEHIND,
        MACHINES_MADE_FROM, MADE_FOR_REVISION,
    },
};
use osm_tenant::secret_text::SecretBytes;

/// The desired state of a Secret in `cloud-init-settings`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretWanted {
    /// The Secret's name.
    pub name: String,
    /// The Secret's only data key.
    pub key: &'static str,
    /// The value under the key.
    pub data: SecretBytes,
    /// The digest of the value.
    pub content: Digest,
    /// The machine deployment, as `namespace/name`.
    pub made_for: String,
    /// The annotations; `None` for Secrets that are updated in place.
    pub provenance: Option<Provenance>,
    /// More annotations: of the kubelet's kubeconfig, which no rotation deletes, those about the
    /// machines; of the provisioning Secret, the digests of inputs. What is not here is kept.
    pub more_annotations: BTreeMap<String, String>,
}

/// A Secret whose existing bytes are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSecret {
    /// The Secret's name.
    pub name: String,
    /// Our annotations, with the digest of the kept bytes.
    pub annotations: BTreeMap<String, String>,
}

/// The desired state of a config.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigWanted {
    /// The config's name.
    pub name: String,
    /// The spec.
    pub spec: OperatingSystemConfigSpec,
    /// The digest of the spec.
    pub content: Digest,
    /// The annotations.
    pub provenance: Provenance,
}

/// One write to a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Creates the bootstrap token.
    CreateToken(Token),
    /// Extends the bootstrap token.
    ExtendToken(Token),
    /// Creates a Secret.
    CreateSecret(SecretWanted),
    /// Updates a Secret in place: its annotations or, if it is mutable, its data.
    ReplaceSecret(SecretWanted, Seen),
    /// Adds our annotations to a Secret of another program, and keeps its bytes.
    KeepSecret(KeptSecret, Seen),
    /// Deletes an immutable Secret and immediately creates it again with other bytes.
    RecreateSecret(SecretWanted, Seen),
    /// Deletes a Secret.
    DeleteSecret(String, Seen),
    /// Creates the config.
    CreateConfig(ConfigWanted),
    /// Updates the config's annotations.
    StampConfig(ConfigWanted, Seen),
    /// Deletes the config and creates it again with another spec.
    RecreateConfig(ConfigWanted, Seen),
}

impl Change {
    /// Returns the Secret that the write creates or changes.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::CreateSecret(wanted)
            | Self::ReplaceSecret(wanted, _)
            | Self::RecreateSecret(wanted, _) => Some(&wanted.name),
            _ => None,
        }
    }
}

/// Returns the writes that turn the observed state into the desired one, in the order in which they
/// must happen. The list is empty if nothing differs.
pub fn changes(desired: Desired, observed: &Observed) -> Vec<Change> {
    let mut changes = Vec::new();
    match &desired.token {
        TokenPlan::Keep(_) => {}
        TokenPlan::Extend(token) => changes.push(Change::ExtendToken(token.clone())),
        TokenPlan::Create(token) => changes.push(Change::CreateToken(token.clone())),
    }
    changes.extend(kubelet_kubeconfig(&desired, observed));
    changes.extend(edge_script(&desired, observed));
    if let Some(documents) = desired.documents {
        let planner = DocumentPlanner {
            names: &desired.names,
            provenance: &desired.provenance,
            input_digests: &desired.input_digests,
        };
        changes.extend(planner.documents(documents, observed));
    }
    changes
}

fn kubelet_kubeconfig(desired: &Desired, observed: &Observed) -> Option<Change> {
    let (kubeconfig, content) = &desired.kubelet_kubeconfig;
    let wanted = SecretWanted {
        name: desired.names.kubelet_kubeconfig.clone(),
        key: KUBECONFIG_KEY,
        data: kubeconfig.to_bytes(),
        content: content.clone(),
        made_for: desired.provenance.made_for.clone(),
        provenance: None,
        more_annotations: about_machines(desired, observed),
    };
    change_in_place(wanted, observed.kubelet_kubeconfig.as_ref())
}

fn edge_script(desired: &Desired, observed: &Observed) -> Option<Change> {
    let name = desired.names.edge_script.clone();
    let seen = observed.edge_script.as_ref();
    let Some((script, content)) = &desired.edge_script else {
        return seen.map(|seen| Change::DeleteSecret(name, seen.clone()));
    };
    let wanted = SecretWanted {
        name,
        key: EDGE_SCRIPT_KEY,
        data: script.to_bytes(),
        content: content.clone(),
        made_for: desired.provenance.made_for.clone(),
        provenance: None,
        more_annotations: BTreeMap::new(),
    };
    change_in_place(wanted, seen)
}

fn change_in_place(wanted: SecretWanted, seen: Option<&Seen>) -> Option<Change> {
    match seen {
        None => Some(Change::CreateSecret(wanted)),
        Some(seen)
            if seen.content == wanted.content
                && has_annotations(seen, &wanted.more_annotations) =>
        {
            None
        }
        Some(seen) => Some(Change::ReplaceSecret(wanted, seen.clone())),
    }
}

fn about_machines(desired: &Desired, observed: &Observed) -> BTreeMap<String, String> {
    let made_from = machines(desired, observed).map(|it| it.made_from.to_string());
    let behind = desired.behind.as_ref().map(Behind::to_string);
    let annotations = [(MACHINES_MADE_FROM, made_from), (MACHINES_BEHIND, behind)];
    let annotations = annotations.into_iter();
    let annotations = annotations.filter_map(|(key, value)| Some((key.to_owned(), value?)));
    annotations.collect()
}

struct DocumentPlanner<'a> {
    names: &'a osm_api::names::DerivedNames,
    provenance: &'a Provenance,
    input_digests: &'a str,
}

impl DocumentPlanner<'_> {
    fn documents(&self, documents: Documents, observed: &Observed) -> Vec<Change> {
        let config = self.config(documents.config, observed.config.as_ref());
        let (data, content) = documents.provisioning;
        let provisioning = self.document(&self.names.provisioning, data.into_secret(), content);
        let input_digests = (INPUT_DIGESTS.to_owned(), self.input_digests.to_owned());
        let provisioning = SecretWanted {
            more_annotations: [input_digests].into(),
            ..provisioning
        };
        let provisioning = change_secret(provisioning, observed.provisioning.as_ref());
        let (data, content) = documents.bootstrap;
        let bootstrap = self.document(&self.names.bootstrap, data.into_secret(), content);

        let Some(seen) = &observed.bootstrap else {
            let create = Change::CreateSecret(bootstrap);
            return [config, provisioning, Some(create)]
                .into_iter()
                .flatten()
                .collect();
        };
        if !self.provenance.keeps(seen)
            && self.must_be_deleted_first(&bootstrap, seen, provisioning.as_ref())
        {
            let delete = Change::DeleteSecret(bootstrap.name.clone(), seen.clone());
            let create = Change::CreateSecret(bootstrap);
            return [Some(delete), config, provisioning, Some(create)]
                .into_iter()
                .flatten()
                .collect();
        }
        let bootstrap = change_secret(bootstrap, Some(seen));
        [config, provisioning, bootstrap]
            .into_iter()
            .flatten()
            .collect()
    }

    /// Returns true if the bootstrap Secret must be deleted before the documents are written: its
    /// bytes differ, or those of the provisioning Secret do and machine-controller waits for a new
    /// revision.
    fn must_be_deleted_first(
        &self,
        bootstrap: &SecretWanted,
        seen: &Seen,
        provisioning: Option<&Change>,
    ) -> bool {
        let is_stale = seen.annotation(MADE_FOR_REVISION) != Some(&self.provenance.revision);
        let provisioning_differs = matches!(
            provisioning,
            Some(Change::RecreateSecret(..) | Change::CreateSecret(_))
        );
        bootstrap.content != seen.content || (is_stale && provisioning_differs)
    }

    fn document(&self, name: &str, data: SecretBytes, content: Digest) -> SecretWanted {
        SecretWanted {
            name: name.to_owned(),
            key: CLOUD_CONFIG_KEY,
            data,
            content,
            made_for: self.provenance.made_for.clone(),
            provenance: Some(self.provenance.clone()),
            more_annotations: BTreeMap::new(),
        }
    }

    fn config(
        &self,
        (spec, content): (OperatingSystemConfigSpec, Digest),
        seen: Option<&Seen>,
    ) -> Option<Change> {
        let annotations = self.provenance.annotations(&content);
        let same_bytes = seen.map(|seen| seen.content == content);
        let wanted = ConfigWanted {
            name: self.names.config.clone(),
            spec,
            content,
            provenance: self.provenance.clone(),
        };
        match (seen, same_bytes) {
            (Some(seen), Some(true)) => (!has_annotations(seen, &annotations))
                .then(|| Change::StampConfig(wanted, seen.clone())),
            (Some(seen), _) => Some(Change::RecreateConfig(wanted, seen.clone())),
            (None, _) => Some(Change::CreateConfig(wanted)),
        }
    }
}

fn change_secret(wanted: SecretWanted, seen: Option<&Seen>) -> Option<Change> {
    let Some(seen) = seen else {
        return Some(Change::CreateSecret(wanted));
    };
    if wanted.content != seen.content {
        return match &wanted.provenance {
            Some(provenance) if provenance.keeps(seen) => keep(wanted.name, provenance, seen),
            _ => Some(Change::RecreateSecret(wanted, seen.clone())),
        };
    }
    let annotations = wanted
        .provenance
        .as_ref()
        .map(|provenance| provenance.annotations(&wanted.content));
    let is_annotated = annotations.is_none_or(|annotations| has_annotations(seen, &annotations))
        && seen.annotation(KEPT).is_none();
    (!is_annotated).then(|| Change::ReplaceSecret(wanted, seen.clone()))
}

/// Keeps bytes that another program wrote. They are replaced together with the Secret once its
/// revision, profile or settings change.
fn keep(name: String, provenance: &Provenance, seen: &Seen) -> Option<Change> {
    let mut annotations = provenance.annotations(&seen.content);
    annotations.insert(KEPT.to_owned(), "true".to_owned());
    let kept = KeptSecret { name, annotations };
    (!has_annotations(seen, &kept.annotations)).then(|| Change::KeepSecret(kept, seen.clone()))
}

/// Returns a sentence that names the documents whose bytes are kept although we render others.
/// Returns `None` if there are none.
pub fn kept_as_found(changes: &[Change], observed: &Observed) -> Option<String> {
    let kept_now = changes.iter().filter_map(|change| match change {
        Change::KeepSecret(kept, _) => Some(kept.name.as_str()),
        _ => None,
    });
    let replaced = |name: &str| {
        changes.iter().any(|change| match change {
            Change::RecreateSecret(wanted, _) | Change::CreateSecret(wanted) => wanted.name == name,
            Change::DeleteSecret(deleted, _) => deleted == name,
            _ => false,
        })
    };
    let documents = [&observed.provisioning, &observed.bootstrap];
    let kept_before = documents.into_iter().flatten().filter_map(|seen| {
        seen.annotation(KEPT)?;
        seen.metadata.name.as_deref().filter(|name| !replaced(name))
    });
    let names: std::collections::BTreeSet<&str> = kept_now.chain(kept_before).collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    Some(format!(
        "Secret {} was made by another program and has other bytes than we render; it is kept \
         until the revision, the profile or a setting changes",
        names.join(" and Secret ")
    ))
}

fn has_annotations(seen: &Seen, annotations: &BTreeMap<String, String>) -> bool {
    annotations
        .iter()
        .all(|(key, value)| seen.annotation(key) == Some(value))
}
