//! An end of TLS before an API server, with a certificate of its own: it speaks HTTP/1.1 alone, or
//! falls silent once TLS is agreed upon.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::fixtures;
use crate::server::{Account, Server, ok};

/// What becomes of a connection after the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// HTTP/1.1 is forwarded.
    Http1,
    /// Nothing is: HTTP/2 was agreed upon, and nobody reads it.
    Silence,
}

/// Ends TLS before an API server.
pub struct Terminator {
    address: std::net::SocketAddr,
    authority: String,
    _task: JoinSet<()>,
}

impl Terminator {
    /// Listens on loopback, for a server.
    pub async fn start(server: &Server, after: After) -> Self {
        let listener = ok(TcpListener::bind("127.0.0.1:0").await, "a port is free");
        let address = ok(listener.local_addr(), "it has an address");
        let (config, authority) = identity(after);
        let way = Way {
            after,
            acceptor: TlsAcceptor::from(Arc::new(config)),
            connector: TlsConnector::from(Arc::new(trust(server))),
            target: server.url().trim_start_matches("https://").to_owned(),
        };
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((from, _)) = listener.accept().await {
                connections.spawn(way.clone().forward(from));
            }
        });
        Self {
            address,
            authority: STANDARD.encode(authority),
            _task: task,
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig that leads to the server through here.
    pub async fn kubeconfig(&self, server: &Server, account: Account) -> String {
        let (url, token) = (
            format!("https://{}", self.address),
            server.token(account).await,
        );
        fixtures::a_kubeconfig(&url, &self.authority, &token)
    }
}

#[derive(Clone)]
struct Way {
    after: After,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    target: String,
}

impl Way {
    /// What goes wrong on a connection is its two ends' to see.
    async fn forward(self, from: TcpStream) {
        let Ok(mut from) = self.acceptor.accept(from).await else {
            return;
        };
        if self.after == After::Silence {
            std::future::pending::<()>().await;
        }
        let Ok(to) = TcpStream::connect(&self.target).await else {
            return;
        };
        let name = ok(ServerName::try_from("127.0.0.1"), "an address is a name");
        let Ok(mut to) = self.connector.connect(name, to).await else {
            return;
        };
        let _ = copy_bidirectional(&mut from, &mut to).await;
    }
}

/// What the end shows, and the authority that signed it.
fn identity(after: After) -> (ServerConfig, String) {
    let key = ok(KeyPair::generate(), "a key is drawn");
    let mut params = ok(CertificateParams::new(Vec::new()), "no names are names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = ok(params.self_signed(&key), "it signs itself");
    let issuer = Issuer::new(params, key);
    let key = ok(KeyPair::generate(), "a key is drawn");
    let params = ok(
        CertificateParams::new(["127.0.0.1".to_owned()]),
        "an address is a name",
    );
    let certificate = ok(params.signed_by(&key, &issuer), "it is signed");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ok(
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions(),
        "the versions are known",
    );
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = config.with_no_client_auth();
    let config = config.with_single_cert(vec![certificate.der().clone()], key);
    let mut config = ok(config, "the key fits");
    config.alpn_protocols = vec![match after {
        After::Http1 => b"http/1.1".to_vec(),
        After::Silence => b"h2".to_vec(),
    }];
    (config, authority.pem())
}

/// Trusts the server, and speaks HTTP/1.1.
fn trust(server: &Server) -> ClientConfig {
    let authority = ok(STANDARD.decode(server.authority()), "it is Base64");
    let authority = ok(CertificateDer::from_pem_slice(&authority), "it is one");
    let mut roots = RootCertStore::empty();
    ok(roots.add(authority), "it is an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ok(
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions(),
        "the versions are known",
    );
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config
}
