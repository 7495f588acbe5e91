//! The mirror's own certificate authority, and its listener with TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use axum::serve::Listener;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::machine::controller::HOST_ADDRESS;

/// What the mirror shows, and what its clients must trust.
pub(super) struct Certificates {
    authority: String,
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Certificates {
    pub(super) fn new() -> Result<Self, rcgen::Error> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "Mirrors of the site");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate()?;
        let authority = params.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new([HOST_ADDRESS.to_string()])?
            .signed_by(&key, &issuer)?
            .der()
            .clone();
        Ok(Self {
            authority,
            certificate,
            key,
        })
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], key)
    }
}

/// Accepts connections that begin with TLS.
pub(super) struct Encrypted {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Encrypted {
    pub(super) fn new(listener: TcpListener, certificates: &Certificates) -> anyhow::Result<Self> {
        let config = certificates
            .server_config()
            .context("setting up the mirror's TLS")?;
        Ok(Self {
            listener,
            acceptor: TlsAcceptor::from(Arc::new(config)),
        })
    }
}

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // One handshake at a time, and one that fails is its client's to report.
            let (stream, address) = Listener::accept(&mut self.listener).await;
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
