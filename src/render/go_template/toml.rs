//! TOML as existing profiles know it from Go: keys of a table first, then its tables, each level
//! indented by two spaces.

use std::fmt::Write;

use minijinja::{Error, Value};

use super::{
    problem::refuse,
    value::{Kind, List, Map, kind, pointee},
};

/// The value that a text of TOML says.
pub(super) fn read(text: &str) -> Result<Value, String> {
    text.parse::<toml::Table>()
        .map(|table| from_table(&table))
        .map_err(|_| "toml: invalid document".to_owned())
}

fn from_table(table: &toml::Table) -> Value {
    Map::value(
        table
            .iter()
            .map(|(key, value)| (key.clone(), from_toml(value)))
            .collect(),
    )
}

fn from_toml(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => Value::from(*number),
        toml::Value::Boolean(is) => Value::from(*is),
        toml::Value::Datetime(time) => Value::from(time.to_string()),
        toml::Value::Array(items) => List::value(items.iter().map(from_toml).collect()),
        toml::Value::Table(table) => from_table(table),
    }
}

/// A map as a document; what cannot be written gives the error's text, as in Go.
pub(super) fn write(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match kind(value) {
        Kind::Map(_) => push_table(&mut out, &[], value)?,
        Kind::Invalid => out.push_str("toml: cannot encode array with nil element"),
        _ => return Err(refuse("only a map can be written as TOML")),
    }
    Ok(out)
}

fn is_table(value: &Value) -> bool {
    matches!(kind(&pointee(value)), Kind::Map(_))
}

fn is_table_array(value: &Value) -> bool {
    match kind(&pointee(value)) {
        Kind::List(list) => !list.0.is_empty() && list.0.iter().all(is_table),
        _ => false,
    }
}

fn push_table(out: &mut String, path: &[String], table: &Value) -> Result<(), Error> {
    let Kind::Map(map) = kind(table) else {
        return Ok(());
    };
    let entries = map.entries();
    let is_sub = |value: &Value| is_table(value) || is_table_array(value);
    let direct = entries.iter().filter(|(_, value)| !is_sub(value));
    for (key, value) in direct {
        if matches!(kind(value), Kind::Invalid) {
            continue;
        }
        out.push_str(&"  ".repeat(path.len()));
        out.push_str(&key_text(key));
        out.push_str(" = ");
        push_element(out, &pointee(value))?;
        out.push('\n');
    }
    for (key, value) in entries.iter().filter(|(_, value)| is_sub(value)) {
        let mut inner = path.to_vec();
        inner.push(key_text(key));
        let indent = "  ".repeat(path.len());
        let name = inner.join(".");
        let value = pointee(value);
        if let Kind::List(list) = kind(&value) {
            for item in &list.0 {
                push_break(out);
                let _ = writeln!(out, "{indent}[[{name}]]");
                push_table(out, &inner, &pointee(item))?;
            }
        } else {
            if path.is_empty() {
                push_break(out);
            }
            let _ = writeln!(out, "{indent}[{name}]");
            push_table(out, &inner, &value)?;
        }
    }
    Ok(())
}

fn push_break(out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
}

fn push_element(out: &mut String, value: &Value) -> Result<(), Error> {
    match kind(value) {
        Kind::Bool(is) => out.push_str(&is.to_string()),
        Kind::Int(number) => out.push_str(&number.to_string()),
        Kind::Float(number) => out.push_str(&float(number)),
        Kind::Text(text) => out.push_str(&quoted(text)),
        Kind::List(list) => {
            out.push('[');
            for (index, item) in list.0.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                push_element(out, &pointee(item))?;
            }
            out.push(']');
        }
        Kind::Map(map) => {
            out.push('{');
            let entries = map.entries();
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                out.push_str(&key_text(key));
                out.push_str(" = ");
                push_element(out, &pointee(value))?;
            }
            out.push('}');
        }
        Kind::Invalid => return Err(refuse("cannot encode array with nil element")),
        Kind::Struct(_) | Kind::Pointer(_) => {
            return Err(refuse("a value of this kind cannot be written as TOML"));
        }
    }
    Ok(())
}

fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = number.to_string();
    if text.contains('.') {
        text
    } else {
        format!("{text}.0")
    }
}

fn key_text(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        key.to_owned()
    } else {
        quoted(key)
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str(r"\\"),
            '\x08' => out.push_str(r"\b"),
            '\t' => out.push_str(r"\t"),
            '\n' => out.push_str(r"\n"),
            '\x0c' => out.push_str(r"\f"),
            '\r' => out.push_str(r"\r"),
            other if other < ' ' || other == '\x7f' => {
                let _ = write!(out, "\\u{:04x}", u32::from(other));
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
