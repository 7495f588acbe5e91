//! sprig's functions on maps. `set`, `unset` and the merges change their first map in place.

use std::{collections::BTreeMap, sync::Arc};

use minijinja::{Error, Value};

use super::{
    super::{
        super::allocation_limit::{spend, weigh},
        problem::refuse,
        value::{Element, Kind, List, Map, kind},
    },
    ANY, Function, function, is_empty, missing, text,
    texts::{first, strval},
};

pub(super) const TABLE: &[Function] = &[
    function("dict", (0, ANY), 1, dict),
    function("get", (2, 2), 0, get),
    function("set", (3, 3), 0, set),
    function("unset", (2, 2), 0, unset),
    function("hasKey", (2, 2), 0, |a| match a {
        [map, key] => Ok(Value::from(any_map(map)?.get(&text(key)?).is_some())),
        _ => Err(missing()),
    }),
    function("pluck", (1, ANY), 0, pluck),
    function("keys", (0, ANY), 1, |a| {
        let mut names = Vec::new();
        for map in a {
            names.extend(any_map(map)?.entries().keys().cloned());
        }
        Ok(List::texts(names))
    }),
    function("values", (1, 1), 1, |a| {
        let map = any_map(first(a)?)?;
        let values = map.entries().values().cloned().collect();
        Ok(List::value(values))
    }),
    function("pick", (1, ANY), 1, |a| chosen(a, <[String]>::contains)),
    function("omit", (1, ANY), 1, |a| {
        chosen(a, |keys, key| !keys.contains(key))
    }),
    function("merge", (1, ANY), 2, |a| merge(a, Overwrite::Never)),
    function("mustMerge", (1, ANY), 2, |a| merge(a, Overwrite::Never)),
    function("mergeOverwrite", (1, ANY), 2, |a| {
        merge(a, Overwrite::Always)
    }),
    function("mustMergeOverwrite", (1, ANY), 2, |a| {
        merge(a, Overwrite::Always)
    }),
    function("deepCopy", (1, 1), 2, |a| copied(first(a)?)),
    function("mustDeepCopy", (1, 1), 2, |a| copied(first(a)?)),
    function("dig", (3, ANY), 0, dig),
];

/// How a merge handles a key that both maps have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overwrite {
    Never,
    Always,
}

/// Returns an argument that must be a map with values of any type. Maps of the data, whose values
/// are strings, are refused as in Go, where they have another type.
pub(super) fn any_map(value: &Value) -> Result<Arc<Map>, Error> {
    match kind(value) {
        Kind::Map(map) if map.element == Element::Any => Ok(map),
        Kind::Map(_) => Err(refuse(
            "wrong type for value; expected map[string]interface {}",
        )),
        other => Err(refuse(format!(
            "wrong type for value; expected map[string]interface {{}}; got {}",
            other.name()
        ))),
    }
}

fn dict(arguments: &[Value]) -> Result<Value, Error> {
    let mut entries = BTreeMap::new();
    for pair in arguments.chunks(2) {
        if let [key, rest @ ..] = pair {
            let value = rest.first().cloned().unwrap_or_else(|| Value::from(""));
            entries.insert(strval(key)?, value);
        }
    }
    Ok(Map::value(entries))
}

fn get(arguments: &[Value]) -> Result<Value, Error> {
    let [map, key] = arguments else {
        return Err(missing());
    };
    let found = any_map(map)?.get(&text(key)?);
    Ok(found.unwrap_or_else(|| Value::from("")))
}

fn set(arguments: &[Value]) -> Result<Value, Error> {
    let [map, key, value] = arguments else {
        return Err(missing());
    };
    any_map(map)?.put(&text(key)?, value.clone())?;
    Ok(map.clone())
}

fn unset(arguments: &[Value]) -> Result<Value, Error> {
    let [map, key] = arguments else {
        return Err(missing());
    };
    any_map(map)?.entries().remove(&text(key)?);
    Ok(map.clone())
}

fn pluck(arguments: &[Value]) -> Result<Value, Error> {
    let (key, maps) = arguments.split_first().ok_or_else(missing)?;
    let key = text(key)?;
    let mut found = Vec::new();
    for map in maps {
        found.extend(any_map(map)?.get(&key));
    }
    Ok(List::value(found))
}

fn chosen(arguments: &[Value], is_chosen: fn(&[String], &String) -> bool) -> Result<Value, Error> {
    let (map, keys) = arguments.split_first().ok_or_else(missing)?;
    let map = any_map(map)?;
    let keys: Vec<String> = keys.iter().map(text).collect::<Result<_, _>>()?;
    let entries = map.entries();
    spend(entries.len().saturating_mul(keys.len()).saturating_mul(8))?;
    let chosen = entries.iter().filter(|(key, _)| is_chosen(&keys, key));
    Ok(Map::value(
        chosen
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    ))
}

fn merge(arguments: &[Value], overwrite: Overwrite) -> Result<Value, Error> {
    let (target, sources) = arguments.split_first().ok_or_else(missing)?;
    let target_map = any_map(target)?;
    for source in sources {
        merge_into(&target_map, &any_map(source)?, overwrite)?;
    }
    Ok(target.clone())
}

fn merge_into(target: &Arc<Map>, source: &Arc<Map>, overwrite: Overwrite) -> Result<(), Error> {
    if Arc::ptr_eq(target, source) {
        return Ok(());
    }
    let entries: Vec<(String, Value)> = source
        .entries()
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, value) in entries {
        let present = target.get(&key);
        if matches!(kind(&value), Kind::Invalid) {
            if overwrite == Overwrite::Always {
                target.put(&key, value)?;
            }
            continue;
        }
        if let (Some(Kind::Map(inner)), Kind::Map(other)) =
            (present.as_ref().map(kind), kind(&value))
        {
            merge_into(&inner, &other, overwrite)?;
            if !inner.entries().is_empty() {
                continue;
            }
        }
        let is_free = present.as_ref().is_none_or(is_empty);
        if is_free || overwrite == Overwrite::Always {
            target.put(&key, value)?;
        }
    }
    Ok(())
}

fn copied(value: &Value) -> Result<Value, Error> {
    match kind(value) {
        Kind::Invalid => Err(refuse("there is nothing to copy")),
        Kind::Pointer(_) | Kind::Struct(_) | Kind::Shown(..) => {
            Err(refuse("a value of this kind cannot be copied"))
        }
        _ => Ok(deep_copy(value)),
    }
}

fn deep_copy(value: &Value) -> Value {
    match kind(value) {
        Kind::Map(map) => Map::typed(
            map.entries()
                .iter()
                .map(|(key, value)| (key.clone(), deep_copy(value)))
                .collect(),
            map.element,
        ),
        Kind::List(list) => List::of(list.1, list.0.iter().map(deep_copy).collect()),
        _ => value.clone(),
    }
}

fn dig(arguments: &[Value]) -> Result<Value, Error> {
    let [keys @ .., default, map] = arguments else {
        return Err(missing());
    };
    weigh(default)?;
    let mut found = map.clone();
    for key in keys {
        match any_map(&found)?.get(&text(key)?) {
            Some(next) => found = next,
            None => return Ok(default.clone()),
        }
    }
    Ok(found)
}
