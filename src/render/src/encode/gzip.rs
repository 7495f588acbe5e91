//! Compresses files in a document. A profile requests it with `encoding: gzip`.
//!
//! The same text gives the same bytes: the header contains no time, and the level is fixed.

use std::io::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, GzBuilder};

use super::MACHINE_NAME;
use crate::error::Half;

/// The placeholder of the machine's name in Ignition's data URLs, which machine-controller
/// replaces.
pub(super) const MACHINE_NAME_ESCAPED: &str = "%3CMACHINE_NAME%3E";

/// The level with the smallest result. A document is rendered once per change, and machines boot
/// from it many times.
pub(super) const LEVEL_SMALLEST: u32 = 9;

/// Compresses a text, and returns it in standard base64 on one line.
///
/// machine-controller replaces the placeholder of the machine's name in the text of the bootstrap
/// document. In a compressed file it would not find it, and nobody would notice. So such a file is
/// refused.
pub(super) fn gzip_base64(half: Half, text: &str) -> Result<String, &'static str> {
    let mut names = [MACHINE_NAME, MACHINE_NAME_ESCAPED].into_iter();
    if half == Half::Bootstrap && names.any(|name| text.contains(name)) {
        return Err(
            "it is compressed and holds the placeholder of the machine's name, which \
             machine-controller could not replace; take `encoding: gzip` away, or read \
             /etc/machine-name",
        );
    }
    Ok(STANDARD.encode(gzip(text.as_bytes(), LEVEL_SMALLEST)))
}

/// Compresses bytes.
pub fn gzip(bytes: &[u8], level: u32) -> Vec<u8> {
    let written = Vec::with_capacity(bytes.len() / 2);
    let mut encoder = GzBuilder::new().write(written, Compression::new(level));
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .expect("memory takes every write")
}
