//! `printf`.

use minijinja::{Error, Value};

use super::{
    super::{
        super::allocation_limit::MeteredText,
        data::AGE,
        print::{float, formatted, nil, push_formatted},
        problem::refuse,
        value::{Kind, basic, kind, pointee, typed},
    },
    ANY, Function, function, missing,
    reflection::type_of,
    text,
    texts::quote,
};

pub(super) const TABLE: &[Function] = &[function("printf", (1, ANY), 8, |arguments| {
    let (format, values) = arguments.split_first().ok_or_else(missing)?;
    let text = Formatter {
        format: &text(format)?,
        values,
        next: 0,
        out: MeteredText::default(),
    };
    text.run().map(Value::from)
})];

/// The maximum number of digits of a float. The smallest float has 1,074 decimal places.
const FLOAT_DIGITS_MAX: usize = 1_100;

/// The flags of a verb.
#[derive(Clone, Copy, Default)]
struct Flags {
    padding: Padding,
    /// The text before a number without a sign.
    sign: &'static str,
    is_sharp: bool,
    width: usize,
    precision: Option<usize>,
}

impl Flags {
    /// Returns true if the verb has no flags.
    const fn is_plain(self) -> bool {
        matches!(self.padding, Padding::Before)
            && self.sign.is_empty()
            && !self.is_sharp
            && self.width == 0
            && self.precision.is_none()
    }
}

/// The error for combinations that would not be formatted as in Go.
const UNKNOWN: &str = "this verb is not supported for a value of this type";

/// Where a value that is too short is padded.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Padding {
    #[default]
    Before,
    BeforeWithZeros,
    Behind,
}

struct Formatter<'f> {
    format: &'f str,
    values: &'f [Value],
    next: usize,
    out: MeteredText,
}

impl Formatter<'_> {
    fn run(mut self) -> Result<String, Error> {
        let mut rest = self.format;
        while let Some((plain, after)) = rest.split_once('%') {
            self.out.push_str(plain)?;
            rest = self.verb(after)?;
        }
        self.out.push_str(rest)?;
        self.extra()?;
        Ok(self.out.into_string())
    }

    /// Prints the values for which there is no verb.
    fn extra(&mut self) -> Result<(), Error> {
        let left = self.values.get(self.next..).unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
        self.out.push_str("%!(EXTRA ")?;
        for (index, value) in left.iter().enumerate() {
            if index > 0 {
                self.out.push_str(", ")?;
            }
            if matches!(kind(value), Kind::Invalid) {
                self.out.push_str("<nil>")?;
            } else {
                self.out.push_str(&type_of(value))?;
                self.out.push('=')?;
                push_formatted(&mut self.out, value)?;
            }
        }
        self.out.push(')')
    }

    /// Formats one verb, and returns the rest of the format.
    fn verb<'r>(&mut self, rest: &'r str) -> Result<&'r str, Error> {
        let mut flags = Flags::default();
        let mut characters = rest.chars();
        let verb = loop {
            let Some(character) = characters.next() else {
                self.out.push_str("%!(NOVERB)")?;
                return Ok("");
            };
            match character {
                '-' => flags.padding = Padding::Behind,
                '+' => flags.sign = "+",
                ' ' if flags.sign.is_empty() => flags.sign = " ",
                ' ' => {}
                '#' => flags.is_sharp = true,
                '0' if flags.padding == Padding::Behind => {}
                '0' => flags.padding = Padding::BeforeWithZeros,
                '1'..='9' => {
                    let digits = character.to_digit(10).unwrap_or_default();
                    flags.width = number(&mut characters, digits)?;
                }
                '*' => flags.width = self.star()?,
                '.' => {
                    let is_star = characters.as_str().starts_with('*');
                    flags.precision = Some(if is_star {
                        characters.next();
                        self.star()?
                    } else {
                        number(&mut characters, 0)?
                    });
                }
                verb => break verb,
            }
        };
        if verb == '%' {
            self.out.push('%')?;
        } else if let Some(value) = self.values.get(self.next) {
            self.next += 1;
            push(&mut self.out, (verb, value), flags)?;
        } else {
            self.out.push_str(&format!("%!{verb}(MISSING)"))?;
        }
        Ok(characters.as_str())
    }

    fn star(&mut self) -> Result<usize, Error> {
        let value = self.values.get(self.next).ok_or_else(missing)?;
        self.next += 1;
        super::count(value)
    }
}

fn number(characters: &mut std::str::Chars<'_>, first: u32) -> Result<usize, Error> {
    let mut number = first;
    while let Some(digit) = characters.clone().next().and_then(|next| next.to_digit(10)) {
        characters.next();
        number = number.saturating_mul(10).saturating_add(digit);
    }
    // Go itself refuses a width of more than a million.
    usize::try_from(number)
        .ok()
        .filter(|number| *number <= 1_000_000)
        .ok_or_else(|| refuse("a width or precision of more than a million"))
}

