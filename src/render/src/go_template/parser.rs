//! Parses the tokens of a Go template into a tree, with the rules and messages of Go's own parser.

use super::{
    lexer::{Kind, Token, lex},
    tree::{Branch, Definition, Node, Refusal, RefusedPart, is_empty},
};

mod constants;
mod pipelines;

/// The maximum depth of nested blocks.
const BLOCKS_MAX: usize = 24;
/// The maximum number of nested `else if`s. Each nests in the previous one.
const ALTERNATIVES_MAX: usize = 64;
/// A parsed text: what it prints itself, and the templates that it defines.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parsed {
    pub(super) body: Vec<Node>,
    pub(super) definitions: Vec<Definition>,
}

/// Parses a template.
pub(super) fn parse(source: &str) -> Result<Parsed, Refusal> {
    let mut parser = Parser {
        tokens: lex(source)?,
        at: 0,
        definitions: Vec::new(),
        depth: Depth::default(),
    };
    let body = parser.top()?;
    Ok(Parsed {
        body,
        definitions: parser.definitions,
    })
}

#[derive(Clone, Copy, Default)]
struct Depth {
    blocks: usize,
    alternatives: usize,
    loops: usize,
    parentheses: usize,
}

/// The end of a list of nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    End,
    Else,
}

/// The three blocks that depend on a pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Control {
    If,
    With,
    Range,
}

impl Control {
    const fn word(self) -> &'static str {
        match self {
            Self::If => "if",
            Self::With => "with",
            Self::Range => "range",
        }
    }
}

