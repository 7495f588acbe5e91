//! Estimates the maximum memory that a JSON text takes after it is parsed.

use memchr::{memchr, memchr2};

/// The size of a value in addition to its text, in any type into which we parse it.
const VALUE_BYTES: usize = 80;
/// The size of an object in addition to its values: a struct whose fields are all empty.
const OBJECT_BYTES: usize = 512;

/// Returns the weight in bytes, including the text itself.
pub fn of(text: &[u8]) -> usize {
    let (mut weight, mut rest) = (text.len(), text);
    // Alternates between text outside of strings and strings.
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

/// Returns the text after the string with which it begins.
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
