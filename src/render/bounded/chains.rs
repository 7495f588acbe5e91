//! How long a chain of operators may be.
//!
//! The engine reads `a ~ b ~ c` in a loop into a tree that is as deep as the chain is long, and
//! then walks and frees that tree by recursion: twenty thousand links end the process. The chains
//! are counted before the engine sees them.

use minijinja::{
    machinery::{Token, tokenize},
    syntax::SyntaxConfig,
};

use super::Refusal;

/// Operators, filters, subscripts and brackets in one tag. Measured: a debug build takes 1,000 of
/// them on a stack of 2 MiB.
const LINKS_MAX: usize = 200;
/// `elif`s in one template; the engine nests each in the one before.
const ALTERNATIVES_MAX: usize = 200;

/// Refuses a template with a chain that is too long.
pub(super) fn check(source: &str, syntax: SyntaxConfig) -> Result<(), Refusal> {
    let mut links = 0;
    let mut alternatives = 0;
    for token in tokenize(source, false, syntax) {
        // What cannot be read is reported with more words by the parser.
        let Ok((token, span)) = token else {
            return Ok(());
        };
        match token {
            Token::VariableStart | Token::BlockStart => links = 0,
            Token::Ident("elif") => alternatives += 1,
            token if is_link(&token) => links += 1,
            _ => {}
        }
        let problem = if links > LINKS_MAX {
            format!("one tag holds more than {LINKS_MAX} operators")
        } else if alternatives > ALTERNATIVES_MAX {
            format!("the template holds more than {ALTERNATIVES_MAX} times `elif`")
        } else {
            continue;
        };
        return Err(Refusal {
            line: Some(usize::from(span.start_line)),
            problem,
        });
    }
    Ok(())
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
        | Token::Colon
        | Token::ParenClose
        | Token::BracketClose
        | Token::BraceClose => false,
        _ => true,
    }
}
