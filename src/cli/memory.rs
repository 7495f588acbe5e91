//! Keeps what is in this process' memory inside of it: every tenant's kubeconfig, among others.

use rlimit::Resource;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::output;

/// Forbids core files, and reading the memory as the same user. To be called first, before anything
/// secret is read.
///
/// The limit alone would not do: a core goes to a program where the kernel has one set, such as
/// systemd-coredump, whatever the limit.
pub fn forbid_dumps() {
    let no_file = Resource::CORE.set(0, 0);
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(error) = no_file.and(undumpable.map_err(Into::into)) {
        output::note(&format!(
            "a crash may write this process' memory to a file: {error}"
        ));
    }
}
