//! A small pool of workers that all tenants share. Workers are started on demand and stopped when
//! idle.

use std::{fmt, path::PathBuf, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    MEMORY_BYTES_MAX,
    limit_hits::LimitHits,
    task::Outcome,
    worker::{DEADLINE, Worker, WorkerError},
};
use crate::client::permits::{Permit, Permits, Priority};
use crate::render::{Limits, RenderError, RenderInput};
use crate::rules::admission::Written;
use crate::tenant::id::TenantId;

/// The maximum number of workers. Multiplied by [`MEMORY_BYTES_MAX`], it must fit into the
/// container's memory limit.
pub const WORKERS_MAX: usize = 2;
/// How long a worker stays idle before it is stopped.
const IDLE_MAX: Duration = Duration::from_mins(1);

/// A pool of workers with a fair queue. Tenants whose renders recently hit a limit share one
/// worker.
pub struct Pool {
    program: PathBuf,
    /// Of one render.
    deadline: Duration,
    slots: Permits,
    slots_after_limit_hit: Permits,
    limit_hits: LimitHits,
    /// The idle workers and since when they are idle, longest first.
    idle: Mutex<Vec<(Instant, Worker)>>,
    /// Notified when a worker becomes idle.
    worker_released: Notify,
}

/// The right to use one worker. Dropping it lets the next tenant in.
pub struct Slot<'a> {
    pool: &'a Pool,
    tenant: &'a TenantId,
    _permits: (Option<Permit>, Permit),
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "pool of {}", self.program.display())
    }
}

impl Pool {
    /// The memory that all workers may use together, in bytes.
    pub const BYTES_MAX: usize = WORKERS_MAX * MEMORY_BYTES_MAX;

    /// Creates a pool whose workers run `program`, which must be this program.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            deadline: DEADLINE,
            slots: Permits::new(WORKERS_MAX),
            slots_after_limit_hit: Permits::new(1),
            limit_hits: LimitHits::default(),
            idle: Mutex::default(),
            worker_released: Notify::new(),
        }
    }

    /// Gives renders another deadline: a test of what templates come to must not depend on how busy
    /// its machine is.
    #[must_use]
    pub const fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Creates a pool whose workers run the executable of the current process.
    pub fn of_this_program() -> Self {
        Self::new("/proc/self/exe")
    }

    /// Waits for a slot. Tenants are served round-robin.
    pub async fn acquire<'a>(&'a self, tenant: &'a TenantId, priority: Priority) -> Slot<'a> {
        let after_limit_hit = if self.limit_hits.contains(tenant) {
            Some(self.slots_after_limit_hit.take(tenant, priority).await)
        } else {
            None
        };
        Slot {
            pool: self,
            tenant,
            _permits: (after_limit_hit, self.slots.take(tenant, priority).await),
        }
    }

    /// Lints a profile with sample renders, and returns one sentence per finding.
    ///
    /// # Errors
    ///
    /// The worker could not be started, exited or exceeded its deadline.
    pub async fn lint(
        &self,
        tenant: &TenantId,
        written: &Written,
    ) -> Result<Vec<String>, WorkerError> {
        let slot = self.acquire(tenant, Priority::High).await;
        let mut worker = self.worker_with("")?;
        let findings = worker.lint(written).await;
        slot.finish(worker, &findings, |_| false);
        findings
    }

    /// Returns the process ids of the idle workers.
    pub fn idle(&self) -> Vec<u32> {
        let idle = self.idle.lock();
        idle.iter().filter_map(|(_, worker)| worker.id()).collect()
    }

    /// Stops workers that have been idle for a minute, until cancelled.
    pub async fn stop_idle(&self) {
        loop {
            let released = self.worker_released.notified();
            let oldest = self.idle.lock().first().map(|(since, _)| *since + IDLE_MAX);
            match oldest {
                None => released.await,
                Some(until) => {
                    sleep_until(until).await;
                    let now = Instant::now();
                    self.idle
                        .lock()
                        .retain(|(since, _)| *since + IDLE_MAX > now);
                }
            }
        }
    }

    /// Returns an idle worker, if possible one that has the profile compiled, or starts a new one.
    fn worker_with(&self, digest: &str) -> Result<Worker, WorkerError> {
        let mut idle = self.idle.lock();
        idle.retain_mut(|(_, worker)| worker.is_running());
        let compiled = idle.iter().rposition(|(_, worker)| worker.has(digest));
        let at = compiled.or(idle.len().checked_sub(1));
        let reused = at.map(|at| idle.remove(at).1);
        drop(idle);
        reused.map_or_else(|| Worker::start(&self.program, self.deadline), Ok)
    }

    fn release(&self, worker: Worker) {
        self.idle.lock().push((Instant::now(), worker));
        self.worker_released.notify_one();
    }
}

impl Slot<'_> {
    /// Renders and checks the sizes of the documents.
    ///
    /// # Errors
    ///
    /// The worker could not be started, exited or exceeded its deadline. The caller must leave the
    /// existing documents unchanged.
    pub async fn render(
        self,
        input: &RenderInput<'_>,
        limits: &Limits,
    ) -> Result<Outcome, WorkerError> {
        let mut worker = self.pool.worker_with(input.profile.digest())?;
        let outcome = worker.render(input, limits).await;
        self.finish(worker, &outcome, |outcome| {
            outcome.as_ref().is_err_and(RenderError::is_of_a_limit)
        });
        outcome
    }

    /// Returns a worker that answered to the pool, and stops one that failed. Records a limit hit.
    fn finish<T>(
        &self,
        worker: Worker,
        answer: &Result<T, WorkerError>,
        is_limit_hit: impl Fn(&T) -> bool,
    ) {
        if answer.as_ref().map_or(true, is_limit_hit) {
            self.pool.limit_hits.record(self.tenant);
        }
        if answer.is_ok() {
            self.pool.release(worker);
        }
    }
}
