//! The syntax of Go's `flag` package: what it accepts, what it prints, and where it stops.
//!
//! `-name` and `--name` are the same; a value stands behind `=` or is the next word, for switches
//! behind `=` alone. The first word that is no flag ends the flags, and so do `-` and `--`.

use std::fmt::Write as _;

/// One flag of a command whose flags are kept in a `T`.
pub struct Flag<T> {
    /// Without dashes.
    pub name: &'static str,
    /// Its description, for the usage.
    pub usage: &'static str,
    /// The setting that it changes.
    pub place: Place<T>,
}

/// The setting that a flag changes, and its type.
pub enum Place<T> {
    /// A switch.
    Switch(fn(&mut T) -> &mut bool),
    /// A whole number.
    Number(fn(&mut T) -> &mut i64),
    /// A text.
    Text(fn(&mut T) -> &mut String),
    /// A text that a function parses, as in Go's `flag.Func`, and how its default is shown.
    Func(fn(&mut T, &str) -> Result<(), String>, &'static str),
}

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    /// The flags.
    pub flags: T,
    /// Words behind the end of the flags: they have no effect.
    pub ignored: Vec<String>,
}

/// Why a command does not run: what it prints instead, and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// For stderr.
    pub text: String,
    /// 0 where help was asked for, 2 where a flag is wrong.
    pub code: u8,
}

/// Reads the words behind a command's name, over the defaults.
///
/// # Errors
///
/// A flag is unknown or has an invalid value, or help was asked for.
pub fn read<T: Default>(
    program: &str,
    known: &[Flag<T>],
    words: &[String],
) -> Result<Read<T>, Stop> {
    let mut flags = T::default();
    let mut rest = words.iter();
    let refused = |why: String| Stop {
        text: format!("{why}\n{}", usage(program, known)),
        code: 2,
    };
    while let Some(word) = rest.clone().next() {
        let Some(word) = flag_word(word).map_err(refused)? else {
            break;
        };
        rest.next();
        let Word::Flag { name, value } = word else {
            break;
        };
        let Some(flag) = known.iter().find(|flag| flag.name == name) else {
            if name == "help" || name == "h" {
                let text = usage(program, known);
                return Err(Stop { text, code: 0 });
            }
            return Err(refused(format!("flag provided but not defined: -{name}")));
        };
        let value = match (value, &flag.place) {
            (Some(value), _) => value,
            (None, Place::Switch(_)) => "true",
            (None, _) => rest
                .next()
                .ok_or_else(|| refused(format!("flag needs an argument: -{name}")))?,
        };
        set(&mut flags, flag, value).map_err(refused)?;
    }
    let ignored = rest.cloned().collect();
    Ok(Read { flags, ignored })
}

enum Word<'a> {
    /// `--`
    End,
    Flag {
        name: &'a str,
        value: Option<&'a str>,
    },
}

/// A word as a flag; nothing where it is none.
fn flag_word(word: &str) -> Result<Option<Word<'_>>, String> {
    let Some(name) = word.strip_prefix('-').filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    if name == "-" {
        return Ok(Some(Word::End));
    }
    let name = name.strip_prefix('-').unwrap_or(name);
    if name.starts_with(['-', '=']) {
        return Err(format!("bad flag syntax: {word}"));
    }
    // A name has at least one byte before its `=`.
    let (name, value) = match name.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (name, None),
    };
    Ok(Some(Word::Flag { name, value }))
}

fn set<T>(flags: &mut T, flag: &Flag<T>, value: &str) -> Result<(), String> {
    let name = flag.name;
    match &flag.place {
        Place::Switch(place) => {
            *place(flags) = parse_bool(value).ok_or_else(|| {
                format!("invalid boolean value {value:?} for -{name}: parse error")
            })?;
        }
        Place::Number(place) => {
            *place(flags) = parse_int(value)
                .map_err(|why| format!("invalid value {value:?} for flag -{name}: {why}"))?;
        }
        Place::Text(place) => value.clone_into(place(flags)),
        Place::Func(parse, _) => parse(flags, value)
            .map_err(|why| format!("invalid value {value:?} for flag -{name}: {why}"))?,
    }
    Ok(())
}

/// As `strconv.ParseBool`.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// As `strconv.ParseInt` with base 0: prefixes name the base, and underscores may part digits.
fn parse_int(text: &str) -> Result<i64, &'static str> {
    const SYNTAX: &str = "parse error";
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = [("0x", 16), ("0b", 2), ("0o", 8), ("0", 8)]
        .into_iter()
        .find_map(|(prefix, base)| Some((base, lower.strip_prefix(prefix)?)))
        .filter(|_| lower != "0")
        .unwrap_or((10, &lower));
    // A prefix counts as a digit.
    let begins_parted = base == 10 && digits.starts_with('_');
    if begins_parted || digits.ends_with('_') || digits.contains("__") {
        return Err(SYNTAX);
    }
    let digits = digits.replace('_', "");
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(base)) {
        return Err(SYNTAX);
    }
    // Digits alone: only their number can be wrong.
    i64::from_str_radix(&format!("{sign}{digits}"), base).map_err(|_| "value out of range")
}

/// Returns the usage as Go prints it: in the order of their names, with their defaults.
pub fn usage<T: Default>(program: &str, known: &[Flag<T>]) -> String {
    let mut text = format!("Usage of {program}:\n");
    let mut sorted: Vec<&Flag<T>> = known.iter().collect();
    sorted.sort_by_key(|flag| flag.name);
    let mut defaults = T::default();
    for flag in sorted {
        let (kind, default) = match &flag.place {
            Place::Switch(place) => ("", Some(place(&mut defaults).to_string())),
            Place::Number(place) => (" int", Some(place(&mut defaults).to_string())),
            Place::Text(place) => {
                let text = place(&mut defaults);
                (" string", (!text.is_empty()).then(|| format!("{text:?}")))
            }
            Place::Func(_, shown) => (" value", Some((*shown).to_owned())),
        };
        let _ = write!(text, "  -{}{kind}\n    \t{}", flag.name, flag.usage);
        // Go leaves out the defaults that are its own.
        let default = default.filter(|it| !["", "0", "false"].contains(&it.as_str()));
        if let Some(default) = default {
            let _ = write!(text, " (default {default})");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
