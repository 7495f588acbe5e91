//! The parent's handle of one worker process.

use std::{borrow::Cow, io, path::Path, process::Stdio, time::Duration};

use close_fds::set_fds_cloexec_threadsafe;
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
use crate::render::{Limits, RenderInput, recent::Recent};
use crate::rules::admission::Written;

/// The deadline of one render, including compilation. The engine's own limits stop the most
/// expensive template in `tests/hostile` after a tenth of it; the rest is headroom for a
/// throttled CPU.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// jemalloc's settings of a worker: its only variable, which another allocator ignores. No second
/// thread. The limit counts what is reserved, so that what is freed of 256 KiB and more is returned
/// at once, and the rest within a second: to return all at once made a render 1.3 times as long.
pub const ALLOCATOR_SETTINGS: (&str, &str) = (
    "_RJEM_MALLOC_CONF",
    "background_thread:false,narenas:1,retain:false,oversize_threshold:262144,dirty_decay_ms:1000",
);

/// The first file descriptor after standard input, output and error.
const FIRST_INHERITED: i32 = 3;

/// Why a worker returned no answer.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The deadline expired, and the worker was killed.
    #[error(
        "the render took longer than {} s and was ended; nothing was changed",
        .0.as_secs()
    )]
    TimedOut(Duration),
    /// The worker exited, most likely at its memory limit.
    #[error(
        "the render ended its process, as one does that takes more than {} MiB of memory; \
         nothing was changed",
        MEMORY_BYTES_MAX >> 20
    )]
    Exited,
    /// The worker could not be started.
    #[error("no process can be started to render in")]
    Spawn(#[source] io::Error),
}

/// A running worker. Dropping it kills the process.
pub(super) struct Worker {
    process: Child,
    to: ChildStdin,
    from: ChildStdout,
    /// Mirrors the profiles that the worker keeps: both sides evict by the same rule.
    profiles: Recent<String, ()>,
    deadline: Duration,
}

impl Worker {
    /// Starts a worker with the allocator's settings as its environment and no inherited files
    /// except its pipes.
    pub(super) fn start(program: &Path, deadline: Duration) -> Result<Self, WorkerError> {
        // Files that this process inherited from its parent are not close-on-exec yet.
        set_fds_cloexec_threadsafe(FIRST_INHERITED, &[]);
        let started = Command::new(program)
            .arg(COMMAND)
            .env_clear()
            .env(ALLOCATOR_SETTINGS.0, ALLOCATOR_SETTINGS.1)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut process = started.map_err(WorkerError::Spawn)?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to, from) = pipes.ok_or(WorkerError::Exited)?;
        Ok(Self {
            process,
            to,
            from,
            profiles: Recent::new(KEPT_BYTES_MAX),
            deadline,
        })
    }

    /// Returns the process id, or `None` after the process has been reaped.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Whether the process is still running.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Whether the worker keeps the profile with this digest compiled.
    pub(super) fn has(&self, digest: &str) -> bool {
        self.profiles.get(&digest.to_owned()).is_some()
    }

    /// Renders. After an error the worker must be dropped.
    pub(super) async fn render(
        &mut self,
        input: &RenderInput<'_>,
        limits: &Limits,
    ) -> Result<Outcome, WorkerError> {
        before(self.deadline, async {
            let mut render = Render::new(input, limits);
            if !self.has(&render.digest) {
                let profile = to_raw_value(input.profile.spec())?;
                let bytes = profile.get().len();
                self.profiles.put(render.digest.to_string(), (bytes, ()));
                render.profile = Some(profile);
            }
            let parts = self.request(&Task::Render(render)).await?;
            // Decoding megabytes of JSON would block other tasks.
            let decoded = spawn_blocking(move || from_parts(parts));
            decoded.await.map_err(io::Error::other)?
        })
        .await
    }

    /// Lints a profile. After an error the worker must be dropped.
    pub(super) async fn lint(&mut self, written: &Written) -> Result<Vec<String>, WorkerError> {
        before(self.deadline, async {
            let task = Task::Lint {
                name: Cow::Borrowed(&written.name),
                profile: Cow::Borrowed(&written.spec),
                before: written.before.as_ref().map(Cow::Borrowed),
            };
            let [findings, ..] = self.request(&task).await?;
            Ok(serde_json::from_slice(&findings)?)
        })
        .await
    }

    async fn request(&mut self, task: &Task<'_>) -> io::Result<[Part; PARTS]> {
        let task = json(task)?;
        pipe::send(&mut self.to, &task).await?;
        Ok([
            pipe::receive(&mut self.from).await?,
            pipe::receive(&mut self.from).await?,
            pipe::receive(&mut self.from).await?,
        ])
    }
}

async fn before<T>(
    deadline: Duration,
    answer: impl Future<Output = io::Result<T>>,
) -> Result<T, WorkerError> {
    match timeout(deadline, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(WorkerError::Exited),
        Err(_) => Err(WorkerError::TimedOut(deadline)),
    }
}
