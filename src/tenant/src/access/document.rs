//! Reads a kubeconfig's YAML, within limits, into a tree whose nodes know their paths.

use serde_json::Value;
use zeroize::{Zeroize as _, Zeroizing};

use super::{error::AccessError, pem};

/// The maximum depth. It is enough for every field of a kubeconfig (including extensions), and safe
/// for any stack.
const DEPTH_MAX: usize = 32;
/// The maximum number of nodes. A kubeconfig of one cluster has about thirty, and the file of a
/// whole company fits.
const NODES_MAX: usize = 10_000;
/// The maximum number of characters of a key in an error, because keys are the tenant's text.
const KEY_CHARS_SHOWN: usize = 64;

/// A kubeconfig. Its strings are overwritten in memory when it is dropped.
pub(super) struct Document(Value);

impl Drop for Document {
    fn drop(&mut self) {
        overwrite(&mut self.0);
    }
}

fn overwrite(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(overwrite),
        Value::Object(fields) => fields.values_mut().for_each(overwrite),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Parses the YAML. Aliases, anchors, merge keys, duplicate keys and further documents are refused.
pub(super) fn read(bytes: &[u8], bytes_max: usize) -> Result<Document, AccessError> {
    if bytes.len() > bytes_max {
        return Err(AccessError::TooLarge {
            bytes: bytes.len(),
            max: bytes_max,
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|_| AccessError::NotText)?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            flow_nesting_limit: DEPTH_MAX,
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_events: 4 * NODES_MAX,
            max_aliases: 0,
            max_anchors: 0,
        },
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Error,
        with_snippet: false,
    };
    let read = serde_saphyr::from_str_with_options(text, options);
    let document = read.map(Document).map_err(|error| refused(&error))?;
    match &document.0 {
        Value::Null => Err(AccessError::Empty),
        Value::String(text) if is_encoded(text) => Err(AccessError::EncodedTwice),
        _ => Ok(document),
    }
}

/// Returns true if a text is the base64 of a kubeconfig.
fn is_encoded(text: &str) -> bool {
    let decoded = pem::from_base64(text).map(Zeroizing::new);
    let inside = decoded.as_ref().and_then(|it| str::from_utf8(it).ok());
    inside.is_some_and(|inside| inside.contains("clusters"))
}

/// Converts the parser's error, without its text, which quotes the input.
fn refused(error: &serde_saphyr::Error) -> AccessError {
    use serde_saphyr::{Error, budget::BudgetBreach};

    let location = error.location();
    let line = location.map_or(1, |location| location.line());
    match error.without_snippet() {
        Error::MultipleDocuments { .. } => AccessError::SeveralDocuments,
        Error::DuplicateMappingKey { .. } => AccessError::DuplicateKey { line },
        Error::MergeKeyNotAllowed { .. } | Error::UnknownAnchor { .. } => {
            AccessError::Alias { line }
        }
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. } => {
                AccessError::Alias { line }
            }
            _ => AccessError::TooComplex { line },
        },
        _ => AccessError::NotYaml {
            line,
            column: location.map_or(1, |location| location.column()),
        },
    }
}

/// A value in the document, and its path.
#[derive(Clone)]
pub(super) struct Node<'a> {
    pub(super) path: String,
    value: &'a Value,
}

impl<'a> Node<'a> {
    /// Returns the whole document, which must be a mapping.
    pub(super) fn root(Document(value): &'a Document) -> Result<Self, AccessError> {
        let node = Self {
            path: "the kubeconfig".to_owned(),
            value,
        };
        node.must_be(Value::is_object, "a mapping")?;
        Ok(Self {
            path: String::new(),
            value,
        })
    }

    /// Returns the path of a field of this node, whether it exists or not.
    pub(super) fn path_of(&self, key: &str) -> String {
        let key: String = key
            .chars()
            .take(KEY_CHARS_SHOWN)
            .map(|character| {
                if character.is_control() {
                    '?'
                } else {
                    character
                }
            })
            .collect();
        if self.path.is_empty() {
            key
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Returns a field of this node. Null and empty strings count as absent, as for kubectl.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key)?;
        let absent = value.is_null() || value.as_str().is_some_and(str::is_empty);
        (!absent).then(|| Self {
            path: self.path_of(key),
            value,
        })
    }

    /// Returns the names of this node's fields that are not null.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.value
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, _)| key.as_str())
    }

    /// Returns a field that is a mapping, if it exists.
    pub(super) fn mapping(&self, key: &str) -> Result<Option<Self>, AccessError> {
        let Some(node) = self.get(key) else {
            return Ok(None);
        };
        node.must_be(Value::is_object, "a mapping")?;
        Ok(Some(node))
    }

    /// Returns a field that is a string, if it exists.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, AccessError> {
        let Some(node) = self.get(key) else {
            return Ok(None);
        };
        node.must_be(Value::is_string, "text; put it in quotes")?;
        Ok(node.value.as_str())
    }

    /// Returns a field that is a string and must exist.
    pub(super) fn required_text(&self, key: &str) -> Result<&'a str, AccessError> {
        self.text(key)?.ok_or_else(|| AccessError::Missing {
            field: self.path_of(key),
        })
    }

    /// Returns true if a field exists and is not `false`.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|node| node.value != &Value::Bool(false))
    }

    /// Returns the mappings in a field that is a list.
    pub(super) fn list(&self, key: &str) -> Result<Vec<Self>, AccessError> {
        let Some(list) = self.get(key) else {
            return Ok(Vec::new());
        };
        list.must_be(Value::is_array, "a list")?;
        let items = list.value.as_array().into_iter().flatten();
        items
            .enumerate()
            .map(|(index, value)| {
                let node = Self {
                    path: format!("{}[{index}]", list.path),
                    value,
                };
                node.must_be(Value::is_object, "a mapping")?;
                Ok(node)
            })
            .collect()
    }

    fn must_be(&self, is: fn(&Value) -> bool, expected: &'static str) -> Result<(), AccessError> {
        if is(self.value) {
            Ok(())
        } else {
            Err(AccessError::WrongType {
                field: self.path.clone(),
                expected,
            })
        }
    }
}
