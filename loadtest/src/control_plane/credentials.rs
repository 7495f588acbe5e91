//! The cluster's own certificate authority, the keys that its components use, and the kubeconfigs
//! made of them. Nothing here is read from a cluster; it exists before the cluster does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

/// A certificate (or a bare public key) and its private key, in PEM.
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Identity {
    /// A key without a certificate, for signing service account tokens.
    pub(super) fn key_pair() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: key.public_key_pem(),
            key: key.serialize_pem(),
        })
    }

    /// What a kubeconfig says about a user who logs in with this certificate.
    pub(super) fn login(&self) -> String {
        let certificate = STANDARD.encode(&self.certificate);
        let key = STANDARD.encode(&self.key);
        format!("client-certificate-data: {certificate}\n    client-key-data: {key}")
    }
}

/// What a kubeconfig says about a user who logs in with a token.
pub(super) fn token_login(token: &str) -> String {
    format!("token: {token}")
}

/// Signs everything that one cluster trusts, and knows where the cluster is.
pub(super) struct Authority {
    cluster: String,
    server: String,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(cluster: &str, server: String) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let params = authority_params(cluster);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            cluster: cluster.to_owned(),
            server,
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority of a cluster of that name, from its certificate and key in PEM.
    pub(super) fn known(cluster: &str, server: String, known: Identity) -> Result<Self, Error> {
        let key = KeyPair::from_pem(&known.key)?;
        Ok(Self {
            cluster: cluster.to_owned(),
            server,
            certificate: known.certificate,
            issuer: Issuer::new(authority_params(cluster), key),
        })
    }

    pub(super) fn server_address(&self) -> &str {
        &self.server
    }

    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The private key, for the controller that signs the certificates of nodes.
    pub(super) fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate for a server that is reached by these names and addresses.
    pub(super) fn server(&self, names: Vec<String>) -> Result<Identity, Error> {
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate that Kubernetes reads as this user. One group at most: `rcgen` keeps one
    /// value for each part of a name.
    pub(super) fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    pub(super) fn kubeconfig(&self, user: &str, login: &str) -> String {
        let Self {
            cluster, server, ..
        } = self;
        let authority = STANDARD.encode(&self.certificate);
        format!(
            r#"apiVersion: v1
kind: Config
clusters:
- name: "{cluster}"
  cluster:
    server: "{server}"
    certificate-authority-data: {authority}
contexts:
- name: "{user}@{cluster}"
  context:
    cluster: "{cluster}"
    user: "{user}"
current-context: "{user}@{cluster}"
users:
- name: "{user}"
  user:
    {login}
"#
        )
    }

    /// How machines reach the cluster, and nothing about who asks; letter by letter what kubeadm
    /// writes into `kube-public/cluster-info`.
    pub(super) fn anonymous_kubeconfig(&self, server: &str) -> String {
        let authority = STANDARD.encode(&self.certificate);
        format!(
            r#"apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {authority}
    server: {server}
  name: ""
contexts: null
current-context: ""
kind: Config
preferences: {{}}
users: null
"#
        )
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        purpose: ExtendedKeyUsagePurpose,
    ) -> Result<Identity, Error> {
        params.not_before = yesterday();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Identity {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn authority_params(cluster: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("{cluster}-ca"));
    params.not_before = yesterday();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

/// Certificates are valid from yesterday, as in a real cluster, so that a machine whose clock is
/// far behind refuses them.
fn yesterday() -> time::OffsetDateTime {
    time::OffsetDateTime::now_utc() - time::Duration::DAY
}
