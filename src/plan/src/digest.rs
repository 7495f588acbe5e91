//! Keyed digests of an object's inputs and of its bytes.
//!
//! User data may contain passwords of low entropy. With a plain hash in an annotation, a reader of
//! annotations could guess them. The key is derived from the token that nodes fetch their user data
//! with: a holder of that token can read the user data anyway.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use osm_tenant::secret_text::SecretText;

/// The length of a shortened digest, in hexadecimal characters: 64 bits.
pub const SHORT_CHARACTERS: usize = 16;

/// A keyed digest, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    /// Creates a digest from an annotation's value, without checking it.
    pub fn from_annotation(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the digest as it is written in annotations.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first 16 characters, which are enough to distinguish the digests of one machine
    /// deployment.
    pub fn short(&self) -> &str {
        self.0.get(..SHORT_CHARACTERS).unwrap_or(&self.0)
    }
}

/// The key of a worker cluster's digests.
#[derive(Clone, PartialEq, Eq)]
pub struct DigestKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for DigestKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted]")
    }
}

impl DigestKey {
    /// Derives the key from the token that nodes fetch their user data with.
    pub fn derive(fetch_token: &SecretText) -> Self {
        let mut mac = mac(fetch_token.expose().as_bytes());
        mac.update(b"operatingsystemmanager.k8c.io/content v1");
        Self(Zeroizing::new(mac.finalize().into_bytes().into()))
    }

    /// Returns the digest of the parts. The length of each part is included, so that different
    /// lists of parts cannot have the same digest by concatenation.
    pub fn digest<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
        let mut mac = mac(&*self.0);
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let bytes: [u8; 32] = mac.finalize().into_bytes().into();
        Digest(hex::encode(bytes))
    }
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC accepts a key of any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_the_key_and_the_key_is_redacted() {
        let key = |token: &str| DigestKey::derive(&SecretText::new(token));
        let password = b"hunter2".as_slice();
        let digest = key("one").digest([password]);
        assert_eq!(digest, key("one").digest([password]));
        assert_ne!(digest, key("two").digest([password]));
        assert_eq!(format!("{:?}", key("one")), "[redacted]");
    }

    #[test]
    fn parts_with_the_same_concatenation_have_different_digests() {
        let key = DigestKey::derive(&SecretText::new("one"));
        let digest = |parts: &[&[u8]]| key.digest(parts.iter().copied());
        assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    }
}
