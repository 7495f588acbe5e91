//! sprig's functions on strings.

use std::fmt::Write;

use minijinja::{Error, Value};

use super::{
    super::{
        super::allocation_limit::{MeteredText, spend},
        print::{formatted, push_formatted},
        problem::refuse,
        value::{Element, Kind, List, Map, kind},
    },
    ANY, Function, boolean, function, int, missing, text,
};

pub(super) const TABLE: &[Function] = &[
    function("hello", (0, 0), 0, |_| Ok(Value::from("Hello!"))),
    function("trunc", (2, 2), 1, trunc),
    function("trim", (1, 1), 1, |a| one(a, |text| text.trim().to_owned())),
    function("upper", (1, 1), 2, |a| {
        one(a, |text| text.chars().map(upper).collect())
    }),
    function("lower", (1, 1), 2, |a| {
        one(a, |text| text.chars().map(lower).collect())
    }),
    function("substr", (3, 3), 1, substr),
    function("repeat", (2, 2), 1, repeat),
    function("trimall", (2, 2), 2, trim_all),
    function("trimAll", (2, 2), 2, trim_all),
    function("trimSuffix", (2, 2), 1, |a| {
        two(a, |cut, text| {
            text.strip_suffix(cut).unwrap_or(text).to_owned()
        })
    }),
    function("trimPrefix", (2, 2), 1, |a| {
        two(a, |cut, text| {
            text.strip_prefix(cut).unwrap_or(text).to_owned()
        })
    }),
    function("nospace", (1, 1), 1, |a| {
        let [text] = texts(a)?;
        // Go treats each byte as a letter.
        if !text.is_ascii() {
            return Err(refuse("a letter outside of ASCII"));
        }
        one(a, |text| {
            text.chars().filter(|c| !c.is_whitespace()).collect()
        })
    }),
    function("contains", (2, 2), 2, |a| {
        ask(a, |part, text| text.contains(part))
    }),
    function("hasPrefix", (2, 2), 1, |a| {
        ask(a, |part, text| text.starts_with(part))
    }),
    function("hasSuffix", (2, 2), 1, |a| {
        ask(a, |part, text| text.ends_with(part))
    }),
    function("quote", (0, ANY), 4, |a| {
        quoted(a, |out, item| out.push_str(&quote(&formatted(item)?)))
    }),
    function("squote", (0, ANY), 2, |a| {
        quoted(a, |out, item| {
            out.push('\'')?;
            push_formatted(out, item)?;
            out.push('\'')
        })
    }),
    function("cat", (0, ANY), 2, |a| quoted(a, push_formatted)),
    function("indent", (2, 2), 1, |a| indented(a, "")),
    function("nindent", (2, 2), 1, |a| indented(a, "\n")),
    function("replace", (3, 3), 2, replace),
    function("plural", (3, 3), 1, plural),
    function("toString", (1, 1), 1, |a| {
        strval(first(a)?).map(Value::from)
    }),
    function("split", (2, 2), 64, |a| {
        let [separator, whole] = texts(a)?;
        Ok(numbered(split_all(&whole, &separator)))
    }),
    function("splitList", (2, 2), 32, |a| {
        let [separator, whole] = texts(a)?;
        Ok(List::texts(split_all(&whole, &separator)))
    }),
    function("splitn", (3, 3), 64, splitn),
    function("toStrings", (1, 1), 1, |a| {
        Ok(List::texts(strings(first(a)?)?))
    }),
    function("join", (2, 2), 2, join),
    function("sortAlpha", (1, 1), 20, sort_alpha),
    function("ternary", (3, 3), 0, |a| match a {
        [yes, no, is] => Ok(if boolean(is)? { yes } else { no }.clone()),
        _ => Err(missing()),
    }),
    function("fail", (1, 1), 0, |_| {
        Err(refuse("the template says that it cannot go on"))
    }),
];

/// Returns the upper-case letter, if it is a single one.
pub(super) fn upper(letter: char) -> char {
    let mut upper = letter.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => upper,
        _ => letter,
    }
}

/// Returns the lower-case letter, if it is a single one.
pub(super) fn lower(letter: char) -> char {
    let mut lower = letter.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) => lower,
        _ => letter,
    }
}

