//! The site's mirror: what machines download, and a registry, as files. It serves any version of
//! the binaries under the path that the profile makes of it, and notes each request.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The port of plain HTTP; machines find it at 10.0.2.2.
const PORT: u16 = 8080;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const FILE: &str = "application/octet-stream";

/// A running mirror; it ends when it is dropped.
pub struct Mirror {
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

struct Shared {
    folder: PathBuf,
    requests: Mutex<Vec<String>>,
}

impl Mirror {
    /// Serves the files of a folder that `.ci/node-images` made.
    ///
    /// # Errors
    ///
    /// When the port is taken.
    pub async fn start(folder: PathBuf) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            folder,
            requests: Mutex::default(),
        });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("opening {address} for the mirror"))?;
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(async move {
            // It ends with the mirror.
            drop(axum::serve(listener, router).await);
        });
        Ok(Self {
            shared,
            _server: server,
        })
    }

    /// The paths that were asked for, in order, each with the status of its answer.
    pub fn requests(&self) -> Vec<String> {
        let requests = self.shared.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = percent_decode_str(request.uri().path()).decode_utf8_lossy();
    let response = shared.file(&path).await;
    let line = format!("{} {path}", response.status().as_u16());
    let requests = shared.requests.lock();
    requests.unwrap_or_else(PoisonError::into_inner).push(line);
    response
}

impl Shared {
    async fn file(&self, path: &str) -> Response {
        // What a registry says of itself.
        if path == "/v2/" {
            return StatusCode::OK.into_response();
        }
        if let Some(of) = path.strip_suffix(".sha256") {
            return self.checksum(of).await;
        }
        let Some(bytes) = self.read(path).await else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let kind = if path.contains("/manifests/") {
            MANIFEST
        } else {
            FILE
        };
        ([(CONTENT_TYPE, kind)], Body::from(bytes)).into_response()
    }

    /// As the projects publish them: the kubelet's has the sum alone.
    async fn checksum(&self, of: &str) -> Response {
        let Some(bytes) = self.read(of).await else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let sum = hex::encode(Sha256::digest(&bytes));
        let name = of.rsplit('/').next().unwrap_or_default();
        if name == "kubelet" {
            sum.into_response()
        } else {
            format!("{sum}  {name}\n").into_response()
        }
    }

    async fn read(&self, path: &str) -> Option<Vec<u8>> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let file = match name {
            "kubelet" => name.to_owned(),
            _ if name.starts_with("cni-plugins-") => "cni-plugins.tgz".to_owned(),
            _ if name.starts_with("crictl-") => "crictl.tar.gz".to_owned(),
            _ => path.trim_start_matches('/').to_owned(),
        };
        let is_below = Path::new(&file)
            .components()
            .all(|it| matches!(it, Component::Normal(_)));
        if !is_below {
            return None;
        }
        tokio::fs::read(self.folder.join(file)).await.ok()
    }
}
