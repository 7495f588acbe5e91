//! The parts of a document: what a cloud-config or an Ignition document puts on a machine. Both
//! have the same parts for the same content.
//!
//! Whatever is not understood makes the whole document one that cannot be compared.

use std::{borrow::Cow, collections::BTreeMap};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// The deepest nesting, and the most values. A cloud-config of the default profiles has 7 and about
/// 200.
const DEPTH_MAX: usize = 64;
const NODES_MAX: usize = 20_000;

/// A part of a document.
#[derive(PartialEq, Eq)]
pub(super) struct Part {
    /// The mode of a file.
    pub(super) mode: Option<u64>,
    pub(super) content: Content,
}

/// What a part holds.
#[derive(PartialEq, Eq)]
pub(super) enum Content {
    Text(String),
    /// What this program does not read, such as a compressed file.
    Opaque(String),
}

/// The parts by name: files and the texts of units by path, anything else by its key.
pub(super) type Parts = BTreeMap<String, Part>;

type Object = Map<String, Value>;

/// Returns the parts of a document, or `None` if it is not understood.
pub(super) fn parts(document: &[u8]) -> Option<Parts> {
    let text = std::str::from_utf8(document).ok()?;
    let mut parts = Parts::new();
    let keys = if text.starts_with("#cloud-config") {
        let mut keys = yaml(text)?;
        for file in list(keys.remove("write_files"))? {
            add_file(&mut parts, file)?;
        }
        keys
    } else {
        let Value::Object(mut keys) = serde_json::from_str(text).ok()? else {
            return None;
        };
        keys.get_mut("ignition")?
            .as_object_mut()?
            .remove("version")?;
        for file in list(take(&mut keys, "storage", "files"))? {
            add_file_of_ignition(&mut parts, file)?;
        }
        for unit in list(take(&mut keys, "systemd", "units"))? {
            add_unit(&mut parts, unit)?;
        }
        keys
    };
    for (key, value) in keys.into_iter().filter(|(_, value)| !is_empty(value)) {
        let content = Content::Opaque(value.to_string());
        add(&mut parts, key, (None, content))?;
    }
    Some(parts)
}

/// Returns the keys of a text in YAML: a tenant writes it, and can write anything.
pub(super) fn yaml(text: &str) -> Option<Map<String, Value>> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            flow_nesting_limit: DEPTH_MAX,
            max_depth: DEPTH_MAX,
            max_nodes: NODES_MAX,
            max_events: 4 * NODES_MAX,
            max_aliases: 0,
            max_anchors: 0,
        },
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(text, options).ok()? {
        Value::Object(keys) => Some(keys),
        Value::Null => Some(Map::new()),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(keys) => keys.values().all(is_empty),
        _ => false,
    }
}

/// Returns the objects of a list, or `None` for anything else. A missing list is empty.
fn list(value: Option<Value>) -> Option<Vec<Object>> {
    let object = |value| match value {
        Value::Object(object) => Some(object),
        _ => None,
    };
    match value {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(list)) => list.into_iter().map(object).collect(),
        Some(_) => None,
    }
}

fn take(keys: &mut Object, section: &str, key: &str) -> Option<Value> {
    keys.get_mut(section)?.as_object_mut()?.remove(key)
}

/// Takes a text. A missing one is empty.
fn text(object: &mut Object, key: &str) -> Option<String> {
    match object.remove(key) {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text),
        Some(_) => None,
    }
}

/// Decodes base64 of a text.
fn decoded(text: &str) -> Option<String> {
    let text: String = text.split_whitespace().collect();
    String::from_utf8(STANDARD.decode(text).ok()?).ok()
}

fn add_file(parts: &mut Parts, mut file: Object) -> Option<()> {
    let path = clean(text(&mut file, "path")?)?;
    let mode = match file.remove("permissions") {
        Some(Value::String(octal)) => u64::from_str_radix(&octal, 8).ok()?,
        Some(_) => return None,
        None => 0o644,
    };
    let (content, encoding) = (text(&mut file, "content")?, text(&mut file, "encoding")?);
    let content = match encoding.as_str() {
        "" | "text/plain" => Content::Text(content),
        "b64" | "base64" => decoded(&content).map_or(Content::Opaque(content), Content::Text),
        _ => Content::Opaque(format!("{encoding} {content}")),
    };
    file.is_empty().then_some(())?;
    add(parts, path, (Some(mode), content))
}

fn add_file_of_ignition(parts: &mut Parts, mut file: Object) -> Option<()> {
    let path = clean(text(&mut file, "path")?)?;
    let mode = file.remove("mode")?.as_u64()?;
    let Some(Value::Object(mut contents)) = file.remove("contents") else {
        return None;
    };
    let source = text(&mut contents, "source")?;
    let compression = text(&mut contents, "compression")?;
    let readable = of_url(&source).filter(|_| compression.is_empty());
    let content = readable.map_or_else(
        || Content::Opaque(format!("{compression} {source}")),
        Content::Text,
    );
    let filesystem = text(&mut file, "filesystem")?;
    // The content is replaced in either version.
    file.remove("overwrite");
    let is_understood = contents.values().all(is_empty) && file.is_empty();
    (is_understood && matches!(&*filesystem, "" | "root")).then_some(())?;
    add(parts, path, (Some(mode), content))
}

/// Returns the content of a `data:` URL, if it is text.
fn of_url(url: &str) -> Option<String> {
    let (form, data) = url.strip_prefix("data:")?.split_once(',')?;
    if form.ends_with(";base64") {
        return decoded(data);
    }
    let text = percent_decode_str(data).decode_utf8().ok();
    text.map(Cow::into_owned)
}

/// Adds a unit and its drop-ins as the files that they are on a machine, and what else is known of
/// it, such as that it is enabled.
fn add_unit(parts: &mut Parts, mut unit: Object) -> Option<()> {
    let path = clean(format!("/etc/systemd/system/{}", text(&mut unit, "name")?))?;
    for mut drop_in in list(unit.remove("dropins"))? {
        let path = clean(format!("{path}.d/{}", text(&mut drop_in, "name")?))?;
        let content = Content::Text(text(&mut drop_in, "contents")?);
        drop_in.is_empty().then_some(())?;
        add(parts, path, (None, content))?;
    }
    let content = text(&mut unit, "contents")?;
    if !unit.is_empty() {
        let state = Content::Opaque(Value::Object(unit).to_string());
        add(parts, format!("unit {path}"), (None, state))?;
    }
    if content.is_empty() {
        return Some(());
    }
    add(parts, path, (None, Content::Text(content)))
}

/// Returns a path that names its file by itself.
fn clean(path: String) -> Option<String> {
    let mut names = path.strip_prefix('/')?.split('/');
    let is_clean = names.all(|name| !matches!(name, "" | "." | ".."));
    is_clean.then_some(path)
}

/// Adds a part. Of two with one name, nobody knows which one counts.
fn add(parts: &mut Parts, name: String, (mode, content): (Option<u64>, Content)) -> Option<()> {
    let part = Part { mode, content };
    parts.insert(name, part).is_none().then_some(())
}
