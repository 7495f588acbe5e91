//! Sends what the exporter has made over HTTP, with the client and the TLS of everything else here.

use std::{error::Error, fmt, io, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry_http::{HttpClient, HttpError};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio::{runtime::Handle, task::JoinSet, time::timeout};

use crate::telemetry::chain;

/// A collector says little. More is not read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends on the runtime: the exporter's thread has none.
pub(super) struct Sender {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    patience: Duration,
}

impl fmt::Debug for Sender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sender")
    }
}

impl Sender {
    /// A sender on the runtime; it gives up an answer after `patience`. Fails where the collector
    /// is to prove who it is and this machine trusts nobody.
    pub(super) fn new(endpoint: &str, (runtime, patience): (Handle, Duration)) -> io::Result<Self> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let config = if endpoint.starts_with("https:") {
            config.with_native_roots()?
        } else {
            config.with_root_certificates(RootCertStore::empty())
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config.with_no_client_auth())
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .build();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            runtime,
            patience,
        })
    }
}

type Sent = Result<Response<Bytes>, HttpError>;

impl HttpClient for Sender {
    fn send_bytes<'sender, 'sending>(
        &'sender self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Sent> + Send + 'sending>>
    where
        'sender: 'sending,
        Self: 'sending,
    {
        let sending = send(self.client.clone(), request.map(Full::new));
        let sending = timeout_after(self.patience, sending);
        let runtime = self.runtime.clone();
        Box::pin(async move {
            let mut task = JoinSet::new();
            task.spawn_on(sending, &runtime);
            let sent = match task.join_next().await {
                Some(Ok(sent)) => sent,
                Some(Err(error)) => Err(error.into()),
                None => Err("nothing was sent".into()),
            };
            if let Err(error) = &sent {
                // The exporter keeps the reason for itself.
                let error: &(dyn Error + 'static) = error.as_ref();
                tracing::debug!(error = %chain::chain(error), "spans were not sent");
            }
            sent
        })
    }
}

async fn timeout_after(patience: Duration, sending: impl Future<Output = Sent>) -> Sent {
    timeout(patience, sending).await?
}

async fn send(
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Sent {
    let (head, body) = client.request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?;
    Ok(Response::from_parts(head, body.to_bytes()))
}
