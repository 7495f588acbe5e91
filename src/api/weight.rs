//! What a JSON text takes at most once it is parsed.

use memchr::{memchr, memchr2};

/// What a value takes beside its text, in any type that we read it into.
const VALUE_BYTES: usize = 80;
/// What an object takes beside its values: a struct whose fields are all empty.
const OBJECT_BYTES: usize = 512;

/// In bytes, with the text itself.
pub fn of(text: &[u8]) -> usize {
    let (mut weight, mut rest) = (text.len(), text);
    // In turn what is in no string, and what is in one.
    while let Some((outside, string)) = memchr(b'"', rest).and_then(|at| rest.split_at_checked(at))
    {
        weight += outside.iter().copied().map(own).sum::<usize>();
        rest = after_string(string);
    }
    weight + rest.iter().copied().map(own).sum::<usize>()
}

fn own(byte: u8) -> usize {
    match byte {
        b',' | b'[' => VALUE_BYTES,
        b'{' => VALUE_BYTES + OBJECT_BYTES,
        _ => 0,
    }
}

/// What follows the string that a text begins with.
fn after_string(text: &[u8]) -> &[u8] {
    let mut rest = text.get(1..).unwrap_or_default();
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        let is_end = rest.get(at) == Some(&b'"');
        let after = at + if is_end { 1 } else { 2 };
        rest = rest.get(after..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}
