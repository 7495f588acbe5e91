//! Computes the expected content of a `#cloud-config` document from the config, by other means than
//! the encoder.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value as Json, json};

use osm_api::{
    config::ConfigHalf,
    profile::{File, Unit},
};

/// Checks that the document contains what the config contains, and nothing else.
pub(super) fn check_read_back(document: &str, half: &ConfigHalf) {
    let read: serde_json::Map<String, Json> =
        serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}\n{document}"));
    let mut expected = serde_json::Map::new();
    let mut say = |key: &str, value: Json| drop(expected.insert(key.to_owned(), value));
    let texts = |texts: &[String]| match texts {
        [] => Json::Null,
        texts => texts.iter().map(|text| alone(text)).collect(),
    };
    say("ssh_pwauth", json!(false));
    for (key, items) in [
        ("ssh_authorized_keys", keys(half)),
        ("write_files", list(half.files.iter().map(written))),
    ] {
        if items.as_array().is_some_and(|items| !items.is_empty()) {
            say(key, items);
        }
    }
    if !half.units.is_empty() {
        say(
            "coreos",
            json!({ "units": list(half.units.iter().map(unit)) }),
        );
    }
    let modules = half.modules.clone().unwrap_or_default();
    for (key, commands) in [("bootcmd", &modules.bootcmd), ("runcmd", &modules.runcmd)] {
        if !commands.is_empty() {
            say(key, texts(commands));
        }
    }
    if !modules.rh_subscription.is_empty() {
        say("rh_subscription", map(&modules.rh_subscription));
    }
    if !modules.yum_repos.is_empty() {
        let repositories = modules.yum_repos.iter();
        say(
            "yum_repos",
            repositories
                .map(|(name, it)| (name.clone(), map(it)))
                .collect(),
        );
    }
    if let Some(folder) = modules.yum_repo_dir.filter(|folder| !folder.is_empty()) {
        say("yum_repo_dir", alone(&folder));
    }
    assert_eq!(Json::Object(read), Json::Object(expected), "{document}");
}

/// Reads a single value: a string, a number, a Boolean, or a list in brackets.
fn alone(text: &str) -> Json {
    let read: Result<Vec<Json>, _> = serde_saphyr::from_str(&format!("- {text}"));
    let mut read = read.unwrap_or_else(|error| panic!("{text:?}: {error}"));
    let value = read.pop().unwrap();
    let is_scalar = !matches!(value, Json::Object(_) | Json::Array(_));
    assert!(
        read.is_empty() && (is_scalar || text.starts_with('[')),
        "{text:?}"
    );
    value
}

fn map(pairs: &BTreeMap<String, String>) -> Json {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| {
            (
                key.clone(),
                if value.is_empty() {
                    Json::Null
                } else {
                    alone(value)
                },
            )
        })
        .collect()
}

fn list(items: impl Iterator<Item = Json>) -> Json {
    let items: Vec<Json> = items.collect();
    if items.is_empty() {
        Json::Null
    } else {
        items.into()
    }
}

fn keys(half: &ConfigHalf) -> Json {
    let mut keys: Vec<&str> = Vec::new();
    for key in half.user_ssh_keys.iter().map(|key| key.trim()) {
        if !key.is_empty() && !keys.contains(&key) {
            keys.push(key);
        }
    }
    list(keys.into_iter().map(Json::from))
}

/// Returns a block without the indent of its first line that is not blank, and without its last
/// line breaks.
fn stripped(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let indent = text.split('\n').find_map(|line| line.find(|it| it != ' '));
    let Some(indent) = indent else {
        return String::new();
    };
    let lines = text
        .split('\n')
        .map(|line| line.get(indent..).unwrap_or(""));
    let lines: Vec<&str> = lines.collect();
    lines.join("\n").trim_end_matches('\n').to_owned()
}

fn written(file: &File) -> Json {
    let inline = file.content.inline.clone().unwrap();
    let encoding = inline.encoding.filter(|encoding| !encoding.is_empty());
    let content = match encoding.as_deref() {
        Some("b64") => STANDARD.encode(&inline.data),
        _ => stripped(&inline.data),
    };
    let mut written = json!({"path": file.path, "permissions": "0644", "content": content});
    if let Some(encoding) = encoding {
        written["encoding"] = json!(encoding);
    }
    written
}

fn unit(unit: &Unit) -> Json {
    // A block of the units keeps one line break if there is any text.
    let text = |text: &str| match stripped(text).as_str() {
        "" => String::new(),
        text => format!("{text}\n"),
    };
    let drop_ins = unit.drop_ins.iter();
    let mut said = json!({
        "name": unit.name, "enable": false, "mask": false,
        "drop_ins": list(drop_ins.map(|it| json!({"name": it.name, "content": text(&it.content)}))),
    });
    let content = unit.content.clone().unwrap_or_default();
    if !content.is_empty() {
        said["content"] = json!(text(&content));
    }
    said
}