const END: Token<'static> = Token {
    kind: Kind::End,
    text: "",
    line: 0,
};

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    definitions: Vec<Definition>,
    depth: Depth,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.at).copied().unwrap_or(END)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn skip_spaces(&mut self) {
        while self.peek().kind == Kind::Space {
            self.at += 1;
        }
    }

    fn next_word(&mut self) -> Token<'a> {
        self.skip_spaces();
        self.next()
    }

    fn peek_word(&mut self) -> Token<'a> {
        self.skip_spaces();
        self.peek()
    }

    fn refuse(&self, problem: impl Into<String>) -> Refusal {
        let before = self.at.saturating_sub(1).min(self.tokens.len());
        let token = self.tokens.get(before).or(self.tokens.last());
        Refusal {
            line: token.map_or(1, |token| token.line),
            problem: problem.into(),
            part: RefusedPart::Template,
        }
    }

    fn unexpected(&self, token: Token<'_>, context: &str) -> Refusal {
        match token.kind {
            Kind::End => self.refuse("unexpected EOF"),
            _ => self.refuse(format!("unexpected `{}` in {context}", token.text)),
        }
    }

    fn expect_close(&mut self, context: &str) -> Result<(), Refusal> {
        let token = self.next_word();
        match token.kind {
            Kind::RightDelimiter => Ok(()),
            _ => Err(self.unexpected(token, context)),
        }
    }

    /// Parses the whole text. Templates can only be defined here.
    fn top(&mut self) -> Result<Vec<Node>, Refusal> {
        let mut nodes = Vec::new();
        loop {
            let token = self.next();
            match token.kind {
                Kind::End => return Ok(nodes),
                Kind::Text | Kind::Trimmed | Kind::Comment => nodes.extend(silent(token)),
                _ if self.peek_word().text == "define" => {
                    self.next();
                    self.definition()?;
                }
                _ => match self.action()? {
                    Ok(node) => nodes.push(node),
                    Err(Ending::End) => return Err(self.refuse("unexpected {{end}}")),
                    Err(Ending::Else) => return Err(self.refuse("unexpected {{else}}")),
                },
            }
        }
    }

    fn definition(&mut self) -> Result<(), Refusal> {
        let name = self.template_name("define clause")?;
        self.expect_close("define clause")?;
        let body = self.separate_body("define clause")?;
        self.define(name, body)
    }

    fn define(&mut self, name: String, body: Vec<Node>) -> Result<(), Refusal> {
        let known = self.definitions.iter_mut().find(|known| known.name == name);
        match known {
            None => self.definitions.push(Definition { name, body }),
            Some(known) if is_empty(&known.body) => known.body = body,
            Some(_) if is_empty(&body) => {}
            Some(_) => {
                return Err(self.refuse(format!(
                    "template: multiple definition of template \"{name}\""
                )));
            }
        }
        Ok(())
    }

    /// Parses the body of a template, which is in no loop of the text around it.
    fn separate_body(&mut self, context: &str) -> Result<Vec<Node>, Refusal> {
        let depth = self.depth;
        self.depth.loops = 0;
        self.enter_block()?;
        let (body, ending) = self.list()?;
        self.depth = depth;
        if ending == Ending::Else {
            return Err(self.refuse(format!("unexpected {{{{else}}}} in {context}")));
        }
        Ok(body)
    }

    fn enter_block(&mut self) -> Result<(), Refusal> {
        self.depth.blocks += 1;
        if self.depth.blocks > BLOCKS_MAX {
            return Err(self.refuse(format!("more than {BLOCKS_MAX} blocks are nested")));
        }
        Ok(())
    }

    fn list(&mut self) -> Result<(Vec<Node>, Ending), Refusal> {
        let mut nodes = Vec::new();
        loop {
            let token = self.next();
            match token.kind {
                Kind::End => return Err(self.refuse("unexpected EOF")),
                Kind::Text | Kind::Trimmed | Kind::Comment => nodes.extend(silent(token)),
                _ => match self.action()? {
                    Ok(node) => nodes.push(node),
                    Err(ending) => return Ok((nodes, ending)),
                },
            }
        }
    }

    /// Parses what follows a left delimiter.
    fn action(&mut self) -> Result<Result<Node, Ending>, Refusal> {
        let token = self.peek_word();
        let word = match token.kind {
            Kind::Word => token.text,
            _ => "",
        };
        if matches!(
            word,
            "if" | "with"
                | "range"
                | "end"
                | "else"
                | "block"
                | "template"
                | "break"
                | "continue"
                | "define"
        ) {
            self.next();
        }
        let node = match word {
            "if" => Node::If(self.control(Control::If)?),
            "with" => Node::With(self.control(Control::With)?),
            "range" => Node::Range(self.control(Control::Range)?),
            "block" => self.block(token.line)?,
            "template" => self.template(token.line)?,
            "define" => return Err(self.refuse("unexpected {{define}}")),
            "break" | "continue" => {
                self.expect_close(word)?;
                if self.depth.loops == 0 {
                    return Err(self.refuse(format!("{{{{{word}}}}} outside {{{{range}}}}")));
                }
                if word == "break" {
                    Node::Break
                } else {
                    Node::Continue
                }
            }
            "end" => {
                self.expect_close("end")?;
                return Ok(Err(Ending::End));
            }
            "else" => {
                let next = self.peek_word();
                if !matches!(next.text, "if" | "with") {
                    self.expect_close("else")?;
                }
                return Ok(Err(Ending::Else));
            }
            _ => Node::Action(self.pipe("command", Kind::RightDelimiter)?),
        };
        Ok(Ok(node))
    }

    fn control(&mut self, control: Control) -> Result<Branch, Refusal> {
        let context = control.word();
        let pipe = self.pipe(context, Kind::RightDelimiter)?;
        let depth = self.depth;
        self.enter_block()?;
        if control == Control::Range {
            self.depth.loops += 1;
        }
        let (body, ending) = self.list()?;
        self.depth.loops = depth.loops;
        let otherwise = match ending {
            Ending::End => Vec::new(),
            Ending::Else => self.otherwise(control)?,
        };
        self.depth = depth;
        Ok(Branch {
            pipe,
            body,
            otherwise,
        })
    }

    /// Parses what follows an `else`: another condition that shares this one's `end`, or a body.
    fn otherwise(&mut self, control: Control) -> Result<Vec<Node>, Refusal> {
        let next = self.peek_word();
        let is_word = next.kind == Kind::Word;
        if is_word && next.text == control.word() && control != Control::Range {
            self.next();
            self.depth.blocks = self.depth.blocks.saturating_sub(1);
            self.depth.alternatives += 1;
            if self.depth.alternatives > ALTERNATIVES_MAX {
                let problem = format!("more than {ALTERNATIVES_MAX} times `else {}`", next.text);
                return Err(self.refuse(problem));
            }
            let branch = self.control(control)?;
            return Ok(vec![match control {
                Control::If => Node::If(branch),
                Control::With | Control::Range => Node::With(branch),
            }]);
        }
        if is_word && matches!(next.text, "if" | "with") {
            return Err(self.unexpected(next, "else"));
        }
        let (body, ending) = self.list()?;
        if ending == Ending::Else {
            return Err(self.refuse("expected end; found {{else}}"));
        }
        Ok(body)
    }

    fn template_name(&mut self, context: &str) -> Result<String, Refusal> {
        let token = self.next_word();
        match token.kind {
            Kind::Quoted | Kind::RawQuoted => {
                constants::text(token).map_err(|problem| self.refuse(problem))
            }
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn block(&mut self, line: usize) -> Result<Node, Refusal> {
        let name = self.template_name("block clause")?;
        let argument = Some(self.pipe("block clause", Kind::RightDelimiter)?);
        let body = self.separate_body("block clause")?;
        self.define(name.clone(), body)?;
        Ok(Node::Template {
            line,
            name,
            argument,
        })
    }

    fn template(&mut self, line: usize) -> Result<Node, Refusal> {
        let name = self.template_name("template clause")?;
        let argument = if self.peek_word().kind == Kind::RightDelimiter {
            self.next();
            None
        } else {
            Some(self.pipe("template clause", Kind::RightDelimiter)?)
        };
        Ok(Node::Template {
            line,
            name,
            argument,
        })
    }
}

/// Returns a token between actions as a node.
fn silent(token: Token<'_>) -> Option<Node> {
    let text = token.text.to_owned();
    match token.kind {
        Kind::Text => Some(Node::Text(text)),
        Kind::Trimmed => Some(Node::Trimmed(text)),
        Kind::Comment => Some(Node::Comment(text)),
        _ => None,
    }
}
