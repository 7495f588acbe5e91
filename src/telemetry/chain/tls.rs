//! TLS errors in sentences. rustls prints Rust's debug format and the time of the check, which
//! would be another text at each attempt.

use jiff::Timestamp;
use rustls::{AlertDescription, CertificateError, Error, pki_types::UnixTime};

const SUPPORTED: &str =
    "supported are RSA of at least 2048 bits, ECDSA on P-256 or P-384, and Ed25519";

/// Returns what is wrong with the TLS connection. `None` where rustls' own words are as good.
pub(super) fn sentence(error: &Error) -> Option<String> {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::AlertReceived(alert) => refusal(*alert),
        _ => None,
    }
}

fn certificate(error: &CertificateError) -> Option<String> {
    use CertificateError as E;
    let text = match error {
        E::ExpiredContext { not_after, .. } => {
            format!("the server's certificate expired on {}", date(*not_after))
        }
        E::Expired => "the server's certificate has expired".to_owned(),
        E::NotValidYetContext { not_before, .. } => format!(
            "the server's certificate is not valid before {}; is this machine's clock right?",
            date(*not_before)
        ),
        E::NotValidYet => "the server's certificate is not valid yet".to_owned(),
        E::UnknownIssuer => "the server's certificate was issued by none of the certificates in \
             certificate-authority-data; that must have the certificate of its authority, not the \
             server's own"
            .to_owned(),
        E::UnsupportedSignatureAlgorithmContext { .. }
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => format!(
            "the server's certificate, or one that issued it, has a key or a signature that is not \
             accepted; {SUPPORTED}"
        ),
        E::BadSignature => "the certificate in certificate-authority-data has the name of the \
             authority that issued the server's certificate, but another key; is it of another \
             cluster?"
            .to_owned(),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "the server's certificate is not for servers (extended key usage)".to_owned()
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => return None,
        // webpki prints its variants by their names.
        E::Other(other) => match other.0.to_string().as_str() {
            "CaUsedAsEndEntity" => "the server uses the certificate of an authority (CA:TRUE) as \
                 its own, which is not accepted; give the server a certificate of its own"
                .to_owned(),
            "EndEntityUsedAsCa" => "the server's certificate was issued by a certificate that is \
                 not an authority's (CA:FALSE)"
                .to_owned(),
            name => format!(
                "the server's certificate is not accepted ({}); {SUPPORTED}",
                first_word(name)
            ),
        },
        other => format!(
            "the server's certificate is not accepted ({})",
            first_word(&format!("{other:?}"))
        ),
    };
    Some(text)
}

fn refusal(alert: AlertDescription) -> Option<String> {
    use AlertDescription as A;
    match alert {
        A::HandshakeFailure => Some(format!(
            "the server refuses the TLS handshake: its own certificate may have a key that is not \
             accepted here, such as ECDSA on P-521; {SUPPORTED}"
        )),
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::CertificateRequired
        | A::UnknownCA
        | A::AccessDenied => Some(format!(
            "the server does not accept the client certificate of the kubeconfig ({alert:?})"
        )),
        _ => None,
    }
}

fn first_word(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric());
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

fn date(time: UnixTime) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d").to_string()
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, time::Duration};

    use rustls::OtherError;

    use super::{super::chain, *};

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Named(&'static str);

    #[test]
    fn a_certificate_that_is_not_accepted_is_reported_in_a_sentence_without_the_time() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let other = |name| CertificateError::Other(OtherError(Arc::new(Named(name))));
        for (error, expected) in [
            (
                CertificateError::ExpiredContext {
                    time: at(1_800_000_000),
                    not_after: at(1_780_000_000),
                },
                "the server's certificate expired on 2026-05-28",
            ),
            (
                other("CaUsedAsEndEntity"),
                "the server uses the certificate of an authority",
            ),
            (other("EndEntityUsedAsCa"), "not an authority's (CA:FALSE)"),
            (
                CertificateError::UnknownIssuer,
                "issued by none of the certificates",
            ),
            (CertificateError::BadSignature, "of another cluster?"),
            (
                other("UnsupportedCertVersion"),
                "not accepted (UnsupportedCertVersion)",
            ),
            (CertificateError::Revoked, "not accepted (Revoked)"),
        ] {
            let error = Error::InvalidCertificate(error);
            let shown = chain(&io::Error::other(error)).to_string();
            assert!(shown.contains(expected), "{shown}");
            for debug in ["Error(", "{", "1800000000"] {
                assert!(!shown.contains(debug), "{shown}");
            }
        }
        let refused = Error::AlertReceived(AlertDescription::HandshakeFailure);
        assert!(chain(&refused).to_string().contains("P-521"));
    }
}
