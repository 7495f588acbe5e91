//! sprig's functions on lists. Each has a variant with `must` in front. Templates cannot see a
//! difference, because both fail.

use std::sync::Arc;

use minijinja::{Error, Value};

use super::{
    super::{
        super::allocation_limit::weigh,
        problem::refuse,
        value::{Kind, List, kind},
    },
    ANY, Function, function, is_empty, missing,
    numbers::to_int,
    reflection::are_deeply_equal,
    texts::first,
};

pub(super) const TABLE: &[Function] = &[
    function("list", (0, ANY), 1, |a| Ok(List::value(a.to_vec()))),
    function("tuple", (0, ANY), 1, |a| Ok(List::value(a.to_vec()))),
    function("append", (2, 2), 1, append),
    function("push", (2, 2), 1, append),
    function("mustAppend", (2, 2), 1, append),
    function("mustPush", (2, 2), 1, append),
    function("prepend", (2, 2), 1, prepend),
    function("mustPrepend", (2, 2), 1, prepend),
    function("first", (1, 1), 0, |a| entry(a, <[Value]>::first)),
    function("mustFirst", (1, 1), 0, |a| entry(a, <[Value]>::first)),
    function("last", (1, 1), 0, |a| entry(a, <[Value]>::last)),
    function("mustLast", (1, 1), 0, |a| entry(a, <[Value]>::last)),
    function("rest", (1, 1), 1, |a| part(a, |items| items.get(1..))),
    function("mustRest", (1, 1), 1, |a| part(a, |items| items.get(1..))),
    function("initial", (1, 1), 1, |a| part(a, initial)),
    function("mustInitial", (1, 1), 1, |a| part(a, initial)),
    function("reverse", (1, 1), 1, reverse),
    function("mustReverse", (1, 1), 1, reverse),
    function("uniq", (1, 1), 1, uniq),
    function("mustUniq", (1, 1), 1, uniq),
    function("without", (1, ANY), 1, without),
    function("mustWithout", (1, ANY), 1, without),
    function("has", (2, 2), 2, has),
    function("mustHas", (2, 2), 2, has),
    function("compact", (1, 1), 1, compact),
    function("mustCompact", (1, 1), 1, compact),
    function("mustSlice", (1, 3), 1, slice),
    function("concat", (0, ANY), 1, concat),
    function("chunk", (2, 2), 2, chunk),
    function("mustChunk", (2, 2), 2, chunk),
];

/// Returns an argument that must be a list. Like sprig, it follows no pointers.
fn items(value: &Value) -> Result<Arc<List>, Error> {
    match kind(value) {
        Kind::List(list) => Ok(list),
        other => Err(refuse(format!("not a list but {}", other.name()))),
    }
}

fn append(arguments: &[Value]) -> Result<Value, Error> {
    let [list, item] = arguments else {
        return Err(missing());
    };
    let mut made = items(list)?.0.clone();
    made.push(item.clone());
    Ok(List::value(made))
}

fn prepend(arguments: &[Value]) -> Result<Value, Error> {
    let [list, item] = arguments else {
        return Err(missing());
    };
    let mut made = vec![item.clone()];
    made.extend_from_slice(&items(list)?.0);
    Ok(List::value(made))
}

fn entry(arguments: &[Value], pick: fn(&[Value]) -> Option<&Value>) -> Result<Value, Error> {
    let list = items(first(arguments)?)?;
    Ok(pick(&list.0).cloned().unwrap_or_default())
}

fn part(arguments: &[Value], pick: fn(&[Value]) -> Option<&[Value]>) -> Result<Value, Error> {
    let list = items(first(arguments)?)?;
    Ok(List::value(pick(&list.0).unwrap_or_default().to_vec()))
}

fn initial(items: &[Value]) -> Option<&[Value]> {
    items.split_last().map(|(_, initial)| initial)
}

fn reverse(arguments: &[Value]) -> Result<Value, Error> {
    let list = items(first(arguments)?)?;
    Ok(List::value(list.0.iter().rev().cloned().collect()))
}

/// Returns true if a list contains a value. Every comparison is charged, because callers search a
/// list once for each of its items.
fn is_among(items: &[Value], wanted: &Value) -> Result<bool, Error> {
    for item in items {
        weigh(item)?;
        super::spend(super::CALL_BYTES)?;
        if are_deeply_equal(item, wanted) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(arguments: &[Value]) -> Result<Value, Error> {
    let mut kept: Vec<Value> = Vec::new();
    for item in &items(first(arguments)?)?.0 {
        if !is_among(&kept, item)? {
            kept.push(item.clone());
        }
    }
    Ok(List::value(kept))
}

fn without(arguments: &[Value]) -> Result<Value, Error> {
    let (list, omitted) = arguments.split_first().ok_or_else(missing)?;
    let mut kept = Vec::new();
    for item in &items(list)?.0 {
        if !is_among(omitted, item)? {
            kept.push(item.clone());
        }
    }
    Ok(List::value(kept))
}

fn has(arguments: &[Value]) -> Result<Value, Error> {
    let [wanted, list] = arguments else {
        return Err(missing());
    };
    if matches!(kind(list), Kind::Invalid) {
        return Ok(Value::from(false));
    }
    Ok(Value::from(is_among(&items(list)?.0, wanted)?))
}

fn compact(arguments: &[Value]) -> Result<Value, Error> {
    let list = items(first(arguments)?)?;
    let kept = list.0.iter().filter(|item| !is_empty(item)).cloned();
    Ok(List::value(kept.collect()))
}

/// Returns the part of a list between two indexes.
pub(super) fn slice(arguments: &[Value]) -> Result<Value, Error> {
    let (list, bounds) = arguments.split_first().ok_or_else(missing)?;
    let list = items(list)?;
    if list.0.is_empty() {
        return Ok(Value::UNDEFINED);
    }
    let bound = |at: usize, default: usize| match bounds.get(at) {
        Some(bound) => usize::try_from(to_int(bound)).ok(),
        None => Some(default),
    };
    let range = bound(0, 0).zip(bound(1, list.0.len()));
    range
        .and_then(|(from, to)| list.0.get(from..to))
        .map(|part| List::value(part.to_vec()))
        .ok_or_else(|| refuse("slice bounds out of range"))
}

fn concat(arguments: &[Value]) -> Result<Value, Error> {
    let mut made = Vec::new();
    for list in arguments {
        made.extend_from_slice(&items(list)?.0);
    }
    Ok(List::value(made))
}

fn chunk(arguments: &[Value]) -> Result<Value, Error> {
    let [size, list] = arguments else {
        return Err(missing());
    };
    let size = super::count(size)?;
    if size == 0 {
        return Err(refuse("a chunk of nothing"));
    }
    let list = items(list)?;
    let chunks = list.0.chunks(size).map(|chunk| List::value(chunk.to_vec()));
    Ok(List::of("[]interface {}", chunks.collect()))
}
