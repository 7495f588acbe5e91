//! A profile's named templates, which print a line break first and no white space at their end.
//!
//! Go puts the rendered text on lines of its own between `define` and `end`, and parses it again.
//! So a call prints a line break and the text without trailing white space, and prints nothing if
//! the text is blank. If the end of the text can be determined from the source, the template is
//! written accordingly. Otherwise a filter does that.

use super::super::{
    ACTION,
    second_pass::SPACES,
    tree::{Branch, Node, Pipe, Refusal, RefusedPart, Store, Word},
};

/// Returns the nodes that print a named template as its callers do, if they can be determined
/// without running it.
pub(super) fn printed(nodes: &[Node]) -> Option<Vec<Node>> {
    if let Some(nodes) = trimmed(nodes) {
        return Some([line_break()].into_iter().chain(nodes).collect());
    }
    // If everything is in a branch, the line break goes into the branch. If the branch is not
    // taken, the text is blank.
    let mut visible = None;
    let mut indent = Vec::new();
    let mut kept = Vec::new();
    for node in nodes {
        match node {
            Node::Text(text) if text.trim_matches(SPACES).is_empty() => {
                if visible.is_none() {
                    indent.push(node.clone());
                }
            }
            Node::If(_) | Node::With(_) if visible.is_none() => {
                visible = Some(kept.len());
                kept.push(node.clone());
            }
            node if is_silent(node) => kept.push(node.clone()),
            _ => return None,
        }
    }
    let Some(node) = visible.and_then(|at| kept.get_mut(at)) else {
        return Some(kept);
    };
    if let Node::If(branch) | Node::With(branch) = node {
        for body in [&mut branch.body, &mut branch.otherwise] {
            let whole: Vec<Node> = indent.iter().chain(body.iter()).cloned().collect();
            *body = printed(&whole)?;
        }
    }
    Some(kept)
}

fn line_break() -> Node {
    Node::Text("\n".to_owned())
}

/// Returns true if a node never prints anything.
fn is_silent(node: &Node) -> bool {
    match node {
        Node::Trimmed(_) | Node::Comment(_) => true,
        Node::Action(pipe) => pipe.store != Store::None,
        _ => false,
    }
}

/// Returns the nodes without white space at the end of their output, if they can be determined
/// without running the template.
fn trimmed(nodes: &[Node]) -> Option<Vec<Node>> {
    let mut nodes = nodes.to_vec();
    loop {
        let at = nodes.iter().rposition(|node| !is_silent(node))?;
        let (before, rest) = nodes.split_at(at);
        match rest.first()? {
            Node::Text(text) => {
                let kept = text.trim_end_matches(SPACES).to_owned();
                if kept.is_empty() {
                    nodes.remove(at);
                    continue;
                }
                *nodes.get_mut(at)? = Node::Text(kept);
            }
            Node::If(branch) => {
                let branch = trimmed_branch(branch, before)?;
                *nodes.get_mut(at)? = Node::If(branch);
            }
            Node::With(branch) => {
                let branch = trimmed_branch(branch, before)?;
                *nodes.get_mut(at)? = Node::With(branch);
            }
            Node::Range(branch) if ends_in_text(&branch.body) && ends_in_text(before) => {
                let is_done = branch.otherwise.iter().all(is_silent);
                (is_done || ends_in_text(&branch.otherwise)).then_some(())?;
            }
            _ => return None,
        }
        return Some(nodes);
    }
}

fn trimmed_branch(branch: &Branch, before: &[Node]) -> Option<Branch> {
    let otherwise = if branch.otherwise.iter().all(is_silent) {
        ends_in_text(before).then(|| branch.otherwise.clone())?
    } else {
        trimmed(&branch.otherwise)?
    };
    Some(Branch {
        pipe: branch.pipe.clone(),
        body: trimmed(&branch.body)?,
        otherwise,
    })
}

/// Returns true if the output of the nodes never ends in white space and is never empty.
fn ends_in_text(nodes: &[Node]) -> bool {
    for node in nodes.iter().rev().filter(|node| !is_silent(node)) {
        let ends = |branch: &Branch| {
            let is_alternative = !branch.otherwise.iter().all(is_silent);
            let ends =
                ends_in_text(&branch.body) && (!is_alternative || ends_in_text(&branch.otherwise));
            (ends, is_alternative)
        };
        match node {
            Node::Text(text) => return !text.ends_with(SPACES),
            Node::If(branch) | Node::With(branch) => match ends(branch) {
                (true, false) => {}
                (true, true) => return true,
                (false, _) => return false,
            },
            Node::Range(branch) if ends(branch).0 => {}
            _ => return false,
        }
    }
    false
}

/// Refuses a template whose own text would be parsed a second time.
pub(super) fn refuse_second_reading(nodes: &[Node]) -> Result<(), Refusal> {
    let mut text = Texts::default();
    text.nodes(nodes);
    if text.is_action || text.ends_in_brace && text.begins_with_brace {
        return Err(Refusal {
            line: text.line.max(1),
            problem: "the template prints `{{`, and what it prints is read as a template once \
                      more; move the text into a file, where it is printed as it stands"
                .to_owned(),
            part: RefusedPart::Template,
        });
    }
    Ok(())
}

/// How the texts that a template may print look where they meet.
#[derive(Default)]
struct Texts {
    line: usize,
    is_action: bool,
    ends_in_brace: bool,
    begins_with_brace: bool,
}

impl Texts {
    fn text(&mut self, text: &str) {
        self.is_action |= text.contains(ACTION);
        self.ends_in_brace |= text.ends_with('{');
        self.begins_with_brace |= text.starts_with('{');
    }

    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Text(text) => self.text(text),
                Node::Action(pipe)
                | Node::Template {
                    argument: Some(pipe),
                    ..
                } => self.pipe(pipe),
                Node::If(branch) | Node::With(branch) | Node::Range(branch) => {
                    self.pipe(&branch.pipe);
                    self.nodes(&branch.body);
                    self.nodes(&branch.otherwise);
                }
                _ => {}
            }
        }
    }

    fn pipe(&mut self, pipe: &Pipe) {
        let is_known = self.is_action;
        pipe.commands
            .iter()
            .flatten()
            .for_each(|word| self.word(word));
        if self.is_action && !is_known {
            self.line = pipe.line;
        }
    }

    fn word(&mut self, word: &Word) {
        match word {
            Word::Text(text) => self.text(text),
            Word::Pipe(pipe) => self.pipe(pipe),
            Word::Chain(base, _) => self.word(base),
            _ => {}
        }
    }
}
