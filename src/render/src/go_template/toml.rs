//! Reads and writes TOML as existing profiles know it from Go. The keys of a table come first, then
//! its tables, and each level is indented by two spaces.

use std::fmt::Write;

use minijinja::{Error, Value};

use super::{
    super::allocation_limit::MeteredText,
    print,
    problem::refuse,
    value::{Element, Kind, List, Map, kind, pointee},
};

/// Parses a TOML document.
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

/// Writes a value as a document. A value that is not a table is written as it would be after a key.
pub(super) fn write(value: &Value) -> Result<String, Error> {
    let mut out = MeteredText::default();
    match kind(value) {
        _ if is_table(value) => push_table(&mut out, &[], value)?,
        // A nil pointer writes nothing.
        Kind::Pointer(_) => {}
        _ if holds_tables(value) => {
            return Err(refuse("a list of tables needs a key to be written as TOML"));
        }
        _ => push_element(&mut out, value)?,
    }
    Ok(out.into_string())
}

fn is_table(value: &Value) -> bool {
    match kind(&pointee(value)) {
        Kind::Map(_) => true,
        Kind::Struct(fields) => fields.data().next().is_some(),
        _ => false,
    }
}

/// Refuses an empty list or map whose existence is unknown. Go omits it if it does not exist, and
/// writes it if it is empty.
fn refuse_unknown(value: &Value) -> Result<(), Error> {
    let is_unknown = match kind(value) {
        Kind::List(list) => list.0.is_empty() && list.1 != "interface {}",
        Kind::Map(map) => map.element != Element::Any && map.entries().is_empty(),
        _ => false,
    };
    if is_unknown {
        return Err(refuse(
            "an empty list or map, which Go leaves out if it is not there",
        ));
    }
    Ok(())
}

fn holds_tables(value: &Value) -> bool {
    match kind(&pointee(value)) {
        Kind::List(list) => list
            .0
            .iter()
            .any(|item| is_table(item) || holds_tables(item)),
        _ => false,
    }
}

fn is_table_array(value: &Value) -> bool {
    match kind(&pointee(value)) {
        Kind::List(list) => !list.0.is_empty() && list.0.iter().all(is_table),
        _ => false,
    }
}

/// Returns the entries of a table: the sorted keys of a map, or the fields of a struct in their
/// order.
fn entries_of(table: &Value) -> Vec<(String, Value)> {
    match kind(table) {
        Kind::Map(map) => {
            let entries = map.entries();
            let entries = entries.iter();
            entries
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        }
        Kind::Struct(fields) => {
            let fields = fields.data();
            fields
                .map(|field| (field.name.to_owned(), field.value.clone()))
                .collect()
        }
        _ => Vec::new(),
    }
}

fn push_table(out: &mut MeteredText, path: &[String], table: &Value) -> Result<(), Error> {
    let entries = entries_of(&pointee(table));
    let is_sub = |value: &Value| is_table(value) || is_table_array(value);
    let direct = entries.iter().filter(|(_, value)| !is_sub(value));
    for (key, value) in direct {
        if matches!(kind(value), Kind::Invalid) {
            continue;
        }
        refuse_unknown(value)?;
        out.push_repeated("  ", path.len())?;
        out.push_str(&key_text(key))?;
        out.push_str(" = ")?;
        push_element(out, &pointee(value))?;
        out.push('\n')?;
    }
    for (key, value) in entries.iter().filter(|(_, value)| is_sub(value)) {
        let mut inner = path.to_vec();
        inner.push(key_text(key));
        refuse_unknown(value)?;
        let value = pointee(value);
        if let Kind::List(list) = kind(&value) {
            for item in &list.0 {
                push_break(out)?;
                push_name(out, &inner, ("[[", "]]"))?;
                push_table(out, &inner, item)?;
            }
        } else {
            if path.is_empty() {
                push_break(out)?;
            }
            push_name(out, &inner, ("[", "]"))?;
            push_table(out, &inner, &value)?;
        }
    }
    Ok(())
}

/// Writes the header of a table. It contains the names of all tables around it.
fn push_name(
    out: &mut MeteredText,
    path: &[String],
    (open, close): (&str, &str),
) -> Result<(), Error> {
    out.push_repeated("  ", path.len().saturating_sub(1))?;
    out.push_str(open)?;
    out.push_joined(path, ".")?;
    out.push_str(close)?;
    out.push('\n')
}

fn push_break(out: &mut MeteredText) -> Result<(), Error> {
    if !out.as_str().is_empty() {
        out.push('\n')?;
    }
    Ok(())
}

fn push_element(out: &mut MeteredText, value: &Value) -> Result<(), Error> {
    match kind(value) {
        Kind::Bool(is) => out.push_str(&is.to_string())?,
        Kind::Int(number) => out.push_str(&number.to_string())?,
        Kind::Float(number) => out.push_str(&float(number))?,
        Kind::Text(text) => out.push_str(&quoted(text))?,
        Kind::List(list) => {
            out.push('[')?;
            for (index, item) in list.0.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ")?;
                }
                push_element(out, &pointee(item))?;
            }
            out.push(']')?;
        }
        Kind::Map(_) => {
            out.push('{')?;
            for (index, (key, value)) in entries_of(value).iter().enumerate() {
                if index > 0 {
                    out.push_str(", ")?;
                }
                out.push_str(&key_text(key))?;
                out.push_str(" = ")?;
                push_element(out, &pointee(value))?;
            }
            out.push('}')?;
        }
        Kind::Struct(fields) if fields.data().next().is_none() => match fields.field("String") {
            Some(text) => push_element(out, text)?,
            None => return Err(refuse("a value of this kind cannot be written as TOML")),
        },
        Kind::Invalid => return Err(refuse("cannot encode array with nil element")),
        Kind::Shown(_, shown) => out.push_str(&quoted(shown))?,
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
    // A fraction is added to a number that has neither a fraction nor an exponent.
    let text = print::float(number);
    if text.contains(['.', 'e']) {
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
