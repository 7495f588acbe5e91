//! JSON as Go reads and writes it.

use minijinja::{Error, Value};
use serde_json::Value as Json;

use super::{
    super::{allocation_limit::MeteredText, go_json::push_string},
    data::is_omitted_if_empty,
    print::shortest,
    value::{Element, Kind, List, Map, kind},
};

/// The layout of JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// On one line, with `<`, `>` and `&` escaped.
    Compact,
    /// On one line, without these escapes.
    Raw,
    /// Indented by two spaces, with `<`, `>` and `&` escaped.
    Pretty,
}

/// Parses JSON. Every number becomes a float.
pub(super) fn read(text: &str) -> Result<Value, String> {
    serde_json::from_str(text)
        .map(|json: Json| from_json(&json))
        .map_err(|error| format!("invalid JSON in line {}", error.line()))
}

fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::UNDEFINED,
        Json::Bool(is) => Value::from(*is),
        Json::Number(number) => Value::from(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => List::value(items.iter().map(from_json).collect()),
        Json::Object(entries) => Map::value(
            entries
                .iter()
                .map(|(key, value)| (key.clone(), from_json(value)))
                .collect(),
        ),
    }
}

/// The reason why a value cannot be written as JSON.
pub(super) enum NoJson {
    /// A number that JSON cannot represent.
    NoNumber,
    /// An empty list or map. Only Go knows whether it is empty or does not exist.
    Unknown,
    /// The render ran out of bytes.
    Spent(Error),
}

impl From<Error> for NoJson {
    fn from(error: Error) -> Self {
        Self::Spent(error)
    }
}

/// Writes a value as JSON.
pub(super) fn write(value: &Value, style: Style) -> Result<String, NoJson> {
    let mut out = MeteredText::default();
    push(&mut out, value, (style, 0))?;
    Ok(out.into_string())
}

fn push(out: &mut MeteredText, value: &Value, at: (Style, usize)) -> Result<(), NoJson> {
    match kind(value) {
        Kind::Shown(typed, _) if typed.value.is_number() => push(out, &typed.value, at)?,
        Kind::Shown(_, shown) => push_text(out, shown, at.0)?,
        Kind::Invalid => out.push_str("null")?,
        Kind::Bool(is) => out.push_str(if is { "true" } else { "false" })?,
        Kind::Int(number) => out.push_str(&number.to_string())?,
        Kind::Float(number) if number.is_finite() => out.push_str(&float(number))?,
        Kind::Float(_) => return Err(NoJson::NoNumber),
        Kind::Text(text) => push_text(out, text, at.0)?,
        // Go distinguishes empty lists and maps from those that do not exist.
        Kind::List(list) if list.0.is_empty() && list.1 != "interface {}" => {
            return Err(NoJson::Unknown);
        }
        Kind::Map(map) if map.element != Element::Any && map.entries().is_empty() => {
            return Err(NoJson::Unknown);
        }
        Kind::List(list) => {
            let mut parts = Parts::new(out, at, ('[', ']'))?;
            for item in &list.0 {
                let inner = parts.next()?;
                push(parts.out, item, inner)?;
            }
            parts.end()?;
        }
        Kind::Map(map) => {
            let mut parts = Parts::new(out, at, ('{', '}'))?;
            for (key, value) in map.entries().iter() {
                parts.entry(key, value)?;
            }
            parts.end()?;
        }
        Kind::Struct(fields) if fields.field("String").is_some() => {
            push(out, fields.field("String").unwrap_or(&Value::UNDEFINED), at)?;
        }
        Kind::Struct(fields) => {
            let mut parts = Parts::new(out, at, ('{', '}'))?;
            for field in fields.data() {
                if !(is_omitted_if_empty(field.json) && is_empty_text(&field.value)) {
                    parts.entry(field.json, &field.value)?;
                }
            }
            parts.end()?;
        }
        Kind::Pointer(pointer) => match &pointer.target {
            Some(target) if is_empty_map(target) => out.push_str("{}")?,
            Some(target) => push(out, target, at)?,
            None => out.push_str("null")?,
        },
    }
    Ok(())
}

fn is_empty_map(value: &Value) -> bool {
    matches!(kind(value), Kind::Map(map) if map.entries().is_empty())
}

fn is_empty_text(value: &Value) -> bool {
    matches!(kind(value), Kind::Text(""))
}

/// A list or map that is being written.
struct Parts<'o> {
    out: &'o mut MeteredText,
    style: Style,
    depth: usize,
    close: char,
    is_empty: bool,
}

impl<'o> Parts<'o> {
    fn new(
        out: &'o mut MeteredText,
        (style, depth): (Style, usize),
        marks: (char, char),
    ) -> Result<Self, Error> {
        out.push(marks.0)?;
        Ok(Self {
            out,
            style,
            depth,
            close: marks.1,
            is_empty: true,
        })
    }

    /// Begins the next part, and returns its style and depth.
    fn next(&mut self) -> Result<(Style, usize), Error> {
        if !self.is_empty {
            self.out.push(',')?;
        }
        self.is_empty = false;
        self.line(self.depth + 1)?;
        Ok((self.style, self.depth + 1))
    }

    fn entry(&mut self, key: &str, value: &Value) -> Result<(), NoJson> {
        let inner = self.next()?;
        push_text(self.out, key, self.style)?;
        self.out.push(':')?;
        if self.style == Style::Pretty {
            self.out.push(' ')?;
        }
        push(self.out, value, inner)
    }

    fn end(&mut self) -> Result<(), Error> {
        if !self.is_empty {
            self.line(self.depth)?;
        }
        self.out.push(self.close)
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        if self.style == Style::Pretty {
            self.out.push('\n')?;
            self.out.push_repeated("  ", depth)?;
        }
        Ok(())
    }
}

fn push_text(out: &mut MeteredText, text: &str, style: Style) -> Result<(), Error> {
    let mut escaped = String::with_capacity(text.len() + 2);
    push_string(&mut escaped, text);
    // A `\u00` in the text itself is escaped as `\\u00`, which the replacements below would match.
    if style != Style::Raw || text.contains("\\u00") {
        return out.push_str(&escaped);
    }
    let raw = escaped
        .replace("\\u003c", "<")
        .replace("\\u003e", ">")
        .replace("\\u0026", "&");
    out.push_str(&raw)
}

/// Returns a float as Go's encoder writes it.
fn float(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        return shortest(number, i32::MIN).replace("e-0", "e-");
    }
    format!("{number}")
}
