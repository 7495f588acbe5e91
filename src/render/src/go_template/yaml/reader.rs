//! Reads YAML.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Tag};
use minijinja::Value;

use super::{
    super::{
        super::allocation_limit::spend,
        value::{List, Map},
    },
    scalars::{Scalar, resolve},
};

/// The maximum number of values in a document. An alias counts as what it stands for.
const NODES_MAX: usize = 100_000;
/// The maximum depth of nested lists and maps.
const DEPTH_MAX: usize = 16;

/// Parses the first document of a text.
pub(in crate::go_template) fn read(text: &str) -> Result<Value, String> {
    let mut reader = Reader {
        events: Parser::new_from_str(text),
        anchors: BTreeMap::new(),
        nodes: 0,
        // The last line of a block ends with a break only if the text does.
        end: (!text.ends_with('\n')).then(|| text.chars().count()),
        is_at_end: false,
    };
    loop {
        match reader.next()? {
            Event::StreamEnd | Event::DocumentEnd => return Ok(Value::UNDEFINED),
            Event::StreamStart | Event::DocumentStart(..) => {}
            event => return reader.node(event, 0).map(|node| node.value),
        }
    }
}

struct Reader<'t> {
    events: Parser<'t, granit_parser::StrInput<'t>>,
    /// The values by anchor, with the number of nodes in each.
    anchors: BTreeMap<usize, (Value, usize)>,
    nodes: usize,
    /// The end of a text without a last line break, in characters.
    end: Option<usize>,
    /// True if the latest event reaches that end.
    is_at_end: bool,
}

/// A value. `is_merge` is true if it is `<<`.
struct Node {
    value: Value,
    is_merge: bool,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Event<'t>, String> {
        let is_comment = |found: &Result<_, _>| matches!(found, Ok((Event::Comment(..), _)));
        match self.events.by_ref().find(|found| !is_comment(found)) {
            Some(Ok((event, span))) => {
                self.is_at_end = self.end.is_some_and(|end| span.end.index() >= end);
                Ok(event)
            }
            Some(Err(error)) => Err(format!("yaml: line {}", error.marker().line())),
            None => Ok(Event::StreamEnd),
        }
    }

    fn count(&mut self, nodes: usize) -> Result<(), String> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            return Err(format!("yaml: more than {NODES_MAX} values"));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'t>, depth: usize) -> Result<Node, String> {
        self.count(1)?;
        if depth > DEPTH_MAX {
            return Err("yaml: nested too deep".to_owned());
        }
        let before = self.nodes;
        let (value, anchor, is_merge) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                let text = match text.strip_suffix('\n') {
                    Some(cut) if is_block && self.is_at_end => cut,
                    _ => &text,
                };
                let (value, is_merge) = scalar(text, style, tag.as_deref());
                (value, anchor, is_merge)
            }
            Event::SequenceStart(_, anchor, _) => (self.list(depth)?, anchor, false),
            Event::MappingStart(_, anchor, _) => (self.map(depth)?, anchor, false),
            Event::Alias(anchor) => {
                let known = self.anchors.get(&anchor).cloned();
                let (value, nodes) = known.ok_or("yaml: unknown anchor")?;
                self.count(nodes)?;
                (value, 0, false)
            }
            _ => return Err("yaml: unexpected end".to_owned()),
        };
        if anchor > 0 {
            self.anchors
                .insert(anchor, (value.clone(), self.nodes - before + 1));
        }
        Ok(Node { value, is_merge })
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(List::value(items)),
                event => items.push(self.node(event, depth + 1)?.value),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, String> {
        let mut entries: BTreeMap<String, Value> = BTreeMap::new();
        let mut merged: Vec<Value> = Vec::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => break,
                event => self.node(event, depth + 1)?,
            };
            let event = self.next()?;
            let value = self.node(event, depth + 1)?.value;
            if key.is_merge {
                merged.push(value);
                continue;
            }
            let name = key_text(&key.value)?;
            if entries.insert(name, value).is_some() {
                return Err("yaml: mapping key already defined".to_owned());
            }
        }
        for source in merged {
            merge(&mut entries, &source)?;
        }
        Ok(Map::value(entries))
    }
}

fn key_text(key: &Value) -> Result<String, String> {
    super::super::print::formatted(key).map_err(|_| "yaml: a key is no text".to_owned())
}

/// Merges the entries of `<<` into a map. The map's own entries have precedence.
fn merge(entries: &mut BTreeMap<String, Value>, source: &Value) -> Result<(), String> {
    if let Some(map) = source.downcast_object::<Map>() {
        for (key, value) in map.entries().iter() {
            spend(key.len()).map_err(|_| "yaml: a merge of too many bytes")?;
            entries.entry(key.clone()).or_insert_with(|| value.clone());
        }
        return Ok(());
    }
    let Some(list) = source.downcast_object::<List>() else {
        return Err("yaml: map merge requires map or sequence of maps as the value".to_owned());
    };
    for item in &list.0 {
        if item.downcast_object::<Map>().is_none() {
            return Err("yaml: map merge requires map or sequence of maps".to_owned());
        }
        merge(entries, item)?;
    }
    Ok(())
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> (Value, bool) {
    let is_text = tag.is_some_and(|tag| tag.suffix() == "str");
    if style != ScalarStyle::Plain || is_text {
        return (Value::from(text), false);
    }
    let value = match resolve(text) {
        Scalar::Null => Value::UNDEFINED,
        Scalar::Bool(is) => Value::from(is),
        Scalar::Int(number) => Value::from(number),
        Scalar::Float(number) => Value::from(number),
        Scalar::Merge => return (Value::from(text), true),
        Scalar::Date | Scalar::Text => Value::from(text),
    };
    (value, false)
}
