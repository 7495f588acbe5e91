//! Objects read the way Go's JSON decoder reads them into structs: keys match whatever their case,
//! the last of two equal keys wins, and `null` leaves a field as it is.

use serde_json::Value;

/// Why a value cannot be decoded.
pub(super) type DecodeError = String;

/// What happens to a key that no field has.
#[derive(Clone, Copy)]
pub(super) enum UnknownKeys {
    /// It is an error.
    Refused,
    /// It is skipped.
    Ignored,
}

/// The fields that `value` sets, in its own order, under the names that `known` gives them.
pub(super) fn fields<'v>(
    value: &'v Value,
    known: &'static [&'static str],
    unknown: UnknownKeys,
) -> Result<Vec<(&'static str, &'v Value)>, DecodeError> {
    let object = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Object(object) => object,
        other => return Err(mismatch(other, "an object")),
    };
    let mut fields = Vec::with_capacity(object.len());
    for (key, value) in object {
        let name = known
            .iter()
            .find(|name| *name == key)
            .or_else(|| known.iter().find(|name| is_folded_equal(name, key)));
        match (name, unknown) {
            (Some(name), _) => fields.push((*name, value)),
            (None, UnknownKeys::Refused) => {
                return Err(format!("json: unknown field {key:?}"));
            }
            (None, UnknownKeys::Ignored) => {}
        }
    }
    Ok(fields)
}

/// Sets a text.
pub(super) fn set_text(field: &mut String, value: &Value) -> Result<(), DecodeError> {
    match value {
        Value::Null => Ok(()),
        Value::String(text) => {
            field.clone_from(text);
            Ok(())
        }
        other => Err(mismatch(other, "a string")),
    }
}

/// Sets a truth value.
pub(super) fn set_flag(field: &mut bool, value: &Value) -> Result<(), DecodeError> {
    match value {
        Value::Null => Ok(()),
        Value::Bool(flag) => {
            *field = *flag;
            Ok(())
        }
        other => Err(mismatch(other, "a boolean")),
    }
}

/// Sets a list of texts.
pub(super) fn set_texts(field: &mut Vec<String>, value: &Value) -> Result<(), DecodeError> {
    field.clear();
    let items = match value {
        Value::Null => return Ok(()),
        Value::Array(items) => items,
        other => return Err(mismatch(other, "a list of strings")),
    };
    for item in items {
        let mut text = String::new();
        set_text(&mut text, item)?;
        field.push(text);
    }
    Ok(())
}

fn mismatch(value: &Value, expected: &str) -> DecodeError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {found} into {expected}")
}

/// Go folds two letters outside of ASCII onto ASCII: the long s and the Kelvin sign.
fn is_folded_equal(name: &str, key: &str) -> bool {
    let folded = key.chars().map(|character| match character {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    });
    name.chars()
        .map(|character| character.to_ascii_lowercase())
        .eq(folded)
}
