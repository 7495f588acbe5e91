//! Routes to a server: directly, or through a tunnel of the operator's proxy.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::{HttpConnector, dns::GaiResolver, proxy::Tunnel};
use tokio::{net::TcpStream, time::timeout};
use tower::{BoxError, Service};

use crate::client::transport::{CheckedResolver, Patience, http};
use crate::tenant::{egress::EgressProxy, host::Host, secret_text::SecretText};

/// The route of connections.
#[derive(Clone)]
pub(super) struct Route {
    direct: HttpConnector<CheckedResolver>,
    proxied: Option<Proxied>,
}

#[derive(Clone)]
struct Proxied {
    proxy: Arc<EgressProxy>,
    server: Host,
    resolver: CheckedResolver,
    patience: Patience,
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
enum RouteError {
    #[error("the egress proxy {proxy} gives no connection to {server}")]
    NoTunnel {
        proxy: String,
        server: SocketAddr,
        #[source]
        source: BoxError,
    },
    #[error("no connection to {server} within {}", humantime::format_duration(*.within))]
    Silent {
        server: SocketAddr,
        within: Duration,
    },
    #[error("the file with the egress proxy's user and password cannot be read")]
    Credentials(#[source] std::io::Error),
    #[error("the file with the egress proxy's user and password is not a line `user:password`")]
    NotCredentials,
}

impl Route {
    /// Creates a route. It is direct unless the server is behind the proxy.
    pub(super) fn new(
        resolver: CheckedResolver,
        proxy: Option<Arc<EgressProxy>>,
        server: &Host,
        patience: Patience,
    ) -> Self {
        let proxied = proxy.filter(|it| !it.excepts(server)).map(|proxy| Proxied {
            proxy,
            server: server.clone(),
            resolver: resolver.clone(),
            patience,
        });
        Self {
            direct: http(resolver, patience),
            proxied,
        }
    }

    /// Connects to the server of a URL.
    pub(super) async fn connect(mut self, uri: Uri) -> Result<TcpStream, BoxError> {
        let Some(mut proxied) = self.proxied else {
            return Ok(self.direct.call(uri).await?.into_inner());
        };
        let addresses = proxied.addresses(&uri).await?;
        // Each address gets a part of the time, so that one that does not answer leaves time for
        // the others.
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let within = proxied.patience.dial / count;
        let mut last: BoxError = "the name has no address".into();
        for server in addresses {
            let connected = if proxied.proxy.excepts(&Host::Address(server.ip())) {
                timeout(within, directly(&mut self.direct, server)).await
            } else {
                timeout(within, proxied.tunnel(server)).await
            };
            let silent = |_| Err(RouteError::Silent { server, within }.into());
            match connected.unwrap_or_else(silent) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

async fn directly(
    http: &mut HttpConnector<CheckedResolver>,
    address: SocketAddr,
) -> Result<TcpStream, BoxError> {
    Ok(http.call(uri(address)?).await?.into_inner())
}

fn uri(address: SocketAddr) -> Result<Uri, BoxError> {
    Ok(format!("https://{address}").parse()?)
}

impl Proxied {
    /// Returns the checked addresses of the server.
    async fn addresses(&mut self, uri: &Uri) -> Result<Vec<SocketAddr>, BoxError> {
        match &self.server {
            Host::Address(address) => {
                let address = SocketAddr::new(*address, self.resolver.port);
                self.resolver.rules.check(address)?;
                Ok(vec![address])
            }
            Host::Name(name) => {
                // The host of the URL keeps the dot at the end of the name, if there is one.
                let name = uri.host().unwrap_or(name).parse()?;
                Ok(self.resolver.call(name).await?.collect())
            }
        }
    }

    async fn tunnel(&self, server: SocketAddr) -> Result<TcpStream, BoxError> {
        let to_proxy = http(GaiResolver::new(), self.patience);
        let url = self.proxy.url.to_string();
        let mut tunnel = Tunnel::new(url.parse()?, to_proxy);
        if let Some(file) = &self.proxy.credentials_file {
            let read = tokio::fs::read_to_string(file).await;
            let read = SecretText::new(read.map_err(RouteError::Credentials)?);
            tunnel = tunnel.with_auth(basic(&read)?);
        }
        let connected = tunnel.call(uri(server)?).await;
        let connected = connected.map_err(|error| RouteError::NoTunnel {
            proxy: url,
            server,
            source: error.into(),
        })?;
        Ok(connected.into_inner())
    }
}

fn basic(credentials: &SecretText) -> Result<HeaderValue, RouteError> {
    let line = credentials.expose().trim_ascii_end();
    if line.contains(['\n', '\r']) || !line.contains(':') {
        return Err(RouteError::NotCredentials);
    }
    let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(line)));
    let mut value = value.map_err(|_| RouteError::NotCredentials)?;
    value.set_sensitive(true);
    Ok(value)
}
