//! What one render may take. Templates are written by users, and a mistake or a malicious template
//! must cost one refusal, not the process.

use serde::{Deserialize, Serialize};

/// Instructions that a profile's templates may run in one render. A default profile needs about ten
/// thousand for both of its halves; a loop over every mirror of a large site some thousand more.
/// Measured: 100,000 take at most 50 ms.
pub const FUEL: u64 = 100_000;

/// Bytes that one file may render to. No provider takes more than 256 KiB of user data, and a
/// provisioning document, which no provider sees, lives in a Secret, which etcd caps at 1.5 MiB.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Bytes of text and list entries that a profile's templates may make in one render, all added up
/// and none given back. Hundreds of times what a default profile makes; the worst template that was
/// tried took 33 MiB of memory with it.
pub const WORK_BYTES_MAX: usize = 16 << 20;

/// How deep macros and includes may nest: ten includes, or 25 macros. Bounds the native stack.
pub const RECURSION_MAX: usize = 100;

/// Bytes of one template's source. A Kubernetes object has 1.5 MiB for all of them together.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

/// What one render may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Instructions that a profile's templates may run in one render.
    pub fuel: u64,
    /// Bytes that one file may render to.
    pub output_bytes_max: usize,
    /// Bytes that a profile's templates may make in one render.
    pub work_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: FUEL,
            output_bytes_max: OUTPUT_BYTES_MAX,
            work_bytes_max: WORK_BYTES_MAX,
        }
    }
}
