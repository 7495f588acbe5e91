//! sprig's regular expressions.
//!
//! Both languages have RE2's syntax and run in linear time. The differences are rewritten: `\d`,
//! `\s`, `\w` and `\b` mean ASCII, `\Q…\E` quotes, and `[` is literal in a class.

use minijinja::{Error, Value};
use regex::{Regex, RegexBuilder};

use super::{
    super::{super::allocation_limit::spend, problem::refuse, value::List},
    Function, function, int, missing, text,
    texts::{one, texts},
};

/// The size limits of a compiled expression. Its size is known only after it was compiled, so the
/// smallest limit is tried first.
const COMPILED_BYTES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];
/// The cost of an attempt for each byte of its limit, which bounds the work.
const COMPILE_FACTOR: usize = 4;
/// The cost of an attempt for each byte of the expression, which it reads.
const READ_FACTOR: usize = 128;
/// The same for an expression with Unicode classes, which have hundreds of ranges each, or with
/// flags, which may require all forms of a letter.
const READ_CLASSES_FACTOR: usize = 1 << 10;
/// The maximum size of a search's cache.
const DFA_BYTES_MAX: usize = 256 << 10;
/// The cost of a search for each byte of the text, besides the bytes of the expression.
const SEARCH_BYTES: usize = 8;
/// A larger expression may be in one state at once for each such part.
const STATE_BYTES: usize = 256;

pub(super) const TABLE: &[Function] = &[
    function("regexMatch", (2, 2), 1, |a| {
        let [pattern, whole] = texts(a)?;
        let is_match = search(&pattern, &whole).map(|regex| regex.is_match(&whole));
        match is_match {
            Err(error) if super::quotes_no_value(&error) => Ok(Value::from(false)),
            is_match => Ok(Value::from(is_match?)),
        }
    }),
    function("mustRegexMatch", (2, 2), 1, |a| {
        let [pattern, whole] = texts(a)?;
        Ok(Value::from(search(&pattern, &whole)?.is_match(&whole)))
    }),
    function("regexFind", (2, 2), 1, find),
    function("mustRegexFind", (2, 2), 1, find),
    function("regexFindAll", (3, 3), 1, find_all),
    function("mustRegexFindAll", (3, 3), 1, find_all),
    function("regexReplaceAll", (3, 3), 1, |a| {
        replace_all(a, Template::Expanded)
    }),
    function("mustRegexReplaceAll", (3, 3), 1, |a| {
        replace_all(a, Template::Expanded)
    }),
    function("regexReplaceAllLiteral", (3, 3), 1, |a| {
        replace_all(a, Template::Literal)
    }),
    function("mustRegexReplaceAllLiteral", (3, 3), 1, |a| {
        replace_all(a, Template::Literal)
    }),
    function("regexSplit", (3, 3), 1, split),
    function("mustRegexSplit", (3, 3), 1, split),
    function("regexQuoteMeta", (1, 1), 2, |a| one(a, quote_meta)),
];

/// How `$1` in a replacement is handled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Template {
    Expanded,
    Literal,
}

/// Compiles an expression, and charges the cost of a search.
fn search(pattern: &str, whole: &str) -> Result<Regex, Error> {
    let (regex, states) = compiled(pattern)?;
    let per_byte = SEARCH_BYTES
        .saturating_add(pattern.len())
        .saturating_add(states);
    spend(whole.len().saturating_mul(per_byte))?;
    Ok(regex)
}

/// Compiles an expression. Also returns how many more states than its source suggests a search may
/// be in.
fn compiled(pattern: &str) -> Result<(Regex, usize), Error> {
    let mut groups = pattern.split("(?").skip(1);
    let has_classes = pattern.contains(r"\p")
        || pattern.contains(r"\P")
        || groups.any(|group| !group.starts_with([':', 'P', '<']));
    let read_factor = if has_classes {
        READ_CLASSES_FACTOR
    } else {
        READ_FACTOR
    };
    let source = translated(pattern);
    for (index, limit) in COMPILED_BYTES.into_iter().enumerate() {
        spend(pattern.len().saturating_mul(read_factor))?;
        spend(limit.saturating_mul(COMPILE_FACTOR))?;
        let built = RegexBuilder::new(&source)
            .size_limit(limit)
            .dfa_size_limit(DFA_BYTES_MAX)
            .nest_limit(50)
            .build();
        match built {
            Ok(regex) if index == 0 => return Ok((regex, 0)),
            Ok(regex) => return Ok((regex, limit / STATE_BYTES)),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => break,
        }
    }
    Err(refuse("the regular expression is invalid, or too large"))
}

fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    let mut class_at = None;
    let mut position = 0_usize;
    while let Some(character) = characters.next() {
        position += 1;
        match (character, class_at) {
            ('\\', _) => push_escape(&mut out, &mut characters, class_at),
            ('[', None) => {
                class_at = Some(position);
                out.push('[');
            }
            ('[', Some(_)) if characters.as_str().starts_with(':') => out.push('['),
            ('[', Some(_)) => out.push_str(r"\["),
            (']', Some(start)) if position > start + 1 => {
                // The end of a name such as `[:alpha:]` does not end the class.
                if !out.ends_with(':')
                    || out.rfind("[:").is_none_or(|at| out.rfind(":]") > Some(at))
                {
                    class_at = None;
                }
                out.push(']');
            }
            (']', Some(_)) => out.push_str(r"\]"),
            ('^', Some(start)) if position == start + 1 => {
                class_at = Some(position);
                out.push('^');
            }
            ('&' | '~', Some(_)) => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out
}

fn push_escape(out: &mut String, rest: &mut std::str::Chars<'_>, class_at: Option<usize>) {
    let Some(escaped) = rest.next() else {
        out.push('\\');
        return;
    };
    let class = match (escaped, class_at.is_some()) {
        ('d', true) => "0-9",
        ('d', false) => "[0-9]",
        ('D', _) => "[^0-9]",
        ('s', true) => r"\t\n\f\r ",
        ('s', false) => r"[\t\n\f\r ]",
        ('S', _) => r"[^\t\n\f\r ]",
        ('w', true) => "0-9A-Za-z_",
        ('w', false) => "[0-9A-Za-z_]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('b', false) => r"(?-u:\b)",
        ('B', false) => r"(?-u:\B)",
        ('Q', false) => {
            let quoted = rest.as_str();
            let (literal, after) = quoted.split_once(r"\E").unwrap_or((quoted, ""));
            out.push_str(&regex::escape(literal));
            *rest = after.chars();
            return;
        }
        _ => {
            out.push('\\');
            out.push(escaped);
            return;
        }
    };
    out.push_str(class);
}

fn find(arguments: &[Value]) -> Result<Value, Error> {
    let [pattern, whole] = texts(arguments)?;
    let found = search(&pattern, &whole)?.find(&whole);
    Ok(Value::from(found.map_or("", |found| found.as_str())))
}

/// Returns the limit, or the maximum if the number is negative.
fn limit(value: &Value) -> Result<usize, Error> {
    Ok(usize::try_from(int(value)?).unwrap_or(usize::MAX))
}

fn find_all(arguments: &[Value]) -> Result<Value, Error> {
    let [pattern, whole, count] = arguments else {
        return Err(missing());
    };
    let (pattern, whole) = (text(pattern)?, text(whole)?);
    spend(whole.len().saturating_mul(32))?;
    let regex = search(&pattern, &whole)?;
    let found = regex.find_iter(&whole).take(limit(count)?);
    Ok(List::texts(found.map(|found| found.as_str())))
}

fn replace_all(arguments: &[Value], template: Template) -> Result<Value, Error> {
    let [pattern, whole, replacement] = texts(arguments)?;
    let regex = search(&pattern, &whole)?;
    let growth = replacement.len().saturating_mul(whole.len() + 1);
    spend(
        if template == Template::Expanded && replacement.contains('$') {
            growth.saturating_mul(whole.len().min(64))
        } else {
            regex
                .find_iter(&whole)
                .count()
                .saturating_mul(replacement.len())
        },
    )?;
    Ok(Value::from(match template {
        Template::Expanded => regex.replace_all(&whole, replacement.as_str()).into_owned(),
        Template::Literal => regex
            .replace_all(&whole, regex::NoExpand(&replacement))
            .into_owned(),
    }))
}

fn split(arguments: &[Value]) -> Result<Value, Error> {
    let [pattern, whole, count] = arguments else {
        return Err(missing());
    };
    let (pattern, whole, count) = (text(pattern)?, text(whole)?, int(count)?);
    spend(whole.len().saturating_mul(32))?;
    let regex = search(&pattern, &whole)?;
    if count == 0 {
        return Ok(List::value(Vec::new()));
    }
    if !pattern.is_empty() && whole.is_empty() {
        return Ok(List::texts([""]));
    }
    let (mut parts, mut begin, mut end) = (Vec::new(), 0, 0);
    for found in regex.find_iter(&whole) {
        if usize::try_from(count).is_ok_and(|count| parts.len() + 1 == count) {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(whole.get(begin..end).unwrap_or_default());
        }
        begin = found.end();
    }
    if end != whole.len() {
        parts.push(whole.get(begin..).unwrap_or_default());
    }
    Ok(List::texts(parts))
}

fn quote_meta(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            out.push('\\');
        }
        out.push(character);
    }
    out
}
