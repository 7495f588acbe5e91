//! sprig's functions on the letters of a string.

use minijinja::{Error, Value};

use super::{
    super::super::allocation_limit::MeteredText,
    Function, function, int, missing, refuse, text,
    texts::{lower, one, texts, upper},
};

pub(super) const TABLE: &[Function] = &[
    function("title", (1, 1), 2, |a| one(a, title)),
    function("untitle", (1, 1), 2, |a| one(a, untitle)),
    function("swapcase", (1, 1), 2, |a| one(a, swap_case)),
    function("snakecase", (1, 1), 4, |a| {
        refuse_symbols(a)?;
        one(a, |text| lower_words(text, '_'))
    }),
    function("kebabcase", (1, 1), 4, |a| {
        refuse_symbols(a)?;
        one(a, |text| lower_words(text, '-'))
    }),
    function("camelcase", (1, 1), 4, |a| one(a, pascal_case)),
    function("initials", (1, 1), 1, |a| one(a, initials)),
    function("abbrev", (2, 2), 1, abbrev),
    function("abbrevboth", (3, 3), 1, abbrev_both),
    function("wrap", (2, 2), 2, |a| match a {
        [width, whole] => wrapped(int(width)?, (None, &text(whole)?)),
        _ => Err(missing()),
    }),
    function("wrapWith", (3, 3), 2, |a| match a {
        [width, line_break, whole] => {
            wrapped(int(width)?, (Some(&text(line_break)?), &text(whole)?))
        }
        _ => Err(missing()),
    }),
];

fn title(text: &str) -> String {
    let mut is_start = true;
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_start {
            out.push(upper(character));
        } else {
            out.push(character);
        }
        is_start = is_separator(character);
    }
    out
}

/// Refuses symbols, because Go's rules for words with symbols are not implemented here.
fn refuse_symbols(arguments: &[Value]) -> Result<(), Error> {
    let [text] = texts(arguments)?;
    if text.contains(['$', '+', '<', '=', '>', '^', '`', '|', '~']) {
        return Err(refuse("a text with symbols"));
    }
    Ok(())
}

/// Returns true if a character ends a word: in ASCII anything but letters, digits and `_`, beyond
/// it white space.
fn is_separator(character: char) -> bool {
    if character.is_ascii() {
        !(character.is_ascii_alphanumeric() || character == '_')
    } else {
        !character.is_alphanumeric() && character.is_whitespace()
    }
}

fn untitle(text: &str) -> String {
    let mut is_start = true;
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_whitespace() {
            is_start = true;
            out.push(character);
        } else if is_start {
            is_start = false;
            out.push(lower(character));
        } else {
            out.push(character);
        }
    }
    out
}

fn swap_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_uppercase() {
            out.push(lower(character));
        } else {
            out.push(upper(character));
        }
    }
    out
}

fn initials(text: &str) -> String {
    let mut is_start = true;
    let mut out = String::new();
    for byte in text.bytes() {
        let character = char::from(byte);
        if character.is_whitespace() {
            is_start = true;
        } else if is_start {
            out.push(character);
            is_start = false;
        }
    }
    out
}

fn is_connector(character: char) -> bool {
    character == '-' || character == '_' || character.is_whitespace()
}

/// Returns `http_server` as `HttpServer`.
fn pascal_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(connector) = characters.next_if(|next| is_connector(*next)) {
        if characters.peek().is_none() {
            out.push(connector);
            return out;
        }
        out.push(connector);
    }
    let Some(start) = characters.next() else {
        return out;
    };
    let mut was_upper = start.is_uppercase();
    let mut last = upper(start);
    if characters.peek().is_none() {
        out.push(last);
        return out;
    }
    for next in characters {
        let before = last;
        last = next;
        if is_connector(next) && is_connector(before) {
            out.push(before);
        } else if is_connector(before) {
            was_upper = next.is_uppercase();
            last = upper(next);
        } else {
            if was_upper {
                if next.is_uppercase() {
                    last = lower(next);
                } else {
                    was_upper = false;
                }
            }
            out.push(before);
        }
    }
    out.push(last);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    None,
    Number,
    Upper,
    Letters,
    Connector,
    Punctuation,
    Other,
}

