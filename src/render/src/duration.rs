//! Durations in Go's notation, which kubelets and existing profiles use.

use std::fmt::Write;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, the micro sign
    ("μs", 1_000), // U+03BC, the Greek letter
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration in nanoseconds, within Go's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GoDuration(i64);

impl GoDuration {
    /// Creates a duration from nanoseconds.
    pub(super) const fn new(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the number of nanoseconds.
    pub(super) const fn nanoseconds(self) -> i64 {
        self.0
    }

    /// Parses a duration such as `1h30m` or `1.5s`. The error is Go's own text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (is_negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        let invalid = || format!("time: invalid duration {text:?}");
        if rest.is_empty() {
            return Err(invalid());
        }
        let magnitude = parse_magnitude(text, rest)?;
        let signed = if is_negative {
            0_i64.checked_sub_unsigned(magnitude)
        } else {
            i64::try_from(magnitude).ok()
        };
        signed.map(Self).ok_or_else(invalid)
    }
}

fn parse_magnitude(text: &str, mut rest: &str) -> Result<u64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (whole, after) = leading_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => leading_digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let unit_end = after
            .find(|character: char| character == '.' || character.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit_end).unwrap_or((after, ""));
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
        };
        total = amount(whole, fraction, *scale)
            .and_then(|amount| total.checked_add(amount))
            .filter(|total| *total <= 1 << 63)
            .ok_or_else(invalid)?;
        rest = after;
    }
    Ok(total)
}

fn leading_digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Returns `whole.fraction` times `scale`. Digits beyond a nanosecond are cut off.
fn amount(whole: &str, fraction: &str, scale: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut parts = 0_u128;
    let mut divisor = 1_u128;
    for digit in fraction.bytes().take(18) {
        parts = parts * 10 + u128::from(digit.saturating_sub(b'0'));
        divisor *= 10;
    }
    let fraction = u64::try_from(parts * u128::from(scale) / divisor).ok()?;
    whole.checked_mul(scale)?.checked_add(fraction)
}

impl std::fmt::Display for GoDuration {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanoseconds = self.0.unsigned_abs();
        if self.0 < 0 {
            formatter.write_char('-')?;
        }
        match nanoseconds {
            0 => formatter.write_str("0s"),
            1..1_000 => write!(formatter, "{nanoseconds}ns"),
            1_000..1_000_000 => write_decimal(formatter, nanoseconds, 1_000, "µs"),
            1_000_000..1_000_000_000 => write_decimal(formatter, nanoseconds, 1_000_000, "ms"),
            _ => {
                let seconds = nanoseconds / 1_000_000_000;
                let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
                if hours > 0 {
                    write!(formatter, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(formatter, "{minutes}m")?;
                }
                write_decimal(formatter, nanoseconds % 60_000_000_000, 1_000_000_000, "s")
            }
        }
    }
}

fn write_decimal(
    formatter: &mut std::fmt::Formatter<'_>,
    value: u64,
    scale: u64,
    unit: &str,
) -> std::fmt::Result {
    let width = usize::try_from(scale.ilog10()).unwrap_or_default();
    let fraction = format!("{:0width$}", value % scale);
    write!(formatter, "{}", value / scale)?;
    let fraction = fraction.trim_end_matches('0');
    if !fraction.is_empty() {
        write!(formatter, ".{fraction}")?;
    }
    formatter.write_str(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_go_prints_them() {
        let check = |text: &str, expected: &str| {
            assert_eq!(
                GoDuration::parse(text).unwrap().to_string(),
                expected,
                "{text}"
            );
        };
        check("2m", "2m0s");
        check("90s", "1m30s");
        check("1h", "1h0m0s");
        check("24h", "24h0m0s");
        check("0", "0s");
        check("1.5h", "1h30m0s");
        check("2h45m30.5s", "2h45m30.5s");
        check("1500ms", "1.5s");
        check("10us", "10µs");
        check("1.5ms", "1.5ms");
        check("7ns", "7ns");
        check("-1m", "-1m0s");
        check(".5s", "500ms");
    }

    #[test]
    fn what_go_refuses_is_refused_in_its_words() {
        let check = |text: &str, expected: &str| {
            assert_eq!(GoDuration::parse(text).unwrap_err(), expected);
        };
        check("", r#"time: invalid duration """#);
        check("x", r#"time: invalid duration "x""#);
        check("5", r#"time: missing unit in duration "5""#);
        check("1d", r#"time: unknown unit "d" in duration "1d""#);
        check("1h ", r#"time: unknown unit "h " in duration "1h ""#);
        check("999999999h", r#"time: invalid duration "999999999h""#);
    }
}
