//! The values of the kubelet's settings, by the rules of `kubelet --config`: its validation of a
//! `KubeletConfiguration`, its parsers of reserved resources and of eviction thresholds, and
//! `resource.ParseQuantity`.
//!
//! Spaces around the parts of a value have no meaning, and are removed. Empty values stay empty.

use std::collections::BTreeMap;

use super::super::duration::GoDuration;

/// The resources that a kubelet can reserve.
const RESERVABLE: [&str; 4] = ["cpu", "ephemeral-storage", "memory", "pid"];

/// The signals that a kubelet can evict pods for.
const SIGNALS: [&str; 9] = [
    "allocatableMemory.available",
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
];

/// The suffixes of a quantity and what they multiply it with, besides exponents.
const SUFFIXES: [(&str, f64); 16] = [
    ("", 1.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("Ki", KI),
    ("Mi", KI * KI),
    ("Gi", KI * KI * KI),
    ("Ti", KI * KI * KI * KI),
    ("Pi", QUANTITY_MAX),
    ("Ei", QUANTITY_MAX * KI),
];
const KI: f64 = 1024.0;
/// The largest quantity, 1Pi: no machine has as much of anything, and kubelets count beyond 2^63
/// with other numbers than were written.
const QUANTITY_MAX: f64 = KI * KI * KI * KI * KI;
/// The longest text of a quantity, and the largest exponent. With longer ones, some readers do not
/// come to an end.
const QUANTITY_CHARACTERS_MAX: usize = 24;
const EXPONENT_MAX: u32 = 18;

/// Reads resources to reserve, such as `cpu=200m,memory=300Mi`.
pub(super) fn reserved(value: &str) -> Result<BTreeMap<String, String>, String> {
    pairs(value, ('=', "cpu=200m"), |resource, amount| {
        if !RESERVABLE.contains(&resource) {
            return Err(format!(
                "a kubelet cannot reserve {resource:?}, only {}",
                RESERVABLE.join(", ")
            ));
        }
        match quantity(amount) {
            None => Err(format!(
                "{resource}: {amount:?} is not a quantity such as 200m or 1Gi"
            )),
            Some(Sign::Negative) => Err(format!("{resource}: {amount} must not be negative")),
            Some(Sign::TooLarge) => Err(format!("{resource}: {amount} must be at most 1Pi")),
            Some(Sign::Zero | Sign::Positive) => Ok(()),
        }
    })
}

/// Reads eviction thresholds, such as `memory.available<100Mi,nodefs.available<10%`.
pub(super) fn thresholds(value: &str) -> Result<BTreeMap<String, String>, String> {
    pairs(value, ('<', "memory.available<100Mi"), |signal, amount| {
        if !SIGNALS.contains(&signal) {
            return Err(format!(
                "a kubelet has no eviction signal {signal:?}, only {}",
                SIGNALS.join(", ")
            ));
        }
        if amount.ends_with('%') {
            return match amount.trim_end_matches('%').parse::<f32>() {
                Err(_) => Err(format!("{signal}: {amount:?} is not a percentage")),
                Ok(percent) if !(0.0..=100.0).contains(&percent) => {
                    Err(format!("{signal}: {amount} must be between 0% and 100%"))
                }
                Ok(_) => Ok(()),
            };
        }
        match quantity(amount) {
            None => Err(format!(
                "{signal}: {amount:?} is neither a quantity such as 100Mi nor a percentage"
            )),
            Some(Sign::Negative | Sign::Zero) => {
                Err(format!("{signal}: {amount} must be positive"))
            }
            Some(Sign::TooLarge) => Err(format!("{signal}: {amount} must be at most 1Pi")),
            Some(Sign::Positive) => Ok(()),
        }
    })
}

/// Reads a list of pairs, and checks each. Of two pairs with one name, the last counts.
fn pairs(
    value: &str,
    (separator, example): (char, &str),
    check: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<BTreeMap<String, String>, String> {
    let mut pairs = BTreeMap::new();
    let items = value.split(',').map(str::trim);
    for item in items.filter(|item| !item.is_empty()) {
        let (name, amount) = item
            .split_once(separator)
            .map(|(name, amount)| (name.trim(), amount.trim()))
            .ok_or_else(|| format!("{item:?} is not a pair such as `{example}`"))?;
        check(name, amount)?;
        pairs.insert(name.to_owned(), amount.to_owned());
    }
    Ok(pairs)
}

/// Reads a whole number of 32 bits; the error for any other text is Go's own.
fn integer(field: &str, value: &str) -> Result<i32, String> {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let problem = if is_number {
        "value out of range"
    } else {
        "invalid syntax"
    };
    value
        .parse()
        .map_err(|_| format!("parsing {field}: strconv.ParseInt: parsing {value:?}: {problem}"))
}

/// Parses a number that must not be negative.
pub(super) fn non_negative_integer(field: &str, value: &str) -> Result<i32, String> {
    match integer(field, value)? {
        number @ ..0 => Err(format!("{number} must not be negative")),
        number => Ok(number),
    }
}

/// Reads a percentage without its sign.
pub(super) fn percent(field: &str, value: &str) -> Result<i32, String> {
    match integer(field, value)? {
        percent @ 0..=100 => Ok(percent),
        other => Err(format!("{other} must be between 0 and 100")),
    }
}

/// Reads a duration.
pub(super) fn non_negative_age(field: &str, value: &str) -> Result<GoDuration, String> {
    let age = GoDuration::parse(value).map_err(|reason| format!("parsing {field}: {reason}"))?;
    if age.nanoseconds() < 0 {
        return Err(format!("{age} must not be negative"));
    }
    Ok(age)
}

/// Reads the size of a log file. A negative one turns the rotation off.
pub(super) fn log_size(value: &str) -> Result<String, String> {
    match quantity(value) {
        None if !value.is_empty() => Err(format!("{value:?} is not a quantity such as 100Mi")),
        Some(Sign::TooLarge) => Err(format!("{value} must be at most 1Pi")),
        _ => Ok(value.to_owned()),
    }
}

/// Reads the number of log files.
pub(super) fn log_files(value: &str) -> Result<String, String> {
    if !value.is_empty() && integer("containerLogMaxFiles", value)? <= 1 {
        return Err(format!("{value} must be greater than 1"));
    }
    Ok(value.to_owned())
}

/// Whether a quantity is below, at or above zero, or larger than any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Negative,
    Zero,
    Positive,
    TooLarge,
}

/// Returns true for the text of a quantity of at most 1Pi.
pub(super) fn is_quantity(text: &str) -> bool {
    matches!(quantity(text), Some(sign) if sign != Sign::TooLarge)
}

/// Returns the sign of a quantity; `None` if the text is not one. As in Go, the digits may be
/// missing, which makes it zero.
fn quantity(text: &str) -> Option<Sign> {
    if text.is_empty() || text.len() > QUANTITY_CHARACTERS_MAX {
        return None;
    }
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let rest = unsigned.trim_start_matches(|it: char| it.is_ascii_digit());
    let suffix = rest.strip_prefix('.').map_or(rest, |fraction| {
        fraction.trim_start_matches(|it: char| it.is_ascii_digit())
    });
    let number = unsigned.strip_suffix(suffix)?;
    let mut known = SUFFIXES.iter();
    let multiplier = if let Some((_, known)) = known.find(|(known, _)| *known == suffix) {
        *known
    } else {
        let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        (exponent.unsigned_abs() <= EXPONENT_MAX).then(|| 10_f64.powi(exponent))?
    };
    if number.bytes().all(|byte| byte == b'0' || byte == b'.') {
        return Some(Sign::Zero);
    }
    let size = number.parse::<f64>().ok()? * multiplier;
    Some(match is_negative {
        true => Sign::Negative,
        false if size > QUANTITY_MAX => Sign::TooLarge,
        false => Sign::Positive,
    })
}

#[cfg(test)]
mod tests;
