//! The message about a call that an API server refused.

use std::{error::Error, fmt::Display};

use crate::telemetry::chain::chain;

/// The remediation if rights are missing. Rights in a namespace are deleted together with it.
pub(crate) const GRANT: &str = "run `osm rbac worker | kubectl apply --server-side \
                                --force-conflicts -f -` in the worker cluster, which grants \
                                what the manager needs (somebody who deletes the namespace deletes \
                                the rights in it, too)";

/// Returns the message about what a missing right prevents. The remediation comes before the
/// server's error, because the end of a long condition message is cut off: a server that has just
/// started lists each role that it does not know yet.
pub fn denied(prevented: impl Display, cause: &(dyn Error + 'static)) -> String {
    format!("{prevented}; {GRANT}: {}", chain(cause))
}
