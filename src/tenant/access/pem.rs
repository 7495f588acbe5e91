//! PEM inside of base64, as kubeconfigs carry it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::{
    CertificateDer,
    pem::{PemObject, SectionKind},
};
use zeroize::Zeroizing;

use super::error::AccessError;

/// The certificates of a PEM text, which holds at least one, and nothing but certificates: what
/// comes with a certificate authority is handed on to nodes.
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

/// The bytes of a base64 field.
pub(super) fn decode(text: &str, field: &str) -> Result<Vec<u8>, AccessError> {
    // Line ends inside of the text are common; kubectl takes them, too.
    let text: Zeroizing<String> = Zeroizing::new(text.split_ascii_whitespace().collect());
    STANDARD
        .decode(text.as_bytes())
        .map_err(|_| AccessError::NotBase64 {
            field: field.to_owned(),
        })
}
