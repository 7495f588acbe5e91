//! Rewrites a Go template in Jinja as a person would write it, so that it renders the same bytes.
//!
//! The engine's translation (`translate`) keeps Go's values and calls a function for every
//! operation. This result is for people, so it uses Jinja's own constructs wherever the Go types of
//! the data (`kinds`) prove that both mean the same. Elsewhere, a function named `go_…` does
//! exactly what Go does.
//!
//! | Go | Jinja |
//! |---|---|
//! | `{{ if .HTTPProxy }}`, a pointer | `{% if HTTPProxy is not none %}` |
//! | `{{ with .HTTPProxy }}{{ . }}{{ end }}` | the same `if`, and `HTTPProxy` for the dot |
//! | `{{ range $k, $v := .KubeReserved }}` | `{% for k, v in KubeReserved\|items %}` |
//! | `{{ template "name" }}` of the profile's | `{% include "name" %}` |
//! | `define`, `block` | a macro in front of the text |
//! | `$x = …` somewhere | a `namespace` |
//! | `{{- /* text */ -}}` | `{#- text -#}` |

use std::collections::{BTreeMap, BTreeSet};

use super::{
    translate::{Set, assigned_in},
    tree::{Branch, Node, Pipe, Refusal, RefusedPart, Store},
};

mod calls;
mod code;
mod expressions;
mod idioms;
mod kinds;
mod layout;
mod named;
mod names;
mod variables;

use code::{Code, Condition};
use kinds::Kind;
use layout::Page;
pub(super) use names::Names;

/// The filter that turns a named template's text into what Go makes of it.
pub(super) const NAMED: &str = "go_named";

type Outcome<T> = Result<T, Refusal>;

/// Writes a file. `texts` are the names of the profile's templates, and `names` those that their
/// text uses.
pub(super) fn file(set: &Set, texts: &BTreeSet<String>, names: &Names) -> Outcome<String> {
    let (text, _) = settled(set, texts, names, |writer| writer.nodes(&set.body))?;
    Ok(text)
}

/// Writes a named template, and adds its names to `names`.
pub(super) fn named(set: &Set, names: &mut Names) -> Outcome<String> {
    for body in std::iter::once(&set.body).chain(set.definitions.values()) {
        named::refuse_second_reading(body)?;
    }
    let printed = named::printed(&set.body);
    let (text, taken) = settled(set, &BTreeSet::new(), names, |writer| {
        writer.place = Place::Template;
        if let Some(nodes) = &printed {
            return writer.nodes(nodes);
        }
        writer.page.statement(&format!("filter {NAMED}"));
        writer.nodes(&set.body)?;
        writer.page.statement("endfilter");
        Ok(())
    })?;
    *names = taken;
    Ok(text)
}

/// Writes a text repeatedly, until the arguments of each macro are known.
fn settled(
    set: &Set,
    texts: &BTreeSet<String>,
    names: &Names,
    body: impl Fn(&mut Writer<'_>) -> Outcome<()>,
) -> Outcome<(String, Names)> {
    let mut names = names.clone();
    let definitions = set.definitions.keys();
    let macro_names: BTreeMap<&str, String> = definitions
        .map(|name| (name.as_str(), names.take(name)))
        .collect();
    let mut macros = BTreeMap::new();
    loop {
        let mut writer = Writer {
            place: Place::File,
            definitions: set,
            texts,
            macro_names: &macro_names,
            page: Page::default(),
            names: names.clone(),
            line: 1,
            dot: Code::root(),
            scopes: Vec::new(),
            assigned: BTreeSet::new(),
            set: BTreeSet::new(),
            macros: macros.clone(),
            called: macros.clone(),
        };
        writer.enter_unit(&set.body, Code::root());
        let text = writer.whole(&body)?;
        if writer.called == macros {
            return Ok((text, writer.names));
        }
        macros = writer.called;
    }
}

/// The kind of text that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    File,
    /// A named template of the profile. Go renders it whether or not a file calls it.
    Template,
}

/// The argument of a definition that is called as a macro.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Dot {
    /// All calls have the same argument, so the macro needs no parameter.
    Same(Code),
    /// The arguments are values of one kind.
    Value(Kind),
}

