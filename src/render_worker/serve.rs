//! The main loop of a worker: reads tasks and writes answers until the pipe is closed.

use std::io::{self, Read, Write};

use rlimit::Resource;
use rustix::{
    process::nice,
    thread::set_no_new_privs,
    time::{ClockId, clock_gettime},
};

use super::{
    KEPT_BYTES_MAX, MEMORY_BYTES_MAX, pipe,
    task::{Outcome, Render, Task, alone, to_parts},
};
use crate::api::profile::OperatingSystemProfileSpec;
use crate::render::{recent::Recent, template::CompiledProfile};
use crate::rules::{admission::remarks_on, user_data::weigh};

/// The limit of address space, in bytes. Loose, because allocators reserve more than they use.
const ADDRESSES_BYTES_MAX: u64 = 8 << 30;
/// The CPU time of one task, in seconds. The pool's deadline expires sooner.
const TASK_SECONDS_MAX: u64 = 5;
/// How much lower a worker's CPU priority is than the manager's. At 10, the kernel gives a worker a
/// tenth of what it gives a manager that wants the same CPU.
const NICENESS: i32 = 10;

/// Serves tasks until the pipe is closed. Drops privileges and sets resource limits first.
///
/// # Errors
///
/// A resource limit cannot be set, the pipe fails, or a task cannot be decoded.
pub fn serve(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    confine()?;
    let mut profiles = Recent::new(KEPT_BYTES_MAX);
    while let Some(task) = pipe::read(from)? {
        let spent = u64::try_from(clock_gettime(ClockId::ProcessCPUTime).tv_sec);
        let until = spent.map_err(io::Error::other)? + TASK_SECONDS_MAX;
        let (_, most) = Resource::CPU.get()?;
        Resource::CPU.set(until.min(most), most)?;
        let task: Task<'_> = serde_json::from_slice(&task)?;
        let answer = match &task {
            Task::Render(task) => to_parts(rendered(task, &mut profiles)?)?,
            Task::Lint {
                name,
                profile,
                before,
            } => alone(&remarks_on(name, (before.as_deref(), profile)))?,
        };
        for part in answer {
            pipe::write(to, &part)?;
        }
        to.flush()?;
    }
    Ok(())
}

/// Limits this process irrevocably. Core dumps and ptrace are disabled for every command already.
fn confine() -> io::Result<()> {
    set_no_new_privs(true)?;
    nice(NICENESS)?;
    lower(Resource::DATA, MEMORY_BYTES_MAX as u64)?;
    lower(Resource::AS, ADDRESSES_BYTES_MAX)?;
    // Open files stay open, and no new ones can be opened.
    lower(Resource::NOFILE, 0)
}

/// Lowers a limit. A hard limit that is lower already stays.
fn lower(resource: Resource, to: u64) -> io::Result<()> {
    let (_, most) = resource.get()?;
    resource.set(to.min(most), to.min(most))
}

fn rendered(
    task: &Render<'_>,
    profiles: &mut Recent<String, CompiledProfile>,
) -> io::Result<Outcome> {
    if let Some(profile) = &task.profile {
        let spec: OperatingSystemProfileSpec = serde_json::from_str(profile.get())?;
        // It compiles: the parent compiled it before it sent it.
        let compiled = CompiledProfile::compile(&spec).map_err(io::Error::other)?;
        // A profile that changed on the way would render other bytes.
        if compiled.digest() != task.digest {
            return Err(io::ErrorKind::InvalidData.into());
        }
        profiles.put(task.digest.to_string(), (profile.get().len(), compiled));
    }
    let profile = profiles.get(&task.digest.to_string());
    let profile = profile.ok_or(io::ErrorKind::InvalidData)?;
    Ok(weigh(&task.input(profile), &task.limits))
}
