//! Calls between templates: an `include` for the profile's templates, macros for a file's own.

use super::{
    super::{
        data::is_root_field,
        tree::{Pipe, Store, Word},
    },
    Dot, Outcome, Writer,
    code::{Code, quoted},
    kinds::Kind,
};

impl Writer<'_> {
    pub(super) fn template(&mut self, name: &str, argument: Option<&Pipe>) -> Outcome<()> {
        if argument.is_some_and(|pipe| pipe.store != Store::None) {
            return Err(self.refuse("a variable is declared in `template`; declare it before"));
        }
        if let Some(macro_name) = self.macro_names.get(name).cloned() {
            let value = match argument {
                Some(pipe) => self.value(pipe)?,
                None => Code::nothing(),
            };
            let dot = self.called_with(name, &value)?;
            let argument = match dot {
                Dot::Same(_) => String::new(),
                Dot::Value(Kind::Go) => self.go_of(&value)?,
                Dot::Value(_) => value.text,
            };
            self.page.print(&format!("{macro_name}({argument})"));
            return Ok(());
        }
        if !self.texts.contains(name) {
            return Err(self.refuse(&format!(
                "template \"{name}\" is not defined, so Go fails where it is called"
            )));
        }
        if argument.is_some_and(|pipe| !is_simple(pipe)) {
            return Err(self.refuse(&format!(
                "template \"{name}\" is called with a value, which Go looks at no more; leave it \
                 out"
            )));
        }
        self.page.statement(&format!("include {}", quoted(name)));
        Ok(())
    }

    /// Records the argument of a call to a definition. Returns what all of its calls have in
    /// common.
    fn called_with(&mut self, name: &str, value: &Code) -> Outcome<Dot> {
        let first = value.text.split(['.', '[']).next().unwrap_or_default();
        let dot = match value.kind {
            Kind::Root | Kind::Nothing => Dot::Same(value.clone()),
            _ if is_root_field(first) && value.go.is_some() && !value.is_scalar() => {
                Dot::Same(value.clone())
            }
            kind if value.is_scalar() => Dot::Value(kind),
            _ => Dot::Value(Kind::Go),
        };
        let joined = match self.called.get(name) {
            None => dot,
            Some(known) if *known == dot => dot,
            Some(known) if is_root(known) || is_root(&dot) => {
                return Err(self.refuse(&format!(
                    "template \"{name}\" is called with the data as a whole, and with something \
                     else; make two of it"
                )));
            }
            Some(_) => Dot::Value(Kind::Go),
        };
        self.called.insert(name.to_owned(), joined.clone());
        Ok(joined)
    }
}

fn is_root(dot: &Dot) -> bool {
    matches!(dot, Dot::Same(code) if code.kind == Kind::Root)
}

/// Returns true if evaluating a pipeline has no effect.
fn is_simple(pipe: &Pipe) -> bool {
    match pipe.commands.as_slice() {
        [command] => match command.as_slice() {
            [Word::Dot] => true,
            [Word::Variable(_, names)] => names.is_empty(),
            [Word::Field(names)] => names.len() == 1,
            _ => false,
        },
        _ => false,
    }
}
