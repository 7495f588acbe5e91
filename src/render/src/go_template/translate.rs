//! Translates a Go template into the engine's language.
//!
//! | Go | written as |
//! |---|---|
//! | `.A` where dot is the data | `A` |
//! | `.A.B`, `$v.B` | `go_field(A, "B")` |
//! | `x \| f y` | `go_f(y, x)` |
//! | `and`, `or`, `not` | the engine's own |
//! | `with x` | a variable, and an `if` |
//! | `range x` | a `for` over `go_items(x)` or `go_pairs(x)` |
//! | `define`, `template` | a macro with one argument, dot |
//! | `template` of the profile's | `go_texts["name"]` |
//! | `$x := y` | a variable with a name of its own |
//! | the same where `$x = z` stands somewhere | an attribute of a namespace |
//!
//! Names are never used twice, so the engine's scopes and Go's cannot differ. Every tag stays on
//! its line. All functions charge the bytes that they scan and create.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{
    super::sandbox::MARK,
    parser::Parsed,
    tree::{Branch, Node, Pipe, Refusal, RefusedPart, Store},
};

mod expressions;
mod variables;

pub(super) use variables::assigned_in;

/// The maximum depth of nested blocks, as in the engine's own language.
const BLOCKS_MAX: usize = 24;

/// The name of the variable with the texts of the profile's templates.
pub(super) const TEXTS: &str = "go_texts";
/// The name of the variable with all of the data.
pub(super) const ROOT: &str = "go_root";

/// A text with all the definitions that it can call.
#[derive(Clone, Debug, Default)]
pub(super) struct Set {
    pub(super) body: Vec<Node>,
    pub(super) definitions: BTreeMap<String, Vec<Node>>,
}

impl From<Parsed> for Set {
    fn from(parsed: Parsed) -> Self {
        let definitions = parsed
            .definitions
            .into_iter()
            .map(|definition| (definition.name, definition.body))
            .collect();
        Self {
            body: parsed.body,
            definitions,
        }
    }
}

/// Translates a text into the engine's language. `texts` are the names of the profile's templates.
pub(super) fn translate(set: &Set, texts: &BTreeSet<String>) -> Result<String, Refusal> {
    let mut translator = Translator {
        set,
        texts,
        out: String::new(),
        line: 1,
        slots: 0,
        blocks: 0,
        dot: Dot::Root,
        scopes: Vec::new(),
        assigned: BTreeSet::new(),
    };
    translator.definitions()?;
    translator.unit(&set.body, Dot::Root)?;
    Ok(translator.out)
}

/// The meaning of `.`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Dot {
    /// The data, whose fields are variables.
    Root,
    /// A variable.
    Variable(String),
}

struct Translator<'a> {
    set: &'a Set,
    texts: &'a BTreeSet<String>,
    out: String,
    /// The current line of the output.
    line: usize,
    slots: usize,
    blocks: usize,
    dot: Dot,
    scopes: Vec<Vec<variables::Variable>>,
    /// The names of variables that are assigned to after their declaration.
    assigned: BTreeSet<String>,
}

type Outcome = Result<(), Refusal>;

