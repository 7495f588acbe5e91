//! Certificates of servers, and what a kubeconfig has as their authority's.

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::*;

/// A server's certificate, and what the kubeconfig has as its authority's.
pub struct Identity {
    pub authority: String,
    pub certificate: CertificateDer<'static>,
    pub key: PrivateKeyDer<'static>,
}

impl Default for Identity {
    fn default() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]);
        let made = made.expect("a certificate is made");
        Self {
            authority: made.cert.pem(),
            certificate: made.cert.der().clone(),
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into(),
        }
    }
}

/// A certificate that an authority has signed for a server on loopback.
pub fn signed(change: impl Fn(&mut CertificateParams)) -> Identity {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signing_key = KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&signing_key).expect("a certificate");
    let issuer = Issuer::new(authority, signing_key);
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut server = CertificateParams::new(names).expect("a name");
    server.distinguished_name.push(DnType::CommonName, "server");
    change(&mut server);
    let key = KeyPair::generate().expect("a key");
    let server = server.signed_by(&key, &issuer).expect("a certificate");
    Identity {
        authority: certificate.pem(),
        certificate: server.der().clone(),
        key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
    }
}

/// The certificate of an authority, as the server's own.
pub fn an_authority() -> Identity {
    let names = vec!["127.0.0.1".to_owned()];
    let mut params = CertificateParams::new(names).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    Identity {
        authority: made.pem(),
        certificate: made.der().clone(),
        key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
    }
}

/// A server's certificate in the place of its authority's.
pub fn a_leaf_as_authority() -> Identity {
    let signed = signed(|_| {});
    let text = STANDARD.encode(&signed.certificate);
    Identity {
        authority: format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"),
        ..signed
    }
}

/// Made by OpenSSL: ring signs on no P-521.
pub fn on_p521() -> Identity {
    let certificate = include_bytes!("p521/server.pem");
    let key = include_bytes!("p521/server.key");
    Identity {
        authority: include_str!("p521/authority.pem").to_owned(),
        certificate: CertificateDer::from_pem_slice(certificate).expect("a certificate"),
        key: PrivateKeyDer::from_pem_slice(key).expect("a key"),
    }
}

#[tokio::test]
async fn a_server_is_verified_by_its_name_without_the_dot() {
    let terms = Terms {
        identity: Arc::new(signed(|_| {})),
        ..Terms::default()
    };
    let mut server = Hostile::start_on(terms, "h2", || Response::new(whole("{}"))).await;
    let port = server.address.replace("127.0.0.1", "");
    for (name, tls_server_name) in [
        ("localhost", ""),
        ("localhost.", ""),
        ("127.0.0.1", "localhost."),
    ] {
        let host = format!("https://{name}{port}\n    tls-server-name: \"{tls_server_name}\"");
        let before = format!("https://{}", server.address);
        let kubeconfig = server.kubeconfig.replace(&before, &host);
        let before = std::mem::replace(&mut server.kubeconfig, kubeconfig);
        let answer = server.client().request_text(get("/version")).await;
        assert!(answer.is_ok(), "{name}: {answer:?}");
        server.kubeconfig = before;
    }
}
