//! Text that must never be shown: tokens, kubeconfigs, passwords.
//!
//! It can be compared, measured and written where it belongs; printing it shows its length alone.
//! Its memory is overwritten when it is dropped, so that no later allocation or dump holds it.

use std::fmt;

use zeroize::Zeroizing;

/// Text that must never be shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Takes the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for the one place that writes it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A copy as bytes.
    pub fn to_bytes(&self) -> SecretBytes {
        SecretBytes::new(self.0.as_bytes().to_vec())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[redacted, {} bytes]", self.0.len())
    }
}

/// Bytes that must never be shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes themselves, for the one place that reads them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[redacted, {} bytes]", self.0.len())
    }
}

/// Serializes secrets, for pipes to our own processes only: a field must ask for it with
/// `#[serde(with = "exposed")]`.
pub mod exposed {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::SecretText;

    /// Serializes the secret in plain text.
    ///
    /// # Errors
    ///
    /// The serializer fails.
    pub fn serialize<S: Serializer>(text: &SecretText, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text.expose())
    }

    /// Deserializes a secret.
    ///
    /// # Errors
    ///
    /// The input is not a string.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SecretText, D::Error> {
        String::deserialize(from).map(SecretText::new)
    }

    /// The same for an optional secret.
    pub mod optional {
        use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

        use super::SecretText;

        /// Serializes the secret in plain text, or null.
        ///
        /// # Errors
        ///
        /// The serializer fails.
        pub fn serialize<S: Serializer>(
            text: &Option<SecretText>,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            text.as_ref().map(SecretText::expose).serialize(serializer)
        }

        /// Deserializes an optional secret.
        ///
        /// # Errors
        ///
        /// The input is neither a string nor null.
        pub fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<SecretText>, D::Error> {
            let text = Option::<String>::deserialize(from)?;
            Ok(text.map(SecretText::new))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read as _, Seek as _, SeekFrom},
    };

    use super::*;

    /// What nothing else in this process holds.
    fn canary() -> String {
        let part = |part: u32| format!("{:08x}", part.wrapping_mul(0x9e37_79b9));
        (0..1024).map(part).collect()
    }

    /// This process' memory, and room for what is read of it: room that is asked for later would be
    /// what was given back just now.
    struct Memory {
        file: File,
        room: [u8; 64],
    }

    impl Memory {
        /// Whether the middle of a text is where the text was. The allocator writes to its ends.
        fn holds(&mut self, address: usize, text: &str) -> bool {
            let middle = text.len() / 2;
            let begin = u64::try_from(address + middle).expect("an address has 64 bits");
            let read = self.file.seek(SeekFrom::Start(begin));
            let read = read.and_then(|_| self.file.read_exact(&mut self.room));
            // What the kernel has taken back cannot be read.
            read.is_ok()
                && text
                    .as_bytes()
                    .get(middle..)
                    .is_some_and(|it| it.starts_with(&self.room))
        }
    }

    #[test]
    fn what_is_dropped_is_no_more_in_memory() {
        let mut memory = Memory {
            file: File::open("/proc/self/mem").expect("Linux shows a process its memory"),
            room: [0; 64],
        };
        let text = canary();
        let secret = SecretText::new(text.as_str());
        let address = secret.expose().as_ptr().addr();
        assert!(memory.holds(address, &text), "it is there");
        drop(secret);
        assert!(!memory.holds(address, &text), "the text is still there");
        let secret = SecretBytes::new(text.clone().into_bytes());
        let address = secret.expose().as_ptr().addr();
        assert!(memory.holds(address, &text), "they are there");
        drop(secret);
        assert!(!memory.holds(address, &text), "the bytes are still there");
    }
}
