//! The manager's pod, without a kubelet: the image's root folder, the arguments and the user of
//! the Deployment, the token of its ServiceAccount where a pod finds it, and nothing that can be
//! written.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use loadtest::control_plane::ControlPlane;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::image::Image;

const NAME: &str = "operating-system-manager";
/// Where the Deployment has the admin pages answer.
const ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// In a namespace of its own, so that what is mounted there ends with it. As the pod's security
/// context says: another user, no right, nothing to gain, nothing to write.
const START: &str = r#"
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind /dev/null "$1/dev/null"
mount -o remount,bind,ro "$1"
root="$1" user="$2"
shift 2
cd "$root"
exec setpriv --no-new-privs --inh-caps=-all chroot --userspec="$user" "$root" "$@"
"#;

/// A pod that runs. Dropping it ends it.
pub struct Pod {
    process: Child,
    log: PathBuf,
}

/// What a pod starts from.
pub struct Params<'a> {
    /// Where its log is written.
    pub folder: &'a Path,
    /// The image.
    pub image: &'a Image,
    /// The Deployment.
    pub deployment: &'a Value,
    /// The cluster that it runs in.
    pub cluster: &'a ControlPlane,
    /// Names that its cluster's DNS would know.
    pub hosts: &'a str,
}

impl Pod {
    /// Starts it, and waits until it is ready.
    pub async fn start(params: Params<'_>) -> anyhow::Result<Self> {
        let spec = &params.deployment["spec"]["template"]["spec"];
        let container = &spec["containers"][0];
        let user = &spec["securityContext"];
        let user = format!("{}:{}", user["runAsUser"], user["runAsGroup"]);
        let root = &params.image.root;
        prepare(root, &params).await?;
        let log = params.folder.join("osm.log");
        let server = params.cluster.server();
        let (_, port) = server.rsplit_once(':').context("the server has a port")?;
        let strings = |list: &Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.filter_map(|it| it.as_str().map(str::to_owned))
                .collect()
        };
        let process = unshare()
            .args(["--mount", "--propagation=private"])
            .args(["sh", "-euc", START, "pod"])
            .arg(root)
            .arg(user)
            .args(strings(&params.image.config["Entrypoint"]))
            .args(strings(&container["args"]))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("POD_NAME", format!("{NAME}-0"))
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", port)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .kill_on_drop(true)
            .spawn()
            .context("running unshare")?;
        let mut pod = Self { process, log };
        pod.until_ready().await?;
        Ok(pod)
    }

    /// Ends it.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        Ok(self.process.kill().await?)
    }

    /// The end of what it has logged.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(20);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    async fn until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
        while !is_ready().await {
            if let Some(ended) = self.process.try_wait()? {
                bail!("the pod ended with {ended}:\n{}", self.log());
            }
            ensure!(
                tokio::time::Instant::now() < deadline,
                "the pod is not ready:\n{}",
                self.log()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

fn unshare() -> Command {
    Command::new("unshare")
}

/// What a kubelet puts into a container.
async fn prepare(root: &Path, params: &Params<'_>) -> anyhow::Result<()> {
    let account = root.join("var/run/secrets/kubernetes.io/serviceaccount");
    for folder in [
        &account,
        &root.join("etc"),
        &root.join("proc"),
        &root.join("dev"),
    ] {
        fs::create_dir_all(folder)?;
    }
    fs::write(root.join("dev/null"), "")?;
    let cluster = params.cluster;
    let kubeconfig = cluster.kubeconfig_for_service_account(NAME, NAME).await?;
    let token = kubeconfig
        .lines()
        .find_map(|line| line.trim().strip_prefix("token: "));
    fs::write(
        account.join("token"),
        token.context("the account has a token")?,
    )?;
    fs::write(account.join("ca.crt"), cluster.ca_certificate())?;
    fs::write(account.join("namespace"), NAME)?;
    fs::write(root.join("etc/hosts"), params.hosts)?;
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

async fn is_ready() -> bool {
    let Ok(mut stream) = TcpStream::connect(ADMIN).await else {
        return false;
    };
    let asked = stream
        .write_all(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .await;
    let mut answer = String::new();
    asked.is_ok()
        && stream.read_to_string(&mut answer).await.is_ok()
        && answer.lines().next().is_some_and(|it| it.contains(" 200 "))
}
