//! Which values may stand where in the document. Reasons never quote the value, which may be a
//! password.

use serde_json::Value as Json;

use super::super::breaks_yaml_text;
use super::implicit::{Implicit, implicit};

type Verdict = Result<(), &'static str>;

const LINE_BREAK: &str = "it holds a line break or a control character";
const BINARY: &str = "it holds a character that YAML takes for a line break or refuses; \
                      set the file's encoding to `b64`";
const INDENTED: &str = "its first line starts with a space, which would end the block; \
                        set the file's encoding to `b64`";
const QUOTE: &str = "it holds a quote or a backslash that would end it";
const COLON: &str = "it holds `: ` or ends with `:`, which would make it a map";
const COMMENT: &str = "it holds ` #`, which would cut it off";
const INDICATOR: &str = "it starts with a character that has a meaning in YAML";
const SPACE: &str = "it starts or ends with white space";
const NO_TEXT: &str = "YAML reads it as a truth value, a number, a date or nothing; \
                       put it in quotes";
const EMPTY: &str = "it is empty";

/// A value between single quotes.
pub(super) fn single_quoted(text: &str) -> Verdict {
    first([
        (breaks_line(text), LINE_BREAK),
        (text.contains('\''), QUOTE),
    ])
}

/// A value between double quotes.
pub(super) fn double_quoted(text: &str) -> Verdict {
    first([
        (breaks_line(text), LINE_BREAK),
        (text.contains(['"', '\\']), QUOTE),
    ])
}

/// A text of several lines in a literal block.
pub(super) fn block(text: &str) -> Verdict {
    let first_line = text.split('\n').find(|line| !line.is_empty());
    first([
        (text.chars().any(breaks_yaml_text), BINARY),
        (
            first_line.is_some_and(|line| line.starts_with(' ')),
            INDENTED,
        ),
    ])
}

/// A key without quotes.
pub(super) fn key(text: &str) -> Verdict {
    first([(text.is_empty(), EMPTY)])?;
    plain(text)?;
    first([(implicit(text) != Implicit::Text, NO_TEXT)])
}

/// A value without quotes, or one that its author quoted; an empty one is read as none. Whole
/// numbers print as they were written.
pub(super) fn text_value(text: &str) -> Verdict {
    bare_or_quoted(text, &[Implicit::Text, Implicit::Number])
}

/// As [`text_value`], or a word for a truth value.
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

/// A command: a text without quotes, or one that its author quoted or wrote as a list.
pub(super) fn command(text: &str) -> Verdict {
    first([(text.is_empty(), EMPTY), (breaks_line(text), LINE_BREAK)])?;
    if is_quoted(text) {
        return Ok(());
    }
    if let Some(items) = list(text) {
        let is_bare = |item: &&String| {
            implicit(item) != Implicit::Text
                && !text.contains(&format!("'{item}'"))
                && !text.contains(&format!("\"{item}\""))
        };
        return first([(items.iter().any(|item| is_bare(&item)), NO_TEXT)]);
    }
    plain(text)?;
    first([(implicit(text) != Implicit::Text, NO_TEXT)])
}

fn plain(text: &str) -> Verdict {
    let is_padded = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    let is_map = text.ends_with(':') || text.contains(": ") || text.contains(":\t");
    first([
        (breaks_line(text), LINE_BREAK),
        (is_padded, SPACE),
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

/// `-`, `?` and `:` mean something only before a space.
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

/// The items, if the text is one list of texts to its last character.
fn list(text: &str) -> Option<Vec<String>> {
    if !text.starts_with('[') || !text.ends_with(']') || is_commented(text) {
        return None;
    }
    serde_saphyr::from_str(text).ok()
}

/// Whether the text is one quoted scalar to its last character.
fn is_quoted(text: &str) -> bool {
    let parsed = || serde_saphyr::from_str::<Json>(text);
    closes_at_its_end(text) && matches!(parsed(), Ok(Json::String(_)))
}

/// Whether the text starts with a quote that its last character closes.
fn closes_at_its_end(text: &str) -> bool {
    let mut rest = text.chars();
    match rest.next() {
        Some('"') => loop {
            match rest.next() {
                Some('\\') => drop(rest.next()),
                Some('"') => return rest.next().is_none(),
                Some(_) => {}
                None => return false,
            }
        },
        Some('\'') => loop {
            match rest.next() {
                Some('\'') => match rest.next() {
                    Some('\'') => {}
                    after => return after.is_none(),
                },
                Some(_) => {}
                None => return false,
            }
        },
        _ => false,
    }
}
