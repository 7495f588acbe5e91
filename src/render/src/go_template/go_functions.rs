//! Go's functions in Jinja templates, for profiles that were converted from Go's language.
//!
//! They are the same functions as in Go templates, named `go_…`. Only what Jinja's values lack is
//! converted: `go_data` returns a variable of the data as Go knows it, with its pointers and
//! structs. Nil is `none` in Jinja, because undefined values are errors there.

use std::collections::BTreeMap;

use minijinja::{
    Environment, Error, Value,
    value::{Rest, ValueKind},
};

use super::{
    super::allocation_limit::{spend, weigh},
    data, functions, jinja, print,
    problem::refuse,
    second_pass::body_of,
    value::{Kind, List, Map, kind, typed},
};

/// The prefix of their names.
pub(crate) const PREFIX: &str = "go_";

/// Adds everything that a converted template may call.
pub(crate) fn add_to(environment: &mut Environment<'static>) {
    for function in functions::all() {
        let name = format!("{PREFIX}{}", function.name());
        environment.add_function(name, move |arguments: Rest<Value>| {
            let arguments: Result<Vec<Value>, Error> = arguments.iter().map(taken).collect();
            function.call(&arguments?).map(handed_out)
        });
    }
    environment.add_function("go_data", variable);
    environment.add_function("go_field", field);
    environment.add_function("go_no_field", functions::no_field);
    environment.add_function("go_items", items);
    environment.add_function("go_pairs", pairs);
    environment.add_function("go_text", text);
    environment.add_filter(jinja::NAMED, named);
}

/// Returns an argument as Go knows it. Jinja's own lists and maps are copied. Otherwise a namespace
/// in a map could come to contain itself, and would never be freed.
fn taken(value: &Value) -> Result<Value, Error> {
    weigh(value)?;
    copied(value)
}

fn copied(value: &Value) -> Result<Value, Error> {
    match kind(value) {
        Kind::Invalid => {}
        _ => return Ok(value.clone()),
    }
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => Ok(Value::UNDEFINED),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Result<Vec<Value>, Error> =
                value.try_iter()?.map(|item| copied(&item)).collect();
            Ok(List::value(items?))
        }
        ValueKind::Map => {
            let mut entries = BTreeMap::new();
            for key in value.try_iter()? {
                let name = key.as_str().ok_or_else(unknown)?.to_owned();
                entries.insert(name, copied(&value.get_item(&key)?)?);
            }
            Ok(Map::value(entries))
        }
        _ => Err(unknown()),
    }
}

fn unknown() -> Error {
    refuse("a value that Go does not have")
}

/// Returns a result as Jinja knows it.
fn handed_out(value: Value) -> Value {
    match typed(&value) {
        Some(typed) if typed.shown.is_none() => typed.value.clone(),
        _ if value.is_undefined() => Value::from(()),
        _ => value,
    }
}

/// Returns a variable of the data with its Go type, which depends on its name.
fn variable(name: &str, value: &Value) -> Result<Value, Error> {
    weigh(value)?;
    if holds_only_data(value)? {
        Ok(data::variable(name, value))
    } else {
        Err(unknown())
    }
}

fn holds_only_data(value: &Value) -> Result<bool, Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::String => Ok(true),
        ValueKind::Seq | ValueKind::Iterable => all_are_data(value.try_iter()?),
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()? {
                entries.push(value.get_item(&key)?);
            }
            all_are_data(entries)
        }
        _ => Ok(false),
    }
}

fn all_are_data(values: impl IntoIterator<Item = Value>) -> Result<bool, Error> {
    for value in values {
        if !holds_only_data(&value)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn field(base: &Value, name: &str) -> Result<Value, Error> {
    functions::field(&taken(base)?, name).map(handed_out)
}

fn items(value: &Value) -> Result<Value, Error> {
    Ok(all_handed_out(&functions::items(&taken(value)?, 0)?))
}

fn pairs(value: &Value) -> Result<Value, Error> {
    let pairs = functions::pairs(&taken(value)?, 0)?;
    let pairs = pairs.try_iter().into_iter().flatten();
    Ok(List::value(
        pairs.map(|pair| all_handed_out(&pair)).collect(),
    ))
}

fn all_handed_out(list: &Value) -> Value {
    let items = list.try_iter().into_iter().flatten();
    List::value(items.map(handed_out).collect())
}

/// Returns a value as an action in Go prints it.
fn text(value: &Value) -> Result<String, Error> {
    let value = taken(value)?;
    let text = print::printed(&value)?.into_owned();
    spend(text.len())?;
    Ok(text)
}

/// Returns the text of a named template as its callers print it.
fn named(text: &str) -> Result<String, Error> {
    spend(text.len().saturating_mul(2))?;
    Ok(body_of(text))
}
