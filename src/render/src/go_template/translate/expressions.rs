//! Translates pipelines and their parts into expressions of the engine.

use super::{
    super::{
        data::is_root_field,
        functions::{self, Known},
        tree::{Pipe, Refusal, RefusedPart, Store, Word},
    },
    Dot, Outcome, ROOT, Translator,
};

/// The maximum depth of an expression. A call counts `CALL`, a link of `and` or `or` counts one.
/// The engine's parser is recursive, and has the same limits for its own language.
const DEPTH_MAX: usize = 96;
const CALL: usize = 4;

impl Translator<'_> {
    /// Returns the code of a pipeline, without storing its value.
    pub(super) fn pipe(&mut self, pipe: &Pipe) -> Result<String, Refusal> {
        self.pipe_at(pipe, 0)
    }

    fn pipe_at(&mut self, pipe: &Pipe, depth: usize) -> Result<String, Refusal> {
        let stages = pipe.commands.len();
        let mut value = None;
        for (index, command) in pipe.commands.iter().enumerate() {
            let nested = depth + CALL * (stages - index - 1);
            value = Some(self.command(pipe.line, command, (value, nested))?);
        }
        Ok(value.unwrap_or_default())
    }

    /// Returns the code of a command. `last` is the value of the command before it.
    fn command(
        &mut self,
        line: usize,
        command: &[Word],
        (last, depth): (Option<String>, usize),
    ) -> Result<String, Refusal> {
        let Some((first, rest)) = command.split_first() else {
            return Ok(String::new());
        };
        if let Word::Function(name) = first {
            return self.call((line, name), rest, (last, depth));
        }
        if let ([argument], None, Some((base, name))) = (rest, &last, method_of(first)) {
            let depth = depth + CALL;
            let base = self.operand(line, &base, depth)?;
            let argument = self.operand(line, argument, depth)?;
            return Ok(format!("go_method({base}, {}, {argument})", quoted(name)));
        }
        if !rest.is_empty() || last.is_some() {
            let problem = match first {
                Word::Field(names) | Word::Variable(_, names) | Word::Chain(_, names)
                    if !names.is_empty() =>
                {
                    let name = names.last().map_or("", String::as_str);
                    format!("`{name}` has arguments but cannot be invoked as function")
                }
                _ => "can't give argument to non-function".to_owned(),
            };
            return Err(Refusal {
                line,
                problem,
                part: RefusedPart::Template,
            });
        }
        if *first == Word::Nil {
            return Err(Refusal {
                line,
                problem: "nil is not a command".to_owned(),
                part: RefusedPart::Template,
            });
        }
        self.operand(line, first, depth)
    }

    fn call(
        &mut self,
        (line, name): (usize, &str),
        operands: &[Word],
        (last, depth): (Option<String>, usize),
    ) -> Result<String, Refusal> {
        let refuse = |problem| {
            Err(Refusal {
                line,
                problem,
                part: RefusedPart::Template,
            })
        };
        match functions::known(name) {
            Known::Yes => {}
            Known::Refused => {
                let problem = format!(
                    "function `{name}` is refused: it reads a clock, a network, an environment \
                     or a source of randomness, or makes keys"
                );
                let part = RefusedPart::Function;
                return Err(Refusal {
                    line,
                    problem,
                    part,
                });
            }
            Known::No => return refuse(format!("function \"{name}\" not defined")),
        }
        let links = match name {
            "and" | "or" => operands.len(),
            _ => 0,
        };
        let depth = depth + CALL + links;
        check_depth(line, depth)?;
        let mut arguments = Vec::with_capacity(operands.len() + 1);
        for operand in operands {
            arguments.push(self.operand(line, operand, depth)?);
        }
        arguments.extend(last);
        match (name, arguments.as_slice()) {
            ("and" | "or", [only]) => Ok(only.clone()),
            ("and" | "or", [_, ..]) => Ok(format!("({})", arguments.join(&format!(" {name} ")))),
            ("not", [only]) => Ok(format!("(not {only})")),
            ("and" | "or" | "not", _) => refuse(format!("wrong number of args for {name}")),
            _ => Ok(format!("go_{name}({})", arguments.join(", "))),
        }
    }

    fn operand(&mut self, line: usize, operand: &Word, depth: usize) -> Result<String, Refusal> {
        let fields = match operand {
            Word::Field(names) | Word::Variable(_, names) => names.len(),
            _ => 0,
        };
        check_depth(line, depth + CALL * fields)?;
        Ok(match operand {
            Word::Function(name) => return self.call((line, name), &[], (None, depth)),
            Word::Dot => self.dot_code(),
            Word::Nil => "go_nothing".to_owned(),
            Word::Bool(value) => value.to_string(),
            // Without parentheses, a minus would bind to what comes before it.
            Word::Int(number) => format!("({number})"),
            Word::Float(number) => format!("({number:?})"),
            Word::Text(text) => quoted(text),
            Word::Field(names) => {
                let dot = self.dot.clone();
                fields_of(&dot, names)
            }
            Word::Variable(name, fields) => {
                let variable = self.find(line, name)?;
                match (&variable.place, variable.is_cell) {
                    (Dot::Variable(slot), true) => fields_from(format!("{slot}.v"), fields),
                    (place, _) => fields_of(place, fields),
                }
            }
            Word::Chain(base, fields) => {
                let depth = depth + CALL * fields.len();
                let base = self.operand(line, base, depth)?;
                fields_from(base, fields)
            }
            Word::Pipe(pipe) if pipe.store == Store::None => {
                return self.pipe_at(pipe, depth);
            }
            Word::Pipe(_) => {
                return Err(Refusal {
                    line,
                    problem: "variables can only be declared at the start of an action".to_owned(),
                    part: RefusedPart::Template,
                });
            }
        })
    }

    fn dot_code(&self) -> String {
        match &self.dot {
            Dot::Root => ROOT.to_owned(),
            Dot::Variable(slot) => slot.clone(),
        }
    }
}