/// Appends a value according to its verb and flags.
fn push(
    out: &mut MeteredText,
    (verb, value): (char, &Value),
    mut flags: Flags,
) -> Result<(), Error> {
    // With `%v`, a plus requests the names of fields, and adds no sign to numbers.
    if verb == 'v' && flags.sign == "+" && is_single(value) {
        flags.sign = "";
    }
    if verb == 'p' || flags.is_sharp && typed(value).is_some() {
        return Err(refuse(UNKNOWN));
    }
    if verb == 'T' {
        return push_padded(out, &type_of(value), flags);
    }
    match kind(value) {
        Kind::List(list) if verb != 'v' && list.0.iter().all(is_single) => {
            out.push('[')?;
            for (index, item) in list.0.iter().enumerate() {
                if index > 0 {
                    out.push(' ')?;
                }
                push(out, (verb, item), flags)?;
            }
            out.push(']')
        }
        Kind::List(_) | Kind::Map(_) | Kind::Struct(_) | Kind::Pointer(_) => {
            push_whole(out, (verb, value), flags)
        }
        Kind::Shown(..) if verb == 'd' => {
            let Kind::Int(number) = basic(value) else {
                return Err(refuse(UNKNOWN));
            };
            push_signed(out, &number.to_string(), flags)
        }
        Kind::Shown(_, shown) if !(flags.is_sharp || flags.sign == "+") => match verb {
            'v' | 's' | 'q' | 'x' | 'X' => {
                push(out, (verb_of_text(verb), &Value::from(shown)), flags)
            }
            _ => Err(refuse(UNKNOWN)),
        },
        Kind::Shown(..) => Err(refuse(UNKNOWN)),
        _ => push_single(out, (verb, value), flags),
    }
}

/// Appends a string, a number or a Boolean.
fn push_single(
    out: &mut MeteredText,
    (verb, value): (char, &Value),
    flags: Flags,
) -> Result<(), Error> {
    let text = match (verb, kind(value)) {
        ('v', Kind::Text(text)) if flags.is_sharp => quote(text),
        ('v' | 's', Kind::Text(text)) => cut(text, flags),
        ('v' | 'd', Kind::Int(number)) => return push_signed(out, &number.to_string(), flags),
        ('v', Kind::Float(_)) if flags.is_sharp => return Err(refuse(UNKNOWN)),
        ('v', Kind::Float(number)) => return push_float(out, ('g', number), flags),
        ('v', _) => formatted(value)?,
        ('q' | 'x' | 'X', Kind::Text(_)) if flags.is_sharp || !flags.sign.is_empty() => {
            return Err(refuse(UNKNOWN));
        }
        ('q', Kind::Text(text)) => quote(&cut(text, flags)),
        ('x', Kind::Text(text)) => hex::encode(cut_bytes(text, flags)),
        ('X', Kind::Text(text)) => hex::encode(cut_bytes(text, flags)).to_uppercase(),
        ('t', Kind::Bool(is)) => is.to_string(),
        ('b' | 'o' | 'c' | 'q' | 'U', Kind::Int(_)) if flags.is_sharp => {
            return Err(refuse(UNKNOWN));
        }
        ('b', Kind::Int(number)) => return push_signed(out, &radix(number, 2), flags),
        ('o', Kind::Int(number)) => return push_signed(out, &radix(number, 8), flags),
        ('x', Kind::Int(number)) => return push_signed(out, &prefixed(number, flags), flags),
        ('X', Kind::Int(number)) => {
            return push_signed(out, &prefixed(number, flags).to_uppercase(), flags);
        }
        ('c' | 'q' | 'U', Kind::Int(number)) => character(verb, number),
        ('e' | 'E' | 'f' | 'F' | 'g' | 'G', Kind::Float(number)) if !flags.is_sharp => {
            return push_float(out, (verb, number), flags);
        }
        ('b' | 'x' | 'X' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G', Kind::Float(_)) | ('O', _) => {
            return Err(refuse(UNKNOWN));
        }
        (_, Kind::Invalid) => format!("%!{verb}(<nil>)"),
        _ if flags.is_plain() => format!("%!{verb}({}={})", type_of(value), formatted(value)?),
        // The flags apply to the value in such a message as well.
        _ => return Err(refuse(UNKNOWN)),
    };
    push_padded(out, &text, flags)
}

/// Appends a list, map, struct or pointer. Only the plain form is supported.
fn push_whole(
    out: &mut MeteredText,
    (verb, value): (char, &Value),
    flags: Flags,
) -> Result<(), Error> {
    match kind(value) {
        _ if !flags.is_plain() => Err(refuse(UNKNOWN)),
        Kind::Pointer(pointer) if pointer.target.is_none() => match verb {
            'v' => out.push_str(nil(&pointer)),
            's' | 'q' | 't' if pointer.type_name != AGE => {
                out.push_str(&format!("%!{verb}({}=<nil>)", type_of(value)))
            }
            _ => Err(refuse(UNKNOWN)),
        },
        _ if verb == 'v' || verb == 's' && holds_texts(&pointee(value)) => {
            push_formatted(out, value)
        }
        _ => Err(refuse(UNKNOWN)),
    }
}

