//! PEM in base64, as in kubeconfigs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::{
    CertificateDer,
    pem::{PemObject, SectionKind},
};
use zeroize::Zeroizing;

use super::error::AccessError;

/// Returns the certificates of a PEM text. It must contain at least one, and nothing but
/// certificates: the text of a certificate authority is passed on to nodes.
pub(super) fn certificates(
    pem: &[u8],
    field: &str,
) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let refused = || AccessError::NotPem {
        field: field.to_owned(),
        expected: "one or more certificates",
    };
    let mut certificates = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        match section {
            Ok((SectionKind::Certificate, der)) => certificates.push(CertificateDer::from(der)),
            _ => return Err(refused()),
        }
    }
    if certificates.is_empty() {
        return Err(refused());
    }
    Ok(certificates)
}

/// Decodes a base64 field.
pub(super) fn decode(text: &str, field: &str) -> Result<Vec<u8>, AccessError> {
    check_is_given(text, field)?;
    from_base64(text).ok_or_else(|| AccessError::NotBase64 {
        field: field.to_owned(),
    })
}

/// Decodes a base64 text. It may contain line breaks, which are common, and which kubectl accepts,
/// too.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
    STANDARD.decode(text.as_bytes()).ok()
}

/// Refuses what `kubectl config view` writes in place of a certificate, key or token.
pub(super) fn check_is_given(text: &str, field: &str) -> Result<(), AccessError> {
    if ["DATA+OMITTED", "REDACTED"].contains(&text.trim()) {
        return Err(AccessError::Omitted {
            field: field.to_owned(),
        });
    }
    Ok(())
}
