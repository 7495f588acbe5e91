//! A component that cannot outlive this process. A shell stands between: it starts the component
//! and reads from a pipe whose other end only we hold. When that end closes – by `stop`, by a drop
//! in a panic, or by the system because we were killed – the shell kills the component.
//!
//! The kernel's own way (`PR_SET_PDEATHSIG`) is not used: it fires when the *thread* that started
//! the child ends, and tests start children from threads that come and go.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::components::Component;
use super::error::Error;

/// Enough to show why a component stopped, after the line that says that it does.
const LOG_TAIL_LINES: usize = 30;
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The pipe is moved to file 3, so that neither the component nor its log can hold it. The shell
/// ends with the component's own status, and never before the component is gone.
const SUPERVISOR: &str = r#"
exec 3<&0 </dev/null
"$@" 3<&- &
component=$!
{ read -r _ <&3; kill -KILL "$component"; } &
watcher=$!
exec 3<&-
wait "$component"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"#;

/// A running component; dropping it kills it and waits until it is gone.
pub(crate) struct Process {
    component: &'static str,
    log: PathBuf,
    supervisor: Child,
}

impl Process {
    #[expect(
        clippy::disallowed_methods,
        reason = "running programs is what this module is for; nothing of a tenant reaches it"
    )]
    pub(crate) fn spawn(binary: &Path, component: Component, folder: &Path) -> io::Result<Self> {
        let log = folder.join(format!("{}.log", component.name));
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let supervisor = Command::new("/bin/sh")
            .arg("-c")
            .arg(SUPERVISOR)
            .arg(component.name)
            .arg(binary)
            .args(component.flags)
            // Neither a proxy nor a kubeconfig of the developer may reach a component.
            .env_clear()
            // A quarter of the API server's memory, for a tenth more of its CPU while it starts.
            .env("GOGC", "50")
            .current_dir(folder)
            // Its own group: ^C is for us, and we end the component in good order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self {
            component: component.name,
            log,
            supervisor,
        })
    }

    /// An error if the component has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.supervisor.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Error::Ended {
                component: self.component,
                status,
                log: self.log_tail(),
            }),
            Err(source) => Err(Error::Spawn {
                component: self.component,
                source,
            }),
        }
    }

    /// An error that says why the component is not ready.
    pub(super) fn not_ready(&self, reason: String) -> Error {
        Error::NotReady {
            component: self.component,
            reason,
            log: self.log_tail(),
        }
    }

    /// Kills the component and returns when it is gone, without blocking the thread.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        drop(self.supervisor.stdin.take());
        while self.ended()?.is_none() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.supervisor.try_wait().map_err(|source| Error::Spawn {
            component: self.component,
            source,
        })
    }

    fn log_tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<&str> = text.lines().rev().take(LOG_TAIL_LINES).collect();
        lines.reverse();
        lines.join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `wait` closes the pipe first. SIGKILL takes milliseconds, and the folder must not be
        // removed under a component that still writes to it.
        let _ = self.supervisor.wait();
    }
}