impl Translator<'_> {
    /// Writes the definitions as macros, which may call one another in any order.
    fn definitions(&mut self) -> Outcome {
        let set = self.set;
        for (index, body) in set.definitions.values().enumerate() {
            self.open(1);
            let _ = write!(self.out, "macro t{index}(dot) %{MARK}");
            self.unit(body, Dot::Variable("dot".to_owned()))?;
            self.tag("endmacro");
        }
        Ok(())
    }

    /// Writes the body of a template, which sees only its own variables.
    fn unit(&mut self, body: &[Node], dot: Dot) -> Outcome {
        self.assigned = variables::assigned_in(body);
        self.scopes = vec![vec![variables::Variable {
            name: "$".to_owned(),
            place: dot.clone(),
            is_cell: false,
        }]];
        self.dot = dot;
        self.nodes(body)
    }

    fn nodes(&mut self, nodes: &[Node]) -> Outcome {
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Outcome {
        match node {
            Node::Text(text) => self.text(text),
            Node::Trimmed(_) | Node::Comment(_) => Ok(()),
            Node::Action(pipe) => self.action(pipe),
            Node::If(branch) => self.if_(branch),
            Node::With(branch) => self.with(branch),
            Node::Range(branch) => self.range(branch),
            Node::Template {
                line,
                name,
                argument,
            } => self.template(*line, name, argument.as_ref()),
            Node::Break => {
                self.tag("break");
                Ok(())
            }
            Node::Continue => {
                self.tag("continue");
                Ok(())
            }
        }
    }

    fn text(&mut self, text: &str) -> Outcome {
        if text.contains(MARK) {
            return Err(Refusal {
                line: self.line,
                problem: "the template holds the control character U+0001".to_owned(),
                part: RefusedPart::Template,
            });
        }
        self.line += text.matches('\n').count();
        self.out.push_str(text);
        Ok(())
    }

    fn action(&mut self, pipe: &Pipe) -> Outcome {
        let code = self.pipe(pipe)?;
        match pipe.store {
            Store::None => {
                let _ = write!(self.out, "{MARK}=");
                self.catch_up(pipe.line);
                let _ = write!(self.out, " {code} ={MARK}");
                Ok(())
            }
            _ => self.store(pipe, &code),
        }
    }

    /// Stores a value in the first of a pipeline's variables.
    fn store(&mut self, pipe: &Pipe, code: &str) -> Outcome {
        let Some(name) = pipe.variables.first() else {
            return Ok(());
        };
        if pipe.store == Store::Assign {
            return self.assign(pipe.line, name, code);
        }
        self.declare(pipe.line, name, code);
        Ok(())
    }

    fn if_(&mut self, branch: &Branch) -> Outcome {
        self.enter(branch.pipe.line)?;
        self.scopes.push(Vec::new());
        let code = self.asked(&branch.pipe)?;
        self.open(branch.pipe.line);
        let _ = write!(self.out, "if {code} %{MARK}");
        self.in_scope(&branch.body)?;
        self.otherwise(&branch.otherwise)?;
        self.tag("endif");
        self.scopes.pop();
        self.blocks -= 1;
        Ok(())
    }

    /// Writes what follows `else`. A plain `else if` needs no block of its own.
    fn otherwise(&mut self, nodes: &[Node]) -> Outcome {
        let mut nodes = nodes;
        while let [Node::If(branch)] = nodes
            && branch.pipe.store == Store::None
        {
            let code = self.pipe(&branch.pipe)?;
            self.open(branch.pipe.line);
            let _ = write!(self.out, "elif {code} %{MARK}");
            self.in_scope(&branch.body)?;
            nodes = &branch.otherwise;
        }
        if nodes.is_empty() {
            return Ok(());
        }
        self.tag("else");
        self.in_scope(nodes)
    }

    /// Returns the code of a condition. If the pipeline stores the value, it is stored first.
    fn asked(&mut self, pipe: &Pipe) -> Result<String, Refusal> {
        let code = self.pipe(pipe)?;
        if pipe.store == Store::None {
            return Ok(code);
        }
        let slot = self.hold(pipe.line, &code);
        self.store(pipe, &slot)?;
        Ok(slot)
    }

    fn with(&mut self, branch: &Branch) -> Outcome {
        self.enter(branch.pipe.line)?;
        self.scopes.push(Vec::new());
        let code = self.pipe(&branch.pipe)?;
        let slot = self.hold(branch.pipe.line, &code);
        if branch.pipe.store != Store::None {
            self.store(&branch.pipe, &slot)?;
        }
        self.open(branch.pipe.line);
        let _ = write!(self.out, "if {slot} %{MARK}");
        let outer = std::mem::replace(&mut self.dot, Dot::Variable(slot));
        self.in_scope(&branch.body)?;
        self.dot = outer;
        if !branch.otherwise.is_empty() {
            self.tag("else");
            self.in_scope(&branch.otherwise)?;
        }
        self.tag("endif");
        self.scopes.pop();
        self.blocks -= 1;
        Ok(())
    }

    fn range(&mut self, branch: &Branch) -> Outcome {
        self.enter(branch.pipe.line)?;
        let code = self.pipe(&branch.pipe)?;
        let bytes = raw_bytes(&branch.body);
        let (key, value) = (self.slot("k"), self.slot("d"));
        self.open(branch.pipe.line);
        let _ = match branch.pipe.variables.len() {
            2 => write!(self.out, "for ({key}, {value}) in go_pairs({code}, {bytes}"),
            _ => write!(self.out, "for {value} in go_items({code}, {bytes}"),
        };
        let _ = write!(self.out, ") %{MARK}");
        self.scopes.push(Vec::new());
        let variables = match branch.pipe.variables.as_slice() {
            [first, second] => vec![(first, &key), (second, &value)],
            [only] => vec![(only, &value)],
            _ => Vec::new(),
        };
        for (name, slot) in variables {
            match branch.pipe.store {
                Store::Assign => self.assign(branch.pipe.line, name, slot)?,
                _ => self.declare(branch.pipe.line, name, slot),
            }
        }
        let outer = std::mem::replace(&mut self.dot, Dot::Variable(value.clone()));
        self.nodes(&branch.body)?;
        self.dot = outer;
        self.scopes.pop();
        if !branch.otherwise.is_empty() {
            self.tag("else");
            self.in_scope(&branch.otherwise)?;
        }
        self.tag("endfor");
        self.blocks -= 1;
        Ok(())
    }

    fn template(&mut self, line: usize, name: &str, argument: Option<&Pipe>) -> Outcome {
        let code = match argument {
            Some(pipe) => {
                let code = self.pipe(pipe)?;
                if pipe.store == Store::None {
                    code
                } else {
                    let slot = self.hold(line, &code);
                    self.store(pipe, &slot)?;
                    slot
                }
            }
            None => "go_nothing".to_owned(),
        };
        let quoted = serde_json::Value::from(name);
        let index = self.set.definitions.keys().position(|known| known == name);
        let _ = write!(self.out, "{MARK}=");
        self.catch_up(line);
        let _ = match index {
            Some(index) => write!(self.out, " osm_made(t{index}({code})) ={MARK}"),
            None if self.texts.contains(name) => {
                write!(self.out, " {TEXTS}[{quoted}] ={MARK}")
            }
            None => write!(self.out, " go_no_template({quoted}) ={MARK}"),
        };
        Ok(())
    }

    fn in_scope(&mut self, nodes: &[Node]) -> Outcome {
        self.scopes.push(Vec::new());
        self.nodes(nodes)?;
        self.scopes.pop();
        Ok(())
    }

    fn enter(&mut self, line: usize) -> Outcome {
        self.blocks += 1;
        if self.blocks > BLOCKS_MAX {
            return Err(Refusal {
                line,
                problem: format!("more than {BLOCKS_MAX} blocks are nested"),
                part: RefusedPart::Template,
            });
        }
        Ok(())
    }

    /// Opens a tag, and moves it to the line on which the author wrote it.
    fn open(&mut self, line: usize) {
        let _ = write!(self.out, "{MARK}%");
        self.catch_up(line);
        self.out.push(' ');
    }

    fn catch_up(&mut self, line: usize) {
        while self.line < line {
            self.out.push('\n');
            self.line += 1;
        }
    }

    fn tag(&mut self, word: &str) {
        let _ = write!(self.out, "{MARK}% {word} %{MARK}");
    }

    fn slot(&mut self, prefix: &str) -> String {
        self.slots += 1;
        format!("{prefix}{}", self.slots)
    }

    /// Stores a value in a variable that has no name in Go.
    fn hold(&mut self, line: usize, code: &str) -> String {
        let slot = self.slot("d");
        self.open(line);
        let _ = write!(self.out, "set {slot} = {code} %{MARK}");
        slot
    }
}

/// Returns the maximum number of bytes of text that one pass through the nodes writes by itself.
fn raw_bytes(nodes: &[Node]) -> usize {
    nodes
        .iter()
        .map(|node| match node {
            Node::Text(text) => text.len(),
            Node::If(branch) | Node::With(branch) => {
                raw_bytes(&branch.body).max(raw_bytes(&branch.otherwise))
            }
            // Loops charge by themselves, and the text of a template is charged where it is
            // created.
            _ => 0,
        })
        .sum()
}
