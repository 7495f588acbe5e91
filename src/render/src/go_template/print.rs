//! Prints values as Go does.

use std::borrow::Cow;

use minijinja::{Error, Value};

use super::{
    super::allocation_limit::{MeteredText, weigh},
    data::AGE,
    problem::refuse,
    value::{Kind, Pointer, kind, pointee},
};

/// The output where there is no value.
pub(super) const NO_VALUE: &str = "<no value>";
const NIL: &str = "<nil>";
/// The error for a pointer. Go prints its address in memory.
pub(super) const ADDRESS: &str = "a pointer, of which Go prints the address; use `default` or \
    `toJson` on it, or print it by itself";

/// Returns a value as an action prints it.
pub(super) fn printed(value: &Value) -> Result<Cow<'_, str>, Error> {
    match kind(value) {
        Kind::Text(text) => Ok(Cow::Borrowed(text)),
        Kind::Invalid => Ok(Cow::Borrowed(NO_VALUE)),
        Kind::Pointer(pointer) => match &pointer.target {
            Some(target) => Ok(Cow::Owned(printed(target)?.into_owned())),
            None => Ok(Cow::Borrowed(nil(&pointer))),
        },
        _ => Ok(Cow::Owned(formatted(value)?)),
    }
}

/// Returns a value as `%v` formats it.
pub(super) fn formatted(value: &Value) -> Result<String, Error> {
    let mut out = MeteredText::default();
    push_formatted(&mut out, value)?;
    Ok(out.into_string())
}

/// Appends a value as `%v` formats it. It is weighed first, which refuses values that are too deep.
pub(super) fn push_formatted(out: &mut MeteredText, value: &Value) -> Result<(), Error> {
    weigh(value)?;
    push(out, value, Depth::Top)
}

/// Returns a value as it is printed by functions that follow a pointer first.
pub(super) fn text_of(value: &Value) -> Result<String, Error> {
    formatted(&pointee(value))
}

/// Whether a value is formatted by itself or within another. Within another, Go follows no
/// pointers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Top,
    Inside,
}

fn push(out: &mut MeteredText, value: &Value, depth: Depth) -> Result<(), Error> {
    match kind(value) {
        Kind::Shown(_, shown) => out.push_str(shown)?,
        Kind::Invalid => out.push_str(NIL)?,
        Kind::Text(text) => out.push_str(text)?,
        Kind::Bool(value) => out.push_str(if value { "true" } else { "false" })?,
        Kind::Int(number) => out.push_str(&number.to_string())?,
        Kind::Float(number) => out.push_str(&float(number))?,
        Kind::List(list) => {
            out.push('[')?;
            for (index, item) in list.0.iter().enumerate() {
                if index > 0 {
                    out.push(' ')?;
                }
                push(out, item, Depth::Inside)?;
            }
            out.push(']')?;
        }
        Kind::Map(map) => {
            out.push_str("map[")?;
            for (index, (key, value)) in map.entries().iter().enumerate() {
                if index > 0 {
                    out.push(' ')?;
                }
                out.push_str(key)?;
                out.push(':')?;
                push(out, value, Depth::Inside)?;
            }
            out.push(']')?;
        }
        Kind::Struct(fields) => {
            // A value with a `String` method is printed by it.
            if let Some(text) = fields.field("String") {
                return push(out, text, depth);
            }
            if fields.data().next().is_none() {
                return Err(refuse("the data as a whole cannot be printed"));
            }
            out.push('{')?;
            for (index, field) in fields.data().enumerate() {
                if index > 0 {
                    out.push(' ')?;
                }
                push(out, &field.value, Depth::Inside)?;
            }
            out.push('}')?;
        }
        Kind::Pointer(pointer) => match &pointer.target {
            Some(target) => match kind(target) {
                Kind::Struct(fields) if fields.field("String").is_some() => {
                    push(out, target, depth)?;
                }
                Kind::Map(_) | Kind::Struct(_) | Kind::List(_) if depth == Depth::Top => {
                    out.push('&')?;
                    push(out, target, Depth::Inside)?;
                }
                _ => return Err(refuse(ADDRESS)),
            },
            None => out.push_str(nil(&pointer))?,
        },
    }
    Ok(())
}

/// Returns the output for a nil pointer. A pointer to a duration has a method that prints it.
pub(super) fn nil(pointer: &Pointer) -> &'static str {
    match pointer.type_name {
        AGE => "nil",
        _ => NIL,
    }
}

/// Returns a float as `%v` and `%g` format it: with the shortest digits that parse to the same
/// value.
pub(super) fn float(number: f64) -> String {
    shortest(number, 6)
}

/// Returns the shortest digits, with an exponent from `exponent_min` on.
pub(super) fn shortest(number: f64, exponent_min: i32) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN".to_owned()
        } else if number > 0.0 {
            "+Inf".to_owned()
        } else {
            "-Inf".to_owned()
        };
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if exponent < -4 || exponent >= exponent_min {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
    } else {
        format!("{number}")
    }
}

/// Concatenates the values, with a space between two values if neither is a string.
pub(super) fn sprint(values: &[Value]) -> Result<String, Error> {
    let mut out = MeteredText::default();
    let mut is_after_text = true;
    for (index, value) in values.iter().enumerate() {
        let is_text = matches!(kind(value), Kind::Text(_));
        if index > 0 && !is_text && !is_after_text {
            out.push(' ')?;
        }
        push_formatted(&mut out, value)?;
        is_after_text = is_text;
    }
    Ok(out.into_string())
}

/// Returns the values with spaces between them, and a line break.
pub(super) fn sprintln(values: &[Value]) -> Result<String, Error> {
    let mut out = MeteredText::default();
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(' ')?;
        }
        push_formatted(&mut out, value)?;
    }
    out.push('\n')?;
    Ok(out.into_string())
}
