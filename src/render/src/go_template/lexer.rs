//! Splits the text of a Go template into tokens.
//!
//! White space that `{{-` and `-}}` trim, and comments, print nothing. They have their own tokens
//! for code that rewrites the template.

use super::tree::{Refusal, RefusedPart};

/// The maximum number of tokens in one template. Each becomes a node, and a whole profile has some
/// thousands.
const TOKENS_MAX: usize = 100_000;

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// White space that a tag trims.
    Trimmed,
    /// A comment, without its marks.
    Comment,
    LeftDelimiter,
    RightDelimiter,
    Space,
    Assign,
    Declare,
    Pipe,
    Quoted,
    RawQuoted,
    Character,
    Variable,
    /// A field, without its dot.
    Field,
    Dot,
    Number,
    Word,
    LeftParenthesis,
    RightParenthesis,
    /// Any other single character. Only the comma has a meaning.
    Sign,
    End,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// Splits a template into tokens.
pub(super) fn lex(source: &str) -> Result<Vec<Token<'_>>, Refusal> {
    let mut lexer = Lexer {
        rest: source,
        line: 1,
        tokens: Vec::new(),
    };
    lexer.run()?;
    lexer.push(Kind::End, "");
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn refuse(&self, problem: &str) -> Refusal {
        Refusal {
            line: self.line,
            problem: problem.to_owned(),
            part: RefusedPart::Template,
        }
    }

    fn push(&mut self, kind: Kind, text: &'a str) {
        self.tokens.push(Token {
            kind,
            text,
            line: self.line,
        });
    }

    /// Consumes this many bytes, and counts their lines.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn run(&mut self) -> Result<(), Refusal> {
        while !self.rest.is_empty() {
            let Some(length) = self.rest.find("{{") else {
                let text = self.rest;
                self.push(Kind::Text, text);
                self.take(text.len());
                return Ok(());
            };
            let text = self.rest.get(..length).unwrap_or_default();
            let inside = self.rest.get(length + 2..).unwrap_or_default();
            let trims = inside
                .strip_prefix('-')
                .is_some_and(|after| after.starts_with(SPACES));
            let kept = if trims {
                text.trim_end_matches(SPACES)
            } else {
                text
            };
            if !kept.is_empty() {
                self.push(Kind::Text, kept);
            }
            let trimmed = text.get(kept.len()..).unwrap_or_default();
            self.push_trimmed(trimmed);
            self.take(length);
            let marker = if trims { 2 } else { 0 };
            if inside
                .get(marker..)
                .is_some_and(|inside| inside.starts_with("/*"))
            {
                self.take(2 + marker);
                self.comment()?;
            } else {
                self.push(Kind::LeftDelimiter, "{{");
                self.take(2 + marker);
                self.action()?;
            }
        }
        Ok(())
    }

    fn comment(&mut self) -> Result<(), Refusal> {
        self.take(2);
        let length = self
            .rest
            .find("*/")
            .ok_or_else(|| self.refuse("unclosed comment"))?;
        let text = self.take(length);
        self.push(Kind::Comment, text);
        self.take(2);
        match self.close() {
            Some(trimmed) => {
                self.push_trimmed(trimmed);
                Ok(())
            }
            None => Err(self.refuse("comment ends before closing delimiter")),
        }
    }

    fn push_trimmed(&mut self, trimmed: &'a str) {
        if !trimmed.is_empty() {
            self.push(Kind::Trimmed, trimmed);
        }
    }

    /// Consumes a closing delimiter, and returns the white space that it trims.
    fn close(&mut self) -> Option<&'a str> {
        if self.rest.starts_with("}}") {
            self.take(2);
            return Some("");
        }
        let trims = self.rest.starts_with(SPACES)
            && self
                .rest
                .get(1..)
                .is_some_and(|rest| rest.starts_with("-}}"));
        trims.then(|| {
            self.take(4);
            let spaces = self.rest.len() - self.rest.trim_start_matches(SPACES).len();
            self.take(spaces)
        })
    }

    fn action(&mut self) -> Result<(), Refusal> {
        let mut depth = 0_usize;
        loop {
            if self.tokens.len() > TOKENS_MAX {
                return Err(self.refuse(&format!("more than {TOKENS_MAX} tokens")));
            }
            let line = self.line;
            if let Some(trimmed) = self.close() {
                if depth > 0 {
                    return Err(self.refuse("unclosed left paren"));
                }
                self.tokens.push(Token {
                    kind: Kind::RightDelimiter,
                    text: "}}",
                    line,
                });
                self.push_trimmed(trimmed);
                return Ok(());
            }
            match self.token()? {
                Kind::LeftParenthesis => depth += 1,
                Kind::RightParenthesis => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or_else(|| self.refuse("unexpected right paren"))?;
                }
                _ => {}
            }
        }
    }

    fn token(&mut self) -> Result<Kind, Refusal> {
        let rest = self.rest;
        let Some(first) = rest.chars().next() else {
            return Err(self.refuse("unclosed action"));
        };
        let second = rest.get(first.len_utf8()..).unwrap_or_default();
        let (kind, length) = match first {
            _ if SPACES.contains(&first) => (Kind::Space, self.spaces()),
            '=' => (Kind::Assign, 1),
            ':' if second.starts_with('=') => (Kind::Declare, 2),
            ':' => return Err(self.refuse("expected :=")),
            '|' => (Kind::Pipe, 1),
            '(' => (Kind::LeftParenthesis, 1),
            ')' => (Kind::RightParenthesis, 1),
            '"' => (Kind::Quoted, self.quoted('"')?),
            '\'' => (Kind::Character, self.quoted('\'')?),
            '`' => {
                let length = second
                    .find('`')
                    .ok_or_else(|| self.refuse("unterminated raw quoted string"))?;
                (Kind::RawQuoted, length + 2)
            }
            '$' => (Kind::Variable, 1 + self.word(second)?),
            '.' if !second.starts_with(|next: char| next.is_ascii_digit()) => {
                match self.word(second)? {
                    0 => (Kind::Dot, 1),
                    length => (Kind::Field, 1 + length),
                }
            }
            '.' | '+' | '-' | '0'..='9' => (Kind::Number, number_length(rest)),
            _ if is_alphanumeric(first) => (Kind::Word, self.word(rest)?),
            _ if first.is_ascii_graphic() => (Kind::Sign, 1),
            _ => return Err(self.refuse("unrecognized character in action")),
        };
        let text = rest.get(..length).unwrap_or_default();
        let text = match kind {
            Kind::Field => text.trim_start_matches('.'),
            _ => text,
        };
        self.push(kind, text);
        self.take(length);
        Ok(kind)
    }

    /// Returns the length of the spaces here, without one that belongs to a closing delimiter.
    fn spaces(&self) -> usize {
        let after = self.rest.trim_start_matches(SPACES);
        let length = self.rest.len() - after.len();
        if after.starts_with("-}}") {
            length.saturating_sub(1).max(1)
        } else {
            length
        }
    }

    fn quoted(&self, quote: char) -> Result<usize, Refusal> {
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((index, character)) = characters.next() {
            match character {
                '\n' => break,
                '\\' if characters.next().is_none_or(|(_, next)| next == '\n') => break,
                _ if character == quote => return Ok(index + 1),
                _ => {}
            }
        }
        Err(self.refuse(if quote == '"' {
            "unterminated quoted string"
        } else {
            "unterminated character constant"
        }))
    }

    /// Returns the length of a word. Only a terminator may follow it.
    fn word(&self, text: &str) -> Result<usize, Refusal> {
        let rest = text.trim_start_matches(is_alphanumeric);
        let is_end = rest.is_empty()
            || rest.starts_with(SPACES)
            || rest.starts_with(['.', ',', '|', ':', ')', '('])
            || rest.starts_with("}}");
        if is_end {
            Ok(text.len() - rest.len())
        } else {
            Err(self.refuse("bad character in a name"))
        }
    }
}

fn is_alphanumeric(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

/// Returns the length of what looks like a number. The parser decides whether it is one.
fn number_length(text: &str) -> usize {
    let is_hex = text
        .trim_start_matches(['+', '-'])
        .starts_with(['0'])
        .then(|| text.trim_start_matches(['+', '-']).get(1..2))
        .flatten()
        .is_some_and(|next| next == "x" || next == "X");
    let mut is_exponent = false;
    for (index, character) in text.char_indices() {
        let belongs = match character {
            '+' | '-' => index == 0 || is_exponent,
            '.' => true,
            _ => is_alphanumeric(character),
        };
        if !belongs {
            return index;
        }
        is_exponent = match character {
            'e' | 'E' => !is_hex,
            'p' | 'P' => is_hex,
            _ => false,
        };
    }
    text.len()
}
