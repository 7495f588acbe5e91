//! Checks which values may be written at which place of the document. Reasons never quote the
//! value, which may be a password.

use std::fmt;

use serde_json::Value as Json;

use super::super::{CRLF, block_indent, breaks_yaml_text};
use super::implicit::{Implicit, implicit};

type Verdict = Result<(), &'static str>;

const LINE_BREAK: &str = "it holds a line break or a control character";
const QUOTE: &str = "it holds a quote or a backslash that would end it";
const COLON: &str = "it holds `: ` or ends with `:`, which would make it a map";
const COMMENT: &str = "it holds ` #`, which would cut it off";
const INDICATOR: &str = "it starts with a character that has a meaning in YAML";
const SPACE: &str = "it starts or ends with a space";
const TAB: &str = "it holds a tab, which cloud-init's reader refuses; put it in quotes";
const LIST: &str = "it is no list of texts; put each of them in quotes";
const NO_TEXT: &str = "YAML reads it as a truth value, a number, a date or nothing; \
                       put it in quotes";
const EMPTY: &str = "it is empty";

/// Puts a text in single quotes, in which YAML reads every character but a line break as it is.
pub(super) fn single_quoted(text: &str) -> Result<SingleQuoted<'_>, &'static str> {
    first([(breaks_line(text), LINE_BREAK)])?;
    Ok(SingleQuoted(text))
}

/// A text that is printed in single quotes.
pub(super) struct SingleQuoted<'a>(&'a str);

impl fmt::Display for SingleQuoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        let mut separator = "'";
        for part in text.split('\'') {
            write!(formatter, "{separator}{part}")?;
            separator = "''";
        }
        formatter.write_str("'")
    }
}

/// Checks a value between double quotes.
pub(super) fn double_quoted(text: &str) -> Verdict {
    first([
        (breaks_line(text), LINE_BREAK),
        (text.contains(['"', '\\']), QUOTE),
    ])
}

/// Checks a text of several lines in a literal block.
pub(super) fn block(text: &str) -> Verdict {
    block_indent(&text.replace(CRLF, "\n")).map(drop)
}

/// Checks a key without quotes.
pub(super) fn key(text: &str) -> Verdict {
    first([(text.is_empty(), EMPTY)])?;
    plain(text)?;
    first([(implicit(text) != Implicit::Text, NO_TEXT)])
}

/// Checks a value without quotes, or one that its author quoted. An empty value is read as null.
/// Whole numbers print as they were written.
pub(super) fn text_value(text: &str) -> Verdict {
    bare_or_quoted(text, &[Implicit::Text, Implicit::Number])
}

/// Checks the same as [`text_value`], but also accepts Booleans.
pub(super) fn value(text: &str) -> Verdict {
    bare_or_quoted(text, &[Implicit::Text, Implicit::Number, Implicit::Truth])
}

fn bare_or_quoted(text: &str, accepted: &[Implicit]) -> Verdict {
    if text.is_empty() || is_quoted(text) {
        return first([(breaks_line(text), LINE_BREAK)]);
    }
    plain(text)?;
    first([(!accepted.contains(&implicit(text)), NO_TEXT)])
}

/// Checks a command: a text without quotes, or one that its author quoted or wrote as a list.
pub(super) fn command(text: &str) -> Verdict {
    first([(text.is_empty(), EMPTY), (breaks_line(text), LINE_BREAK)])?;
    if is_quoted(text) {
        return Ok(());
    }
    if text.starts_with('[') {
        return first([(!is_list(text), LIST)]);
    }
    plain(text)?;
    first([(implicit(text) != Implicit::Text, NO_TEXT)])
}

fn plain(text: &str) -> Verdict {
    let is_padded = text.starts_with(' ') || text.ends_with(' ');
    let is_map = text.ends_with(':') || text.contains(": ");
    first([
        (breaks_line(text), LINE_BREAK),
        (is_padded, SPACE),
        (text.contains('\t'), TAB),
        (starts_with_indicator(text), INDICATOR),
        (is_map, COLON),
        (is_commented(text), COMMENT),
    ])
}

fn first<const N: usize>(checks: [(bool, &'static str); N]) -> Verdict {
    match checks.into_iter().find(|(is_refused, _)| *is_refused) {
        Some((_, reason)) => Err(reason),
        None => Ok(()),
    }
}

fn breaks_line(text: &str) -> bool {
    text.chars()
        .any(|character| character == '\n' || breaks_yaml_text(character))
}

fn is_commented(text: &str) -> bool {
    text.contains(" #") || text.contains("\t#")
}

/// Returns true if a text starts with an indicator. `-`, `?` and `:` are indicators only before a
/// space.
fn starts_with_indicator(text: &str) -> bool {
    let mut characters = text.chars();
    match characters.next() {
        Some('-' | '?' | ':') => characters.next().is_none_or(char::is_whitespace),
        Some(
            ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%'
            | '@' | '`',
        ) => true,
        _ => false,
    }
}

/// Returns true if the whole text is a list of texts. Between brackets, more characters have a
/// meaning than outside of them.
fn is_list(text: &str) -> bool {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let Some(mut rest) = inner.map(|inner| inner.trim_matches(' ')) else {
        return false;
    };
    loop {
        let quoted = quoted_length(rest);
        let length = quoted.or_else(|| rest.find(',')).unwrap_or(rest.len());
        let (item, after) = rest.split_at(length);
        if !is_item(item.trim_end_matches(' ')) {
            return false;
        }
        match after.trim_start_matches(' ').strip_prefix(',') {
            Some(next) => rest = next.trim_start_matches(' '),
            None => return after.trim_matches(' ').is_empty(),
        }
    }
}

fn is_item(item: &str) -> bool {
    let is_bare = || {
        !item.starts_with([':', '?'])
            && !item.contains(['[', ']', '{', '}', '?'])
            && plain(item).is_ok()
            && implicit(item) == Implicit::Text
    };
    !item.is_empty() && (is_quoted(item) || is_bare())
}

/// Returns true if the whole text is one quoted scalar.
fn is_quoted(text: &str) -> bool {
    let parsed = || serde_saphyr::from_str::<Json>(text);
    quoted_length(text) == Some(text.len()) && matches!(parsed(), Ok(Json::String(_)))
}

/// Returns the length of the quoted scalar with which the text starts.
fn quoted_length(text: &str) -> Option<usize> {
    let mut rest = text.char_indices();
    let (_, quote) = rest
        .next()
        .filter(|(_, first)| ['"', '\''].contains(first))?;
    while let Some((index, character)) = rest.next() {
        let is_doubled = || {
            text.get(index + 1..)
                .is_some_and(|text| text.starts_with('\''))
        };
        match character {
            '\\' if quote == '"' => drop(rest.next()),
            '\'' if quote == '\'' && is_doubled() => drop(rest.next()),
            _ if character == quote => return Some(index + 1),
            _ => {}
        }
    }
    None
}
