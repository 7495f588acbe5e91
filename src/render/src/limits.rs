//! The limits of a render. Templates are written by users, and a mistake or a malicious template
//! must cost one refusal, not the process.

use serde::{Deserialize, Serialize};

/// The maximum number of instructions that a profile's templates may run in one render, where 64
/// bytes that the engine writes, reads or creates count as one. Measured: a default profile needs
/// 1,400 for both of its halves, and 10,300 with 64 registries of 16 mirrors each and 54 KiB of
/// certificates.
pub const FUEL: u64 = 200_000;

/// The maximum size of a rendered file. No provider accepts more than 256 KiB of user data. A
/// provisioning document, which no provider sees, is stored in a Secret, and etcd limits it to 1.5
/// MiB.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// The maximum number of bytes of text and list entries that a profile's templates may create in
/// one render, all added up and none given back. This is hundreds of times what a default profile
/// creates. The worst template that was tried took 22 MiB of memory with it.
pub const WORK_BYTES_MAX: usize = 16 << 20;

/// The maximum depth of nested macros and includes: ten includes, or 25 macros. It limits the
/// native stack.
pub const RECURSION_MAX: usize = 100;

/// The maximum size of one template's source. A Kubernetes object has 1.5 MiB for all of them
/// together.
pub const SOURCE_BYTES_MAX: usize = 1 << 20;

/// The limits of one render.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The maximum number of instructions, where 64 bytes count as one.
    pub fuel: u64,
    /// The maximum size of a rendered file.
    pub output_bytes_max: usize,
    /// The maximum number of bytes that a profile's templates may create.
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
