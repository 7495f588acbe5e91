//! Jinja's own equivalents of functions of Go templates.
//!
//! Each is used only for the kinds of values for which both do exactly the same. For example, `eq`
//! of a string and a number fails in Go, and is false in Jinja.

use super::{
    Outcome, Writer,
    code::{Code, Level, quoted},
    kinds::{Entry, Kind},
};

impl Writer<'_> {
    /// Returns the equivalent of a call in Jinja, if there is one.
    pub(super) fn idiom(&self, name: &str, arguments: &[Code]) -> Outcome<Option<Code>> {
        Ok(match name {
            "eq" | "ne" | "lt" | "le" | "gt" | "ge" => comparison(name, arguments),
            "print" | "printf" => concatenation(name, arguments),
            "empty" => match arguments {
                [only] if only.is_scalar() || only.kind == Kind::List => {
                    let condition = self.truth(only)?.not();
                    Some(Code::made(condition.text, condition.level, Kind::Truth))
                }
                _ => None,
            },
            "len" => match arguments {
                [only] if matches!(only.kind, Kind::List | Kind::Map(_)) && is_there(only) => {
                    Some(filter(&only.at(Level::Filter), "length", Kind::Number))
                }
                _ => None,
            },
            "join" => match arguments {
                [separator, list] if list.kind == Kind::List && is_there(list) => {
                    separator.is_text().then(|| joined(list, &separator.text))
                }
                _ => None,
            },
            "ternary" => match arguments {
                [yes, no, question] if are_alike(yes, no) && question.kind == Kind::Truth => {
                    let text = format!(
                        "{} if {} else {}",
                        yes.at(Level::Or),
                        question.at(Level::Or),
                        no.at(Level::Choice)
                    );
                    Some(Code::made(text, Level::Choice, yes.kind))
                }
                _ => None,
            },
            _ if arguments.iter().all(Code::is_text) => text_function(name, arguments),
            _ => None,
        })
    }
}

fn is_there(code: &Code) -> bool {
    code.nature == super::code::Nature::Stable
}

fn are_alike(left: &Code, right: &Code) -> bool {
    left.is_scalar() && right.is_scalar() && left.kind == right.kind
}

fn filter(text: &str, filter: &str, kind: Kind) -> Code {
    Code::made(format!("{text}|{filter}"), Level::Filter, kind)
}

fn joined(list: &Code, separator: &str) -> Code {
    let call = format!("join({separator})");
    filter(&list.at(Level::Filter), &call, Kind::Text)
}

/// Returns the equivalent of a function on strings.
fn text_function(name: &str, arguments: &[Code]) -> Option<Code> {
    let truth = |text, level| Some(Code::made(text, level, Kind::Truth));
    match (name, arguments) {
        ("semverCompare", [constraint, version]) => truth(
            format!("semver_matches({}, {})", version.text, constraint.text),
            Level::Atom,
        ),
        ("trim", [text]) => Some(filter(&text.at(Level::Filter), "trim", Kind::Text)),
        ("b64enc", [text]) => Some(filter(&text.at(Level::Filter), "b64encode", Kind::Text)),
        ("toString", [text]) => Some(text.clone()),
        ("replace", [from, to, text]) if from.text.starts_with('"') && from.text != "\"\"" => {
            let call = format!("replace({}, {})", from.text, to.text);
            Some(filter(&text.at(Level::Filter), &call, Kind::Text))
        }
        ("default", [default, text]) | ("coalesce", [text, default]) => {
            let text = format!("{} or {}", text.at(Level::Or), default.at(Level::Or));
            Some(Code::made(text, Level::Or, Kind::Text))
        }
        ("contains", [part, text]) => truth(
            format!(
                "{} in {}",
                part.at(Level::Concatenation),
                text.at(Level::Concatenation)
            ),
            Level::Comparison,
        ),
        ("hasPrefix", [part, text]) => truth(
            format!("{} is startingwith({})", text.at(Level::Filter), part.text),
            Level::Comparison,
        ),
        ("hasSuffix", [part, text]) => truth(
            format!("{} is endingwith({})", text.at(Level::Filter), part.text),
            Level::Comparison,
        ),
        ("squote", [text]) => {
            let text = format!("\"'\" ~ {} ~ \"'\"", text.at(Level::Filter));
            Some(Code::made(text, Level::Concatenation, Kind::Text))
        }
        _ => None,
    }
}

