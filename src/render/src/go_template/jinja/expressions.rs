//! Writes pipelines and their parts as a person would in Jinja.

use super::{
    super::{
        functions::{self, Known},
        tree::{Pipe, Refusal, RefusedPart, Store, Word},
    },
    Outcome, Writer,
    code::{Code, Condition, Level},
    kinds::{self, Kind},
};

impl Writer<'_> {
    /// Returns the value of a pipeline, without storing it.
    pub(super) fn value(&mut self, pipe: &Pipe) -> Outcome<Code> {
        self.line = pipe.line;
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(command, value)?);
        }
        value.ok_or_else(|| self.refuse("an empty pipeline"))
    }

    /// Returns the value of a command. `last` is the value of the command before it.
    fn command(&mut self, command: &[Word], last: Option<Code>) -> Outcome<Code> {
        match (command, last) {
            ([Word::Function(name), operands @ ..], last) => self.call(name, operands, last),
            ([Word::Nil], None) => Err(self.refuse("nil is not a command")),
            ([only], None) => self.operand(only),
            _ => Err(self.refuse("can't give argument to non-function")),
        }
    }

    pub(super) fn operand(&mut self, operand: &Word) -> Outcome<Code> {
        match operand {
            Word::Function(name) => self.call(name, &[], None),
            Word::Dot => Ok(self.dot.clone()),
            Word::Nil => Ok(Code::nothing()),
            Word::Bool(value) => Ok(Code::made(value.to_string(), Level::Atom, Kind::Truth)),
            Word::Int(number) => {
                let level = if *number < 0 { Level::Not } else { Level::Atom };
                Ok(Code::made(number.to_string(), level, Kind::Number))
            }
            // Go and Jinja print floats differently.
            Word::Float(number) => Ok(Code {
                level: Level::Not,
                ..Code::go(format!("{number:?}"))
            }),
            Word::Text(text) => Ok(Code::literal(text)),
            Word::Field(names) => self.fields(self.dot.clone(), names),
            Word::Variable(name, names) => self.fields(self.variable(name)?, names),
            Word::Chain(base, names) => {
                let base = self.operand(base)?;
                self.fields(base, names)
            }
            Word::Pipe(pipe) if pipe.store == Store::None => self.value(pipe),
            Word::Pipe(_) => {
                Err(self.refuse("variables can only be declared at the start of an action"))
            }
        }
    }

    /// Returns the condition that the value of a pipeline is true.
    pub(super) fn condition(&mut self, pipe: &Pipe) -> Outcome<Condition> {
        self.line = pipe.line;
        if let [command] = pipe.commands.as_slice() {
            return self.asked(command);
        }
        let value = self.value(pipe)?;
        self.truth(&value)
    }

    fn asked(&mut self, command: &[Word]) -> Outcome<Condition> {
        match command {
            [Word::Function(name), operands @ ..] if !operands.is_empty() => match name.as_str() {
                "not" if operands.len() == 1 => match contrary(operands) {
                    Some(command) => self.asked(&command),
                    None => Ok(self.asked(operands)?.not()),
                },
                "and" => self.linked(operands, Level::And),
                "or" => self.linked(operands, Level::Or),
                _ => {
                    let value = self.call(name, operands, None)?;
                    self.truth(&value)
                }
            },
            [Word::Pipe(pipe)] if pipe.store == Store::None => self.condition(pipe),
            _ => {
                let value = self.command(command, None)?;
                self.truth(&value)
            }
        }
    }

    /// Returns the condition of `and` or `or`. Each operand is evaluated only after the outcomes of
    /// the ones before it, and may rely on them.
    fn linked(&mut self, operands: &[Word], level: Level) -> Outcome<Condition> {
        let outer = self.set.clone();
        let mut texts = Vec::new();
        let mut links = Vec::new();
        for operand in operands {
            let link = self.asked(std::slice::from_ref(operand))?;
            self.set.extend(match level {
                Level::And => link.if_true.iter().cloned(),
                _ => link.if_false.iter().cloned(),
            });
            texts.push(link.at(level));
            links.push(link);
        }
        self.set = outer;
        if links.len() == 1 {
            return links.pop().ok_or_else(|| self.refuse("no operand"));
        }
        let word = if level == Level::And { " and " } else { " or " };
        let mut whole = Condition::of(texts.join(word), level);
        for link in links {
            match level {
                Level::And => whole.if_true.extend(link.if_true),
                _ => whole.if_false.extend(link.if_false),
            }
        }
        Ok(whole)
    }

    fn call(&mut self, name: &str, operands: &[Word], last: Option<Code>) -> Outcome<Code> {
        match functions::known(name) {
            Known::Yes => {}
            Known::Refused => {
                let problem = format!(
                    "function `{name}` is refused: its answer depends on more than its arguments"
                );
                return Err(Refusal {
                    part: RefusedPart::Function,
                    ..self.refuse(&problem)
                });
            }
            Known::No => return Err(self.refuse(&format!("function \"{name}\" not defined"))),
        }
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            arguments.push(self.operand(operand)?);
        }
        arguments.extend(last);
        match (name, arguments.as_slice()) {
            ("and" | "or" | "not", []) => {
                Err(self.refuse(&format!("wrong number of args for {name}")))
            }
            ("not", [only]) => {
                let condition = self.truth(only)?.not();
                Ok(Code::made(condition.text, condition.level, Kind::Truth))
            }
            ("not", _) => Err(self.refuse("wrong number of args for not")),
            ("and", _) => self.chosen(&arguments, Level::And),
            ("or", _) => self.chosen(&arguments, Level::Or),
            _ => match self.idiom(name, &arguments)? {
                Some(code) => Ok(code),
                None => self.go_call(name, &arguments),
            },
        }
    }

    /// Returns `and` or `or` as a value: one of the operands.
    fn chosen(&self, operands: &[Code], level: Level) -> Outcome<Code> {
        let (Some(first), word) = (
            operands.first(),
            if level == Level::And { " and " } else { " or " },
        ) else {
            return Err(self.refuse("no operand"));
        };
        let are_alike = operands
            .iter()
            .all(|operand| operand.is_scalar() && operand.kind == first.kind);
        if !are_alike && operands.len() == 1 {
            return self.as_go(first);
        }
        let mut texts = Vec::new();
        for operand in operands {
            texts.push(if are_alike {
                operand.at(level)
            } else {
                self.as_go(operand)?.at(level)
            });
        }
        let kind = if are_alike { first.kind } else { Kind::Go };
        Ok(Code::made(texts.join(word), level, kind))
    }

    /// Calls one of Go's own functions.
    fn go_call(&self, name: &str, arguments: &[Code]) -> Outcome<Code> {
        let mut texts = Vec::with_capacity(arguments.len());
        for argument in arguments {
            texts.push(match argument.text.as_str() {
                // It has a type of its own, which some functions distinguish.
                "CloudProviderName" => {
                    "go_data(\"CloudProviderName\", CloudProviderName)".to_owned()
                }
                _ => self.go_of(argument)?,
            });
        }
        let kind = kinds::made_by(name);
        Ok(Code {
            kind,
            ..Code::go(format!("go_{name}({})", texts.join(", ")))
        })
    }
}

/// Returns the comparison that is the opposite of an operand.
fn contrary(operands: &[Word]) -> Option<Vec<Word>> {
    let [Word::Pipe(pipe)] = operands else {
        return None;
    };
    let [command] = pipe.commands.as_slice() else {
        return None;
    };
    let [Word::Function(name), left, right] = command.as_slice() else {
        return None;
    };
    let name = match name.as_str() {
        "eq" => "ne",
        "ne" => "eq",
        _ => return None,
    };
    Some(vec![
        Word::Function(name.to_owned()),
        left.clone(),
        right.clone(),
    ])
}
