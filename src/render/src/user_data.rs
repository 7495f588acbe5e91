//! The bytes of a document for a machine. They contain tokens and passwords, so they are never
//! printed.

use std::fmt;

use osm_tenant::secret_text::SecretBytes;

/// The bytes of a document for a machine.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(SecretBytes);

impl UserData {
    /// Wraps the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(SecretBytes::new(bytes))
    }

    /// Returns the bytes, for the only place that writes them.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.expose()
    }

    /// Returns the bytes without copying them.
    pub fn into_secret(self) -> SecretBytes {
        self.0
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Returns true if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
