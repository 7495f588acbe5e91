//! The connection to the management cluster.

use std::path::Path;

use anyhow::Context as _;
use http::HeaderValue;
use http_body_util::BodyExt;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use tower::{BoxError, ServiceBuilder, util::BoxCloneSyncService};

use crate::fleet::connect::Transport;

/// What carries requests to the management cluster: the operator's own kubeconfig is trusted, and
/// read by kube.
pub(super) fn transport(config: &kube::Config, agent: HeaderValue) -> anyhow::Result<Transport> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(config.connect_timeout);
    http.set_nodelay(true);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(http);
    let client = HyperClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(std::time::Duration::from_secs(30))
        .http2_keep_alive_timeout(std::time::Duration::from_secs(15))
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_request(move |mut request: http::Request<Body>| {
            request
                .headers_mut()
                .insert(http::header::USER_AGENT, agent.clone());
            request
        })
        .map_err(BoxError::from)
        .map_response(|response: http::Response<hyper::body::Incoming>| {
            response.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
        })
        .service(client);
    Ok(BoxCloneSyncService::new(service))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the management client is made here"
)]
/// The way into the management cluster: a file, or what kube finds.
pub(super) async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    let Some(path) = kubeconfig else {
        return kube::Config::infer()
            .await
            .context("found no way into the management cluster");
    };
    let read = Kubeconfig::read_from(path)
        .with_context(|| format!("cannot read --kubeconfig {}", path.display()))?;
    kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use --kubeconfig {}", path.display()))
}