/// Returns the first argument.
pub(super) fn first(arguments: &[Value]) -> Result<&Value, Error> {
    arguments.first().ok_or_else(missing)
}

/// Returns exactly `N` strings.
pub(super) fn texts<const N: usize>(arguments: &[Value]) -> Result<[String; N], Error> {
    let texts: Vec<String> = arguments.iter().map(text).collect::<Result<_, _>>()?;
    texts.try_into().map_err(|_| missing())
}

pub(super) fn one(arguments: &[Value], make: fn(&str) -> String) -> Result<Value, Error> {
    let [text] = texts(arguments)?;
    Ok(Value::from(make(&text)))
}

fn two(arguments: &[Value], make: fn(&str, &str) -> String) -> Result<Value, Error> {
    let [left, right] = texts(arguments)?;
    Ok(Value::from(make(&left, &right)))
}

fn ask(arguments: &[Value], ask: fn(&str, &str) -> bool) -> Result<Value, Error> {
    let [left, right] = texts(arguments)?;
    Ok(Value::from(ask(&left, &right)))
}

/// Returns a value as a string.
pub(super) fn strval(value: &Value) -> Result<String, Error> {
    formatted(value)
}

/// Returns the items of a list as strings. Another value is the only item.
pub(super) fn strings(value: &Value) -> Result<Vec<String>, Error> {
    match kind(value) {
        Kind::List(list) => list
            .0
            .iter()
            .filter(|item| !matches!(kind(item), Kind::Invalid))
            .map(strval)
            .collect(),
        Kind::Invalid => Ok(Vec::new()),
        Kind::Shown(typed, _) if typed.kind_name == "slice" => {
            Err(refuse("the bytes of this value are not known"))
        }
        _ => Ok(vec![strval(value)?]),
    }
}

fn trunc(arguments: &[Value]) -> Result<Value, Error> {
    let [count, whole] = arguments else {
        return Err(missing());
    };
    let (count, whole) = (int(count)?, text(whole)?);
    let length = i64::try_from(whole.len()).unwrap_or(i64::MAX);
    if count < 0 && length + count > 0 {
        return cut(&whole, length + count, length);
    }
    if count >= 0 && length > count {
        return cut(&whole, 0, count);
    }
    Ok(Value::from(whole))
}

/// Returns a range of bytes of a string. It must not split a character.
fn cut(text: &str, from: i64, to: i64) -> Result<Value, Error> {
    let bound = |at: i64| usize::try_from(at).map_err(|_| refuse("slice bounds out of range"));
    text.get(bound(from)?..bound(to)?)
        .map(Value::from)
        .ok_or_else(|| refuse("the bounds are out of range, or cut a character"))
}

fn substr(arguments: &[Value]) -> Result<Value, Error> {
    let [from, to, whole] = arguments else {
        return Err(missing());
    };
    let (from, to, whole) = (int(from)?, int(to)?, text(whole)?);
    let length = i64::try_from(whole.len()).unwrap_or(i64::MAX);
    if from < 0 {
        cut(&whole, 0, to)
    } else if to < 0 || to > length {
        cut(&whole, from, length)
    } else {
        cut(&whole, from, to)
    }
}

fn repeat(arguments: &[Value]) -> Result<Value, Error> {
    let [times, unit] = arguments else {
        return Err(missing());
    };
    let (times, unit) = (super::count(times)?, text(unit)?);
    let mut out = MeteredText::default();
    out.push_repeated(&unit, times)?;
    Ok(Value::from(out.into_string()))
}

fn trim_all(arguments: &[Value]) -> Result<Value, Error> {
    let [set, whole] = texts(arguments)?;
    spend(whole.len().saturating_mul(set.len()) / 8)?;
    Ok(Value::from(
        whole.trim_matches(|character| set.contains(character)),
    ))
}

/// Converts the values that exist to strings, with spaces between them.
fn quoted(
    arguments: &[Value],
    push: fn(&mut MeteredText, &Value) -> Result<(), Error>,
) -> Result<Value, Error> {
    let mut out = MeteredText::default();
    let present = arguments
        .iter()
        .filter(|item| !matches!(kind(item), Kind::Invalid));
    for (index, item) in present.enumerate() {
        if index > 0 {
            out.push(' ')?;
        }
        push(&mut out, item)?;
    }
    Ok(Value::from(out.into_string()))
}

