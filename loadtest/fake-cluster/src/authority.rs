//! The certificate authority of a cluster: server certificates for loopback, client certificates,
//! kubeconfigs. Keys live in memory only.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::auth::User;

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: Vec<u8>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, as PEM.
    pub certificate_pem: String,
    /// The private key, as PEM.
    pub key_pem: String,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

pub(crate) struct Issued {
    pub certificate_der: Vec<u8>,
    pub key_der: Vec<u8>,
    pub identity: Identity,
}

const SOUND: &str = "generating a P-256 key and signing with it needs nothing from outside";

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect(SOUND);
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("{name} authority"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key).expect(SOUND);
        let (pem, der) = (certificate.pem(), certificate.der().to_vec());
        Self {
            issuer: Issuer::new(params, key),
            pem,
            der,
        }
    }

    pub(crate) fn ca_pem(&self) -> String {
        self.pem.clone()
    }

    pub(crate) fn ca_der(&self) -> Vec<u8> {
        self.der.clone()
    }

    fn issue(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Issued {
        let key = KeyPair::generate().expect(SOUND);
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &self.issuer).expect(SOUND);
        Issued {
            certificate_der: certificate.der().to_vec(),
            key_der: key.serialize_der(),
            identity: Identity {
                certificate_pem: certificate.pem(),
                key_pem: key.serialize_pem(),
            },
        }
    }

    pub(crate) fn server(&self) -> Issued {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        let params = CertificateParams::new(names).expect("the names are valid");
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(crate) fn client(&self, user: &User) -> Issued {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, user.name.clone());
        if let Some(group) = user
            .groups
            .iter()
            .find(|group| *group != "system:authenticated")
        {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group.clone());
        }
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }
}
