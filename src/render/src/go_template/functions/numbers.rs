//! sprig's arithmetic.

use minijinja::{Error, Value};

use super::{
    super::{
        super::{allocation_limit::spend, duration::GoDuration},
        print::formatted,
        problem::refuse,
        value::{INT64, Kind, List, Typed, basic, kind, typed},
    },
    ANY, Function, function, int, missing, pointee, text,
    texts::first,
};

/// The weight of an entry of a list of numbers.
const NUMBER_BYTES: usize = 32;

pub(super) const TABLE: &[Function] = &[
    function("atoi", (1, 1), 1, |a| {
        Ok(Value::from(
            text(first(a)?)?.parse::<i64>().unwrap_or_default(),
        ))
    }),
    function("int", (1, 1), 1, |a| Ok(Value::from(to_int(first(a)?)))),
    function("int64", (1, 1), 1, |a| Ok(int64(to_int(first(a)?)))),
    function("float64", (1, 1), 1, |a| {
        Ok(Value::from(to_float(first(a)?)))
    }),
    function("toDecimal", (1, 1), 1, |a| {
        let text = formatted(first(a)?)?;
        Ok(int64(i64::from_str_radix(&text, 8).unwrap_or_default()))
    }),
    function("seq", (0, ANY), 1, seq),
    function("until", (1, 1), 1, |a| {
        let end = int(first(a)?)?;
        numbers(0, end, if end < 0 { -1 } else { 1 }).map(listed)
    }),
    function("untilStep", (3, 3), 1, |a| match a {
        [start, stop, step] => numbers(int(start)?, int(stop)?, int(step)?).map(listed),
        _ => Err(missing()),
    }),
    function("add1", (1, 1), 1, |a| {
        Ok(int64(to_int(first(a)?).wrapping_add(1)))
    }),
    function("add", (0, ANY), 1, |a| Ok(fold(0, a, i64::wrapping_add))),
    function("sub", (2, 2), 1, |a| fold_first(a, i64::wrapping_sub)),
    function("mul", (1, ANY), 1, |a| fold_first(a, i64::wrapping_mul)),
    function("div", (2, 2), 1, |a| divided(a, i64::wrapping_div)),
    function("mod", (2, 2), 1, |a| divided(a, i64::wrapping_rem)),
    function("max", (1, ANY), 1, |a| fold_first(a, i64::max)),
    function("biggest", (1, ANY), 1, |a| fold_first(a, i64::max)),
    function("min", (1, ANY), 1, |a| fold_first(a, i64::min)),
    function("maxf", (1, ANY), 1, |a| fold_float(a, f64::max)),
    function("minf", (1, ANY), 1, |a| fold_float(a, f64::min)),
    function("ceil", (1, 1), 1, |a| {
        Ok(Value::from(to_float(first(a)?).ceil()))
    }),
    function("floor", (1, 1), 1, |a| {
        Ok(Value::from(to_float(first(a)?).floor()))
    }),
    function("round", (2, 3), 1, round),
    function("duration", (1, 1), 1, duration),
    function("durationRound", (1, 1), 1, duration_round),
];

fn int64(number: i64) -> Value {
    Typed::number(INT64, number)
}

/// Returns a value, or what a pointer leads to, as an integer. Other values are 0.
pub(super) fn to_int(value: &Value) -> i64 {
    match basic(&pointee(value)) {
        Kind::Int(number) => number,
        #[expect(clippy::cast_possible_truncation, reason = "as Go does it")]
        Kind::Float(number) => number as i64,
        Kind::Bool(is) => i64::from(is),
        Kind::Text(text) => parse_int(text).unwrap_or_default(),
        _ => 0,
    }
}

/// Parses an integer in the base that its prefix specifies. The fraction is dropped.
fn parse_int(text: &str) -> Option<i64> {
    let text = without_fraction(text);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..)?),
        Some("0o") => (8, lower.get(2..)?),
        Some("0b") => (2, lower.get(2..)?),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    let is_number = digits.starts_with(|first: char| first.is_ascii_alphanumeric());
    let magnitude = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    is_number
        .then(|| i64::try_from(magnitude * sign).ok())
        .flatten()
}

