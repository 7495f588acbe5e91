//! The front with sockets: TLS on loopback, one port per cluster, HTTP/1.1 and HTTP/2. It can be
//! stopped and started on the same port while the cluster keeps its state.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Mutex,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    auth::User,
    cluster::{Cluster, Inner},
    request::Call,
    serve::{self, AnswerBody},
};

/// What a kube-apiserver allows on one connection unless a flag says otherwise.
const STREAMS_MAX: u32 = 100;

/// How many connections wait until they are accepted.
const BACKLOG: u32 = 1024;

/// A cluster on a TLS port of loopback. Dropping it closes the port and all connections.
#[derive(Debug)]
pub struct TlsFront {
    cluster: Cluster,
    address: SocketAddr,
    /// Keeps the port while nothing listens there: a connection is refused, and no other socket
    /// gets the port.
    _reserved: TcpSocket,
    acceptor: Acceptor,
    running: Mutex<JoinSet<()>>,
}

#[derive(Clone)]
struct Acceptor(TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Cluster {
    /// Opens a TLS port on loopback.
    pub async fn serve_tls(&self) -> io::Result<TlsFront> {
        let acceptor = Acceptor(TlsAcceptor::from(Arc::new(server_config(&self.inner)?)));
        let reserved = bound((Ipv4Addr::LOCALHOST, 0).into())?;
        let front = TlsFront {
            cluster: self.clone(),
            address: reserved.local_addr()?,
            _reserved: reserved,
            acceptor,
            running: Mutex::new(JoinSet::new()),
        };
        front.start().await?;
        Ok(front)
    }
}

impl TlsFront {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the API server.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A kubeconfig with CA and token for a user.
    pub fn kubeconfig(&self, user: &User) -> String {
        self.cluster.kubeconfig_at(&self.url(), user)
    }

    /// A kubeconfig with CA and client certificate for a user.
    pub fn kubeconfig_with_certificate(&self, user: &User) -> String {
        self.cluster
            .kubeconfig_with_certificate_at(&self.url(), user)
    }

    /// Closes the port and all connections; the cluster keeps its state.
    pub async fn stop(&self) {
        self.running.lock().await.shutdown().await;
    }

    /// Listens again on the same port. Does nothing when it was not stopped.
    pub async fn start(&self) -> io::Result<()> {
        let (inner, acceptor) = (Arc::clone(&self.cluster.inner), self.acceptor.clone());
        let mut running = self.running.lock().await;
        if running.is_empty() {
            let listener = bound(self.address)?.listen(BACKLOG)?;
            running.spawn(accept(listener, inner, acceptor));
        }
        Ok(())
    }
}

/// Returns a socket on a port that other ones of this process may share.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn server_config(inner: &Inner) -> io::Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from(inner.authority.ca_der()))
        .map_err(io::Error::other)?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(io::Error::other)?;
    let issued = inner.authority.server();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(issued.key_der));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![CertificateDer::from(issued.certificate_der)], key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Takes connections until it is aborted, and with it all its connections.
async fn accept(listener: TcpListener, inner: Arc<Inner>, acceptor: Acceptor) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let (inner, acceptor) = (Arc::clone(&inner), acceptor.clone());
                    connections.spawn(connection(stream, inner, acceptor));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection; what goes wrong on it is the client's to see.
async fn connection(stream: TcpStream, inner: Arc<Inner>, acceptor: Acceptor) {
    // Without this, small answers wait for the acknowledgement of the last one.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.0.accept(stream).await else {
        return;
    };
    let user = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first)
        .and_then(|certificate| inner.lock().credentials.by_certificate(certificate))
        .unwrap_or_else(User::anonymous);
    let service = service_fn(move |request| {
        let (inner, user) = (Arc::clone(&inner), user.clone());
        async move { answer(&inner, request, user).await }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX);
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    inner: &Arc<Inner>,
    request: Request<Incoming>,
    user: User,
) -> io::Result<Response<AnswerBody>> {
    let (parts, body) = request.into_parts();
    let Some(mut call) = Call::read(&parts.method, &parts.uri, &parts.headers) else {
        return Ok(serve::unreadable());
    };
    call.body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    serve::answer(inner, call, user).await
}
