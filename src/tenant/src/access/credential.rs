//! The credential for a worker cluster: the part of a kubeconfig's user that is accepted.

use std::fmt;

use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};

use super::{super::secret_text::SecretText, document::Node, error::AccessError, pem};

/// The credential with which we authenticate to a worker cluster.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A bearer token.
    Token(SecretText),
    /// A client certificate.
    Certificate(ClientCertificate),
    /// Both, as some providers issue them: the certificate for the connection, and the token for
    /// each request.
    Both {
        /// The bearer token.
        token: SecretText,
        /// The client certificate.
        certificate: ClientCertificate,
    },
}

/// A client certificate and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate and its chain, in PEM.
    pub certificate: Vec<u8>,
    /// The key, in PEM.
    pub key: SecretText,
}

impl Credential {
    /// Returns the bearer token, if there is one.
    pub const fn token(&self) -> Option<&SecretText> {
        match self {
            Self::Token(token) | Self::Both { token, .. } => Some(token),
            Self::Certificate(_) => None,
        }
    }

    /// Returns the client certificate, if there is one.
    pub const fn certificate(&self) -> Option<&ClientCertificate> {
        match self {
            Self::Certificate(certificate) | Self::Both { certificate, .. } => Some(certificate),
            Self::Token(_) => None,
        }
    }

    /// Parses the user's credential.
    pub(super) fn parse(user: &Node<'_>) -> Result<Self, AccessError> {
        let token = parse_token(user)?;
        let certificate = parse_client_certificate(user)?;
        match (token, certificate) {
            (Some(token), None) => Ok(Self::Token(token)),
            (None, Some(certificate)) => Ok(Self::Certificate(certificate)),
            (Some(token), Some(certificate)) => Ok(Self::Both { token, certificate }),
            (None, None) => Err(AccessError::NoCredential {
                field: user.path.clone(),
            }),
        }
    }

    /// Refuses every field of a user that is not on the allow-list.
    pub(super) fn check_fields(user: &Node<'_>) -> Result<(), AccessError> {
        for key in user.keys() {
            let field = user.path_of(key);
            let refused = match key {
                "tokenFile" => AccessError::File {
                    field,
                    instead: "token",
                },
                "client-certificate" => AccessError::File {
                    field,
                    instead: "client-certificate-data",
                },
                "client-key" => AccessError::File {
                    field,
                    instead: "client-key-data",
                },
                "username" | "password" => AccessError::Password { field },
                "as" | "as-uid" | "as-groups" | "as-user-extra" => {
                    AccessError::Impersonation { field }
                }
                "token"
                | "client-certificate-data"
                | "client-key-data"
                | "extensions"
                | "exec"
                | "auth-provider" => continue,
                _ => AccessError::UnknownField { field },
            };
            if user.is_set(key) {
                return Err(refused);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Token(_) => "[redacted, a token]",
            Self::Certificate(_) => "[redacted, a client certificate]",
            Self::Both { .. } => "[redacted, a token and a client certificate]",
        })
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[redacted, a client certificate]")
    }
}

fn parse_token(user: &Node<'_>) -> Result<Option<SecretText>, AccessError> {
    let Some(token) = user.text("token")? else {
        return Ok(None);
    };
    let field = user.path_of("token");
    pem::check_is_given(token, &field)?;
    if token.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(Some(SecretText::new(token)))
    } else {
        Err(AccessError::NotAToken { field })
    }
}

fn parse_client_certificate(user: &Node<'_>) -> Result<Option<ClientCertificate>, AccessError> {
    let (certificate_key, key_key) = ("client-certificate-data", "client-key-data");
    let (certificate, key) = match (user.text(certificate_key)?, user.text(key_key)?) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => {
            return Err(AccessError::Missing {
                field: user.path_of(key_key),
            });
        }
        (None, Some(_)) => {
            return Err(AccessError::Missing {
                field: user.path_of(certificate_key),
            });
        }
    };
    let field = user.path_of(certificate_key);
    let certificate = pem::decode(certificate, &field)?;
    let chain = pem::certificates(&certificate, &field)?;
    let key_field = user.path_of(key_key);
    let key = pem::decode(key, &key_field)?;
    let der = PrivateKeyDer::from_pem_slice(&key).map_err(|_| AccessError::NotPem {
        field: key_field.clone(),
        expected: "a private key",
    })?;
    check_pair(chain, &der, &field, &key_field)?;
    let key = String::from_utf8(key).map_err(|_| AccessError::NotPem {
        field: key_field,
        expected: "a private key",
    })?;
    Ok(Some(ClientCertificate {
        certificate,
        key: SecretText::new(key),
    }))
}

/// Checks that TLS can use the key, and that it belongs to the certificate.
fn check_pair(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'static>,
    field: &str,
    key_field: &str,
) -> Result<(), AccessError> {
    let key_field = || key_field.to_owned();
    let key = ring::sign::any_supported_type(key)
        .map_err(|_| AccessError::NotAKey { field: key_field() })?;
    match CertifiedKey::new(chain, key).keys_match() {
        Ok(()) => Ok(()),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(AccessError::ForeignKey { field: key_field() })
        }
        Err(_) => Err(AccessError::NotACertificate {
            field: field.to_owned(),
        }),
    }
}
