//! Writes values as YAML.

use std::fmt::Write;

use minijinja::{Error, Value};

use super::{
    super::{
        super::allocation_limit::MeteredText,
        print::shortest,
        value::{Kind, kind},
    },
    scalars::{Scalar, is_old_style, resolve},
};

/// The indentation of each level.
const INDENT: usize = 4;
/// The text before an item of a list. A block in a list is indented by it.
const DASH: &str = "- ";

/// Returns a value as a document, without the last line break.
pub(in crate::go_template) fn write(value: &Value) -> Result<String, Error> {
    let mut out = MeteredText::default();
    node(&mut out, value, Place::Top)?;
    let out = out.into_string();
    let text = out.strip_prefix(['\n', ' ']).unwrap_or(&out);
    Ok(text.strip_suffix('\n').unwrap_or(text).to_owned())
}

/// The place of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    /// After `key:`, with the indentation of the key.
    Key(usize),
    /// After `-`, with the indentation of the dash.
    Dash(usize),
}

impl Place {
    /// Returns the indentation of the content of a node.
    fn inside(self) -> usize {
        match self {
            Self::Top => 0,
            Self::Key(indent) => INDENT * ((indent + INDENT) / INDENT),
            Self::Dash(indent) => indent + DASH.len(),
        }
    }

    /// Begins the next entry of a block.
    fn begin(self, out: &mut MeteredText, index: usize) -> Result<(), Error> {
        // The first entry of a block in a list follows the dash.
        if matches!(self, Self::Dash(_)) && index == 0 {
            return out.push(' ');
        }
        if !out.as_str().is_empty() && !out.as_str().ends_with('\n') {
            out.push('\n')?;
        }
        out.push_repeated(" ", self.inside())
    }
}

fn node(out: &mut MeteredText, value: &Value, place: Place) -> Result<(), Error> {
    match kind(value) {
        Kind::Map(map) if !map.entries().is_empty() => {
            let entries = map.entries();
            let mut sorted: Vec<_> = entries.iter().collect();
            sorted.sort_by(|left, right| natural_order(left.0, right.0));
            for (index, (key, value)) in sorted.into_iter().enumerate() {
                place.begin(out, index)?;
                key_text(out, key)?;
                out.push(':')?;
                node(out, value, Place::Key(block_indent(place)))?;
            }
        }
        Kind::Struct(fields) if fields.data().next().is_some() => {
            for (index, field) in fields.data().enumerate() {
                place.begin(out, index)?;
                out.push_str(&field.name.to_lowercase())?;
                out.push(':')?;
                node(out, &field.value, Place::Key(block_indent(place)))?;
            }
        }
        Kind::List(list) if !list.0.is_empty() => {
            for (index, item) in list.0.iter().enumerate() {
                place.begin(out, index)?;
                out.push('-')?;
                node(out, item, Place::Dash(block_indent(place)))?;
            }
        }
        Kind::Shown(_, shown) => text_node(out, shown, place)?,
        Kind::Pointer(pointer) => match &pointer.target {
            Some(target) => node(out, target, place)?,
            None => scalar(out, "null")?,
        },
        // A struct with a `String` method is written as that string, without its fields.
        Kind::Struct(fields) => match fields.field("String") {
            Some(text) => node(out, text, place)?,
            None => scalar(out, "{}")?,
        },
        Kind::Map(_) => scalar(out, "{}")?,
        Kind::List(_) => scalar(out, "[]")?,
        Kind::Invalid => scalar(out, "null")?,
        Kind::Bool(is) => scalar(out, if is { "true" } else { "false" })?,
        Kind::Int(number) => scalar(out, &number.to_string())?,
        Kind::Float(number) => scalar(out, &float(number))?,
        Kind::Text(text) => text_node(out, text, place)?,
    }
    Ok(())
}

/// Returns the indentation of a block's entries.
fn block_indent(place: Place) -> usize {
    place.inside()
}

