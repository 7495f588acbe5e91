//! A root shell in a machine, by its second serial port: for what a test looks at and breaks.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// A command of an emulated machine takes its time.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Stands before and behind what a command prints, with its exit status in between.
const MARK: &str = "=====";

/// An open shell.
pub struct Shell {
    stream: UnixStream,
}

impl Shell {
    pub(super) async fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket)
            .await
            .context("connecting to the machine's shell")?;
        Ok(Self { stream })
    }

    /// Runs a command, and returns what it printed to both of its outputs.
    ///
    /// # Errors
    ///
    /// When it fails, or does not end within a minute.
    pub async fn run(&mut self, command: &str) -> anyhow::Result<String> {
        // The mark is written in two halves, so that the terminal's echo does not look like it.
        let (head, tail) = MARK.split_at(2);
        let line = format!(
            "stty -echo; export PAGER=cat SYSTEMD_COLORS=0; echo {head}''{tail}; ({command}) 2>&1; \
             echo {head}''{tail}$?{head}''{tail}\n"
        );
        self.stream
            .write_all(line.as_bytes())
            .await
            .context("writing to the machine's shell")?;
        let answer = tokio::time::timeout(TIMEOUT, self.answer())
            .await
            .with_context(|| format!("waiting for {command}"))??;
        let (output, status) = answer;
        if status != "0" {
            bail!("{command} failed with {status}:\n{output}");
        }
        Ok(output)
    }

    async fn answer(&mut self) -> anyhow::Result<(String, String)> {
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let count = self.stream.read(&mut buffer).await?;
            if count == 0 {
                bail!("the machine has ended");
            }
            said.extend(buffer.iter().take(count));
            let text = String::from_utf8_lossy(&said).replace('\r', "");
            let mut parts = text.split(MARK).skip(1);
            if let (Some(output), Some(status), Some(_)) =
                (parts.next(), parts.next(), parts.next())
            {
                return Ok((
                    output.trim_start_matches('\n').to_owned(),
                    status.to_owned(),
                ));
            }
        }
    }
}
