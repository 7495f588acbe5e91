//! Files that a document carries compressed: a profile asks for it with `encoding: gzip`.
//!
//! The same text gives the same bytes: there is no time in the header, and the level is fixed.

use std::io::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, GzBuilder};

use super::MACHINE_NAME;
use crate::render::error::Half;

/// The machine's name as machine-controller replaces it in Ignition's data URLs.
pub(super) const MACHINE_NAME_ESCAPED: &str = "%3CMACHINE_NAME%3E";

/// The smallest result: a render happens once per change, machines boot from it many times.
pub(super) const LEVEL_SMALLEST: u32 = 9;

/// The text, compressed and in standard base64 on one line.
///
/// machine-controller puts the machine's name into the text of the bootstrap document; in a
/// compressed file it would find no place for it, and nobody would notice.
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

/// Bytes, compressed.
pub fn gzip(bytes: &[u8], level: u32) -> Vec<u8> {
    let written = Vec::with_capacity(bytes.len() / 2);
    let mut encoder = GzBuilder::new().write(written, Compression::new(level));
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .expect("memory takes every write")
}
