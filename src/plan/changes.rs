//! What must be written, in the order that is safe.
//!
//! Create: token → kubelet kubeconfig → edge script → config → provisioning → bootstrap. The token
//! comes first, so that a crash cannot leave documents with a token that never existed; bootstrap
//! comes last, because machine-controller waits for it alone.
//!
//! Rotate with other bytes: bootstrap is deleted first (missing, machine-controller polls; stale,
//! it fails and backs off), then all is written in the order of a create. With the same bytes only
//! annotations change, and nothing is ever absent. The kubelet kubeconfig is mutable: it is
//! updated in place and never deleted, since nodes that fetch in a gap do not recover. So is the
//! edge script, which goes when the machine deployment moves to another cloud.

use std::collections::BTreeMap;

use super::{
    bootstrap::{Token, TokenPlan},
    desired::{Desired, Documents, Stamp},
    digest::Digest,
    machine_rollout::{MadeFrom, machines},
    observed::{Observed, Seen},
};
use crate::api::{
    config::OperatingSystemConfigSpec,
    names::{
        CLOUD_CONFIG_KEY, EDGE_SCRIPT_KEY, KEPT, KUBECONFIG_KEY, MACHINES_MADE_FROM,
        MADE_FOR_REVISION,
    },
};
use crate::tenant::secret_text::SecretBytes;

/// A Secret of `cloud-init-settings` as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretWanted {
    /// The Secret's name.
    pub name: String,
    /// The one data key.
    pub key: &'static str,
    /// The value under the key.
    pub data: SecretBytes,
    /// The digest of the value.
    pub content: Digest,
    /// The machine deployment, as `namespace/name`.
    pub made_for: String,
    /// The annotations; none for what changes in place.
    pub stamp: Option<Stamp>,
    /// What machines were made from, on the Secret that no rotation deletes; where there is nothing
    /// to say, what was said before stays.
    pub made_from: Option<MadeFrom>,
}

/// A Secret that keeps the bytes that were found in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSecret {
    /// The Secret's name.
    pub name: String,
    /// Our annotations, with the digest of the bytes that are kept.
    pub annotations: BTreeMap<String, String>,
}

/// A config as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigWanted {
    /// The config's name.
    pub name: String,
    /// The spec.
    pub spec: OperatingSystemConfigSpec,
    /// The digest of the spec.
    pub content: Digest,
    /// The annotations.
    pub stamp: Stamp,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The bootstrap token is made.
    CreateToken(Token),
    /// The bootstrap token is extended.
    ExtendToken(Token),
    /// A Secret is made.
    CreateSecret(SecretWanted),
    /// A Secret gets other annotations, or (mutable) other data, in place.
    ReplaceSecret(SecretWanted, Seen),
    /// A Secret of another program is kept with its bytes, and gets our annotations.
    KeepSecret(KeptSecret, Seen),
    /// An immutable Secret gets other bytes: deleted and made anew, one right after the other.
    RecreateSecret(SecretWanted, Seen),
    /// A Secret is deleted.
    DeleteSecret(String, Seen),
    /// The config is made.
    CreateConfig(ConfigWanted),
    /// The config gets other annotations.
    StampConfig(ConfigWanted, Seen),
    /// The config gets another spec: deleted and made anew.
    RecreateConfig(ConfigWanted, Seen),
}

/// What must be written. Cannot fail, and is empty where everything is as it should be.
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
        let made = Made {
            names: &desired.names,
            stamp: &desired.stamp,
        };
        changes.extend(made.documents(documents, observed));
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
        made_for: desired.stamp.made_for.clone(),
        stamp: None,
        made_from: machines(desired, observed).map(|machines| machines.made_from),
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
        made_for: desired.stamp.made_for.clone(),
        stamp: None,
        made_from: None,
    };
    change_in_place(wanted, seen)
}

fn change_in_place(wanted: SecretWanted, seen: Option<&Seen>) -> Option<Change> {
    match seen {
        None => Some(Change::CreateSecret(wanted)),
        Some(seen) if seen.content == wanted.content && says(seen, &wanted) => None,
        Some(seen) => Some(Change::ReplaceSecret(wanted, seen.clone())),
    }
}

fn says(seen: &Seen, wanted: &SecretWanted) -> bool {
    let said = seen.annotation(MACHINES_MADE_FROM);
    let wanted = wanted.made_from.as_ref().map(MadeFrom::to_string);
    wanted.is_none_or(|wanted| said == Some(&wanted))
}

struct Made<'a> {
    names: &'a crate::api::names::DerivedNames,
    stamp: &'a Stamp,
}

impl Made<'_> {
    fn documents(&self, documents: Documents, observed: &Observed) -> Vec<Change> {
        let config = self.config(documents.config, observed.config.as_ref());
        let (data, content) = documents.provisioning;
        let provisioning = self.document(&self.names.provisioning, data.into_secret(), content);
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
        if !self.stamp.keeps(seen) && self.must_go_first(&bootstrap, seen, provisioning.as_ref()) {
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

    /// Bytes that differ make the bootstrap Secret go first: its own, or those of the provisioning
    /// Secret when machine-controller is waiting for another revision.
    fn must_go_first(
        &self,
        bootstrap: &SecretWanted,
        seen: &Seen,
        provisioning: Option<&Change>,
    ) -> bool {
        let is_stale = seen.annotation(MADE_FOR_REVISION) != Some(&self.stamp.revision);
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
            made_for: self.stamp.made_for.clone(),
            stamp: Some(self.stamp.clone()),
            made_from: None,
        }
    }

    fn config(
        &self,
        (spec, content): (OperatingSystemConfigSpec, Digest),
        seen: Option<&Seen>,
    ) -> Option<Change> {
        let annotations = self.stamp.annotations(&content);
        let same_bytes = seen.map(|seen| seen.content == content);
        let wanted = ConfigWanted {
            name: self.names.config.clone(),
            spec,
            content,
            stamp: self.stamp.clone(),
        };
        match (seen, same_bytes) {
            (Some(seen), Some(true)) => {
                (!carries(seen, &annotations)).then(|| Change::StampConfig(wanted, seen.clone()))
            }
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
        return match &wanted.stamp {
            Some(stamp) if stamp.keeps(seen) => keep(wanted.name, stamp, seen),
            _ => Some(Change::RecreateSecret(wanted, seen.clone())),
        };
    }
    let annotations = wanted
        .stamp
        .as_ref()
        .map(|stamp| stamp.annotations(&wanted.content));
    let is_stamped = annotations.is_none_or(|annotations| carries(seen, &annotations))
        && seen.annotation(KEPT).is_none();
    (!is_stamped).then(|| Change::ReplaceSecret(wanted, seen.clone()))
}

/// Bytes that are not ours stay until there is a reason to write others; then they go with the
/// Secret.
fn keep(name: String, stamp: &Stamp, seen: &Seen) -> Option<Change> {
    let mut annotations = stamp.annotations(&seen.content);
    annotations.insert(KEPT.to_owned(), "true".to_owned());
    let kept = KeptSecret { name, annotations };
    (!carries(seen, &kept.annotations)).then(|| Change::KeepSecret(kept, seen.clone()))
}

/// Which of the two documents are kept with bytes that are not those that we render, as a sentence.
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

fn carries(seen: &Seen, annotations: &BTreeMap<String, String>) -> bool {
    annotations
        .iter()
        .all(|(key, value)| seen.annotation(key) == Some(value))
}
