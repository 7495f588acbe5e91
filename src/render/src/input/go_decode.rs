//! Decodes objects as Go's JSON decoder decodes them into structs: keys match in any case, the last
//! of two equal keys wins, and `null` leaves a field unchanged.

use std::fmt;

use serde_json::Value;

/// The reason why a value cannot be decoded. The value is not repeated, because it may be a
/// password.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// No field has this key.
    UnknownField(String),
    /// The value has another type than the field.
    Mismatch {
        /// The field; empty for the value as a whole.
        path: String,
        found: &'static str,
        expected: &'static str,
    },
}

impl DecodeError {
    /// Returns the error as that of the object that the field belongs to.
    pub(super) fn within(self, field: &str) -> Self {
        match self {
            Self::Mismatch {
                path,
                found,
                expected,
            } => Self::Mismatch {
                path: if path.is_empty() {
                    field.to_owned()
                } else {
                    format!("{field}.{path}")
                },
                found,
                expected,
            },
            unknown @ Self::UnknownField(_) => unknown,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField(key) => write!(formatter, "json: unknown field {key:?}"),
            Self::Mismatch {
                path,
                found,
                expected,
            } => {
                write!(formatter, "json: cannot unmarshal {found} into ")?;
                match path.as_str() {
                    "" => formatter.write_str(expected),
                    path => write!(formatter, "{path}, which is {expected}"),
                }
            }
        }
    }
}

/// How unknown keys are handled.
#[derive(Clone, Copy)]
pub(super) enum UnknownKeys {
    /// They are an error.
    Refused,
    /// They are skipped.
    Ignored,
}

/// Returns the fields that `value` sets, in their order, under their names in `known`.
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
                return Err(DecodeError::UnknownField(key.clone()));
            }
            (None, UnknownKeys::Ignored) => {}
        }
    }
    Ok(fields)
}

/// Sets a string.
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

/// Sets a Boolean.
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

/// Sets a list of strings.
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

fn mismatch(value: &Value, expected: &'static str) -> DecodeError {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    DecodeError::Mismatch {
        path: String::new(),
        found,
        expected,
    }
}

/// Returns true if the names are equal under Go's case folding. It folds two letters outside of
/// ASCII onto ASCII: the long s and the Kelvin sign.
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
