//! Variables. Each declaration has its own name in the output.

use std::{collections::BTreeSet, fmt::Write};

use super::{
    super::{
        super::sandbox::MARK,
        tree::{Node, Pipe, Refusal, RefusedPart, Store, Word},
    },
    Dot, Outcome, Translator,
};

/// A variable that is in scope.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) place: Dot,
    /// True if the place is a namespace, because the variable is assigned to.
    pub(super) is_cell: bool,
}

impl Translator<'_> {
    pub(super) fn declare(&mut self, line: usize, name: &str, code: &str) {
        let is_cell = self.assigned.contains(name);
        let slot = self.slot("v");
        self.open(line);
        let _ = if is_cell {
            write!(self.out, "set {slot} = namespace(v={code}) %{MARK}")
        } else {
            write!(self.out, "set {slot} = {code} %{MARK}")
        };
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(Variable {
                name: name.to_owned(),
                place: Dot::Variable(slot),
                is_cell,
            });
        }
    }

    pub(super) fn assign(&mut self, line: usize, name: &str, code: &str) -> Outcome {
        let variable = self.find(line, name)?;
        let Dot::Variable(slot) = &variable.place else {
            return Err(Refusal {
                line,
                problem: "`$` cannot be assigned to".to_owned(),
                part: RefusedPart::Template,
            });
        };
        let slot = slot.clone();
        self.open(line);
        let _ = write!(self.out, "set {slot}.v = {code} %{MARK}");
        Ok(())
    }

    pub(super) fn find(&self, line: usize, name: &str) -> Result<&Variable, Refusal> {
        self.scopes
            .iter()
            .rev()
            .flat_map(|scope| scope.iter().rev())
            .find(|variable| variable.name == name)
            .ok_or_else(|| Refusal {
                line,
                problem: format!("undefined variable \"{name}\""),
                part: RefusedPart::Template,
            })
    }
}

/// Returns the names that are assigned to anywhere in the nodes.
pub(in crate::go_template) fn assigned_in(nodes: &[Node]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    collect(nodes, &mut names);
    names
}

fn collect(nodes: &[Node], names: &mut BTreeSet<String>) {
    for node in nodes {
        match node {
            Node::Action(pipe) => collect_pipe(pipe, names),
            Node::If(branch) | Node::With(branch) | Node::Range(branch) => {
                collect_pipe(&branch.pipe, names);
                collect(&branch.body, names);
                collect(&branch.otherwise, names);
            }
            Node::Template { argument, .. } => {
                if let Some(pipe) = argument {
                    collect_pipe(pipe, names);
                }
            }
            Node::Text(_) | Node::Trimmed(_) | Node::Comment(_) | Node::Break | Node::Continue => {}
        }
    }
}

fn collect_pipe(pipe: &Pipe, names: &mut BTreeSet<String>) {
    if pipe.store == Store::Assign {
        names.extend(pipe.variables.iter().cloned());
    }
    for operand in pipe.commands.iter().flatten() {
        if let Word::Pipe(inner) = operand {
            collect_pipe(inner, names);
        }
    }
}
