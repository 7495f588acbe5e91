//! The known objects of a machine deployment: their metadata, and the digest of their bytes as
//! written or verified, but never the bytes.

use kube_core::ObjectMeta;

use super::digest::Digest;
use osm_api::names::{CONTENT, INPUTS};

/// An object as it was last observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The object's metadata, without managed fields.
    pub metadata: ObjectMeta,
    /// The digest of the object's bytes.
    pub content: Digest,
}

impl Seen {
    /// Returns the object's UID, or an empty string.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns an annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// Returns true if the bytes are those that were written together with the annotations.
    pub fn is_intact(&self) -> bool {
        self.annotation(CONTENT) == Some(self.content.as_str())
    }

    /// Returns true if the object carries our annotations. Objects that only an earlier manager
    /// wrote do not.
    pub fn is_ours(&self) -> bool {
        self.annotation(INPUTS).is_some()
    }
}

/// The observed objects of one machine deployment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The config.
    pub config: Option<Seen>,
    /// The provisioning Secret.
    pub provisioning: Option<Seen>,
    /// The bootstrap Secret.
    pub bootstrap: Option<Seen>,
    /// The Secret with the kubelet's bootstrap kubeconfig.
    pub kubelet_kubeconfig: Option<Seen>,
    /// The Secret with the edge script.
    pub edge_script: Option<Seen>,
}