/// Returns a method that takes an argument, and the word on which it is called.
fn method_of(word: &Word) -> Option<(Word, &str)> {
    match word {
        Word::Variable(variable, names) => {
            let (name, names) = split(names)?;
            Some((Word::Variable(variable.clone(), names), name))
        }
        Word::Chain(base, names) => {
            let (name, names) = split(names)?;
            Some((Word::Chain(base.clone(), names), name))
        }
        _ => None,
    }
}

/// Returns the last name, if it is such a method, and the names before it.
fn split(names: &[String]) -> Option<(&str, Vec<String>)> {
    let (name, before) = names.split_last()?;
    let is_method = functions::VERSION_METHODS.contains(&name.as_str());
    is_method.then(|| (name.as_str(), before.to_vec()))
}

fn check_depth(line: usize, depth: usize) -> Outcome {
    if depth > DEPTH_MAX {
        return Err(Refusal {
            line,
            problem: "an expression is nested too deep".to_owned(),
            part: RefusedPart::Template,
        });
    }
    Ok(())
}

/// Returns the code for fields of dot or of a variable. The fields of the data are variables.
fn fields_of(place: &Dot, names: &[String]) -> String {
    match (place, names) {
        (Dot::Variable(slot), _) => fields_from(slot.clone(), names),
        (Dot::Root, []) => ROOT.to_owned(),
        (Dot::Root, [first, rest @ ..]) if is_root_field(first) => fields_from(first.clone(), rest),
        (Dot::Root, [first, ..]) => format!("go_no_field({})", quoted(first)),
    }
}

fn fields_from(base: String, names: &[String]) -> String {
    names.iter().fold(base, |base, name| {
        format!("go_field({base}, {})", quoted(name))
    })
}

/// Returns a string literal of the engine. Its escapes are those of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
