//! What is known of an object that was made for a machine deployment: its metadata, and the digest
//! of its bytes where they were written or verified. Never the bytes.

use kube::api::ObjectMeta;

use super::digest::Digest;
use crate::api::names::{CONTENT, INPUTS};

/// One object, as it was seen last.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The object's metadata, without managed fields.
    pub metadata: ObjectMeta,
    /// The digest of the object's bytes.
    pub content: Digest,
}

impl Seen {
    /// The object's uid.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// An annotation's value; nothing where it is absent.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata
            .annotations
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// Whether the bytes are those that were written with the annotations.
    pub fn is_intact(&self) -> bool {
        self.annotation(CONTENT) == Some(self.content.as_str())
    }

    /// Whether the object was made by this program, and not by the system that came before it.
    pub fn is_ours(&self) -> bool {
        self.annotation(INPUTS).is_some()
    }
}

/// What is known of everything that was made for one machine deployment.
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
    /// The Secret with the script for edge machines.
    pub edge_script: Option<Seen>,
}