fn scalar(out: &mut MeteredText, text: &str) -> Result<(), Error> {
    out.push(' ')?;
    out.push_str(text)?;
    out.push('\n')
}

fn float(number: f64) -> String {
    if number.is_nan() {
        ".nan".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { ".inf" } else { "-.inf" }.to_owned()
    } else {
        shortest(number, 6)
    }
}

fn key_text(out: &mut MeteredText, key: &str) -> Result<(), Error> {
    if key.contains(is_break) || key.len() > 128 {
        // Go would write such a key after a question mark.
        return out.push_str(&double_quoted(key));
    }
    inline_text(out, key, 0)
}

fn text_node(out: &mut MeteredText, text: &str, place: Place) -> Result<(), Error> {
    let indent = match place {
        Place::Top => INDENT,
        place => place.inside(),
    };
    if !text.contains('\n') {
        out.push(' ')?;
        inline_text(out, text, indent)?;
        return out.push('\n');
    }
    let marks = Marks::of(text);
    if marks.is_special || marks.has_space_before_break || text.ends_with(' ') {
        return scalar(out, &double_quoted(text));
    }
    out.push_str(" |")?;
    if text.starts_with(|it| it == ' ' || is_break(it)) {
        out.push_str(&INDENT.to_string())?;
    }
    if !text.ends_with('\n') {
        out.push('-')?;
    } else if text == "\n" || text.ends_with("\n\n") {
        out.push('+')?;
    }
    // Go reads a line break at the start as the one after the mark.
    if !text.starts_with(is_break) {
        out.push('\n')?;
    }
    indented(out, text, (indent, indent))?;
    if !out.as_str().ends_with('\n') {
        out.push('\n')?;
    }
    Ok(())
}

/// Writes a string, quoted if necessary. Go counts two separators of Unicode as line breaks, and
/// indents what follows them.
fn inline_text(out: &mut MeteredText, text: &str, indent: usize) -> Result<(), Error> {
    let is_text = matches!(resolve(text), Scalar::Text | Scalar::Merge) && !is_old_style(text);
    let marks = Marks::of(text);
    let has_breaks = text.contains(is_break);
    let mut after_breaks = text.split(is_break).skip(1);
    let has_space = marks.has_space_before_break || after_breaks.any(|it| it.starts_with(' '));
    let is_double = marks.is_special || text.contains(['\n', '\t']);
    if !is_text || is_double || has_breaks && has_space {
        return out.push_str(&double_quoted(text));
    }
    if marks.is_plain && !has_breaks {
        return out.push_str(text);
    }
    out.push('\'')?;
    indented(out, &text.replace('\'', "''"), (0, indent))?;
    out.push('\'')
}

/// Writes the lines of a text, each but empty ones with an indentation: the first one, and others.
fn indented(
    out: &mut MeteredText,
    text: &str,
    (first, others): (usize, usize),
) -> Result<(), Error> {
    let mut indent = first;
    for line in text.split_inclusive(is_break) {
        if !line.chars().all(is_break) {
            out.push_repeated(" ", indent)?;
        }
        out.push_str(line)?;
        indent = others;
    }
    Ok(())
}

fn ends_with_space(line: &str) -> bool {
    line.strip_suffix(is_break)
        .is_some_and(|it| it.ends_with(' '))
}

fn is_break(character: char) -> bool {
    matches!(character, '\n' | '\u{2028}' | '\u{2029}')
}

/// The characters in a string that determine how it is written.
struct Marks {
    is_plain: bool,
    is_special: bool,
    has_space_before_break: bool,
}