/// A variable that is in scope.
struct Variable {
    name: String,
    code: Code,
    /// True if it is an attribute of a namespace, because it is assigned to.
    is_cell: bool,
}

struct Writer<'a> {
    place: Place,
    definitions: &'a Set,
    texts: &'a BTreeSet<String>,
    macro_names: &'a BTreeMap<&'a str, String>,
    page: Page,
    names: Names,
    line: usize,
    dot: Code,
    scopes: Vec<Vec<Variable>>,
    assigned: BTreeSet<String>,
    /// The pointers that are known not to be nil.
    set: BTreeSet<String>,
    /// The definitions that are called: as known from the previous pass, and as found in this one.
    macros: BTreeMap<String, Dot>,
    called: BTreeMap<String, Dot>,
}

impl Writer<'_> {
    fn refuse(&self, problem: &str) -> Refusal {
        Refusal {
            line: self.line,
            problem: problem.to_owned(),
            part: RefusedPart::Template,
        }
    }

    /// Writes the macros, and then the text.
    fn whole(&mut self, body: impl Fn(&mut Self) -> Outcome<()>) -> Outcome<String> {
        body(self)?;
        let own = std::mem::take(&mut self.page).finish();
        if self.macros.is_empty() {
            return Ok(own);
        }
        for (index, (name, dot)) in self.macros.clone().into_iter().enumerate() {
            if index > 0 {
                self.page.trimmed("\n");
            }
            self.definition(&name, dot)?;
        }
        let mut text = std::mem::take(&mut self.page).finish();
        // The tag before this line break trims it, so the first line of the text stays in place.
        if !own.starts_with(char::is_whitespace) {
            text.truncate(text.len().saturating_sub("%}".len()));
            text.push_str("-%}\n");
        }
        text.push_str(&own);
        Ok(text)
    }

    fn definition(&mut self, name: &str, dot: Dot) -> Outcome<()> {
        let definitions = self.definitions;
        let macro_names = self.macro_names;
        let (Some(body), Some(macro_name)) =
            (definitions.definitions.get(name), macro_names.get(name))
        else {
            return Ok(());
        };
        let (dot, parameter) = match dot {
            Dot::Same(code) => (code, String::new()),
            Dot::Value(kind) => {
                let name = self.names.take("dot");
                (Code::stable(name.clone(), kind), name)
            }
        };
        self.enter_unit(body, dot);
        self.page
            .statement(&format!("macro {macro_name}({parameter})"));
        self.nodes(body)?;
        self.page.statement("endmacro");
        Ok(())
    }

    /// Enters the body of a template, which sees only its own variables.
    fn enter_unit(&mut self, body: &[Node], dot: Code) {
        self.assigned = assigned_in(body);
        self.scopes = vec![vec![Variable {
            name: "$".to_owned(),
            code: dot.clone(),
            is_cell: false,
        }]];
        self.dot = dot;
        self.set.clear();
    }

    fn nodes(&mut self, nodes: &[Node]) -> Outcome<()> {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Outcome<()> {
        match node {
            Node::Text(text) => self.page.text(text),
            Node::Trimmed(space) => self.page.trimmed(space),
            Node::Comment(text) => self.page.comment(text),
            Node::Action(pipe) => return self.action(pipe),
            Node::If(branch) => return self.if_(branch),
            Node::With(branch) => return self.with(branch),
            Node::Range(branch) => return self.range(branch),
            Node::Template {
                line,
                name,
                argument,
            } => {
                self.line = *line;
                return self.template(name, argument.as_ref());
            }
            Node::Break => self.page.statement("break"),
            Node::Continue => self.page.statement("continue"),
        }
        Ok(())
    }

    fn action(&mut self, pipe: &Pipe) -> Outcome<()> {
        let value = self.value(pipe)?;
        match (pipe.store, pipe.variables.first()) {
            (Store::None, _) => {
                let printed = self.printed(&value)?;
                self.page.print(&printed);
                Ok(())
            }
            (Store::Declare, Some(name)) => self.declare(name, value),
            (Store::Assign, Some(name)) => self.assign(name, &value),
            (_, None) => Ok(()),
        }
    }

    /// Writes the condition of a branch. If the branch stores the value, it is stored first.
    fn branch_condition(&mut self, pipe: &Pipe) -> Outcome<Condition> {
        if pipe.store == Store::None {
            return self.condition(pipe);
        }
        let value = self.value(pipe)?;
        let value = self.hold(pipe, value)?;
        self.truth(&value)
    }

    fn if_(&mut self, branch: &Branch) -> Outcome<()> {
        self.scopes.push(Vec::new());
        let condition = self.branch_condition(&branch.pipe)?;
        self.page.statement(&format!("if {}", condition.text));
        self.alternatives(branch, condition)?;
        self.page.statement("endif");
        self.scopes.pop();
        Ok(())
    }

    /// Writes the bodies of a branch whose first tag is already written.
    fn alternatives(&mut self, branch: &Branch, condition: Condition) -> Outcome<()> {
        let outer = self.set.clone();
        self.set.extend(condition.if_true);
        self.in_scope(&branch.body)?;
        self.set.clone_from(&outer);
        self.set.extend(condition.if_false);
        if let [Node::If(inner)] = branch.otherwise.as_slice()
            && inner.pipe.store == Store::None
        {
            let condition = self.condition(&inner.pipe)?;
            self.page.statement(&format!("elif {}", condition.text));
            self.alternatives(inner, condition)?;
        } else if !branch.otherwise.is_empty() {
            self.page.statement("else");
            self.in_scope(&branch.otherwise)?;
        }
        self.set = outer;
        Ok(())
    }

    fn with(&mut self, branch: &Branch) -> Outcome<()> {
        self.scopes.push(Vec::new());
        let value = self.value(&branch.pipe)?;
        let value = self.hold(&branch.pipe, value)?;
        let condition = self.truth(&value)?;
        self.page.statement(&format!("if {}", condition.text));
        let outer_set = self.set.clone();
        let outer_dot = std::mem::replace(&mut self.dot, value);
        self.set.extend(condition.if_true);
        self.in_scope(&branch.body)?;
        self.dot = outer_dot;
        self.set = outer_set;
        if !branch.otherwise.is_empty() {
            self.page.statement("else");
            self.in_scope(&branch.otherwise)?;
        }
        self.page.statement("endif");
        self.scopes.pop();
        Ok(())
    }

    fn range(&mut self, branch: &Branch) -> Outcome<()> {
        let value = self.value(&branch.pipe)?;
        let variables = branch.pipe.variables.as_slice();
        let is_declared = branch.pipe.store == Store::Declare;
        let wanted = |at: usize, default: &str| {
            let name = variables.get(at).filter(|_| is_declared);
            name.map_or(default, |name| name.trim_start_matches('$'))
                .to_owned()
        };
        let (key, item) = match variables.len() {
            2 => (
                Some(self.names.take(&wanted(0, "key"))),
                self.names.take(&wanted(1, "item")),
            ),
            _ => (None, self.names.take(&wanted(0, "item"))),
        };
        let loop_ = self.loop_over(&value, key, item)?;
        self.page.statement(&format!("for {}", loop_.head));
        if let Some(first) = &loop_.first {
            self.page.statement(first);
        }
        self.scopes.push(Vec::new());
        let values = match variables {
            [first, second] => vec![
                (first, loop_.key.clone()),
                (second, Some(loop_.item.clone())),
            ],
            [only] => vec![(only, Some(loop_.item.clone()))],
            _ => Vec::new(),
        };
        for (name, code) in values {
            let Some(code) = code else { continue };
            if is_declared {
                self.declare_loop(name, code)?;
            } else {
                self.assign(name, &code)?;
            }
        }
        let outer = std::mem::replace(&mut self.dot, loop_.item.clone());
        let outer_set = self.set.clone();
        self.nodes(&branch.body)?;
        self.dot = outer;
        self.set = outer_set;
        self.scopes.pop();
        if !branch.otherwise.is_empty() {
            self.page.statement("else");
            self.in_scope(&branch.otherwise)?;
        }
        self.page.statement("endfor");
        self.names.release(&loop_.names);
        Ok(())
    }

    fn in_scope(&mut self, nodes: &[Node]) -> Outcome<()> {
        self.scopes.push(Vec::new());
        self.nodes(nodes)?;
        self.scopes.pop();
        Ok(())
    }
}
