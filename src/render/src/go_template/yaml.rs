//! Reads and writes YAML as existing profiles know it from Go: an indentation of four spaces,
//! sorted keys, and a reader for which `yes` is a string and `0644` a number.

mod reader;
mod scalars;
mod writer;

pub(super) use reader::read;
pub use scalars::key_as_read;
pub(super) use writer::write;
