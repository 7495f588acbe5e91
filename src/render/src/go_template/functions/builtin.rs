//! The built-in functions of Go templates.

use std::fmt::Write;

use minijinja::{Error, Value};

use super::{
    super::{
        super::{
            go_url::push_query_escaped,
            version::{Constraints, Version},
        },
        print::{sprint, sprintln, text_of},
        problem::refuse,
        value::{Kind, Typed, basic, kind, pointee, typed},
    },
    ANY, Function, missing,
    structure::zero,
    text,
};

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "index",
        arguments: (1, ANY),
        factor: 0,
        run: index,
    },
    Function {
        name: "slice",
        arguments: (1, 4),
        factor: 1,
        run: super::lists::slice,
    },
    Function {
        name: "len",
        arguments: (1, 1),
        factor: 0,
        run: len,
    },
    Function {
        name: "print",
        arguments: (0, ANY),
        factor: 0,
        run: |arguments| sprint(arguments).map(Value::from),
    },
    Function {
        name: "println",
        arguments: (0, ANY),
        factor: 0,
        run: |arguments| sprintln(arguments).map(Value::from),
    },
    Function {
        name: "html",
        arguments: (0, ANY),
        factor: 6,
        run: |arguments| escaped(arguments, html),
    },
    Function {
        name: "js",
        arguments: (0, ANY),
        factor: 6,
        run: |arguments| escaped(arguments, js),
    },
    Function {
        name: "urlquery",
        arguments: (0, ANY),
        factor: 3,
        run: |arguments| escaped(arguments, push_query_escaped),
    },
    Function {
        name: "call",
        arguments: (1, ANY),
        factor: 0,
        run: |_| Err(refuse("the value is not a function")),
    },
    Function {
        name: "semverCompare",
        arguments: (2, 2),
        factor: 1,
        run: semver_compare,
    },
];

fn index(arguments: &[Value]) -> Result<Value, Error> {
    let (item, indexes) = arguments.split_first().ok_or_else(missing)?;
    if matches!(kind(item), Kind::Invalid) {
        return Err(refuse("index of untyped nil"));
    }
    let mut item = item.clone();
    for index in indexes {
        item = pointee(&item);
        if typed(&item).is_some_and(|typed| typed.shown.is_some()) {
            return Err(refuse("the bytes of this value are not known"));
        }
        item = match (kind(&item), basic(index)) {
            (Kind::List(list), Kind::Int(at)) => usize::try_from(at)
                .ok()
                .and_then(|at| list.0.get(at).cloned())
                .ok_or_else(|| refuse("index out of range"))?,
            (Kind::Text(text), Kind::Int(at)) => usize::try_from(at)
                .ok()
                .and_then(|at| text.as_bytes().get(at).copied())
                .map(|byte| Typed::number("uint8", i64::from(byte)))
                .ok_or_else(|| refuse("index out of range"))?,
            (Kind::Map(map), Kind::Text(key)) if index.as_str().is_some() => {
                map.get(key).unwrap_or_else(|| zero(map.element))
            }
            (Kind::Map(_), _) => return Err(refuse("value has wrong type; should be string")),
            (Kind::List(_) | Kind::Text(_), other) => {
                let kind = other.name();
                return Err(refuse(format!("cannot index slice/array with type {kind}")));
            }
            (Kind::Pointer(_) | Kind::Invalid, _) => return Err(refuse("index of nil pointer")),
            (other, _) => {
                return Err(refuse(format!("can't index item of type {}", other.name())));
            }
        };
    }
    Ok(item)
}

fn len(arguments: &[Value]) -> Result<Value, Error> {
    let [item] = arguments else {
        return Err(missing());
    };
    match kind(&pointee(item)) {
        Kind::Text(text) => Ok(Value::from(text.len())),
        Kind::List(list) => Ok(Value::from(list.0.len())),
        Kind::Map(map) => Ok(Value::from(map.entries().len())),
        Kind::Invalid | Kind::Pointer(_) => Err(refuse("len of nil pointer")),
        other => Err(refuse(format!("len of type {}", other.name()))),
    }
}

/// Escapes the arguments. A single string is used as it is, anything else as it is printed.
fn escaped(arguments: &[Value], escape: fn(&str, &mut String)) -> Result<Value, Error> {
    let whole = match arguments {
        [only] => match kind(only) {
            Kind::Invalid => super::super::print::NO_VALUE.to_owned(),
            _ => text_of(only)?,
        },
        many => sprint(many)?,
    };
    let mut out = String::with_capacity(whole.len());
    escape(&whole, &mut out);
    Ok(Value::from(out))
}

fn html(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            other => out.push(other),
        }
    }
}

fn js(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str(r"\\"),
            '\'' => out.push_str(r"\'"),
            '"' => out.push_str("\\\""),
            '<' => out.push_str(r"\u003C"),
            '>' => out.push_str(r"\u003E"),
            '&' => out.push_str(r"\u0026"),
            '=' => out.push_str(r"\u003D"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04X}", u32::from(control));
            }
            other => out.push(other),
        }
    }
}

fn semver_compare(arguments: &[Value]) -> Result<Value, Error> {
    let [constraint, version] = arguments else {
        return Err(missing());
    };
    let constraints =
        Constraints::parse(&text(constraint)?).ok_or_else(|| refuse("improper constraint"))?;
    let version =
        Version::parse(&text(version)?).ok_or_else(|| refuse("invalid semantic version"))?;
    Ok(Value::from(constraints.is_satisfied_by(&version)))
}
