//! The manager as a child: the real binary, with the least privileges that it needs, its log in a
//! file. It ends with this process, however that ends.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::process::{Child, ChildStdin, Command};

/// As in the control plane, a shell stands between: it ends the manager when the pipe is closed,
/// which the system does if we are killed. The manager gets the time to end in good order.
const SUPERVISOR: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
manager=$!
{
  read -r _ <&3
  exec 3<&-
  kill -TERM "$manager"
  for _ in $(seq 200); do kill -0 "$manager" || exit; sleep 0.1; done
  kill -KILL "$manager"
} 2>/dev/null &
watcher=$!
exec 3<&-
wait "$manager"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"#;

/// How many lines of the log an error shows.
const LOG_TAIL_LINES: usize = 15;
/// How much of each line: an error repeats itself from cause to cause.
const LOG_LINE_CHARS_MAX: usize = 300;
/// The supervisor kills what does not end within twenty seconds: a reconcile in a slow cluster has
/// fifteen to end.
const END_TIMEOUT: Duration = Duration::from_secs(22);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The exporter waits for five seconds between batches unless it is told otherwise; nobody wants to
/// wait for that in front of a screen.
const TRACE_DELAY_MILLISECONDS: &str = "200";

/// What the manager is started with.
#[derive(Debug)]
pub struct Params<'a> {
    /// The `osm` program.
    pub binary: &'a Path,
    /// The kubeconfig of its own identity in the management cluster.
    pub kubeconfig: &'a Path,
    /// More arguments of `osm run`.
    pub arguments: &'a [&'a str],
    /// Where its log goes.
    pub log: PathBuf,
}

/// The running manager. Dropping it ends it; `stop` ends it and waits.
#[derive(Debug)]
pub struct Manager {
    supervisor: Child,
    /// Held apart from the child, which would close it when it is waited for.
    pipe: Option<ChildStdin>,
    log: PathBuf,
}

impl Manager {
    /// Starts it.
    pub fn start(params: Params<'_>) -> anyhow::Result<Self> {
        let mut line: Vec<OsString> = vec![params.binary.into(), "run".into()];
        line.extend(["--kubeconfig".into(), params.kubeconfig.into()]);
        line.extend(params.arguments.iter().map(OsString::from));
        let last = ["--admin-address", "127.0.0.1:0", "--log-format", "text"];
        line.extend(last.map(OsString::from));
        line.push("--allow-loopback-servers".into());
        Self::supervise(&line, params.log)
    }

    /// Starts any program by its command line, and keeps its log.
    #[expect(
        clippy::disallowed_methods,
        reason = "running the program is what the demo is for"
    )]
    pub fn supervise(line: &[OsString], log_path: PathBuf) -> anyhow::Result<Self> {
        let log = std::fs::File::create(&log_path).context("creating the manager's log")?;
        let mut command = std::process::Command::new("/bin/sh");
        command
            .args(["-c", SUPERVISOR, "osm"])
            .args(line)
            // Neither a proxy nor a kubeconfig of the developer may reach it.
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("OTEL_BSP_SCHEDULE_DELAY", TRACE_DELAY_MILLISECONDS)
            // Its own group: ^C is for us, and we end the manager in good order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().context("sharing the log")?)
            .stderr(log);
        let mut supervisor = Command::from(command)
            .spawn()
            .context("starting the manager")?;
        Ok(Self {
            pipe: supervisor.stdin.take(),
            supervisor,
            log: log_path,
        })
    }

    /// Where its log is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The process itself, once its admin port listens; the child is the shell before it.
    pub fn pid(&self) -> Option<u32> {
        let shell = self.supervisor.id()?;
        let children = format!("/proc/{shell}/task/{shell}/children");
        let children = std::fs::read_to_string(children).ok()?;
        // The shell starts the manager before it starts who watches the pipe.
        children.split_whitespace().next()?.parse().ok()
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let last = text.lines().rev().take(LOG_TAIL_LINES);
        let mut lines: Vec<String> = last
            .map(|line| line.chars().take(LOG_LINE_CHARS_MAX).collect())
            .collect();
        lines.reverse();
        lines.join("\n")
    }

    /// Where its admin port is, as soon as the log says so.
    pub async fn admin_address(&mut self) -> anyhow::Result<String> {
        loop {
            let text = std::fs::read_to_string(&self.log).context("reading the manager's log")?;
            let line = text.lines().find(|line| line.contains("admin port"));
            if let Some(address) = line.and_then(loopback_address) {
                return Ok(address);
            }
            if let Some(status) = self.supervisor.try_wait()? {
                bail!("the manager ended at once ({status}):\n{}", self.log_tail());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns an error when the manager ends, which it should not; cancel safe.
    pub async fn ended(&mut self) -> anyhow::Error {
        match self.supervisor.wait().await {
            Ok(status) => anyhow::anyhow!("the manager ended by itself ({status})"),
            Err(error) => anyhow::Error::new(error).context("waiting for the manager"),
        }
    }

    /// Ends it in good order, and returns when it is gone.
    pub async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        drop(self.pipe.take());
        tokio::time::timeout(END_TIMEOUT, self.supervisor.wait())
            .await
            .context("the manager does not end")?
            .context("waiting for the end of the manager")
    }
}

fn loopback_address(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("127.0.0.1:")?;
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (!port.is_empty()).then(|| format!("127.0.0.1:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_address_is_found_in_a_line_of_the_log() {
        assert_eq!(
            loopback_address("INFO the admin port listens address=127.0.0.1:4711 x=1").as_deref(),
            Some("127.0.0.1:4711")
        );
        assert_eq!(loopback_address("nothing here"), None);
    }
}
