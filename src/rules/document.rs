//! YAML documents whose every value knows where it stands, so that what is said of a value can name
//! a line. Values are read as the API server's clients read them; places come from a second pass.

use std::{collections::BTreeMap, fmt};

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::Value as Json;

/// Deeper than any profile, and shallow enough for any stack.
const DEPTH_MAX: usize = 64;

/// A place in a text; both numbers begin at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Place {
    /// Where a text begins.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// A text that is no YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where.
    pub place: Place,
    /// What is wrong. It may quote the text, so it is not for files that hold secrets.
    pub problem: String,
}

/// One YAML document.
#[derive(Clone, Debug)]
pub struct Document {
    /// What it says.
    pub value: Json,
    nodes: BTreeMap<String, Node>,
}

/// What is known of one value.
#[derive(Clone, Debug)]
struct Node {
    place: Place,
    /// The first line of a text that has lines of its own.
    block: Option<Place>,
    /// A plain scalar, as it is written.
    plain: Option<String>,
}

impl Document {
    /// Reads all documents of a text; empty ones are left out.
    pub fn read_all(text: &str) -> Result<Vec<Self>, Malformed> {
        let options = serde_saphyr::options! {
            duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
            with_snippet: false,
        };
        let values: Vec<Json> = serde_saphyr::from_multiple_with_options(text, options)
            .map_err(|error| malformed(&error))?;
        let places = Places::read_all(text);
        let mut places = places.into_iter();
        let document = |value| Self {
            value,
            nodes: places.next().unwrap_or_default(),
        };
        Ok(values.into_iter().map(document).collect())
    }

    /// Where a field stands, or the nearest that holds it.
    pub fn place(&self, path: &str) -> Place {
        self.nearest(path).map_or(Place::START, |node| node.place)
    }

    /// Where a line of a text value stands: exactly in a block, else where the value begins.
    pub fn line_in(&self, path: &str, line: usize) -> Place {
        let block = self.nodes.get(path).and_then(|node| node.block);
        block.map_or_else(
            || self.place(path),
            |first| Place {
                line: first.line + line.saturating_sub(1),
                column: first.column,
            },
        )
    }

    /// A plain scalar as it is written, before any reading of numbers.
    pub fn written(&self, path: &str) -> Option<&str> {
        self.nodes.get(path)?.plain.as_deref()
    }

    fn nearest(&self, path: &str) -> Option<&Node> {
        let mut path = path;
        loop {
            if let Some(node) = self.nodes.get(path) {
                return Some(node);
            }
            let end = path.rfind(['.', '['])?;
            path = path.get(..end)?;
        }
    }
}

/// The path of a field in a map, as places are asked for.
pub fn field(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn malformed(error: &serde_saphyr::Error) -> Malformed {
    let place = error.location().map_or(Place::START, |location| {
        let number = |number| usize::try_from(number).unwrap_or(1).max(1);
        Place {
            line: number(location.line()),
            column: number(location.column()),
        }
    });
    let problem = error.without_snippet().to_string();
    let first = problem.lines().next().unwrap_or_default();
    let problem = first.split(" at line ").next().unwrap_or(first);
    let problem = problem.strip_prefix("error: ").unwrap_or(problem);
    let problem = problem.to_owned();
    Malformed { place, problem }
}

/// Collects the places of one text.
struct Places<'t> {
    events: Parser<'t, StrInput<'t>>,
    lines: Vec<&'t str>,
    nodes: BTreeMap<String, Node>,
}

