//! sprig's functions on the type of a value, and on defaults for missing values.

use minijinja::{Error, Value};

use super::{
    super::value::{Element, Kind, basic, kind, typed},
    ANY, Function, function, missing, text,
    texts::first,
};

pub(super) const TABLE: &[Function] = &[
    function("default", (1, ANY), 0, |a| match a {
        [_, given, ..] if !is_empty(given) => Ok(given.clone()),
        [default, ..] => Ok(default.clone()),
        [] => Err(missing()),
    }),
    function("empty", (1, 1), 0, |a| Ok(Value::from(is_empty(first(a)?)))),
    function("coalesce", (0, ANY), 0, |a| {
        Ok(a.iter()
            .find(|item| !is_empty(item))
            .cloned()
            .unwrap_or_default())
    }),
    function("all", (0, ANY), 0, |a| {
        Ok(Value::from(!a.iter().any(is_empty)))
    }),
    function("any", (0, ANY), 0, |a| {
        Ok(Value::from(!a.iter().all(is_empty)))
    }),
    function("typeOf", (1, 1), 0, |a| Ok(Value::from(type_of(first(a)?)))),
    function("typeIs", (2, 2), 0, |a| {
        is(a, |target, found| target == found)
    }),
    function("typeIsLike", (2, 2), 0, |a| {
        is(a, |target, found| {
            target == found || found.strip_prefix('*') == Some(target)
        })
    }),
    function("kindOf", (1, 1), 0, |a| {
        Ok(Value::from(kind_name(first(a)?)))
    }),
    function("kindIs", (2, 2), 0, |a| match a {
        [target, value] => Ok(Value::from(text(target)? == kind_name(value))),
        _ => Err(missing()),
    }),
    function("deepEqual", (2, 2), 2, |a| match a {
        [left, right] => Ok(Value::from(are_deeply_equal(left, right))),
        _ => Err(missing()),
    }),
];

/// Returns true if `default` replaces the value.
pub(super) fn is_empty(value: &Value) -> bool {
    match basic(value) {
        Kind::Shown(..) | Kind::Struct(_) => false,
        Kind::Invalid => true,
        Kind::Bool(is) => !is,
        Kind::Int(number) => number == 0,
        Kind::Float(number) => number == 0.0,
        Kind::Text(text) => text.is_empty(),
        Kind::List(list) => list.0.is_empty(),
        Kind::Map(map) => map.entries().is_empty(),
        Kind::Pointer(pointer) => pointer.target.is_none(),
    }
}

/// Returns the name of a value's kind.
fn kind_name(value: &Value) -> &'static str {
    typed(value).map_or_else(|| kind(value).name(), |typed| typed.kind_name)
}

/// Returns a value's type as Go writes it.
pub(in crate::go_template) fn type_of(value: &Value) -> String {
    if let Some(typed) = typed(value) {
        return typed.type_name.to_owned();
    }
    match kind(value) {
        Kind::Invalid => "<nil>".to_owned(),
        Kind::List(list) => format!("[]{}", list.1),
        Kind::Struct(fields) => fields.type_name.to_owned(),
        Kind::Map(map) => match map.element {
            Element::Any => "map[string]interface {}",
            Element::Text => "map[string]string",
            Element::Bool => "map[string]bool",
        }
        .to_owned(),
        Kind::Pointer(pointer) => match &pointer.target {
            Some(target) => format!("*{}", type_of(target)),
            None => format!("*{}", pointer.type_name),
        },
        other => other.name().to_owned(),
    }
}

fn is(arguments: &[Value], ask: fn(&str, &str) -> bool) -> Result<Value, Error> {
    let [target, value] = arguments else {
        return Err(missing());
    };
    Ok(Value::from(ask(&text(target)?, &type_of(value))))
}

/// Returns true if two values are deeply equal. They were weighed before, so they are not deep.
pub(super) fn are_deeply_equal(left: &Value, right: &Value) -> bool {
    if type_of(left) != type_of(right) {
        return false;
    }
    match (basic(left), basic(right)) {
        (Kind::Invalid, Kind::Invalid) => true,
        (Kind::Bool(left), Kind::Bool(right)) => left == right,
        (Kind::Int(left), Kind::Int(right)) => left == right,
        (Kind::Float(left), Kind::Float(right)) => {
            left.partial_cmp(&right) == Some(std::cmp::Ordering::Equal)
        }
        (Kind::Shown(_, left), Kind::Shown(_, right)) | (Kind::Text(left), Kind::Text(right)) => {
            left == right
        }
        (Kind::List(left), Kind::List(right)) => {
            let pairs = left.0.iter().zip(&right.0);
            left.0.len() == right.0.len()
                && pairs
                    .into_iter()
                    .all(|(left, right)| are_deeply_equal(left, right))
        }
        (Kind::Map(left), Kind::Map(right)) => {
            if std::sync::Arc::ptr_eq(&left, &right) {
                return true;
            }
            let (left, right) = (left.entries().clone(), right.entries().clone());
            left.len() == right.len()
                && left.iter().all(|(key, value)| {
                    right
                        .get(key)
                        .is_some_and(|other| are_deeply_equal(value, other))
                })
        }
        (Kind::Pointer(left), Kind::Pointer(right)) => match (&left.target, &right.target) {
            (Some(left), Some(right)) => are_deeply_equal(left, right),
            (None, None) => true,
            _ => false,
        },
        (Kind::Struct(left), Kind::Struct(right)) => {
            let pairs = left.data().zip(right.data());
            left.fields.len() == right.fields.len()
                && pairs
                    .into_iter()
                    .all(|(left, right)| are_deeply_equal(&left.value, &right.value))
        }
        _ => false,
    }
}
