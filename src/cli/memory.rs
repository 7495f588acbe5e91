//! Keeps secrets in the memory of this process from leaking: every tenant's kubeconfig, among
//! others.

use rlimit::Resource;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::output;

/// Forbids core dumps, and reading the memory as the same user. Must be called before any secret is
/// read.
///
/// The resource limit alone is not sufficient: if the kernel is configured to pipe core dumps to a
/// program, such as systemd-coredump, it does so regardless of the limit.
pub fn forbid_dumps() {
    let no_file = Resource::CORE.set(0, 0);
    let undumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(error) = no_file.and(undumpable.map_err(Into::into)) {
        output::note(&format!(
            "a crash may write this process' memory to a file: {error}"
        ));
    }
}
