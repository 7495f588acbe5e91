//! The bytes of a document for a machine. They hold tokens and passwords, so nothing prints them.

use std::fmt;

use crate::tenant::secret_text::SecretBytes;

/// The bytes of a document for a machine.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(SecretBytes);

impl UserData {
    /// Takes the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(SecretBytes::new(bytes))
    }

    /// The bytes, for the one place that writes them.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.expose()
    }

    /// Gives the bytes away.
    pub fn into_secret(self) -> SecretBytes {
        self.0
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
