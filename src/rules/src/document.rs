//! YAML documents that know the place of every value, so that messages can name a line. Values are
//! parsed as clients of the API server parse them; the places come from a second pass.

use std::{collections::BTreeMap, fmt};

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::Value as Json;

use osm_render::key_as_read;

/// The maximum nesting depth: more than any profile needs, and small enough for any stack.
const DEPTH_MAX: usize = 64;

/// A place in a text; both numbers start at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Place {
    /// The start of a text.
    pub const START: Self = Self { line: 1, column: 1 };
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// The error for a text that is not valid YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The place of the error.
    pub place: Place,
    /// What is wrong. It may quote the text, so do not show it for files that contain secrets.
    pub problem: String,
}

/// One YAML document.
#[derive(Clone, Debug)]
pub struct Document {
    /// The document's content.
    pub value: Json,
    nodes: BTreeMap<String, Node>,
}

/// One value, and its place.
#[derive(Clone, Debug)]
struct Node {
    place: Place,
    /// The place of the first line of a block scalar's text.
    block: Option<Place>,
    /// A plain scalar's source text.
    plain: Option<String>,
    /// The key that clients of the API server make of a plain one.
    key: Option<String>,
}

impl Document {
    /// Parses all documents of a text. Empty documents are left out, and a list counts as its
    /// objects.
    ///
    /// # Errors
    ///
    /// The text is not valid YAML, or a map has the same key twice.
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
        Ok(values
            .into_iter()
            .map(document)
            .flat_map(Self::objects)
            .collect())
    }

    /// Returns the objects of a list, such as `kubectl get -o yaml` prints. Any other document is
    /// one object.
    fn objects(self) -> Vec<Self> {
        let is_list = self.kind().is_some_and(|kind| kind.ends_with("List"));
        let items = self.value.get("items").filter(|_| is_list);
        let Some(items) = items.and_then(Json::as_array) else {
            return vec![self];
        };
        let object = |(index, value): (usize, &Json)| Self {
            value: value.clone(),
            nodes: self.nodes_below(&format!("items[{index}]")),
        };
        items.iter().enumerate().map(object).collect()
    }

    /// Returns a value's nodes, as if the value were a document.
    fn nodes_below(&self, path: &str) -> BTreeMap<String, Node> {
        let nodes = self.nodes.range(path.to_owned()..);
        nodes
            .map_while(|(known, node)| Some((known.strip_prefix(path)?, node)))
            .map(|(below, node)| {
                let below = below.strip_prefix('.').unwrap_or(below);
                (below.to_owned(), node.clone())
            })
            .collect()
    }

    /// Returns the kind of the object.
    pub fn kind(&self) -> Option<&str> {
        self.value.get("kind").and_then(Json::as_str)
    }

    /// Returns the place of a field. If the field is missing, returns that of its nearest parent.
    pub fn place(&self, path: &str) -> Place {
        self.nearest(path).map_or(Place::START, |node| node.place)
    }

    /// Returns the place of a line of a text value. For a literal block, it is exact; for other
    /// texts, it is the place of the value.
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

    /// Returns a plain scalar's source text, before it is parsed as a number.
    pub fn written(&self, path: &str) -> Option<&str> {
        self.nodes.get(path)?.plain.as_deref()
    }

    /// Returns the fields whose plain key clients of the API server make another one of, and that
    /// one.
    pub fn misread_keys(&self) -> impl Iterator<Item = (&str, &str)> {
        let nodes = self.nodes.iter();
        nodes.filter_map(|(path, node)| Some((path.as_str(), node.key.as_deref()?)))
    }

    fn nearest(&self, path: &str) -> Option<&Node> {
        let mut path = path;
        loop {
            if let Some(node) = self.nodes.get(path) {
                return Some(node);
            }
            if path.is_empty() {
                return None;
            }
            let end = path.rfind(['.', '[']).unwrap_or_default();
            path = path.get(..end)?;
        }
    }
}

/// Returns the path of a field in a map, in the notation of [`Document::place`].
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

/// Collects the places of all values of a text.
struct Places<'t> {
    events: Parser<'t, StrInput<'t>>,
    lines: Vec<&'t str>,
    nodes: BTreeMap<String, Node>,
}

impl<'t> Places<'t> {
    /// Returns the places of each document. It stops at the first error without reporting it,
    /// because the values were parsed before.
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
                event => return Some(event),
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
            key: None,
        };
        if let Event::Scalar(text, style, ..) = &event {
            node.plain = (*style == ScalarStyle::Plain).then(|| text.clone().into_owned());
            if *style == ScalarStyle::Literal {
                node.block = self.block(place);
            }
        }
        // The place of a value in a map is that of its key, which was added before.
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
            let (name, key) = match &event {
                Event::MappingEnd => return Some(()),
                Event::Scalar(text, ScalarStyle::Plain, ..) => {
                    (field(path, text), key_as_read(text))
                }
                Event::Scalar(text, ..) => (field(path, text), None),
                _ => return None,
            };
            self.node((event, span), &name, depth + 1)?;
            if let Some(node) = self.nodes.get_mut(&name) {
                node.key = key;
            }
            let value = self.next()?;
            self.node(value, &name, depth + 1)?;
        }
    }

    /// Returns the place where the lines of a block start: below the line with the block indicator,
    /// which is the last line before the text that is not empty.
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
    fn a_value_has_the_place_of_its_key_and_each_line_of_a_block_its_own_place() {
        let documents = Document::read_all(TEXT).expect("the text is valid YAML");
        assert_eq!(documents.len(), 2);
        let at = |path: &str| documents[0].place(path).to_string();
        assert_eq!(at("spec"), "2:1");
        assert_eq!(at("spec.files[0].path"), "4:5");
        assert_eq!(at("spec.files[1].path"), "10:6");
        // A missing field has the place of its nearest parent.
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
    fn a_list_counts_as_its_objects_with_their_places() {
        let text = "kind: List\nitems:\n- kind: a\n  spec: {b: 1}\n- kind: c\n  spec:\n    d: e\n---\nkind: AllowList\n";
        let documents = Document::read_all(text).expect("the text is valid YAML");
        let kinds = documents.iter().map(|it| it.kind().unwrap_or_default());
        assert_eq!(kinds.collect::<Vec<_>>(), ["a", "c", "AllowList"]);
        assert_eq!(documents[0].place("spec.b").to_string(), "4:10");
        assert_eq!(documents[0].written("spec.b"), Some("1"));
        assert_eq!(documents[1].place("spec.d").to_string(), "7:5");
        // What is missing in an object has the place of the object.
        assert_eq!(documents[1].place("metadata.name").to_string(), "5:3");
    }

    #[test]
    fn an_error_in_yaml_has_its_place() {
        for (text, line) in [("a: [1", 1), ("a: 1\na: 2\n", 2), ("\n\na: b: c\n", 3)] {
            let malformed = Document::read_all(text).expect_err("the text is not valid YAML");
            assert_eq!(malformed.place.line, line, "{text}: {malformed:?}");
            assert!(!malformed.problem.is_empty());
        }
    }
}
