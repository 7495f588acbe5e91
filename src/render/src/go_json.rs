//! JSON strings as Go's encoder writes them. Hashes depend on their bytes, and so do documents that
//! other programs compare.

use std::fmt::Write;

/// Appends `text` as a JSON string with Go's escapes, including those for HTML.
pub(super) fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let mut plain_from = 0;
    for (index, character) in text.char_indices() {
        if !is_escaped(character) {
            continue;
        }
        out.push_str(text.get(plain_from..index).unwrap_or_default());
        push_escape(out, character);
        plain_from = index + character.len_utf8();
    }
    out.push_str(text.get(plain_from..).unwrap_or_default());
    out.push('"');
}

fn is_escaped(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f' | '"' | '\\' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}'
    )
}

fn push_escape(out: &mut String, character: char) {
    match character {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\x08' => out.push_str("\\b"),
        '\x0c' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        other => {
            let _ = write!(out, "\\u{:04x}", u32::from(other));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_go_does_it() {
        let check = |text: &str, expected: &str| {
            let mut out = String::new();
            push_string(&mut out, text);
            assert_eq!(out, expected, "{text:?}");
        };
        check("", r#""""#);
        check("a<b>&c", r#""a\u003cb\u003e\u0026c""#);
        check("\u{2028}\u{2029}", r#""\u2028\u2029""#);
        check(
            "\u{8}\u{c}\n\r\t\u{1}\u{7f}",
            "\"\\b\\f\\n\\r\\t\\u0001\u{7f}\"",
        );
        check("\"\\ä", r#""\"\\ä""#);
    }
}