/// Returns a string in double quotes, as Go writes it.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str(r"\\"),
            '\x07' => out.push_str(r"\a"),
            '\x08' => out.push_str(r"\b"),
            '\x0c' => out.push_str(r"\f"),
            '\n' => out.push_str(r"\n"),
            '\r' => out.push_str(r"\r"),
            '\t' => out.push_str(r"\t"),
            '\x0b' => out.push_str(r"\v"),
            other if other < ' ' || other == '\x7f' => {
                let _ = write!(out, "\\x{:02x}", u32::from(other));
            }
            other if is_unprintable(other) => {
                let code = u32::from(other);
                let _ = if code > 0xffff {
                    write!(out, "\\U{code:08x}")
                } else {
                    write!(out, "\\u{code:04x}")
                };
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{a0}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
                | '\u{205f}'..='\u{206f}' | '\u{feff}' | '\u{3000}' | '\u{e000}'..='\u{f8ff}'
        )
}

/// Indents each line by a number of spaces, after a prefix for the whole.
fn indented(arguments: &[Value], before: &str) -> Result<Value, Error> {
    let [width, whole] = arguments else {
        return Err(missing());
    };
    let (width, whole) = (super::count(width)?, text(whole)?);
    let mut out = MeteredText::default();
    out.push_str(before)?;
    for (index, line) in whole.split('\n').enumerate() {
        if index > 0 {
            out.push('\n')?;
        }
        out.push_repeated(" ", width)?;
        out.push_str(line)?;
    }
    Ok(Value::from(out.into_string()))
}

fn replace(arguments: &[Value]) -> Result<Value, Error> {
    let [old, new, whole] = texts(arguments)?;
    let mut out = MeteredText::default();
    out.push_replaced(&whole, (&old, &new))?;
    Ok(Value::from(out.into_string()))
}

fn plural(arguments: &[Value]) -> Result<Value, Error> {
    let [one, many, count] = arguments else {
        return Err(missing());
    };
    let (one, many) = (text(one)?, text(many)?);
    Ok(Value::from(if int(count)? == 1 { one } else { many }))
}

/// Splits a string. An empty separator splits it into characters.
fn split_all(whole: &str, separator: &str) -> Vec<String> {
    if separator.is_empty() {
        whole.chars().map(String::from).collect()
    } else {
        whole.split(separator).map(str::to_owned).collect()
    }
}

fn numbered(parts: Vec<String>) -> Value {
    let entries = parts.into_iter().enumerate();
    let entries = entries.map(|(index, part)| (format!("_{index}"), Value::from(part)));
    Map::typed(entries.collect(), Element::Text)
}

fn splitn(arguments: &[Value]) -> Result<Value, Error> {
    let [separator, count, whole] = arguments else {
        return Err(missing());
    };
    let (separator, whole) = (text(separator)?, text(whole)?);
    let parts = match int(count)? {
        0 => Vec::new(),
        negative if negative < 0 => split_all(&whole, &separator),
        count => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if separator.is_empty() {
                let mut parts = split_all(&whole, "");
                let rest = parts.split_off(parts.len().min(count.saturating_sub(1)));
                parts.extend((!rest.is_empty()).then(|| rest.concat()));
                parts
            } else {
                whole.splitn(count, &separator).map(str::to_owned).collect()
            }
        }
    };
    Ok(numbered(parts))
}

fn join(arguments: &[Value]) -> Result<Value, Error> {
    let [separator, items] = arguments else {
        return Err(missing());
    };
    let separator = text(separator)?;
    let mut out = MeteredText::default();
    out.push_joined(strings(items)?, &separator)?;
    Ok(Value::from(out.into_string()))
}

fn sort_alpha(arguments: &[Value]) -> Result<Value, Error> {
    let list = first(arguments)?;
    if matches!(kind(list), Kind::Invalid) {
        return Ok(List::texts(["<nil>"]));
    }
    let mut items = strings(list)?;
    items.sort();
    Ok(List::texts(items))
}
