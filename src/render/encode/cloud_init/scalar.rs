//! Which values may stand where in the document. Reasons never quote the value, which may be a
//! password.

use serde_json::Value as Json;

use super::super::breaks_yaml_text;

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
const SPACE: &str = "it starts or ends with a space";
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
    plain(text)
}

/// A value without quotes, or one that its author quoted; an empty one is read as none.
pub(super) fn value(text: &str) -> Verdict {
    if text.is_empty() || is_quoted(text) {
        return first([(breaks_line(text), LINE_BREAK)]);
    }
    plain(text)
}

/// A command: a text without quotes, or one that its author quoted or wrote as a list.
pub(super) fn command(text: &str) -> Verdict {
    first([(text.is_empty(), EMPTY), (breaks_line(text), LINE_BREAK)])?;
    if is_quoted(text) || is_list(text) {
        return Ok(());
    }
    plain(text)
}

fn plain(text: &str) -> Verdict {
    let is_padded = text.starts_with(' ') || text.ends_with(' ');
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
            | '@' | '`' | '\t',
        ) => true,
        _ => false,
    }
}

/// Whether the text is one quoted scalar to its last character.
fn is_quoted(text: &str) -> bool {
    text.starts_with(['"', '\'']) && matches!(parse(text), Some(Json::String(_)))
}

/// Whether the text is one list of texts to its last character.
fn is_list(text: &str) -> bool {
    if !text.starts_with('[') || !text.ends_with(']') {
        return false;
    }
    match parse(text) {
        Some(Json::Array(items)) => items.iter().all(Json::is_string),
        _ => false,
    }
}

fn parse(text: &str) -> Option<Json> {
    if is_commented(text) {
        return None;
    }
    serde_saphyr::from_str(text).ok()
}