fn comparison(name: &str, arguments: &[Code]) -> Option<Code> {
    let [left, others @ ..] = arguments else {
        return None;
    };
    let are_comparable = |other: &Code| are_alike(left, other) || is_entry(left, other);
    if others.is_empty() || !others.iter().all(are_comparable) {
        return None;
    }
    let is_ordered = left.kind == Kind::Truth || matches!(left.kind, Kind::Entry(_));
    let sign = match name {
        "eq" => "==",
        "ne" => "!=",
        _ if is_ordered => return None,
        "lt" => "<",
        "le" => "<=",
        "gt" => ">",
        _ => ">=",
    };
    let left = match left.kind {
        Kind::Entry(_) => format!("{}|default(none)", left.at(Level::Filter)),
        _ => left.at(Level::Concatenation),
    };
    let text = match others {
        [only] => format!("{left} {sign} {}", only.at(Level::Concatenation)),
        many if name == "eq" => {
            let texts: Vec<&str> = many.iter().map(|other| other.text.as_str()).collect();
            format!("{left} in [{}]", texts.join(", "))
        }
        _ => return None,
    };
    Some(Code::made(text, Level::Comparison, Kind::Truth))
}

/// Returns true if an entry is compared with a value. A missing entry is not equal to any value.
fn is_entry(left: &Code, right: &Code) -> bool {
    let kind = match left.kind {
        Kind::Entry(Entry::Text) => Kind::Text,
        Kind::Entry(Entry::Truth) => Kind::Truth,
        _ => return false,
    };
    right.is_scalar() && right.kind == kind
}

/// Returns the concatenation of texts.
fn concatenation(name: &str, arguments: &[Code]) -> Option<Code> {
    let parts = match (name, arguments) {
        ("print", texts) if texts.iter().all(Code::is_text) => {
            texts.iter().map(|text| text.at(Level::Filter)).collect()
        }
        ("printf", [format, rest @ ..]) if format.text.starts_with('"') => {
            let format: String = serde_json::from_str(&format.text).ok()?;
            formatted(&format, rest)?
        }
        _ => return None,
    };
    match parts.as_slice() {
        [] => Some(Code::literal("")),
        [only] if arguments.len() == 1 => Some(Code::made(only.clone(), Level::Filter, Kind::Text)),
        [_] => Some(Code::made(
            format!("\"\" ~ {}", parts.join(" ~ ")),
            Level::Concatenation,
            Kind::Text,
        )),
        _ => Some(Code::made(
            parts.join(" ~ "),
            Level::Concatenation,
            Kind::Text,
        )),
    }
}

/// Returns the parts of a format, if it only inserts values.
fn formatted(format: &str, values: &[Code]) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut values = values.iter();
    let mut literal = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            literal.push(character);
            continue;
        }
        let verb = characters.next()?;
        if verb == '%' {
            literal.push('%');
            continue;
        }
        let value = values.next().filter(|value| value.is_scalar())?;
        let is_known = match verb {
            's' => value.kind == Kind::Text,
            'd' => value.kind == Kind::Number,
            'v' => true,
            _ => false,
        };
        if !is_known {
            return None;
        }
        if !literal.is_empty() {
            parts.push(quoted(&std::mem::take(&mut literal)));
        }
        parts.push(value.at(Level::Filter));
    }
    if !literal.is_empty() {
        parts.push(quoted(&literal));
    }
    values.next().is_none().then_some(parts)
}
