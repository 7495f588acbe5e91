//! Waits for a component to be of use. Each wait has a deadline, ends at once when the component
//! itself ends, and fails with the component's log.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Request;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::Api;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::error::Error;
use super::process::Process;

/// A component is ready within seconds; this is for many clusters that start on two busy cores.
const READY_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A request that hangs must not use up the whole of `READY_TIMEOUT`.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// etcd accepts connections before it has a leader, so that its own answer counts.
pub(super) async fn etcd(process: &Mutex<Option<Process>>, port: u16) -> Result<(), Error> {
    until(process, async || match ask_etcd(port).await {
        Ok(answer) if answer.starts_with("HTTP/1.0 200") => Ok(()),
        Ok(answer) => Err(answer),
        Err(error) => Err(error.to_string()),
    })
    .await
}

/// By hand: one question in plain text is not worth an HTTP client.
async fn ask_etcd(port: u16) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// `/readyz` includes the default roles.
pub(super) async fn api_server(
    process: &Mutex<Option<Process>>,
    client: kube::Client,
) -> Result<(), Error> {
    until(process, async || {
        let request = Request::get("/readyz")
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        client
            .request_text(request)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await
}

/// The manager has no port to ask; the account `default` shows that its controllers work. The
/// namespace `kube-public` comes from the API server, but only after it says that it is ready.
pub(super) async fn controller_manager(
    process: &Mutex<Option<Process>>,
    client: kube::Client,
) -> Result<(), Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let namespaces: Api<Namespace> = Api::all(client);
    until(process, async || {
        accounts
            .get_metadata("default")
            .await
            .map_err(|error| error.to_string())?;
        namespaces
            .get_metadata("kube-public")
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await
}

async fn until(
    process: &Mutex<Option<Process>>,
    ask: impl AsyncFn() -> Result<(), String>,
) -> Result<(), Error> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        check(process, None)?;
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, ask()).await;
        let reason = match answer {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(reason)) => reason,
            Err(elapsed) => elapsed.to_string(),
        };
        if Instant::now() > deadline {
            check(process, Some(reason))?;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// An error if the component has ended, or if there is a reason why it is not ready in time.
fn check(process: &Mutex<Option<Process>>, late: Option<String>) -> Result<(), Error> {
    let mut place = process.lock().unwrap_or_else(PoisonError::into_inner);
    // Stopped by somebody else while we wait: the requests will tell.
    let Some(process) = place.as_mut() else {
        return Ok(());
    };
    process.check()?;
    match late {
        Some(reason) => Err(process.not_ready(reason)),
        None => Ok(()),
    }
}
