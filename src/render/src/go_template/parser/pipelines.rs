//! Parses pipelines, their commands and the words of commands.

use super::{
    super::{
        lexer::Kind,
        tree::{Pipe, Refusal, Store, Word},
    },
    Parser, constants,
};

/// The maximum depth of nested parentheses.
const PARENTHESES_MAX: usize = 16;
/// The maximum number of words in a command, and of commands in a pipeline.
const WORDS_MAX: usize = 200;

impl Parser<'_> {
    pub(super) fn pipe(&mut self, context: &str, end: Kind) -> Result<Pipe, Refusal> {
        let line = self.peek_word().line;
        let (variables, store) = self.stored(context)?;
        let mut commands: Vec<Vec<Word>> = Vec::new();
        loop {
            let token = self.peek_word();
            if token.kind == end {
                self.next();
                break;
            }
            if !is_operand(token.kind) || commands.len() >= WORDS_MAX {
                self.next();
                return Err(self.unexpected(token, context));
            }
            let command = self.command()?;
            let is_constant = matches!(
                command.first(),
                Some(
                    Word::Bool(_)
                        | Word::Dot
                        | Word::Nil
                        | Word::Int(_)
                        | Word::Float(_)
                        | Word::Text(_)
                )
            );
            commands.push(command);
            if is_constant && commands.len() > 1 {
                let stage = commands.len();
                let problem = format!("non executable command in pipeline stage {stage}");
                return Err(self.refuse(problem));
            }
        }
        if commands.is_empty() {
            return Err(self.refuse(format!("missing value for {context}")));
        }
        Ok(Pipe {
            line,
            variables,
            store,
            commands,
        })
    }

    /// Parses the variables before `:=` or `=`.
    fn stored(&mut self, context: &str) -> Result<(Vec<String>, Store), Refusal> {
        let mut variables = Vec::new();
        loop {
            let token = self.peek_word();
            if token.kind != Kind::Variable {
                break;
            }
            let start = self.at;
            self.next();
            let next = self.peek_word();
            let store = match next.kind {
                Kind::Assign => Store::Assign,
                Kind::Declare => Store::Declare,
                Kind::Sign if next.text == "," => Store::None,
                _ => {
                    self.at = start;
                    break;
                }
            };
            self.next();
            variables.push(token.text.to_owned());
            if store != Store::None {
                return Ok((variables, store));
            }
            if context != "range" || variables.len() > 1 {
                return Err(self.refuse(format!("too many declarations in {context}")));
            }
            if self.peek_word().kind != Kind::Variable {
                return Err(self.refuse("range can only initialize variables"));
            }
        }
        if variables.is_empty() {
            Ok((variables, Store::None))
        } else {
            Err(self.refuse("expected :="))
        }
    }

    fn command(&mut self) -> Result<Vec<Word>, Refusal> {
        let mut operands = Vec::new();
        loop {
            self.skip_spaces();
            if let Some(operand) = self.operand()? {
                operands.push(operand);
            }
            if operands.len() > WORDS_MAX {
                return Err(self.refuse(format!("one command has more than {WORDS_MAX} words")));
            }
            let token = self.next();
            match token.kind {
                Kind::Space => {}
                Kind::RightDelimiter | Kind::RightParenthesis => {
                    self.at -= 1;
                    break;
                }
                Kind::Pipe => break,
                _ => return Err(self.unexpected(token, "operand")),
            }
        }
        if operands.is_empty() {
            return Err(self.refuse("empty command"));
        }
        Ok(operands)
    }

    fn operand(&mut self) -> Result<Option<Word>, Refusal> {
        let Some(term) = self.term()? else {
            return Ok(None);
        };
        let mut fields = Vec::new();
        while self.peek().kind == Kind::Field {
            fields.push(self.next().text.to_owned());
        }
        if fields.len() > WORDS_MAX {
            return Err(self.refuse(format!("one chain has more than {WORDS_MAX} fields")));
        }
        if fields.is_empty() {
            return Ok(Some(term));
        }
        Ok(Some(match term {
            Word::Field(mut names) => {
                names.append(&mut fields);
                Word::Field(names)
            }
            Word::Variable(name, mut names) => {
                names.append(&mut fields);
                Word::Variable(name, names)
            }
            Word::Function(_) | Word::Pipe(_) | Word::Chain(..) => {
                Word::Chain(Box::new(term), fields)
            }
            _ => return Err(self.refuse("unexpected . after a constant")),
        }))
    }

    fn term(&mut self) -> Result<Option<Word>, Refusal> {
        let token = self.next_word();
        let refuse = |parser: &Self, problem: String| parser.refuse(problem);
        let operand = match token.kind {
            Kind::Word => match token.text {
                "true" => Word::Bool(true),
                "false" => Word::Bool(false),
                "nil" => Word::Nil,
                "if" | "with" | "range" | "end" | "else" | "block" | "template" | "define" => {
                    return Err(self.unexpected(token, "operand"));
                }
                word => Word::Function(word.to_owned()),
            },
            Kind::Dot => Word::Dot,
            Kind::Variable => Word::Variable(token.text.to_owned(), Vec::new()),
            Kind::Field => Word::Field(vec![token.text.to_owned()]),
            Kind::Number => {
                constants::number(token.text).map_err(|problem| refuse(self, problem))?
            }
            Kind::Character => {
                constants::character(token.text).map_err(|problem| refuse(self, problem))?
            }
            Kind::Quoted | Kind::RawQuoted => {
                Word::Text(constants::text(token).map_err(|problem| refuse(self, problem))?)
            }
            Kind::LeftParenthesis => {
                self.depth.parentheses += 1;
                if self.depth.parentheses > PARENTHESES_MAX {
                    let problem = format!("more than {PARENTHESES_MAX} parentheses are nested");
                    return Err(self.refuse(problem));
                }
                let pipe = self.pipe("parenthesized pipeline", Kind::RightParenthesis)?;
                self.depth.parentheses -= 1;
                Word::Pipe(Box::new(pipe))
            }
            _ => {
                self.at -= 1;
                return Ok(None);
            }
        };
        Ok(Some(operand))
    }
}

fn is_operand(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Word
            | Kind::Dot
            | Kind::Field
            | Kind::Variable
            | Kind::Number
            | Kind::Character
            | Kind::Quoted
            | Kind::RawQuoted
            | Kind::LeftParenthesis
    )
}