/// Returns true if `%s` prints the same as `%v`.
fn holds_texts(value: &Value) -> bool {
    match kind(value) {
        Kind::Text(_) | Kind::Shown(..) => true,
        Kind::List(list) => list.0.iter().all(holds_texts),
        Kind::Map(map) => map.entries().values().all(holds_texts),
        Kind::Struct(fields) => {
            fields.field("String").is_some() || fields.data().all(|field| holds_texts(&field.value))
        }
        _ => false,
    }
}

/// Returns true if the verb formats an item of a list by itself.
fn is_single(value: &Value) -> bool {
    matches!(
        kind(value),
        Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) | Kind::Text(_) | Kind::Shown(..)
    )
}

const fn verb_of_text(verb: char) -> char {
    match verb {
        'v' => 's',
        other => other,
    }
}

fn cut_bytes(text: &str, flags: Flags) -> &[u8] {
    let bytes = text.as_bytes();
    let length = flags
        .precision
        .map_or(bytes.len(), |count| count.min(bytes.len()));
    bytes.get(..length).unwrap_or_default()
}

fn cut(text: &str, flags: Flags) -> String {
    match flags.precision {
        Some(count) => text.chars().take(count).collect(),
        None => text.to_owned(),
    }
}

fn character(verb: char, number: i64) -> String {
    let found = u32::try_from(number).ok().and_then(char::from_u32);
    let found = found.unwrap_or('\u{fffd}');
    match verb {
        'c' => found.to_string(),
        'U' => format!("U+{:04X}", u32::from(found)),
        _ => format!("'{found}'"),
    }
}

fn radix(number: i64, radix: u32) -> String {
    let digits = match radix {
        2 => format!("{:b}", number.unsigned_abs()),
        8 => format!("{:o}", number.unsigned_abs()),
        _ => format!("{:x}", number.unsigned_abs()),
    };
    if number < 0 {
        format!("-{digits}")
    } else {
        digits
    }
}

fn prefixed(number: i64, flags: Flags) -> String {
    let digits = radix(number, 16);
    match (flags.is_sharp, digits.strip_prefix('-')) {
        (false, _) => digits,
        (true, Some(digits)) => format!("-0x{digits}"),
        (true, None) => format!("0x{digits}"),
    }
}

fn push_float(
    out: &mut MeteredText,
    (verb, number): (char, f64),
    flags: Flags,
) -> Result<(), Error> {
    if flags
        .precision
        .is_some_and(|digits| digits > FLOAT_DIGITS_MAX)
    {
        return Err(refuse("a precision that no float has"));
    }
    let text = match (verb, flags.precision) {
        _ if !number.is_finite() => float(number),
        ('f' | 'F', precision) => format!("{number:.*}", precision.unwrap_or(6)),
        ('e' | 'E', precision) => {
            let text = format!("{number:.*e}", precision.unwrap_or(6));
            with_exponent(&text, verb)
        }
        ('G', None) => float(number).to_uppercase(),
        (_, None) => float(number),
        (_, Some(precision)) => general(number, precision.max(1)),
    };
    push_signed(out, &text, flags)
}

/// Returns the number with an exponent of at least two digits and a sign.
fn with_exponent(text: &str, verb: char) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{verb}{sign}{:02}", exponent.unsigned_abs())
}

/// Formats with this many digits, without trailing zeros.
fn general(number: f64, digits: usize) -> String {
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    let limit = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= limit {
        return with_exponent(&format!("{}e{exponent}", trim(mantissa)), 'e');
    }
    let decimals = usize::try_from(limit - 1 - exponent).unwrap_or_default();
    trim(&format!("{number:.decimals$}"))
}

/// Appends a number with its sign, padded.
fn push_signed(out: &mut MeteredText, text: &str, flags: Flags) -> Result<(), Error> {
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.get(..1).unwrap_or_default(), digits),
        None => (flags.sign, text),
    };
    let length = sign.len() + digits.len();
    if flags.padding == Padding::BeforeWithZeros && flags.width > length {
        out.push_str(sign)?;
        out.push_repeated("0", flags.width - length)?;
        return out.push_str(digits);
    }
    push_padded(out, &format!("{sign}{digits}"), flags)
}

fn push_padded(out: &mut MeteredText, text: &str, flags: Flags) -> Result<(), Error> {
    let missing = flags.width.saturating_sub(text.chars().count());
    if flags.padding == Padding::Behind {
        out.push_str(text)?;
        out.push_repeated(" ", missing)
    } else {
        out.push_repeated(" ", missing)?;
        out.push_str(text)
    }
}
