//! The connection to the management cluster.

use std::{io, path::Path};

use anyhow::{Context as _, anyhow, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    client::{Body, ConfigExt},
    config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{ServiceBuilder, util::BoxCloneSyncService};

use crate::client::transport::{
    Patience, Transport,
    streams::{ConnectionPool, LimitedClient},
};

#[cfg(test)]
mod tests;

/// Where a cluster was looked for.
const NOWHERE: &str = "no cluster is named: give --kubeconfig, set $KUBECONFIG, create ~/.kube/config, or run in a \
                       pod with a ServiceAccount";

/// Creates the transport to the management cluster. The operator's own kubeconfig is trusted, and
/// parsed by kube. Requests impersonate the user that it names, and the server's certificate is
/// verified for the name that it specifies. There are as many connections as watches and calls
/// need.
pub fn transport(
    config: &kube::Config,
    agent: HeaderValue,
    patience: Patience,
) -> anyhow::Result<Transport> {
    let https = connector(config, patience)?;
    let connect = move || {
        let client = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            // hyper considers a connection that only watches use idle, and would dial for the next
            // call.
            .pool_idle_timeout(None)
            .pool_max_idle_per_host(1)
            .http2_keep_alive_interval(patience.ping_interval)
            .http2_keep_alive_timeout(patience.ping_answer)
            .http2_keep_alive_while_idle(true)
            .build(https.clone());
        LimitedClient::new(client)
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_request(move |mut request: http::Request<Body>| {
            request
                .headers_mut()
                .insert(http::header::USER_AGENT, agent.clone());
            request
        })
        .service(ConnectionPool::new(connect));
    Ok(BoxCloneSyncService::new(service))
}

/// Creates a connector to the server of a configuration.
fn connector(
    config: &kube::Config,
    patience: Patience,
) -> anyhow::Result<HttpsConnector<HttpConnector>> {
    let mut https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = config.tls_server_name.clone() {
        let name = name.try_into();
        let name = name.context("tls-server-name of the kubeconfig is not a host name")?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(https
        .enable_all_versions()
        .wrap_connector(http(config, patience)))
}

fn http(config: &kube::Config, patience: Patience) -> HttpConnector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(config.connect_timeout);
    http.set_nodelay(true);
    http.set_tcp_user_timeout(Some(patience.acknowledgement));
    http.set_keepalive(Some(patience.ping_interval));
    http.set_keepalive_interval(Some(patience.ping_answer));
    http
}

/// Loads the configuration of the management cluster from a file, or from where kube finds it.
pub async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    let read = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path).context("cannot use --kubeconfig")?,
        None => match Kubeconfig::read() {
            Ok(read) => read,
            Err(missing) if is_missing(&missing) => {
                return kube::Config::incluster().map_err(|_| anyhow!(NOWHERE));
            }
            Err(unread) => return Err(unread).context("cannot use the kubeconfig"),
        },
    };
    load(read).await.context("cannot use the kubeconfig")
}

/// Returns true if there is no kubeconfig, which a pod does not need.
fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Creates a configuration from a kubeconfig. A proxy is refused: ignoring it would send requests
/// on another way than the kubeconfig specifies. The environment is not used for proxies either.
async fn load(kubeconfig: Kubeconfig) -> anyhow::Result<kube::Config> {
    let proxy = current_cluster(&kubeconfig).and_then(|it| it.proxy_url.as_deref());
    ensure!(
        proxy.unwrap_or_default().is_empty(),
        "its cluster has a proxy-url, and no proxy is used for API servers: remove it, or name a \
         server that is reached without one"
    );
    #[expect(clippy::disallowed_methods, reason = "the operator's own kubeconfig")]
    let made =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = made?;
    config.proxy_url = None;
    Ok(config)
}

/// Access to a cluster, and the certificate authority of its API server in PEM.
pub struct KubeconfigSource {
    pub config: kube::Config,
    pub certificate_authority: Option<Vec<u8>>,
}

/// Finds the kubeconfig as Go programs do: a file, `$KUBECONFIG`, the pod's own, `~/.kube/config`.
pub async fn kubeconfig_source(kubeconfig: Option<&Path>) -> anyhow::Result<KubeconfigSource> {
    way_in(kubeconfig, None).await
}

/// Does the same as [`kubeconfig_source`], in a named context.
pub async fn way_in(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<KubeconfigSource> {
    let read = match kubeconfig {
        Some(path) => Some(Kubeconfig::read_from(path).context("cannot use --kubeconfig")?),
        None => Kubeconfig::from_env().context("cannot use $KUBECONFIG")?,
    };
    let mut read = match read {
        Some(read) => read,
        None if context.is_some() => {
            Kubeconfig::read().context("there is no kubeconfig to look for --context in")?
        }
        None => match kube::Config::incluster() {
            Ok(config) => {
                return Ok(KubeconfigSource {
                    config,
                    certificate_authority: std::fs::read(POD_CERTIFICATE_AUTHORITY).ok(),
                });
            }
            Err(_) => match Kubeconfig::read() {
                Ok(read) => read,
                Err(missing) if is_missing(&missing) => bail!(NOWHERE),
                Err(unread) => return Err(unread).context("cannot use the kubeconfig"),
            },
        },
    };
    if let Some(context) = context {
        read.current_context = Some(context.to_owned());
    }
    let certificate_authority = certificate_authority(&read)?;
    Ok(KubeconfigSource {
        config: load(read).await.context("cannot use the kubeconfig")?,
        certificate_authority,
    })
}

/// The path of the API server's certificate authority in a pod.
const POD_CERTIFICATE_AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Returns the cluster of the current context.
fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let current = kubeconfig.current_context.as_ref();
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|it| Some(&it.name) == current)?;
    let named = &context.context.as_ref()?.cluster;
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|it| it.name == *named)?;
    cluster.cluster.as_ref()
}

/// Returns the certificate authority of the current cluster, with its exact bytes, because
/// documents contain it.
fn certificate_authority(kubeconfig: &Kubeconfig) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(cluster) = current_cluster(kubeconfig) else {
        return Ok(None);
    };
    if let Some(data) = &cluster.certificate_authority_data {
        let pem = STANDARD.decode(data.trim());
        return pem
            .map(Some)
            .context("certificate-authority-data is not base64");
    }
    let Some(file) = &cluster.certificate_authority else {
        return Ok(None);
    };
    let pem = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
    Ok(Some(pem))
}
