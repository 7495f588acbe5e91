//! The syntax tree of a Go template.

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    /// Text, trimmed if the tags beside it say so.
    Text(String),
    /// White space that a tag beside it trims.
    Trimmed(String),
    /// A comment, without its marks.
    Comment(String),
    /// A pipeline that is printed, or that declares variables.
    Action(Pipe),
    /// `if`, with or without `else`.
    If(Branch),
    /// `with`, with or without `else`.
    With(Branch),
    /// `range`, with or without `else`.
    Range(Branch),
    /// `template "name" argument`; also `block`.
    Template {
        line: usize,
        name: String,
        argument: Option<Pipe>,
    },
    /// `break`
    Break,
    /// `continue`
    Continue,
}

/// A pipeline with the bodies that depend on it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Branch {
    pub(super) pipe: Pipe,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// `$a, $b := command | command`
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pipe {
    pub(super) line: usize,
    pub(super) variables: Vec<String>,
    pub(super) store: Store,
    pub(super) commands: Vec<Vec<Word>>,
}

/// How a pipeline stores its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// It stores nothing: the value is printed or tested.
    None,
    /// `:=`
    Declare,
    /// `=`
    Assign,
}

/// One word of a command.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    Function(String),
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// `.A.B`
    Field(Vec<String>),
    /// `$a.B`, with the name after the `$`.
    Variable(String, Vec<String>),
    /// `(…).A`, `function.A`
    Chain(Box<Word>, Vec<String>),
    /// `(…)`
    Pipe(Box<Pipe>),
}

/// A template with a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) body: Vec<Node>,
}

/// What is refused: a template, or a function that templates must not call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusedPart {
    Template,
    Function,
}

/// The reason why a text is not a valid template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) line: usize,
    pub(super) problem: String,
    pub(super) part: RefusedPart,
}

/// Returns true if a template contains only white space.
pub(super) fn is_empty(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| match node {
        Node::Text(text) => text.trim().is_empty(),
        Node::Trimmed(_) | Node::Comment(_) => true,
        _ => false,
    })
}
