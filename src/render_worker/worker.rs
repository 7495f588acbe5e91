//! One worker, seen from the process that asks it.

use std::{borrow::Cow, io, path::Path, process::Stdio, time::Duration};

use serde_json::value::to_raw_value;
use tokio::{
    process::{Child, ChildStdin, ChildStdout, Command},
    task::spawn_blocking,
    time::timeout,
};

use super::{
    COMMAND, KEPT_BYTES_MAX, MEMORY_BYTES_MAX,
    pipe::{self, Part},
    task::{Outcome, PARTS, Render, Task, from_parts, json},
};
use crate::api::profile::OperatingSystemProfileSpec;
use crate::render::{Limits, RenderInput, recent::Recent};

/// How long a render may take in a worker, with the start of one and compiling included. The
/// engine's own limits end the worst template that was tried in a tenth of it; a machine that is
/// short of processors may need the rest.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Why a worker gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// It took too long.
    #[error(
        "the render took longer than {} s and was ended; nothing was changed",
        DEADLINE.as_secs()
    )]
    Late,
    /// It ended.
    #[error(
        "the render ended its process, as one does that takes more than {} MiB of memory; \
         nothing was changed",
        MEMORY_BYTES_MAX >> 20
    )]
    Died,
    /// There is none.
    #[error("no process can be started to render in")]
    NotStarted(#[source] io::Error),
}

/// One worker. Dropped, it is ended.
pub(super) struct Worker {
    /// Killed when it is dropped.
    process: Child,
    to: ChildStdin,
    from: ChildStdout,
    /// What the worker keeps, as it does: by the same rule, in the same order.
    profiles: Recent<String, ()>,
}

impl Worker {
    /// Starts one: it has no environment, and no file of ours but the pipes.
    pub(super) fn start(program: &Path) -> Result<Self, Stopped> {
        let started = Command::new(program)
            .arg(COMMAND)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut process = started.map_err(Stopped::NotStarted)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to, from) = pipes.ok_or(Stopped::Died)?;
        Ok(Self {
            process,
            to,
            from,
            profiles: Recent::new(KEPT_BYTES_MAX),
        })
    }

    /// Its process, unless that has ended.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Whether nobody has ended it meanwhile.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Whether it keeps a profile compiled.
    pub(super) fn has(&self, digest: &str) -> bool {
        self.profiles.get(&digest.to_owned()).is_some()
    }

    /// Asks for a render. A worker that gave no answer is good for nothing more.
    pub(super) async fn render(
        &mut self,
        input: &RenderInput<'_>,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        in_time(async {
            let mut render = Render::new(input, limits);
            if !self.has(&render.digest) {
                let profile = to_raw_value(input.profile.spec())?;
                let bytes = profile.get().len();
                self.profiles.put(render.digest.to_string(), (bytes, ()));
                render.profile = Some(profile);
            }
            let parts = self.ask(&Task::Render(render)).await?;
            // Up to some MiB of JSON: not on a thread that others wait for.
            let read = spawn_blocking(move || from_parts(parts));
            read.await.map_err(io::Error::other)?
        })
        .await
    }

    /// Asks what a linter says of a profile. As with [`Self::render`].
    pub(super) async fn remark(
        &mut self,
        name: &str,
        profile: &OperatingSystemProfileSpec,
    ) -> Result<Vec<String>, Stopped> {
        in_time(async {
            let (name, profile) = (name.into(), Cow::Borrowed(profile));
            let [remarks, ..] = self.ask(&Task::Remark { name, profile }).await?;
            Ok(serde_json::from_slice(&remarks)?)
        })
        .await
    }

    async fn ask(&mut self, task: &Task<'_>) -> io::Result<[Part; PARTS]> {
        let task = json(task)?;
        pipe::send(&mut self.to, &task).await?;
        Ok([
            pipe::receive(&mut self.from).await?,
            pipe::receive(&mut self.from).await?,
            pipe::receive(&mut self.from).await?,
        ])
    }
}

async fn in_time<T>(answer: impl Future<Output = io::Result<T>>) -> Result<T, Stopped> {
    match timeout(DEADLINE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Stopped::Died),
        Err(_) => Err(Stopped::Late),
    }
}
