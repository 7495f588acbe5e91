//! Comparisons, with Go's rules on what can be compared.

use std::cmp::Ordering;

use minijinja::{Error, Value};

use super::{
    super::{
        problem::refuse,
        value::{Element, Kind, Pointer, basic},
    },
    ANY, Function, missing,
};

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "eq",
        arguments: (1, ANY),
        factor: 1,
        run: eq,
    },
    Function {
        name: "ne",
        arguments: (2, 2),
        factor: 1,
        run: |arguments| Ok(Value::from(!eq(arguments)?.is_true())),
    },
    Function {
        name: "lt",
        arguments: (2, 2),
        factor: 1,
        run: |arguments| is(arguments, Ordering::is_lt),
    },
    Function {
        name: "le",
        arguments: (2, 2),
        factor: 1,
        run: |arguments| is(arguments, Ordering::is_le),
    },
    Function {
        name: "gt",
        arguments: (2, 2),
        factor: 1,
        run: |arguments| is(arguments, Ordering::is_gt),
    },
    Function {
        name: "ge",
        arguments: (2, 2),
        factor: 1,
        run: |arguments| is(arguments, Ordering::is_ge),
    },
];

/// Returns true if the first value equals one of the others.
fn eq(arguments: &[Value]) -> Result<Value, Error> {
    let (first, rest) = arguments.split_first().ok_or_else(missing)?;
    if rest.is_empty() {
        return Err(refuse("missing argument for comparison"));
    }
    for other in rest {
        if are_equal(first, other)? {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn are_equal(left: &Value, right: &Value) -> Result<bool, Error> {
    let (left, right) = (basic(left), basic(right));
    match (&left, &right) {
        (Kind::Bool(left), Kind::Bool(right)) => Ok(left == right),
        (Kind::Int(left), Kind::Int(right)) => Ok(left == right),
        (Kind::Float(left), Kind::Float(right)) => {
            Ok(left.partial_cmp(right) == Some(Ordering::Equal))
        }
        (Kind::Text(left), Kind::Text(right)) => Ok(left == right),
        (Kind::Pointer(left), Kind::Pointer(right)) => Ok(same_target(left, right)),
        (Kind::Invalid, other) | (other, Kind::Invalid) if may_be_nil(other) => Err(refuse(
            "an empty list or map, which is nil in Go if it is not there; compare its `len`",
        )),
        (Kind::Invalid, other) | (other, Kind::Invalid) => Ok(is_nil(other)),
        _ if is_basic(&left) || is_basic(&right) => Err(incompatible(&left, &right)),
        _ if left.name() == right.name() => Err(refuse(format!(
            "non-comparable types {}, {}",
            left.name(),
            right.name()
        ))),
        _ => Err(incompatible(&left, &right)),
    }
}

fn same_target(left: &Pointer, right: &Pointer) -> bool {
    match (&left.target, &right.target) {
        (None, None) => true,
        (Some(_), Some(_)) => std::ptr::eq(left, right),
        _ => false,
    }
}

fn may_be_nil(kind: &Kind<'_>) -> bool {
    match kind {
        Kind::List(list) => list.0.is_empty() && list.1 != "interface {}",
        Kind::Map(map) => map.element != Element::Any && map.entries().is_empty(),
        _ => false,
    }
}

fn is_nil(kind: &Kind<'_>) -> bool {
    match kind {
        Kind::Invalid => true,
        Kind::Pointer(pointer) => pointer.target.is_none(),
        _ => false,
    }
}

fn is_basic(kind: &Kind<'_>) -> bool {
    matches!(
        kind,
        Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) | Kind::Text(_)
    )
}

fn incompatible(left: &Kind<'_>, right: &Kind<'_>) -> Error {
    refuse(format!(
        "incompatible types for comparison: {} and {}",
        left.name(),
        right.name()
    ))
}

fn is(arguments: &[Value], wanted: fn(Ordering) -> bool) -> Result<Value, Error> {
    let [left, right] = arguments else {
        return Err(missing());
    };
    let (left, right) = (basic(left), basic(right));
    let order = match (&left, &right) {
        (Kind::Int(left), Kind::Int(right)) => Some(left.cmp(right)),
        (Kind::Float(left), Kind::Float(right)) => left.partial_cmp(right),
        (Kind::Text(left), Kind::Text(right)) => Some(left.cmp(right)),
        (Kind::Bool(_), Kind::Bool(_)) => return Err(refuse("invalid type for comparison")),
        _ if is_basic(&left) && is_basic(&right) => return Err(incompatible(&left, &right)),
        _ => return Err(refuse("invalid type for comparison")),
    };
    Ok(Value::from(order.is_some_and(wanted)))
}
