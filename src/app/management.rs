//! The connection to the management cluster.

use std::path::Path;

use anyhow::Context as _;
use base64::{Engine, engine::general_purpose::STANDARD};
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

/// The way into a cluster, and the certificate authority of its API server, in PEM.
pub(super) struct Way {
    pub(super) config: kube::Config,
    pub(super) certificate_authority: Option<Vec<u8>>,
}

/// The way that programs in Go find: a file, `$KUBECONFIG`, the pod's own, `~/.kube/config`.
pub(super) async fn way(kubeconfig: Option<&Path>) -> anyhow::Result<Way> {
    way_in(kubeconfig, None).await
}

/// As [`way`], in a context that is named.
pub(super) async fn way_in(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> anyhow::Result<Way> {
    let read = match kubeconfig {
        Some(path) => Some(
            Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?,
        ),
        None => Kubeconfig::from_env().context("cannot read $KUBECONFIG")?,
    };
    let mut read = match read {
        Some(read) => read,
        None if context.is_some() => {
            Kubeconfig::read().context("found no kubeconfig to look for --context in")?
        }
        None => match kube::Config::incluster() {
            Ok(config) => {
                return Ok(Way {
                    config,
                    certificate_authority: std::fs::read(POD_CERTIFICATE_AUTHORITY).ok(),
                });
            }
            Err(not_in_a_pod) => Kubeconfig::read()
                .with_context(|| format!("found no way into the cluster ({not_in_a_pod})"))?,
        },
    };
    if let Some(context) = context {
        read.current_context = Some(context.to_owned());
    }
    let certificate_authority = certificate_authority(&read)?;
    #[expect(clippy::disallowed_methods, reason = "the operator's own kubeconfig")]
    let config = kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    Ok(Way {
        config: config.context("cannot use the kubeconfig")?,
        certificate_authority,
    })
}

/// Where a pod finds the certificate authority of its API server.
const POD_CERTIFICATE_AUTHORITY: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The certificate authority of the cluster that is meant, to the byte: it stands in documents.
fn certificate_authority(kubeconfig: &Kubeconfig) -> anyhow::Result<Option<Vec<u8>>> {
    let current = kubeconfig.current_context.as_ref();
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|it| Some(&it.name) == current);
    let context = context.and_then(|it| it.context.as_ref());
    let named = context.map(|it| &it.cluster);
    let mut clusters = kubeconfig.clusters.iter();
    let Some(cluster) = clusters.find(|it| Some(&it.name) == named) else {
        return Ok(None);
    };
    let Some(cluster) = &cluster.cluster else {
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
