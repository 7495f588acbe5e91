//! Resolves the type of a plain YAML scalar.

use super::super::print::shortest;

/// A plain scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// `<<`
    Merge,
    /// A date, which Go would not read as a string.
    Date,
    Text,
}

/// Returns the type of a plain scalar.
pub(super) fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        "<<" => return Scalar::Merge,
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Scalar::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return Scalar::Text;
    }
    if is_date(text) {
        return Scalar::Date;
    }
    let plain = text.replace('_', "");
    if let Some(number) = int(&plain) {
        return Scalar::Int(number);
    }
    if is_float(&plain)
        && let Ok(number) = plain.parse()
    {
        return Scalar::Float(number);
    }
    Scalar::Text
}

fn int(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, digits.get(2..)?),
        Some("0o" | "0O") => (8, digits.get(2..)?),
        Some("0b" | "0B") => (2, digits.get(2..)?),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, radix).ok()?;
    i64::try_from(magnitude * sign).ok()
}

/// Returns true for `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && is_digits(fraction),
        Some((whole, fraction)) => is_digits(whole) && is_digits(fraction),
        None => !mantissa.is_empty() && is_digits(mantissa),
    };
    let is_exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    is_mantissa && is_exponent
}

/// Returns true for a date such as `2001-12-14`, with or without a time of day, as `time.Parse` of
/// Go reads it.
fn is_date(text: &str) -> bool {
    let Some((date, rest)) = after(text, '-', [4, 2, 2]) else {
        return false;
    };
    let [year, month, day] = date;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    let has_year = text.find('-') == Some(4);
    has_year && (1..=days).contains(&day) && (rest.is_empty() || is_time(rest))
}

/// Returns true for `T21:59:43.10-05:00`, or for ` 21:59:43.10` without a zone.
fn is_time(text: &str) -> bool {
    let (time, has_zone) = match text.strip_prefix(['T', 't']) {
        Some(time) => (time, true),
        None => (text.trim_start_matches(' '), false),
    };
    if time == text {
        return false;
    }
    let Some(([hour, minute, second], rest)) = after(time, ':', [2; 3]) else {
        return false;
    };
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let fraction = rest.strip_prefix(['.', ',']).map_or(0, digits);
    let zone = match fraction {
        0 => rest,
        length => rest.get(1 + length..).unwrap_or_default(),
    };
    let is_offset = |zone: &str| {
        let parts = zone.strip_prefix(['+', '-']).filter(|it| it.len() == 5);
        let parts = parts.and_then(|it| after(it, ':', [2; 2]));
        parts
            .is_some_and(|([hours, minutes], rest)| rest.is_empty() && hours <= 24 && minutes <= 60)
    };
    let is_zone = if has_zone {
        zone == "Z" || is_offset(zone)
    } else {
        zone.is_empty()
    };
    hour < 24 && minute < 60 && second < 60 && is_zone
}

/// Reads numbers of at most this number of digits each, with a separator between them. Returns
/// what follows.
fn after<const N: usize>(
    text: &str,
    separator: char,
    digits: [usize; N],
) -> Option<([u32; N], &str)> {
    let mut numbers = [0; N];
    let mut rest = text;
    for (index, (number, most)) in numbers.iter_mut().zip(digits).enumerate() {
        if index > 0 {
            rest = rest.strip_prefix(separator)?;
        }
        let length = rest.bytes().take(most).take_while(u8::is_ascii_digit);
        let (read, after) = rest.split_at_checked(length.count())?;
        *number = read.parse().ok()?;
        rest = after;
    }
    Some((numbers, rest))
}

/// Returns true for words that older readers read as Booleans, and for numbers in base 60.
pub(super) fn is_old_style(text: &str) -> bool {
    old_bool(text).is_some() || is_base_60(text)
}

/// Returns what older readers make of a word.
fn old_bool(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Returns the key that kubectl makes of a plain one, if that is another text. It reads YAML as
/// before version 1.2, makes a text of what it has read, and keeps 24 bits of a fraction.
pub fn key_as_read(text: &str) -> Option<String> {
    let read = match (old_bool(text), resolve(text)) {
        (Some(is_true), _) | (None, Scalar::Bool(is_true)) => is_true.to_string(),
        (None, Scalar::Int(number)) => number.to_string(),
        (None, Scalar::Float(number)) if number.is_finite() => {
            let kept: f32 = text.replace('_', "").parse().ok()?;
            shortest(kept.to_string().parse().ok()?, 6)
        }
        _ => return None,
    };
    (read != text).then_some(read)
}

/// Returns true for `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`.
fn is_base_60(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (text, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'_')
    };
    let mut parts = text.split(':');
    let first = parts.next().unwrap_or_default();
    let mut rest = parts.peekable();
    first.starts_with(|start: char| start.is_ascii_digit())
        && is_digits(first)
        && is_digits(fraction)
        && rest.peek().is_some()
        && rest.all(|part| matches!(part.as_bytes(), [b'0'..=b'9'] | [b'0'..=b'5', b'0'..=b'9']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_key_becomes_the_text_of_what_kubectl_reads() {
        for (written, read) in [
            ("on", "true"),
            ("N", "false"),
            ("TRUE", "true"),
            ("010", "8"),
            ("08", "8"),
            ("0x10", "16"),
            ("1_000", "1000"),
            ("+1", "1"),
            ("-0", "0"),
            ("1e3", "1000"),
            ("1.0", "1"),
            ("1.50", "1.5"),
            (".5", "0.5"),
            ("1.5e10", "1.5e+10"),
            ("123456789.25", "1.2345679e+08"),
            ("99999999999999999999", "1e+20"),
        ] {
            assert_eq!(key_as_read(written).as_deref(), Some(read), "{written}");
        }
        for same in [
            "a",
            "true",
            "1",
            "-1",
            "1.5",
            "1:30",
            ".inf",
            "2001-01-01",
            "<<",
        ] {
            assert_eq!(key_as_read(same), None, "{same}");
        }
    }
}
