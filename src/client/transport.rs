//! The transport to a worker cluster: TLS to the server of a validated kubeconfig, and nothing
//! else. If the server speaks HTTP/2, there is one connection, with fewer streams than the server's
//! limit.
//!
//! Every address is checked for each connection, after its name was resolved, and the checked
//! address is dialled, or sent to the operator's proxy. No proxy is taken from the environment or
//! from a kubeconfig, and no redirect is followed.

mod dial;
mod route;
pub mod streams;

use std::{
    error::Error,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header::AUTHORIZATION};
use http_body_util::combinators::UnsyncBoxBody;
use hyper_util::{
    client::legacy::{
        Client, Error as LegacyError,
        connect::{HttpConnector, dns::Name},
    },
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::{Body, middleware::BaseUriLayer};
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tower::{BoxError, Layer, Service, ServiceBuilder, util::BoxCloneSyncService};

pub use self::dial::{
    Audience, OneCallAtATime, Patience, hidden_cause, is_certificate_refused, is_closed,
};
use self::{dial::Dial, route::Route, streams::LimitedClient};
use crate::telemetry::{build, metrics::Metrics};
use crate::tenant::{
    access::{AccessRules, ClusterAccess},
    address::AddressRules,
    host::Host,
};

/// Carries requests to one cluster.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<ResponseBody>, BoxError>;

/// The body of a response. Its error is a plain type: a boxed one cannot be proved `Send` in an
/// async block.
pub type ResponseBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// The number of TLS sessions that can be resumed. Each transport has one server. rustls' default
/// table for 256 sessions took 14 KiB per tenant.
const SESSIONS_MAX: usize = 8;
/// The amount of data that a hostile server may make us keep: per stream, per connection, and in
/// headers.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// The same for HTTP/1.1, where it limits the head of an answer.
const READ_BUFFER_BYTES_MAX: usize = 128 * 1024;

/// Returns the user agent of a replica, so that audit logs tell replicas apart. A name that no
/// header can contain is left out.
pub fn user_agent(instance: &str) -> HeaderValue {
    HeaderValue::try_from(format!("{} ({instance})", build::product()))
        .unwrap_or_else(|_| HeaderValue::from_static(concat!("osm/", env!("CARGO_PKG_VERSION"))))
}

/// The reason why a validated kubeconfig cannot be used for connections.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A certificate or key is invalid.
    #[error("a certificate or key of the kubeconfig cannot be used")]
    Certificate(#[source] rustls::pki_types::pem::Error),
    /// TLS refuses a certificate or key.
    #[error("TLS refuses a certificate or key of the kubeconfig")]
    Tls(#[from] rustls::Error),
    /// The name of the server is invalid.
    #[error("tls-server-name is not a host name")]
    ServerName(#[from] rustls::pki_types::InvalidDnsNameError),
    /// The token cannot be sent.
    #[error("the token has characters that HTTP does not allow")]
    Token(#[from] http::header::InvalidHeaderValue),
    /// The server's URL is invalid.
    #[error("the server is not a URL")]
    Server(#[from] http::uri::InvalidUri),
}

/// The reason why an answer was not read. With HTTP/2, a head that is too large cannot be
/// distinguished from a malformed one.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the head of the answer is larger than {} KiB, or is not HTTP/2", HEADER_BYTES_MAX / 1024)]
    Http2(#[source] LegacyError),
    #[error("the head of the answer is larger than {} KiB", READ_BUFFER_BYTES_MAX / 1024)]
    Http1(#[source] LegacyError),
}

/// Replaces the error if a call failed because of a limit that this client sets, so that the error
/// names the limit.
fn name_bound(error: BoxError) -> BoxError {
    let error = match error.downcast::<LegacyError>() {
        Ok(error) => *error,
        Err(other) => return other,
    };
    let causes = || std::iter::successors(error.source(), |&cause| cause.source());
    let is_http2 = |cause: &h2::Error| cause.is_library();
    if causes().any(|cause| cause.downcast_ref().is_some_and(is_http2)) {
        return Refused::Http2(error).into();
    }
    let is_http1 = |cause: &hyper::Error| cause.is_parse_too_large();
    if causes().any(|cause| cause.downcast_ref().is_some_and(is_http1)) {
        return Refused::Http1(error).into();
    }
    error.into()
}

/// The caller on whose behalf connections are made.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user agent that servers see.
    pub user_agent: HeaderValue,
    /// The readers of its errors.
    pub audience: Audience,
    /// Counts its connections.
    pub metrics: Metrics,
}

/// Creates the transport of a validated kubeconfig. Does not connect yet.
///
/// # Errors
///
/// The credential or a certificate cannot be used.
pub fn connect(
    access: &ClusterAccess,
    rules: &AccessRules,
    caller: &Caller,
    patience: Patience,
) -> Result<Transport, BoxError> {
    Ok(build(access, rules, caller.clone(), patience)?)
}

fn build(
    access: &ClusterAccess,
    rules: &AccessRules,
    caller: Caller,
    patience: Patience,
) -> Result<Transport, TransportError> {
    let Caller {
        user_agent,
        audience,
        metrics,
    } = caller;
    let resolver = CheckedResolver {
        rules: Arc::new(rules.addresses.clone()),
        port: access.server.port,
    };
    let tls = (tls(access)?, server_name(access)?);
    let proxy = rules.egress_proxy.clone();
    let route = Route::new(resolver, proxy, &access.server.host, patience);
    let dial = Dial::new(route, tls, patience, (audience, metrics));
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        // hyper considers a connection that only watches use idle, and would dial for the next
        // call.
        .pool_idle_timeout(None)
        .pool_max_idle_per_host(1)
        .http1_max_buf_size(READ_BUFFER_BYTES_MAX)
        .http2_keep_alive_interval(patience.ping_interval)
        .http2_keep_alive_timeout(patience.ping_answer)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(HEADER_BYTES_MAX)
        .build(dial);
    let authorization = authorization(access)?;
    let service = ServiceBuilder::new()
        .map_request(move |mut request: Request<Body>| {
            let headers = request.headers_mut();
            headers.insert(http::header::USER_AGENT, user_agent.clone());
            if let Some(authorization) = &authorization {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            request
        })
        .map_err(name_bound)
        .service(LimitedClient::new(client));
    let service = BaseUriLayer::new(access.server.url().parse()?).layer(service);
    Ok(BoxCloneSyncService::new(service))
}

fn http<R>(resolver: R, patience: Patience) -> HttpConnector<R> {
    let mut http = HttpConnector::new_with_resolver(resolver);
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_tcp_user_timeout(Some(patience.acknowledgement));
    // A connection that only waits for events sends no data that could stay unacknowledged.
    http.set_keepalive(Some(patience.ping_interval));
    http.set_keepalive_interval(Some(patience.ping_answer));
    http
}

fn authorization(access: &ClusterAccess) -> Result<Option<HeaderValue>, TransportError> {
    let Some(token) = access.credential.token() else {
        return Ok(None);
    };
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn tls(access: &ClusterAccess) -> Result<ClientConfig, TransportError> {
    let mut config = credentials(access)?;
    config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn server_name(access: &ClusterAccess) -> Result<ServerName<'static>, TransportError> {
    Ok(match (&access.tls_server_name, &access.server.host) {
        (Some(name), _) | (None, Host::Name(name)) => ServerName::try_from(name.clone())?,
        (None, Host::Address(address)) => ServerName::from(*address),
    })
}

fn credentials(access: &ClusterAccess) -> Result<ClientConfig, TransportError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&access.certificate_authority) {
        roots.add(certificate.map_err(TransportError::Certificate)?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let Some(identity) = access.credential.certificate() else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = CertificateDer::pem_slice_iter(&identity.certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(TransportError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.expose().as_bytes())
        .map_err(TransportError::Certificate)?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

/// Resolves a name, and refuses it if it leads to an address that must not be connected to. A name
/// with a dot at its end is looked up as it is. `/etc/hosts` has no such names, so if it is not
/// found, it is looked up without the dot.
#[derive(Clone)]
struct CheckedResolver {
    rules: Arc<AddressRules>,
    port: u16,
}

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { rules, port } = self.clone();
        Box::pin(async move {
            let asked = name.as_str();
            let mut found = lookup(asked, port).await;
            if let (Err(_), Some(relative)) = (&found, asked.strip_suffix('.')) {
                found = lookup(relative, port).await;
            }
            let mut allowed = Vec::new();
            for address in found? {
                if let Err(refused) = rules.check(address) {
                    return Err(format!("{name} leads to {}: {refused}", address.ip()).into());
                }
                allowed.push(address);
            }
            Ok(allowed.into_iter())
        })
    }
}

async fn lookup(name: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((name, port)).await?.collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tenant::address::Loopback;

    async fn dial(loopback: Loopback) -> Result<Vec<SocketAddr>, String> {
        let rules = AddressRules {
            loopback,
            ..AddressRules::default()
        };
        let mut resolver = CheckedResolver {
            rules: Arc::new(rules),
            port: 6443,
        };
        let name = "localhost".parse().expect("a host name");
        let found = resolver.call(name).await;
        found
            .map(Iterator::collect)
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn the_kernel_gives_up_what_is_not_acknowledged_in_the_time_of_a_call() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let resolver = CheckedResolver {
            rules: Arc::default(),
            port: address.port(),
        };
        let mut http = http(resolver, Patience::of(Duration::from_secs(7)));
        let url = format!("https://{address}").parse().unwrap();
        let stream = http.call(url).await.unwrap();
        let socket = socket2::SockRef::from(stream.inner());
        let bound = socket.tcp_user_timeout().unwrap();
        assert_eq!(bound, Some(Duration::from_secs(7)));
        assert!(socket.keepalive().unwrap());
        let (idle, interval) = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval());
        assert_eq!(idle.unwrap(), Duration::from_secs(21));
        assert_eq!(interval.unwrap(), Duration::from_secs(7));
    }

    #[tokio::test]
    async fn the_dot_at_the_end_of_a_name_is_looked_up() {
        let resolver = CheckedResolver {
            rules: Arc::default(),
            port: 6443,
        };
        let mut http = http(resolver, Patience::of(Duration::from_secs(7)));
        for name in ["localhost", "localhost."] {
            let url = format!("https://{name}:6443").parse().unwrap();
            let refused = http.call(url).await.unwrap_err();
            let cause = refused.source().expect("the resolver's error").to_string();
            assert!(cause.starts_with(&format!("{name} leads to ")), "{cause}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_refused_address_is_not_dialled() {
        let refused = dial(Loopback::Refused).await.unwrap_err();
        assert!(refused.contains("it is a loopback address"), "{refused}");
        let allowed = dial(Loopback::Allowed).await.unwrap();
        assert!(allowed.iter().all(|address| address.ip().is_loopback()));
    }
}
