//! Version 3.3.0, according to the public specification. It has no `filesystem`, refuses
//! duplicates, and replaces an existing file only if the document says so.

use std::collections::HashSet;

use serde::Serialize;

use super::{Content, FileContent, UnitContent, refuse_file, refuse_unit};
use crate::{
    error::{Half, RenderError},
    user_data::UserData,
};

/// The bits of a mode that version 3.3.0 drops: set-user-id, set-group-id and sticky.
const SPECIAL_BITS: u32 = 0o7000;

/// Encodes the document.
pub(super) fn encode(half: Half, content: &Content<'_>) -> Result<UserData, RenderError> {
    check(half, content)?;
    let document = Document {
        ignition: Ignition { version: "3.3.0" },
        passwd: Passwd {
            users: users(&content.keys),
        },
        storage: Storage {
            files: content.files.iter().map(File::new).collect(),
        },
        systemd: Systemd {
            units: content.units.iter().map(Unit::new).collect(),
        },
    };
    let bytes = serde_json::to_vec(&document).expect("a document is plain values");
    Ok(UserData::new(bytes))
}

/// Refuses what version 2.3.0 accepts and this version refuses on the machine or ignores.
fn check(half: Half, content: &Content<'_>) -> Result<(), RenderError> {
    let mut paths = HashSet::new();
    for file in &content.files {
        let refuse = |what, reason| Err(refuse_file(half, (file.path, what), reason));
        if !is_clean(file.path) {
            return refuse("path", "it has empty parts, `.` or `..`, or ends with `/`");
        }
        if !paths.insert(file.path) {
            return refuse("path", "another file has the same; Ignition 3 refuses that");
        }
        if file.mode & SPECIAL_BITS != 0 {
            return refuse("permissions", "Ignition 3.3.0 takes three digits at most");
        }
    }
    let mut names = HashSet::new();
    for unit in &content.units {
        let refuse = |what, reason| Err(refuse_unit(half, (unit.name, what), reason));
        if !names.insert(unit.name) {
            return refuse("name", "another unit has the same; Ignition 3 refuses that");
        }
        let mut drop_ins = HashSet::new();
        if !unit.drop_ins.iter().all(|(name, _)| drop_ins.insert(name)) {
            return refuse("drop-in, name", "another drop-in has the same");
        }
    }
    Ok(())
}

/// Returns true if an absolute path is in its shortest form.
fn is_clean(path: &str) -> bool {
    path.split('/')
        .skip(1)
        .all(|part| !["", ".", ".."].contains(&part))
}

fn users<'a>(keys: &[&'a str]) -> Vec<User<'a>> {
    if keys.is_empty() {
        return Vec::new();
    }
    vec![User {
        name: "core",
        ssh_authorized_keys: keys.to_vec(),
    }]
}

impl<'a> File<'a> {
    fn new(file: &'a FileContent<'_>) -> Self {
        Self {
            path: file.path,
            overwrite: true,
            contents: Contents {
                source: &file.source,
                compression: file.is_compressed.then_some("gzip"),
            },
            mode: file.mode,
        }
    }
}

impl<'a> Unit<'a> {
    fn new(unit: &'a UnitContent<'_>) -> Self {
        Self {
            name: unit.name,
            enabled: unit.is_enabled,
            mask: unit.is_masked,
            contents: &unit.text,
            dropins: unit
                .drop_ins
                .iter()
                .map(|(name, contents)| DropIn { name, contents })
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    ignition: Ignition,
    passwd: Passwd<'a>,
    storage: Storage<'a>,
    systemd: Systemd<'a>,
}

#[derive(Serialize)]
struct Ignition {
    version: &'static str,
}

#[derive(Serialize)]
struct Passwd<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    users: Vec<User<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct User<'a> {
    name: &'static str,
    ssh_authorized_keys: Vec<&'a str>,
}

#[derive(Serialize)]
struct Storage<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<File<'a>>,
}

#[derive(Serialize)]
struct File<'a> {
    path: &'a str,
    /// Always true: version 2 replaces existing files, and profiles rely on that.
    overwrite: bool,
    contents: Contents<'a>,
    mode: u32,
}

#[derive(Serialize)]
struct Contents<'a> {
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<&'static str>,
}

#[derive(Serialize)]
struct Systemd<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    units: Vec<Unit<'a>>,
}

#[derive(Serialize)]
struct Unit<'a> {
    name: &'a str,
    enabled: bool,
    #[serde(skip_serializing_if = "is_false")]
    mask: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    contents: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropins: Vec<DropIn<'a>>,
}

#[derive(Serialize)]
struct DropIn<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    contents: &'a str,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
