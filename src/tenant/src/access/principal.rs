//! Whose credential a kubeconfig has, and for which server. Both stay when a credential is renewed.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use super::{ClientCertificate, ClusterAccess};
use crate::secret_text::SecretText;

/// A digest of a server, its certificate authority, and the user that a credential says it is for.
/// Nothing of it is verified here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Principal([u8; 32]);

impl ClusterAccess {
    /// Returns whose credential it is, and for which server. `None` if the credential does not say:
    /// for a token that is no JWT.
    pub fn principal(&self) -> Option<Principal> {
        let user = |it: Option<Option<String>>| it.unwrap_or_else(|| Some(String::new()));
        let token = user(self.credential.token().map(user_of_token))?;
        let certificate = user(self.credential.certificate().map(user_of_certificate))?;
        let url = self.server.url();
        let name = self.tls_server_name.as_deref().unwrap_or_default();
        let parts = [
            url.as_bytes(),
            &self.certificate_authority,
            name.as_bytes(),
            token.as_bytes(),
            certificate.as_bytes(),
        ];
        let mut digest = Sha256::new();
        for part in parts {
            // The length before each part ensures that no part can be mistaken for the end of
            // another.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Some(Principal(digest.finalize().into()))
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Principal(..)")
    }
}

/// The claims of a JWT about its user.
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
}

fn user_of_token(token: &SecretText) -> Option<String> {
    let Claims { iss, sub } = claims_of(token)?;
    Some(format!("{} {iss} {sub}", iss.len()))
}

/// Returns the claims of a JWT. Its signature is not verified.
pub(super) fn claims_of<T: DeserializeOwned>(token: &SecretText) -> Option<T> {
    let mut parts = token.expose().split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    serde_json::from_slice(&claims).ok()
}

/// Returns the subject of the certificate, which is the user and its groups.
fn user_of_certificate(pair: &ClientCertificate) -> Option<String> {
    let first = CertificateDer::pem_slice_iter(&pair.certificate).next()?;
    let der = first.ok()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
    Some(hex::encode(certificate.subject().as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Credential, Server};

    fn a_certificate(user: &str) -> Credential {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, user);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Credential::Certificate(ClientCertificate {
            certificate: certificate.pem().into_bytes(),
            key: SecretText::new(key.serialize_pem()),
        })
    }

    fn principal(credential: Credential) -> Option<Principal> {
        let access = ClusterAccess {
            server: Server::parse("https://a.example", "server").unwrap(),
            certificate_authority: Vec::new(),
            tls_server_name: None,
            credential,
        };
        access.principal()
    }

    #[test]
    fn a_renewed_certificate_is_of_the_same_principal_and_another_users_is_not() {
        let before = principal(a_certificate("osm"));
        assert!(before.is_some());
        assert_eq!(principal(a_certificate("osm")), before);
        assert_ne!(principal(a_certificate("another")), before);
    }
}