/// Returns a decimal number without its fraction, and any other text unchanged.
fn without_fraction(text: &str) -> &str {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match (text.split_once('.'), digits.split_once('.')) {
        (Some((whole, _)), Some((digits, fraction)))
            if is_digits(digits) && is_digits(fraction) && !digits.is_empty() =>
        {
            whole
        }
        _ => text,
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns a value, or what a pointer leads to, as a float. Other values are 0.
pub(super) fn to_float(value: &Value) -> f64 {
    match basic(&pointee(value)) {
        #[expect(clippy::cast_precision_loss, reason = "as Go does it")]
        Kind::Int(number) => number as f64,
        Kind::Float(number) => number,
        Kind::Bool(is) => f64::from(u8::from(is)),
        Kind::Text(text) => text.parse().unwrap_or_default(),
        _ => 0.0,
    }
}

fn fold(start: i64, items: &[Value], step: fn(i64, i64) -> i64) -> Value {
    int64(items.iter().map(to_int).fold(start, step))
}

fn fold_first(items: &[Value], step: fn(i64, i64) -> i64) -> Result<Value, Error> {
    let (start, rest) = items.split_first().ok_or_else(missing)?;
    Ok(fold(to_int(start), rest, step))
}

fn divided(arguments: &[Value], step: fn(i64, i64) -> i64) -> Result<Value, Error> {
    match arguments {
        [_, divisor] if to_int(divisor) == 0 => Err(refuse("division by zero")),
        _ => fold_first(arguments, step),
    }
}

fn fold_float(items: &[Value], step: fn(f64, f64) -> f64) -> Result<Value, Error> {
    let (start, rest) = items.split_first().ok_or_else(missing)?;
    Ok(Value::from(
        rest.iter().map(to_float).fold(to_float(start), step),
    ))
}

fn round(arguments: &[Value]) -> Result<Value, Error> {
    let (number, places) = match arguments {
        [number, places, ..] => (to_float(number), int(places)?),
        _ => return Err(missing()),
    };
    let half = match arguments.get(2) {
        None => 0.5,
        Some(half) => match kind(half) {
            Kind::Float(_) | Kind::Int(_) if typed(half).is_none() => to_float(half),
            _ => return Err(refuse("wrong type for value; expected float64")),
        },
    };
    let power = 10_f64.powi(i32::try_from(places).unwrap_or(i32::MAX));
    let digit = power * number;
    let rounded = if digit.fract() >= half {
        digit.ceil()
    } else {
        digit.floor()
    };
    Ok(Value::from(rounded / power))
}

/// Returns the numbers from a start up to, but not including, a stop.
fn numbers(from: i64, until: i64, step: i64) -> Result<Vec<i64>, Error> {
    let is_wrong = if until < from { step >= 0 } else { step <= 0 };
    if is_wrong {
        return Ok(Vec::new());
    }
    let count = until.abs_diff(from).div_ceil(step.unsigned_abs());
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    spend(count.saturating_mul(NUMBER_BYTES))?;
    let mut numbers = Vec::with_capacity(count);
    let mut next = from;
    for _ in 0..count {
        numbers.push(next);
        next = next.saturating_add(step);
    }
    Ok(numbers)
}

fn listed(numbers: Vec<i64>) -> Value {
    List::of("int", numbers.into_iter().map(Value::from).collect())
}

fn seq(arguments: &[Value]) -> Result<Value, Error> {
    let bounds: Vec<i64> = arguments.iter().map(int).collect::<Result<_, _>>()?;
    let direction = |start: i64, end: i64| if end < start { -1 } else { 1 };
    let (start, end, step) = match bounds.as_slice() {
        [end] => (1, *end, direction(1, *end)),
        [start, end] => (*start, *end, direction(*start, *end)),
        [start, step, end] if end < start && *step > 0 => return Ok(Value::from("")),
        [start, step, end] => (*start, *end, *step),
        _ => return Ok(Value::from("")),
    };
    let behind = end.saturating_add(direction(start, end));
    let texts: Vec<String> = numbers(start, behind, step)?
        .iter()
        .map(ToString::to_string)
        .collect();
    Ok(Value::from(texts.join(" ")))
}

fn duration(arguments: &[Value]) -> Result<Value, Error> {
    let value = first(arguments)?;
    let seconds = match kind(value) {
        Kind::Text(text) if value.as_str().is_some() => text.parse().unwrap_or_default(),
        Kind::Int(seconds) if typed(value).is_none_or(|typed| typed.type_name == INT64) => seconds,
        _ => 0_i64,
    };
    let nanoseconds = seconds.wrapping_mul(1_000_000_000);
    Ok(Value::from(GoDuration::new(nanoseconds).to_string()))
}

fn duration_round(arguments: &[Value]) -> Result<Value, Error> {
    let value = first(arguments)?;
    let of_type = typed(value).map(|typed| typed.type_name);
    let nanoseconds = match (basic(value), of_type) {
        (Kind::Text(text), None) => GoDuration::parse(text).map_or(0, GoDuration::nanoseconds),
        (Kind::Int(nanoseconds), Some(INT64 | "time.Duration")) => nanoseconds,
        _ => 0,
    };
    let size = nanoseconds.unsigned_abs();
    let units: [(u64, &str); 6] = [
        (31_536_000, "y"),
        (2_592_000, "mo"),
        (86_400, "d"),
        (3_600, "h"),
        (60, "m"),
        (1, "s"),
    ];
    let found = units.iter().find_map(|(seconds, name)| {
        let unit = seconds * 1_000_000_000;
        (size > unit).then(|| format!("{}{name}", size / unit))
    });
    Ok(Value::from(found.unwrap_or_else(|| "0s".to_owned())))
}
