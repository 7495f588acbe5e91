//! Parses numbers, characters and strings as Go writes them.

use super::super::{
    lexer::{Kind, Token},
    tree::Word,
};

/// Parses a string in double quotes or backquotes.
pub(super) fn text(token: Token<'_>) -> Result<String, String> {
    let inside = token.text.get(1..token.text.len() - 1).unwrap_or_default();
    if token.kind == Kind::RawQuoted {
        return Ok(inside.replace('\r', ""));
    }
    unquote(inside, '"').ok_or_else(|| "invalid syntax in a quoted string".to_owned())
}

/// Parses a character, whose value is its number.
pub(super) fn character(text: &str) -> Result<Word, String> {
    let inside = text.get(1..text.len() - 1).unwrap_or_default();
    let mut characters = unquote(inside, '\'').unwrap_or_default();
    match (characters.pop(), characters.is_empty()) {
        (Some(character), true) => Ok(Word::Int(i64::from(u32::from(character)))),
        _ => Err("malformed character constant".to_owned()),
    }
}

/// Parses a number: an integer in any base, or a float.
pub(super) fn number(text: &str) -> Result<Word, String> {
    let bad = || format!("bad number syntax: `{text}`");
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) if text.starts_with('-') => (-1, digits),
        Some(digits) => (1, digits),
        None => (1, text),
    };
    let lower = digits.to_ascii_lowercase();
    let is_hex = lower.starts_with("0x");
    let is_float = !is_hex && lower.contains(['.', 'e']) || is_hex && lower.contains(['.', 'p']);
    if lower.ends_with('i') && !is_hex {
        return Err("complex numbers are not supported".to_owned());
    }
    if is_float {
        if is_hex || lower.contains("inf") || lower.contains("nan") {
            return Err("hexadecimal floats are not supported".to_owned());
        }
        let value: f64 = lower.replace('_', "").parse().map_err(|_| bad())?;
        return Ok(Word::Float(value * f64::from(sign)));
    }
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..).unwrap_or_default()),
        Some("0o") => (8, lower.get(2..).unwrap_or_default()),
        Some("0b") => (2, lower.get(2..).unwrap_or_default()),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, lower.get(1..).unwrap_or_default()),
        _ => (10, lower.as_str()),
    };
    let magnitude = i128::from_str_radix(&digits.replace('_', ""), radix).map_err(|_| bad())?;
    i64::try_from(magnitude * i128::from(sign))
        .map(Word::Int)
        .map_err(|_| format!("integer overflow: `{text}`"))
}

/// Returns the text between quotes, unescaped.
pub(in crate::go_template) fn unquote(text: &str, quote: char) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            let mut buffer = [0; 4];
            bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
            continue;
        }
        let escaped = rest.next()?;
        let simple = match escaped {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(b'\n'),
            'r' => Some(b'\r'),
            't' => Some(b'\t'),
            'v' => Some(11),
            '\\' => Some(b'\\'),
            other if other == quote => Some(u8::try_from(other).ok()?),
            _ => None,
        };
        if let Some(byte) = simple {
            bytes.push(byte);
            continue;
        }
        let (radix, digits) = match escaped {
            'x' => (16, 2),
            'u' => (16, 4),
            'U' => (16, 8),
            '0'..='7' => (8, 3),
            _ => return None,
        };
        let mut number = 0;
        let first = (radix == 8).then_some(escaped);
        let more = digits - usize::from(first.is_some());
        for digit in first.into_iter().chain(rest.by_ref().take(more)) {
            number = number * radix + digit.to_digit(radix)?;
        }
        if matches!(escaped, 'u' | 'U') {
            let mut buffer = [0; 4];
            let character = char::from_u32(number)?;
            bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
        } else {
            bytes.push(u8::try_from(number).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}
