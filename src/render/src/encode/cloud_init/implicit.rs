//! The types that cloud-init's YAML reader gives to texts without quotes. It follows YAML 1.1, in
//! which `yes` is a Boolean, `0755` is 493 and `=` alone is an error.

use std::sync::LazyLock;

use regex::Regex;

/// The type that a text without quotes is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Implicit {
    /// The text itself.
    Text,
    /// A whole number that prints as it was written.
    Number,
    /// A Boolean, in one of its many spellings.
    Truth,
    /// A value that prints differently, or that has no meaning and aborts the reader.
    Other,
}

static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:0|-?[1-9][0-9]*)$"));

static TRUTH: LazyLock<Regex> = LazyLock::new(|| {
    pattern("^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$")
});

/// The reader's own patterns for all other values that are not texts.
static OTHER: LazyLock<Regex> = LazyLock::new(|| {
    let patterns = [
        r"~|null|Null|NULL|<<|=",
        r"[-+]?0b[01_]+|[-+]?0x[0-9a-fA-F_]+|[-+]?[0-9][0-9_]*",
        r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?",
        r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?",
        r"[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?",
        r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9].*)?",
    ];
    pattern(&format!("^(?:{})$", patterns.join("|")))
});

/// Returns the type that a text without quotes is read as.
pub(super) fn implicit(text: &str) -> Implicit {
    if NUMBER.is_match(text) {
        Implicit::Number
    } else if TRUTH.is_match(text) {
        Implicit::Truth
    } else if OTHER.is_match(text) {
        Implicit::Other
    } else {
        Implicit::Text
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is a constant that a test compiles")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_distinguished_from_what_yaml_reads_otherwise() {
        let check = |expected, texts: &[&str]| {
            for text in texts {
                assert_eq!(implicit(text), expected, "{text:?}");
            }
        };
        check(
            Implicit::Text,
            &["word", "a=b", "1e5", "1.2.3", "-x", "nope", "10.0.0.1:80"],
        );
        check(
            Implicit::Text,
            &["2026-01-01-a", "0xg", "<<<", "==", "truE", "08:61", ""],
        );
        check(Implicit::Number, &["0", "7", "-12", "1234567890123"]);
        check(
            Implicit::Truth,
            &["true", "false", "yes", "No", "ON", "True"],
        );
        check(Implicit::Other, &["~", "null", "<<", "="]);
        check(
            Implicit::Other,
            &["0755", "+1", "1_000", "0b1", "0x1F", "1:30", "1.5", ".5"],
        );
        check(
            Implicit::Other,
            &[".inf", "-.INF", ".nan", "1.5e+3", "2026-01-01", "-0"],
        );
        check(Implicit::Other, &["2026-1-1 10:00:00", "2026-99-99"]);
    }
}