impl<'t> Places<'t> {
    /// What cannot be read has no places: the values were read before.
    fn read_all(text: &'t str) -> Vec<BTreeMap<String, Node>> {
        let mut places = Self {
            events: Parser::new_from_str(text),
            lines: text.lines().collect(),
            nodes: BTreeMap::new(),
        };
        let mut documents = Vec::new();
        while let Some((event, span)) = places.next() {
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => {
                    let is_empty = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..)
                        if ["", "~", "null", "Null", "NULL"].contains(&&**text));
                    places.node((event, span), "", 0);
                    let nodes = std::mem::take(&mut places.nodes);
                    if !is_empty {
                        documents.push(nodes);
                    }
                }
            }
        }
        documents
    }

    fn next(&mut self) -> Option<(Event<'t>, Span)> {
        loop {
            match self.events.next()?.ok()? {
                (Event::Comment(..), _) => {}
                found => return Some(found),
            }
        }
    }

    fn node(&mut self, (event, span): (Event<'t>, Span), path: &str, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let place = Place {
            line: span.start.line(),
            column: span.start.col() + 1,
        };
        let mut node = Node {
            place,
            block: None,
            plain: None,
        };
        if let Event::Scalar(text, style, ..) = &event {
            node.plain = (*style == ScalarStyle::Plain).then(|| text.clone().into_owned());
            if *style == ScalarStyle::Literal {
                node.block = self.block(place);
            }
        }
        // A value is found by its key, whose place stands here already.
        let is_new = !self.nodes.contains_key(path);
        let known = self.nodes.entry(path.to_owned()).or_insert(node.clone());
        if !is_new {
            known.block = node.block;
            known.plain = node.plain;
        }
        match event {
            Event::SequenceStart(..) => self.list(path, depth),
            Event::MappingStart(..) => self.map(path, depth),
            _ => Some(()),
        }
    }

    fn list(&mut self, path: &str, depth: usize) -> Option<()> {
        for index in 0_usize.. {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                break;
            }
            self.node((event, span), &format!("{path}[{index}]"), depth + 1)?;
        }
        Some(())
    }

    fn map(&mut self, path: &str, depth: usize) -> Option<()> {
        loop {
            let (event, span) = self.next()?;
            let name = match &event {
                Event::MappingEnd => return Some(()),
                Event::Scalar(text, ..) => field(path, text),
                _ => return None,
            };
            self.node((event, span), &name, depth + 1)?;
            let value = self.next()?;
            self.node(value, &name, depth + 1)?;
        }
    }

    /// Where the lines of a block begin: below the line with its mark, which is the last one before
    /// the text that is not empty.
    fn block(&self, text: Place) -> Option<Place> {
        let is_empty = |line: &usize| {
            let line = line.checked_sub(1).and_then(|index| self.lines.get(index));
            line.is_none_or(|line| line.trim().is_empty())
        };
        let mark = (1..text.line).rev().find(|line| !is_empty(line))?;
        Some(Place {
            line: mark + 1,
            column: text.column,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a comment\nspec: # of it\n  files:\n  - path: /a\n    permissions: 0644\n    data: |-\n\n      one\n      two\n  - {path: b}\n---\n---\nkind: \"x\"\n";

    #[test]
    fn every_value_has_the_place_of_its_key_and_every_line_of_a_block_its_own() {
        let documents = Document::read_all(TEXT).expect("the text is YAML");
        assert_eq!(documents.len(), 2);
        let at = |path: &str| documents[0].place(path).to_string();
        assert_eq!(at("spec"), "2:1");
        assert_eq!(at("spec.files[0].path"), "4:5");
        assert_eq!(at("spec.files[1].path"), "10:6");
        // What is missing is looked for where it should stand.
        assert_eq!(at("spec.files[1].content.inline"), "10:5");
        assert_eq!(
            documents[0].written("spec.files[0].permissions"),
            Some("0644")
        );
        let line = |line| documents[0].line_in("spec.files[0].data", line).to_string();
        assert_eq!((line(1), line(3)), ("7:7".to_owned(), "9:7".to_owned()));
        assert_eq!(documents[0].line_in("spec.files[0].path", 7).line, 4);
        assert_eq!(documents[1].place("kind").to_string(), "13:1");
    }

    #[test]
    fn what_is_no_yaml_is_told_with_its_place() {
        for (text, line) in [("a: [1", 1), ("a: 1\na: 2\n", 2), ("\n\na: b: c\n", 3)] {
            let malformed = Document::read_all(text).expect_err("the text is no YAML");
            assert_eq!(malformed.place.line, line, "{text}: {malformed:?}");
            assert!(!malformed.problem.is_empty());
        }
    }
}
