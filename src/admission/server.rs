//! The TLS port of the webhooks.

use std::{sync::Arc, time::Duration};

use axum::Router;
use rustls::{ServerConfig, crypto::ring};
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::identity::{Current, Identity};
use crate::port;

/// An API server holds one connection or a few; a hundred of them are many.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// How long answers in flight may take after the process was asked to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts of the server.
#[derive(Debug)]
pub struct Params {
    /// The listening socket.
    pub listener: TcpListener,
    /// The certificate of the moment; without one no handshake succeeds.
    pub identity: watch::Receiver<Option<Identity>>,
    /// The routes.
    pub router: Router,
}

/// Serves until it is cancelled, and then for as long as answers in flight take, up to ten seconds.
///
/// # Errors
///
/// The settings of TLS do not go together.
pub async fn run(params: Params, cancelled: CancellationToken) -> Result<(), rustls::Error> {
    let port = port::Params {
        listener: params.listener,
        tls: Some(acceptor(params.identity)?),
        router: params.router,
        connections_max: CONNECTIONS_MAX,
        drain: DRAIN_TIMEOUT,
    };
    port::run(port, cancelled).await;
    Ok(())
}

fn acceptor(identity: watch::Receiver<Option<Identity>>) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Current(identity)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