impl Marks {
    fn of(text: &str) -> Self {
        let mut is_plain = !text.is_empty()
            && !text.starts_with([' ', '\n'])
            && !text.ends_with([' ', '\n'])
            && !text.starts_with("---")
            && !text.starts_with("...");
        let mut is_special = false;
        let mut before = None;
        let mut rest = text.chars().peekable();
        while let Some(character) = rest.next() {
            let ends_word = rest.peek().is_none_or(|next| " \t\n\r".contains(*next));
            let is_indicator = match before {
                None => match character {
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\''
                    | '"' | '%' | '@' | '`' => true,
                    '?' | ':' | '-' => ends_word,
                    _ => false,
                },
                Some(before) => match character {
                    ':' => ends_word,
                    '#' => " \t\n\r".contains(before),
                    _ => false,
                },
            };
            is_plain &= !is_indicator;
            is_special |= character != '\t' && !is_printable(character);
            before = Some(character);
        }
        Self {
            is_plain,
            is_special,
            has_space_before_break: text.split_inclusive(is_break).any(ends_with_space),
        }
    }
}

fn is_printable(character: char) -> bool {
    matches!(character, '\n' | '\u{20}'..='\u{7e}' | '\u{a0}'..='\u{d7ff}')
        || matches!(character, '\u{e000}'..='\u{fffd}' if character != '\u{feff}')
}

fn double_quoted(text: &str) -> String {
    // Go escapes each character of a text that begins with a byte order mark.
    let is_marked = text.starts_with('\u{feff}');
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str(r"\\"),
            '\0' => out.push_str(r"\0"),
            '\x07' => out.push_str(r"\a"),
            '\x08' => out.push_str(r"\b"),
            '\t' => out.push_str(r"\t"),
            '\n' => out.push_str(r"\n"),
            '\x0b' => out.push_str(r"\v"),
            '\x0c' => out.push_str(r"\f"),
            '\r' => out.push_str(r"\r"),
            '\x1b' => out.push_str(r"\e"),
            '\u{85}' => out.push_str(r"\N"),
            '\u{a0}' if is_marked => out.push_str(r"\_"),
            '\u{2028}' => out.push_str(r"\L"),
            '\u{2029}' => out.push_str(r"\P"),
            other if is_printable(other) && !is_marked => out.push(other),
            other => {
                let code = u32::from(other);
                let _ = match code {
                    0..=0xff => write!(out, "\\x{code:02X}"),
                    0x100..=0xffff => write!(out, "\\u{code:04X}"),
                    _ => write!(out, "\\U{code:08X}"),
                };
            }
        }
    }
    out.push('"');
    out
}

/// The order of keys: digits within them compare as numbers, and letters come after other
/// characters.
fn natural_order(left: &str, right: &str) -> std::cmp::Ordering {
    use std::cmp::Ordering;
    let (lefts, rights): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut are_digits = false;
    for (index, (l, r)) in lefts.iter().zip(&rights).enumerate() {
        if l == r {
            are_digits = l.is_ascii_digit();
            continue;
        }
        match (l.is_alphabetic(), r.is_alphabetic()) {
            (true, true) => return l.cmp(r),
            (true, false) if !are_digits => return Ordering::Greater,
            (false, true) if !are_digits => return Ordering::Less,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        let number = |characters: &[char]| {
            let rest = characters.get(index..).unwrap_or_default();
            let digits: String = rest.iter().take_while(|c| c.is_ascii_digit()).collect();
            (digits.len(), digits.parse::<u64>().unwrap_or_default())
        };
        if *l == '0' || *r == '0' {
            let is_zero_run = lefts
                .get(..index)
                .unwrap_or_default()
                .iter()
                .rev()
                .take_while(|c| c.is_ascii_digit())
                .any(|c| *c != '0');
            if is_zero_run {
                let (left_digits, right_digits) = (number(&lefts).0, number(&rights).0);
                if left_digits != right_digits {
                    return left_digits.cmp(&right_digits);
                }
            }
        }
        let ((left_digits, left_number), (right_digits, right_number)) =
            (number(&lefts), number(&rights));
        return left_number
            .cmp(&right_number)
            .then(left_digits.cmp(&right_digits))
            .then(l.cmp(r));
    }
    lefts.len().cmp(&rights.len())
}
