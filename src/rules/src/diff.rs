//! The difference between two renders: file by file, unit by unit, as unified diffs. Secrets are
//! marked in both, so none shows.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::Serialize;
use similar::TextDiff;

use osm_api::{
    config::{ConfigHalf, OperatingSystemConfigSpec},
    profile::File,
};
use osm_render::Half;

/// The two sides, by the names that a reader knows them by.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The old one.
    pub old: &'a str,
    /// The new one.
    pub new: &'a str,
}

/// The differences of two configs; empty where there are none.
pub fn differences(
    names: Names<'_>,
    old: &OperatingSystemConfigSpec,
    new: &OperatingSystemConfigSpec,
) -> String {
    let mut text = String::new();
    for (half, old, new) in [
        (
            Half::Bootstrap,
            &old.bootstrap_config,
            &new.bootstrap_config,
        ),
        (
            Half::Provisioning,
            &old.provisioning_config,
            &new.provisioning_config,
        ),
    ] {
        let (old, new) = (parts(old), parts(new));
        let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let (old, new) = (old.get(key), new.get(key));
            if old != new {
                let side = |name: &str, part: Option<&String>| match part {
                    Some(_) => format!("{name} {half} {key}"),
                    None => "/dev/null".to_owned(),
                };
                let header = (side(names.old, old), side(names.new, new));
                let empty = String::new();
                let diff = TextDiff::from_lines(old.unwrap_or(&empty), new.unwrap_or(&empty));
                let mut unified = diff.unified_diff();
                let _ = write!(text, "{}", unified.header(&header.0, &header.1));
            }
        }
    }
    text
}

/// The parts of a half by name: files by path, units by name, modules.
fn parts(half: &ConfigHalf) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    // A path may stand twice; both count.
    let mut add = |name: String, text: String| {
        let mut unique = name.clone();
        let mut count = 1;
        while parts.contains_key(&unique) {
            count += 1;
            unique = format!("{name} ({count})");
        }
        parts.insert(unique, text);
    };
    for file in &half.files {
        add(file.path.clone(), file_text(file));
    }
    for unit in &half.units {
        add(format!("unit {}", unit.name), yaml(unit));
    }
    if let Some(modules) = &half.modules {
        add("modules".to_owned(), yaml(modules));
    }
    parts
}

/// A file's text, below what else is known of it.
fn file_text(file: &File) -> String {
    let inline = file.content.inline.clone().unwrap_or_default();
    let encoding = inline.encoding.unwrap_or_default();
    let head = format!("# {} {encoding}", file.permissions);
    format!("{}\n{}", head.trim_end(), inline.data)
}

/// Units and modules are plain values, so writing them as YAML cannot fail.
fn yaml(value: &impl Serialize) -> String {
    serde_saphyr::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn a_config(half: &serde_json::Value) -> OperatingSystemConfigSpec {
        let config = json!({
            "osName": "flatcar",
            "osVersion": "1",
            "cloudProvider": {"name": "aws"},
            "bootstrapConfig": {},
            "provisioningConfig": half,
        });
        serde_json::from_value(config).expect("a config")
    }

    fn check(old: &serde_json::Value, new: &serde_json::Value) -> String {
        let names = Names { old: "a", new: "b" };
        differences(names, &a_config(old), &a_config(new))
    }

    #[test]
    fn units_and_modules_are_compared_by_their_fields() {
        let old = json!({"units": [{"name": "x.service", "enable": true}], "modules": {"runcmd": ["one"]}});
        let new = json!({"units": [{"name": "x.service"}], "modules": {"runcmd": ["one", "two"]}});
        let text = check(&old, &new);
        for expected in [
            "--- a provisioningConfig unit x.service\n+++ b provisioningConfig unit x.service\n",
            "-enable: true\n",
            "--- a provisioningConfig modules\n",
            "+- two\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert_eq!(check(&old, &old), "");
    }

    #[test]
    fn two_files_of_one_path_are_compared_one_by_one() {
        let file = |data: &str| json!({"path": "/a", "permissions": 600, "content": {"inline": {"data": data, "encoding": "b64"}}});
        let old = json!({"files": [file("1\n"), file("2\n")]});
        let new = json!({"files": [file("1\n"), file("3\n")]});
        let text = check(&old, &new);
        assert!(
            text.starts_with("--- a provisioningConfig /a (2)\n"),
            "{text}"
        );
        assert!(text.ends_with(" # 600 b64\n-2\n+3\n"), "{text}");
        let gone = check(&old, &json!({"files": [file("1\n")]}));
        assert!(gone.contains("+++ /dev/null\n"), "{gone}");
    }
}
