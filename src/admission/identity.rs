//! The certificate that the server shows, with its key.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::sync::watch;

/// A certificate chain with its key.
#[derive(Clone)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    ends: Timestamp,
}

/// The same certificates are the same identity.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.key.cert == other.key.cert
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Identity until {}", self.ends)
    }
}

/// Why there is no identity in two texts. None of them says anything about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// There is no certificate, or one that cannot be read.
    #[error("the certificates are not PEM")]
    Certificate,
    /// There is no key, or one that cannot be used.
    #[error("the key is not PEM, or of a kind that cannot be used")]
    Key,
    /// The key is that of another certificate.
    #[error("the key is not that of the certificate")]
    Mismatch,
}

impl Identity {
    /// An identity from PEM: the chain with the server's own certificate first, and its key.
    ///
    /// # Errors
    ///
    /// The chain or the key cannot be parsed, or they do not belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|_| IdentityError::Certificate)?;
        let ends = chain.first().and_then(|own| validity_end(own));
        let ends = ends.ok_or(IdentityError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| IdentityError::Key)?;
        let key = ring::sign::any_supported_type(&key).map_err(|_| IdentityError::Key)?;
        let key = CertifiedKey::new(chain, key);
        key.keys_match().map_err(|_| IdentityError::Mismatch)?;
        Ok(Self {
            key: Arc::new(key),
            ends,
        })
    }

    /// When the certificate ends.
    pub const fn ends(&self) -> Timestamp {
        self.ends
    }
}

fn validity_end(der: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

/// Presents the current identity to every client.
pub(super) struct Current(pub(super) watch::Receiver<Option<Identity>>);

impl fmt::Debug for Current {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let identity = self.0.borrow();
        identity.as_ref().map(|identity| Arc::clone(&identity.key))
    }
}