/// Returns the words in lower case with a connector between them: `HTTPServer2` as `http_server2`.
fn lower_words(text: &str, connector: char) -> String {
    if text.is_empty() {
        return String::new();
    }
    let mut out = String::with_capacity(text.len() + 8);
    let (mut kind, mut word, mut rest) = next_word(text);
    while !rest.is_empty() {
        if kind != Word::Connector {
            push_lower(&mut out, kind, word, connector);
        }
        let (before, last) = (kind, word);
        (kind, word, rest) = next_word(rest);
        match before {
            Word::Number => {
                while matches!(kind, Word::Letters | Word::Number) {
                    push_lower(&mut out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if !matches!(kind, Word::None | Word::Punctuation | Word::Connector) {
                    out.push(connector);
                }
            }
            Word::Connector => push_lower(&mut out, before, last, connector),
            Word::Punctuation => {}
            _ if kind != Word::Number => {
                if !matches!(kind, Word::Connector | Word::Punctuation) {
                    out.push(connector);
                }
            }
            _ if rest.is_empty() => {}
            _ => {
                let number = word;
                (kind, word, rest) = next_word(rest);
                if kind != Word::Letters {
                    push_lower(&mut out, Word::Number, number, connector);
                    if !matches!(kind, Word::Connector | Word::Punctuation) {
                        out.push(connector);
                    }
                    continue;
                }
                out.push(connector);
                push_lower(&mut out, Word::Number, number, connector);
                while matches!(kind, Word::Letters | Word::Number) {
                    push_lower(&mut out, kind, word, connector);
                    (kind, word, rest) = next_word(rest);
                }
                if !matches!(kind, Word::None | Word::Connector | Word::Punctuation) {
                    out.push(connector);
                }
            }
        }
    }
    push_lower(&mut out, kind, word, connector);
    out
}

fn push_lower(out: &mut String, kind: Word, word: &str, connector: char) {
    if !matches!(kind, Word::Upper | Word::Connector) {
        out.push_str(word);
        return;
    }
    for character in word.chars() {
        if is_connector(character) {
            out.push(connector);
        } else {
            out.push(lower(character));
        }
    }
}

fn next_word(text: &str) -> (Word, &str, &str) {
    let Some(start) = text.chars().next() else {
        return (Word::None, "", "");
    };
    let is_letter = |c: char| c.is_alphabetic();
    let is_mark = |c: char| c.is_ascii_punctuation() && !is_connector(c);
    let run = |belongs: &dyn Fn(char) -> bool, from: usize| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.find(|c| !belongs(c)).unwrap_or(rest.len())
    };
    let (kind, end) = if is_connector(start) {
        (Word::Connector, run(&is_connector, 0))
    } else if is_mark(start) {
        (Word::Punctuation, run(&is_mark, 0))
    } else if start.is_uppercase() {
        (Word::Upper, upper_word(text, start))
    } else if is_letter(start) {
        (
            Word::Letters,
            run(&|c| is_letter(c) && !c.is_uppercase(), 0),
        )
    } else if start.is_numeric() {
        (Word::Number, run(&char::is_numeric, 0))
    } else {
        let other = |c: char| !(is_connector(c) || is_letter(c) || c.is_numeric() || is_mark(c));
        (Word::Other, run(&other, 0))
    };
    let (word, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    (kind, word, rest)
}

/// Returns the length of `HTTP` in `HTTPServer`, or of `Server` in `ServerName`.
fn upper_word(text: &str, start: char) -> usize {
    let after = text.get(start.len_utf8()..).unwrap_or_default();
    let Some(second) = after.chars().next() else {
        return text.len();
    };
    if second.is_uppercase() {
        let end = text.find(|c: char| !c.is_uppercase()).unwrap_or(text.len());
        let next = text.get(end..).and_then(|rest| rest.chars().next());
        if !next.is_some_and(char::is_alphabetic) {
            return end;
        }
        let last = text.get(..end).and_then(|run| run.chars().next_back());
        return end - last.map_or(0, char::len_utf8);
    }
    if second.is_alphabetic() {
        let end = after.find(|c: char| !c.is_alphabetic() || c.is_uppercase());
        return start.len_utf8() + end.unwrap_or(after.len());
    }
    start.len_utf8()
}

fn abbrev(arguments: &[Value]) -> Result<Value, Error> {
    let [width, whole] = arguments else {
        return Err(missing());
    };
    let (width, whole) = (int(width)?, text(whole)?);
    if width < 4 {
        return Ok(Value::from(whole));
    }
    abbreviated(&whole, 0, width)
}

fn abbrev_both(arguments: &[Value]) -> Result<Value, Error> {
    let [left, right, whole] = arguments else {
        return Err(missing());
    };
    let (left, right, whole) = (int(left)?, int(right)?, text(whole)?);
    if right < 4 || left > 0 && right < 7 {
        return Ok(Value::from(whole));
    }
    abbreviated(&whole, left, right)
}

fn abbreviated(whole: &str, offset: i64, width: i64) -> Result<Value, Error> {
    let length = i64::try_from(whole.len()).unwrap_or(i64::MAX);
    if length <= width {
        return Ok(Value::from(whole));
    }
    let mut offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    let part = |from: i64, to: i64| {
        let bound = |at: i64| usize::try_from(at).unwrap_or_default();
        whole
            .get(bound(from)..bound(to))
            .ok_or_else(|| super::refuse("the width cuts a character"))
    };
    let made = if offset <= 4 {
        format!("{}...", part(0, width - 3)?)
    } else if offset + width - 3 < length {
        let inner = width - 3;
        format!("...{}...", part(offset, offset + inner - 3)?)
    } else {
        format!("...{}", part(length - (width - 3), length)?)
    };
    Ok(Value::from(made))
}

/// Wraps lines at a width, at spaces. A word that is too long is split only if the line break was
/// given.
fn wrapped(width: i64, (given, whole): (Option<&str>, &str)) -> Result<Value, Error> {
    let width = usize::try_from(width).unwrap_or(1).max(1);
    let line_break = given.filter(|given| !given.is_empty()).unwrap_or("\n");
    let mut out = MeteredText::default();
    let mut rest = whole;
    while rest.len() > width {
        if let Some(after) = rest.strip_prefix(' ') {
            rest = after;
            continue;
        }
        let window = rest.as_bytes().get(..=width).unwrap_or_default();
        let at = window.iter().rposition(|byte| *byte == b' ');
        let (line, skipped) = match at {
            Some(at) => (at, at + 1),
            None if given.is_some() => (width, width),
            None => match rest.bytes().skip(width).position(|byte| byte == b' ') {
                Some(at) => (width + at, width + at + 1),
                None => break,
            },
        };
        let cut = || super::refuse("the width cuts a character");
        out.push_str(rest.get(..line).ok_or_else(cut)?)?;
        out.push_str(line_break)?;
        rest = rest.get(skipped..).ok_or_else(cut)?;
    }
    out.push_str(rest)?;
    Ok(Value::from(out.into_string()))
}
