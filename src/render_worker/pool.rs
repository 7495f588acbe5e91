//! A few workers for all tenants: started when somebody needs one, ended when nobody does.

use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    MEMORY_BYTES_MAX,
    slow::Slow,
    task::Outcome,
    worker::{Stopped, Worker},
};
use crate::api::profile::OperatingSystemProfileSpec;
use crate::fleet::permits::{Permit, Permits, Urgency};
use crate::render::{Limits, RenderError, RenderInput};
use crate::tenant::id::TenantId;

/// How many workers there are at most. With [`MEMORY_BYTES_MAX`] it is what they take at
/// worst, which the container's limit must have room for.
pub const WORKERS_MAX: usize = 2;
/// How long a worker waits to be needed again.
const REST: Duration = Duration::from_mins(1);

/// Workers that all tenants share in equal parts. Those whose renders have hit a limit lately share
/// one of them.
pub struct Pool {
    program: PathBuf,
    turns: Permits,
    turns_of_slow: Permits,
    slow: Slow,
    /// Those that wait to be needed, with since when; the last one rests for the shortest time.
    resting: Mutex<Vec<(Instant, Worker)>>,
    /// Rung when one begins to rest.
    rests: Notify,
}

/// A turn at a worker.
pub struct Turn<'a> {
    pool: &'a Pool,
    tenant: &'a TenantId,
    _permits: (Option<Permit>, Permit),
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "workers of {}", self.program.display())
    }
}

impl Pool {
    /// Bytes of memory that all workers take at worst.
    pub const BYTES_MAX: usize = WORKERS_MAX * MEMORY_BYTES_MAX;

    /// A pool of processes that run this program, which is our own.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            turns: Permits::new(WORKERS_MAX),
            turns_of_slow: Permits::new(1),
            slow: Slow::default(),
            resting: Mutex::default(),
            rests: Notify::new(),
        }
    }

    /// A pool of processes that run the program of this one, wherever it lies.
    pub fn of_this_program() -> Self {
        Self::new("/proc/self/exe")
    }

    /// Waits for a turn.
    pub async fn turn<'a>(&'a self, tenant: &'a TenantId, urgency: Urgency) -> Turn<'a> {
        let among_slow = if self.slow.has(tenant) {
            Some(self.turns_of_slow.take(tenant, urgency).await)
        } else {
            None
        };
        Turn {
            pool: self,
            tenant,
            _permits: (among_slow, self.turns.take(tenant, urgency).await),
        }
    }

    /// Says what a linter says of a profile that somebody is about to write, each a sentence.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub async fn remark(
        &self,
        tenant: &TenantId,
        (name, profile): (&str, &OperatingSystemProfileSpec),
    ) -> Result<Vec<String>, Stopped> {
        let _turn = self.turn(tenant, Urgency::Fresh).await;
        let mut worker = self.worker_with("")?;
        let remarks = worker.remark(name, profile).await;
        match &remarks {
            Ok(_) => self.rest(worker),
            Err(_) => self.slow.add(tenant),
        }
        remarks
    }

    /// The processes of those that wait to be needed.
    pub fn resting(&self) -> Vec<u32> {
        let resting = self.lock();
        resting
            .iter()
            .filter_map(|(_, worker)| worker.id())
            .collect()
    }

    /// Ends those that nobody has needed for a while.
    pub(super) async fn tidy(&self) {
        loop {
            let rested = self.rests.notified();
            let oldest = self.lock().first().map(|(since, _)| *since + REST);
            match oldest {
                None => rested.await,
                Some(until) => {
                    sleep_until(until).await;
                    let now = Instant::now();
                    self.lock().retain(|(since, _)| *since + REST > now);
                }
            }
        }
    }

    /// One that has the profile, if there is one; else any, else a new one.
    fn worker_with(&self, digest: &str) -> Result<Worker, Stopped> {
        let mut resting = self.lock();
        resting.retain_mut(|(_, worker)| worker.is_running());
        let known = resting.iter().rposition(|(_, worker)| worker.has(digest));
        let at = known.or(resting.len().checked_sub(1));
        let rested = at.map(|at| resting.remove(at).1);
        drop(resting);
        rested.map_or_else(|| Worker::start(&self.program), Ok)
    }

    fn rest(&self, worker: Worker) {
        self.lock().push((Instant::now(), worker));
        self.rests.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Worker)>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Renders, and judges the sizes.
    ///
    /// # Errors
    ///
    /// There is no answer, which says nothing of the documents that are there.
    pub async fn render(
        self,
        input: &RenderInput<'_>,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        let mut worker = self.pool.worker_with(input.profile.digest())?;
        let outcome = worker.render(input, limits).await;
        let has_hit_a_limit = match &outcome {
            Ok(outcome) => outcome.as_ref().is_err_and(RenderError::is_of_a_limit),
            Err(_) => true,
        };
        if has_hit_a_limit {
            self.pool.slow.add(self.tenant);
        }
        if outcome.is_ok() {
            self.pool.rest(worker);
        }
        outcome
    }
}
