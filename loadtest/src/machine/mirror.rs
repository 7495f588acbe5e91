//! The site's mirror: what machines download, and a registry, as files. It serves any version of
//! CNI plugins and crictl under the path that the profile makes of it, and notes each request.

mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::tls::{Certificates, Encrypted};

/// The port of plain HTTP; machines find it at 10.0.2.2.
const PORT: u16 = 8080;
/// The port of HTTPS.
const TLS_PORT: u16 = 8443;
/// The port of HTTPS with a certificate of an authority that nobody knows.
const UNKNOWN_TLS_PORT: u16 = 8444;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const FILE: &str = "application/octet-stream";
/// Images below these are for those who log in: as `mirror` with the password `mirror-password`,
/// and as `plugin` with `plugin-password`, which only the credential provider knows.
const PRIVATE: [(&str, &str); 2] = [
    ("/v2/private/", "Basic bWlycm9yOm1pcnJvci1wYXNzd29yZA=="),
    ("/v2/plugin/", "Basic cGx1Z2luOnBsdWdpbi1wYXNzd29yZA=="),
];
/// Where the program is that a kubelet may ask for credentials.
pub const CREDENTIAL_PROVIDER_PATH: &str = "/credential-provider";
/// The program.
pub const CREDENTIAL_PROVIDER: &str = r#"#!/bin/sh
cat > /dev/null
cat << 'END'
{
  "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
  "kind": "CredentialProviderResponse",
  "cacheKeyType": "Registry",
  "auth": {"10.0.2.2:8443/plugin": {"username": "plugin", "password": "plugin-password"}}
}
END
"#;

/// What is wrong with a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It answers everything with 503.
    Down,
    /// The checksums that it serves are those of other files.
    WrongChecksums,
}

/// A running mirror; it ends when it is dropped.
pub struct Mirror {
    shared: Arc<Shared>,
    certificates: Certificates,
    _servers: JoinSet<()>,
}

struct Shared {
    folder: PathBuf,
    requests: Mutex<Vec<String>>,
    fault: Mutex<Option<Fault>>,
}

impl Mirror {
    /// Serves the files of a folder that `.ci/node-images` made, with and without TLS.
    ///
    /// # Errors
    ///
    /// When a port is taken.
    pub async fn start(folder: PathBuf) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            folder,
            requests: Mutex::default(),
            fault: Mutex::default(),
        });
        let certificates = Certificates::new().context("making the mirror's certificates")?;
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let plain = listen(PORT).await?;
        let encrypted = Encrypted::new(listen(TLS_PORT).await?, &certificates)?;
        let unknown = Certificates::new().context("making certificates that nobody trusts")?;
        let unknown = Encrypted::new(listen(UNKNOWN_TLS_PORT).await?, &unknown)?;
        let mut servers = JoinSet::new();
        // They end with the mirror.
        let to_plain = axum::serve(plain, router.clone());
        servers.spawn(async move { drop(to_plain.await) });
        let to_unknown = axum::serve(unknown, router.clone());
        servers.spawn(async move { drop(to_unknown.await) });
        let to_encrypted = axum::serve(encrypted, router);
        servers.spawn(async move { drop(to_encrypted.await) });
        Ok(Self {
            shared,
            certificates,
            _servers: servers,
        })
    }

    /// The certificate of the authority that its own is from, in PEM.
    pub fn authority(&self) -> &str {
        self.certificates.authority()
    }

    /// From now on this is wrong with it, or nothing.
    pub fn set_fault(&self, fault: Option<Fault>) {
        *lock(&self.shared.fault) = fault;
    }

    /// The paths that were asked for, in order, each behind the status of its answer.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.shared.requests).clone()
    }
}

async fn listen(port: u16) -> anyhow::Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address)
        .await
        .with_context(|| format!("opening {address} for the mirror"))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = percent_decode_str(request.uri().path()).decode_utf8_lossy();
    let response = shared.answer(&path, request.headers()).await;
    let line = format!("{} {path}", response.status().as_u16());
    lock(&shared.requests).push(line);
    response
}

impl Shared {
    async fn answer(&self, path: &str, headers: &HeaderMap) -> Response {
        let fault = *lock(&self.fault);
        if fault == Some(Fault::Down) {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        // What a registry says of itself.
        if path == "/v2/" {
            return StatusCode::OK.into_response();
        }
        if path == CREDENTIAL_PROVIDER_PATH {
            return CREDENTIAL_PROVIDER.into_response();
        }
        let private = PRIVATE.iter().find(|(folder, _)| path.starts_with(folder));
        let given = headers.get(AUTHORIZATION);
        if private.is_some_and(|(_, login)| given.is_none_or(|it| it != login)) {
            let how = [(WWW_AUTHENTICATE, "Basic realm=\"mirror\"")];
            return (StatusCode::UNAUTHORIZED, how).into_response();
        }
        if let Some(of) = path.strip_suffix(".sha256") {
            return self.checksum(of, fault).await;
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
    async fn checksum(&self, of: &str, fault: Option<Fault>) -> Response {
        let Some(mut bytes) = self.read(of).await else {
            return StatusCode::NOT_FOUND.into_response();
        };
        if fault == Some(Fault::WrongChecksums) {
            bytes.clear();
        }
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
            "kubelet" => format!("kubelet-{}", version(path)?),
            _ if name.starts_with("cni-plugins-") => "cni-plugins.tgz".to_owned(),
            _ if name.starts_with("crictl-") => "crictl.tar.gz".to_owned(),
            // The registry has each image for everybody, and for those who log in.
            _ => {
                let mut folders = PRIVATE.iter();
                let image = folders.find_map(|(folder, _)| path.strip_prefix(folder));
                let file = image.map(|it| format!("v2/{it}"));
                file.unwrap_or_else(|| path.trim_start_matches('/').to_owned())
            }
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

/// The version in a path such as `/kubernetes/v1.37.2/bin/linux/amd64/kubelet`.
fn version(path: &str) -> Option<&str> {
    path.split('/').find(|it| it.starts_with("v1."))
}
