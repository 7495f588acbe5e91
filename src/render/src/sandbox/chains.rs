//! Limits the length of chains of operators.
//!
//! The engine parses `a ~ b ~ c` in a loop into a tree that is as deep as the chain is long. It
//! then walks and frees that tree by recursion, so that twenty thousand links end the process. The
//! chains are counted before the engine sees them.

use minijinja::{
    machinery::{Token, tokenize},
    syntax::SyntaxConfig,
};

use super::Refusal;

/// The maximum number of operators, filters, subscripts and brackets in one tag. A test ensures
/// that all of these limits together fit on the 2 MiB stack of a thread in a debug build.
const LINKS_MAX: usize = 100;
/// The maximum depth of nested brackets. Each passes through all of the parser's levels of
/// precedence.
const BRACKETS_MAX: usize = 24;
/// The maximum depth of nested blocks.
const BLOCKS_MAX: usize = 24;
/// The maximum number of `elif`s in a template. The engine nests each in the one before.
const ALTERNATIVES_MAX: usize = 64;

/// Refuses a template with a chain that is too long.
pub(super) fn check(source: &str, syntax: SyntaxConfig) -> Result<(), Refusal> {
    let mut counts = Counts::default();
    let mut is_first_word = false;
    for token in tokenize(source, false, syntax) {
        // The parser reports syntax errors with better messages.
        let Ok((token, span)) = token else {
            return Ok(());
        };
        match &token {
            Token::Ident(word) if is_first_word => counts.block(word),
            token => counts.token(token),
        }
        is_first_word = matches!(token, Token::BlockStart);
        if let Some(problem) = counts.problem() {
            return Err(Refusal {
                line: Some(usize::from(span.start_line)),
                problem,
            });
        }
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    links: usize,
    brackets: usize,
    blocks: usize,
    alternatives: usize,
}

impl Counts {
    /// Counts the first word of a block. A `set` with a body nests too, but looks like one without.
    /// The engine's own limit of 150 applies to it.
    fn block(&mut self, word: &str) {
        match word {
            "elif" => self.alternatives += 1,
            "if" | "for" | "macro" | "call" | "filter" | "with" => self.blocks += 1,
            "endif" | "endfor" | "endmacro" | "endcall" | "endfilter" | "endwith" => {
                self.blocks = self.blocks.saturating_sub(1);
            }
            _ => {}
        }
    }

    fn token(&mut self, token: &Token<'_>) {
        match token {
            Token::VariableStart | Token::BlockStart => {
                self.links = 0;
                self.brackets = 0;
            }
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                self.links += 1;
                self.brackets += 1;
            }
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                self.brackets = self.brackets.saturating_sub(1);
            }
            token if is_link(token) => self.links += 1,
            _ => {}
        }
    }

    fn problem(&self) -> Option<String> {
        let Self {
            links,
            brackets,
            blocks,
            alternatives,
        } = *self;
        if links > LINKS_MAX {
            Some(format!("one tag holds more than {LINKS_MAX} operators"))
        } else if brackets > BRACKETS_MAX {
            Some(format!("more than {BRACKETS_MAX} brackets are nested"))
        } else if blocks > BLOCKS_MAX {
            Some(format!("more than {BLOCKS_MAX} blocks are nested"))
        } else if alternatives > ALTERNATIVES_MAX {
            Some(format!(
                "the template holds more than {ALTERNATIVES_MAX} times `elif`"
            ))
        } else {
            None
        }
    }
}

fn is_link(token: &Token<'_>) -> bool {
    match token {
        Token::Ident(word) => matches!(*word, "and" | "or" | "not" | "is" | "if" | "else" | "in"),
        Token::TemplateData(_)
        | Token::VariableEnd
        | Token::BlockEnd
        | Token::Str(_)
        | Token::String(_)
        | Token::Int(_)
        | Token::Int128(_)
        | Token::Float(_)
        | Token::Comma
        | Token::Colon => false,
        _ => true,
    }
}
