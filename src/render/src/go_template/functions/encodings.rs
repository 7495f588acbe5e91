//! sprig's encodings and digests.

use base64::{Engine, engine::general_purpose::STANDARD};
use minijinja::{Error, Value};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::{
    Function, function, refuse,
    texts::{one, texts},
};

pub(super) const TABLE: &[Function] = &[
    function("b64enc", (1, 1), 2, |a| {
        one(a, |text| STANDARD.encode(text))
    }),
    function("b64dec", (1, 1), 1, |a| {
        let [text] = texts(a)?;
        match STANDARD.decode(text.replace(['\n', '\r'], "")) {
            Ok(bytes) => utf8(bytes),
            // Go renders the error message.
            Err(_) => Err(refuse("illegal base64 data")),
        }
    }),
    function("b32enc", (1, 1), 2, |a| one(a, base32)),
    function("b32dec", (1, 1), 1, |a| {
        let [text] = texts(a)?;
        match from_base32(&text) {
            Some(bytes) => utf8(bytes),
            None => Err(refuse("illegal base32 data")),
        }
    }),
    function("sha1sum", (1, 1), 4, |a| {
        one(a, |text| hex::encode(Sha1::digest(text)))
    }),
    function("sha256sum", (1, 1), 4, |a| {
        one(a, |text| hex::encode(Sha256::digest(text)))
    }),
    function("sha512sum", (1, 1), 4, |a| {
        one(a, |text| hex::encode(Sha512::digest(text)))
    }),
    function("adler32sum", (1, 1), 1, |a| {
        one(a, |text| adler32(text).to_string())
    }),
];

fn utf8(bytes: Vec<u8>) -> Result<Value, Error> {
    String::from_utf8(bytes)
        .map(Value::from)
        .map_err(|_| refuse("the decoded bytes are not UTF-8"))
}

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for chunk in text.as_bytes().chunks(5) {
        let mut bits = 0_u64;
        for index in 0..5 {
            bits = bits << 8 | u64::from(chunk.get(index).copied().unwrap_or_default());
        }
        let letters = (chunk.len() * 8).div_ceil(5);
        for index in 0..8 {
            let letter = usize::try_from(bits >> (35 - 5 * index) & 31).unwrap_or_default();
            let letter = BASE32.get(letter).copied().unwrap_or(b'=');
            out.push(if index < letters {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    out
}

fn from_base32(text: &str) -> Option<Vec<u8>> {
    let text = text.replace(['\n', '\r'], "");
    let letters = text.trim_end_matches('=');
    if !text.len().is_multiple_of(8) || text.len() - letters.len() > 6 {
        return None;
    }
    let (mut bits, mut count) = (0_u32, 0);
    let mut bytes = Vec::with_capacity(letters.len());
    for letter in letters.bytes() {
        let value = BASE32.iter().position(|known| *known == letter)?;
        bits = bits << 5 | u32::try_from(value).ok()?;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

fn adler32(text: &str) -> u32 {
    const MODULUS: u32 = 65_521;
    let (low, high) = text.bytes().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}
