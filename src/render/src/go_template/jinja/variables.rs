//! Variables, and the loops that declare some.

use super::{
    super::tree::{Pipe, Store},
    Outcome, Variable, Writer,
    code::{Code, Level, Nature},
    kinds::{Entry, Kind, Target},
};

/// A loop over a value.
pub(super) struct Loop {
    /// The text after `for`.
    pub(super) head: String,
    /// Its key, as a value, and as the tag that sets it if `for` does not.
    pub(super) key: Option<Code>,
    pub(super) first: Option<String>,
    pub(super) item: Code,
    /// The names whose scope ends with the loop.
    pub(super) names: Vec<String>,
}

impl Writer<'_> {
    pub(super) fn variable(&self, name: &str) -> Outcome<Code> {
        self.find(name).map(|variable| variable.code.clone())
    }

    fn find(&self, name: &str) -> Outcome<&Variable> {
        self.scopes
            .iter()
            .rev()
            .flat_map(|scope| scope.iter().rev())
            .find(|variable| variable.name == name)
            .ok_or_else(|| self.refuse(&format!("undefined variable \"{name}\"")))
    }

    /// Declares a variable.
    pub(super) fn declare(&mut self, name: &str, value: Code) -> Outcome<()> {
        if self.assigned.contains(name) {
            let (text, kind) = self.stored(&value)?;
            if !kind.is_plain() {
                return Err(self.refuse(&format!(
                    "`{name}` is assigned to, and Jinja can only do so with texts, numbers, truth \
                     values and lists; write the template so that it is declared once"
                )));
            }
            let slot = self.names.take(name.trim_start_matches('$'));
            let statement = format!("set {slot} = namespace(value={text})");
            self.page.statement(&statement);
            let code = Code::made(format!("{slot}.value"), Level::Atom, kind);
            self.bring(name, code, Store::Assign);
            return Ok(());
        }
        let is_short = value.nature == Nature::Stable && !value.is_scalar();
        let code = if is_short {
            value
        } else {
            self.keep(name, &value)?
        };
        self.bring(name, code, Store::Declare);
        Ok(())
    }

    /// Declares the variable of a loop.
    pub(super) fn declare_loop(&mut self, name: &str, code: Code) -> Outcome<()> {
        if self.assigned.contains(name) {
            return self.declare(name, code);
        }
        self.bring(name, code, Store::Declare);
        Ok(())
    }

    fn bring(&mut self, name: &str, code: Code, store: Store) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(Variable {
                name: name.to_owned(),
                code,
                is_cell: store == Store::Assign,
            });
        }
    }

    pub(super) fn assign(&mut self, name: &str, value: &Code) -> Outcome<()> {
        let variable = self.find(name)?;
        if !variable.is_cell {
            return Err(self.refuse("`$` cannot be assigned to"));
        }
        let (place, wanted) = (variable.code.text.clone(), variable.code.kind);
        let (text, kind) = self.stored(value)?;
        if kind != wanted {
            return Err(self.refuse(&format!(
                "`{name}` is assigned values of several kinds, or of one that only a run shows; \
                 use a variable for each"
            )));
        }
        self.page.statement(&format!("set {place} = {text}"));
        Ok(())
    }

    /// Stores a value that is used more than once, in the variable that it is declared as.
    pub(super) fn hold(&mut self, pipe: &Pipe, value: Code) -> Outcome<Code> {
        let name = pipe.variables.first();
        let held = if value.nature == Nature::Stable {
            value
        } else {
            self.keep(name.map_or("value", String::as_str), &value)?
        };
        match (pipe.store, name) {
            (Store::Declare, Some(name)) => self.declare_loop(name, held.clone())?,
            (Store::Assign, Some(name)) => self.assign(name, &held)?,
            _ => {}
        }
        Ok(held)
    }

    /// Stores a value in a new variable.
    fn keep(&mut self, wanted: &str, value: &Code) -> Outcome<Code> {
        let (text, kind) = self.stored(value)?;
        let name = self.names.take(wanted.trim_start_matches('$'));
        self.page.statement(&format!("set {name} = {text}"));
        Ok(Code::stable(name, kind))
    }

    /// Returns a value as a variable stores it: Jinja's own if both are the same, otherwise Go's.
    fn stored(&self, value: &Code) -> Outcome<(String, Kind)> {
        if value.is_scalar() {
            return Ok((value.text.clone(), value.kind));
        }
        let kind = match value.kind {
            Kind::GoList => Kind::GoList,
            _ => Kind::Go,
        };
        Ok((self.go_of(value)?, kind))
    }

    /// Returns a loop over a value, with names for its variables.
    pub(super) fn loop_over(
        &mut self,
        value: &Code,
        key: Option<String>,
        item: String,
    ) -> Outcome<Loop> {
        let entry = match value.kind {
            Kind::Map(entry) => Some(entry),
            Kind::Pointer(Target::Map) => Some(Entry::Text),
            _ => None,
        };
        let key = match entry {
            Some(_) => Some(key.unwrap_or_else(|| self.names.take("key"))),
            None => key,
        };
        let names: Vec<String> = key.iter().chain([&item]).cloned().collect();
        let brought = names.join(", ");
        let (head, first, kinds) = match (value.kind, entry) {
            (_, Some(entry)) => {
                let kind = match entry {
                    Entry::Text => Kind::Text,
                    Entry::Truth => Kind::Truth,
                };
                let head = format!("{brought} in {}|items", value.at(Level::Filter));
                (head, None, (Kind::Text, kind))
            }
            (Kind::List, _) => {
                let first = key.as_ref().map(|key| format!("set {key} = loop.index0"));
                let head = format!("{item} in {}", value.text);
                (head, first, (Kind::Number, Kind::Text))
            }
            (Kind::Number, _) if key.is_none() => {
                let head = format!("{item} in range({})", value.text);
                (head, None, (Kind::Number, Kind::Number))
            }
            _ => {
                let function = if key.is_some() {
                    "go_pairs"
                } else {
                    "go_items"
                };
                let head = format!("{brought} in {function}({})", self.go_of(value)?);
                (head, None, (Kind::Go, Kind::Go))
            }
        };
        Ok(Loop {
            head,
            first,
            key: key.map(|key| Code::stable(key, kinds.0)),
            item: Code::stable(item, kinds.1),
            names,
        })
    }
}
