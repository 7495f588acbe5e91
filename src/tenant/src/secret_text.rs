//! Text that must never be printed: tokens, kubeconfigs, passwords.
//!
//! It can be compared, measured, and written where it belongs. Printing it shows only its length.
//! Its memory is overwritten when it is dropped, so that no later allocation or dump contains it.

use std::fmt;

use zeroize::Zeroizing;

/// Text that must never be printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Wraps the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the text itself, for the only place that writes it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns a copy as bytes.
    pub fn to_bytes(&self) -> SecretBytes {
        SecretBytes::new(self.0.as_bytes().to_vec())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[redacted, {} bytes]", self.0.len())
    }
}

/// Bytes that must never be printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Wraps the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the bytes themselves, for the only place that reads them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[redacted, {} bytes]", self.0.len())
    }
}

/// Serializes secrets, only for pipes to our own processes. A field must opt in with
/// `#[serde(with = "exposed")]`.
pub mod exposed {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::SecretText;

    /// Serializes the secret in plain text.
    ///
    /// # Errors
    ///
    /// Returns an error if the serializer fails.
    pub fn serialize<S: Serializer>(text: &SecretText, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text.expose())
    }

    /// Deserializes a secret.
    ///
    /// # Errors
    ///
    /// Returns an error if the input is not a string.
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
        /// Returns an error if the serializer fails.
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
        /// Returns an error if the input is neither a string nor null.
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

    /// Returns a text that occurs nowhere else in this process.
    fn canary() -> String {
        let part = |part: u32| format!("{:08x}", part.wrapping_mul(0x9e37_79b9));
        (0..1024).map(part).collect()
    }

    /// The memory of this process, and a buffer for reading it. The buffer is allocated beforehand,
    /// because a later allocation might reuse the memory that was just freed.
    struct Memory {
        file: File,
        room: [u8; 64],
    }

    impl Memory {
        /// Returns true if the middle of a text is still at its former address. The allocator
        /// overwrites the ends.
        fn holds(&mut self, address: usize, text: &str) -> bool {
            let middle = text.len() / 2;
            let begin = u64::try_from(address + middle).expect("an address has 64 bits");
            let read = self.file.seek(SeekFrom::Start(begin));
            let read = read.and_then(|_| self.file.read_exact(&mut self.room));
            // Memory that was returned to the kernel cannot be read.
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
