//! The functions behind the structure of templates: fields, loops, and errors for what does not
//! exist.

use minijinja::{Environment, Error, Value};

use super::{
    super::{
        super::allocation_limit::{spend, weigh_times},
        problem::refuse,
        value::{Element, Kind, List, basic, kind, pointee, typed},
    },
    urls,
};

/// The weight of an iteration of a loop besides the text that it writes.
const PASS_BYTES: usize = 32;

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_function("go_field", field);
    environment.add_function("go_method", method);
    environment.add_function("go_no_field", no_field);
    environment.add_function("go_no_template", no_template);
    environment.add_function("go_items", items);
    environment.add_function("go_pairs", pairs);
}

/// Returns a field of a struct, or an entry of a map.
pub(in crate::go_template) fn field(base: &Value, name: &str) -> Result<Value, Error> {
    if let Some(typed) = typed(base) {
        let mut methods = typed.methods.iter();
        let method = methods.find(|method| method.name == name);
        return method
            .map(|method| method.value.clone())
            .ok_or_else(|| cannot(name));
    }
    match kind(base) {
        Kind::Invalid => Ok(Value::UNDEFINED),
        Kind::Map(map) => Ok(map.get(name).unwrap_or_default()),
        Kind::Struct(fields) => fields.field(name).cloned().ok_or_else(|| cannot(name)),
        Kind::Pointer(pointer) => match &pointer.target {
            Some(target) if matches!(kind(target), Kind::Map(_) | Kind::Struct(_)) => {
                field(target, name)
            }
            Some(_) => Err(cannot(name)),
            None => match pointer.methods.iter().find(|(known, _)| *known == name) {
                Some((_, method)) => Ok(method()),
                None => Err(refuse(format!("nil pointer evaluating field {name}"))),
            },
        },
        _ => Err(cannot(name)),
    }
}

/// The methods that compare a version with another.
pub(in crate::go_template) const VERSION_METHODS: [&str; 6] = [
    "Compare",
    "Equal",
    "GreaterThan",
    "GreaterThanEqual",
    "LessThan",
    "LessThanEqual",
];

/// Calls a method with an argument, which compares two versions.
fn method(base: &Value, name: &str, argument: &Value) -> Result<Value, Error> {
    // Both are parsed again as texts.
    weigh_times([base, argument], 2)?;
    let order = urls::order(base, argument)
        .ok_or_else(|| refuse(format!("`{name}` has arguments but cannot be invoked here")))?;
    Ok(match name {
        "LessThan" => Value::from(order.is_lt()),
        "LessThanEqual" => Value::from(order.is_le()),
        "GreaterThan" => Value::from(order.is_gt()),
        "GreaterThanEqual" => Value::from(order.is_ge()),
        "Equal" => Value::from(order.is_eq()),
        "Compare" => Value::from(order as i64),
        _ => return Err(cannot(name)),
    })
}

fn cannot(name: &str) -> Error {
    refuse(format!("can't evaluate field {name}"))
}

pub(in crate::go_template) fn no_field(name: &str) -> Result<Value, Error> {
    Err(cannot(name))
}

fn no_template(name: &str) -> Result<Value, Error> {
    Err(refuse(format!("template \"{name}\" not defined")))
}

/// Charges the text of all iterations of a loop before the first one.
fn charge(passes: usize, body_bytes: usize) -> Result<(), Error> {
    spend(passes.saturating_mul(body_bytes.saturating_add(PASS_BYTES)))
}

/// Returns the items of a loop with at most one variable.
pub(in crate::go_template) fn items(value: &Value, body_bytes: usize) -> Result<Value, Error> {
    let value = pointee(value);
    refuse_typed_count(&value)?;
    match kind(&value) {
        Kind::Invalid => Ok(List::value(Vec::new())),
        Kind::List(list) => {
            charge(list.0.len(), body_bytes)?;
            Ok(value)
        }
        Kind::Map(map) => {
            let entries: Vec<Value> = map.entries().values().cloned().collect();
            charge(entries.len(), body_bytes)?;
            Ok(List::value(entries))
        }
        Kind::Int(count) => {
            let passes = usize::try_from(count).unwrap_or_default();
            charge(passes, body_bytes)?;
            Ok(List::value((0..count).map(Value::from).collect()))
        }
        _ => Err(refuse("range can't iterate over this value")),
    }
}

/// Refuses to count to a value of a named type. The numbers would have that type, too, and it is
/// known only for whole numbers how they print.
fn refuse_typed_count(value: &Value) -> Result<(), Error> {
    match (kind(value), basic(value)) {
        (Kind::Shown(..), Kind::Int(count)) if count > 0 => {
            Err(refuse("range can't iterate over a duration here"))
        }
        _ => Ok(()),
    }
}

/// Returns the pairs of a loop with two variables.
pub(in crate::go_template) fn pairs(value: &Value, body_bytes: usize) -> Result<Value, Error> {
    let value = pointee(value);
    let pair = |key: Value, value: Value| List::value(vec![key, value]);
    let entries: Vec<Value> = match kind(&value) {
        Kind::Invalid => Vec::new(),
        Kind::List(list) => {
            charge(list.0.len(), body_bytes)?;
            let items = list.0.iter().enumerate();
            items
                .map(|(index, item)| pair(Value::from(index), item.clone()))
                .collect()
        }
        Kind::Map(map) => {
            let entries = map.entries();
            charge(entries.len(), body_bytes)?;
            entries
                .iter()
                .map(|(key, value)| pair(Value::from(key), value.clone()))
                .collect()
        }
        Kind::Int(_) => {
            return Err(refuse(
                "can't use a number to iterate over more than one variable",
            ));
        }
        _ => return Err(refuse("range can't iterate over this value")),
    };
    Ok(List::value(entries))
}

/// Returns the value that `index` gives for a missing key of a typed map.
pub(super) fn zero(element: Element) -> Value {
    match element {
        Element::Any => Value::UNDEFINED,
        Element::Text => Value::from(""),
        Element::Bool => Value::from(false),
    }
}
