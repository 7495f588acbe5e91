//! Ignition 2.3.0, which Flatcar reads: no program that can be installed knows it any more. So its
//! rules stand here, and a way to the same document in 3.3.0, which programs do know. Only what our
//! encoder writes is known here; anything else is reported.

use std::{collections::BTreeSet, io::Read as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

/// The largest mode: set-user-id and its kin, and nine permissions.
const MODE_MAX: u64 = 0o7777;

/// What a unit's name may end with.
const UNIT_TYPES: [&str; 8] = [
    "automount",
    "device",
    "mount",
    "path",
    "service",
    "socket",
    "target",
    "timer",
];

/// The units that an image has: no document has their text.
const IMAGE_UNITS: [&str; 1] = ["containerd.service"];

/// Folders of the kernel, not of a disk: what is written there happens to the machine at once.
const KERNEL_FOLDERS: [&str; 3] = ["/dev/", "/proc/", "/sys/"];

/// What is wrong with a document.
pub fn problems(document: &Value) -> Vec<String> {
    let mut found = Found::default();
    found.keys(
        "document",
        document,
        &["ignition", "networkd", "passwd", "storage", "systemd"],
    );
    for (place, known) in [
        ("passwd", "users"),
        ("storage", "files"),
        ("systemd", "units"),
    ] {
        found.keys(place, &document[place], &[known]);
    }
    if document.pointer("/ignition/version") != Some(&json!("2.3.0")) {
        found.add("ignition.version", "is not 2.3.0");
    }
    if document["networkd"] != json!({}) {
        found.add("networkd", "is not empty");
    }
    let mut paths = BTreeSet::new();
    for file in list(document, "/storage/files") {
        found.file(file);
        let path = file["path"].as_str().unwrap_or_default();
        if !paths.insert(path) {
            found.add(path, "is written twice");
        }
    }
    let mut units = BTreeSet::new();
    for unit in list(document, "/systemd/units") {
        found.unit(document, unit);
        let name = unit["name"].as_str().unwrap_or_default();
        if !units.insert(name) {
            found.add(name, "is there twice");
        }
    }
    for user in list(document, "/passwd/users") {
        found.keys("user", user, &["name", "sshAuthorizedKeys"]);
        if list(user, "/sshAuthorizedKeys")
            .iter()
            .any(|key| !key.is_string())
        {
            found.add("sshAuthorizedKeys", "has a key that is no text");
        }
    }
    found.problems
}

#[derive(Default)]
struct Found {
    problems: Vec<String>,
}

impl Found {
    fn add(&mut self, place: &str, problem: &str) {
        self.problems.push(format!("{place} {problem}"));
    }

    /// Ignition would ignore a key that it does not know.
    fn keys(&mut self, place: &str, object: &Value, known: &[&str]) {
        let keys = object
            .as_object()
            .into_iter()
            .flat_map(|object| object.keys());
        for key in keys.filter(|key| !known.contains(&key.as_str())) {
            self.add(place, &format!("has the unknown key {key}"));
        }
    }

    fn file(&mut self, file: &Value) {
        let path = file["path"].as_str().unwrap_or_default();
        self.keys(path, file, &["contents", "filesystem", "mode", "path"]);
        self.keys(
            path,
            &file["contents"],
            &["compression", "source", "verification"],
        );
        if file["filesystem"] != json!("root") {
            self.add(path, "names no filesystem");
        }
        let mut parts = path.split('/').skip(1);
        if !path.starts_with('/') || parts.any(|part| matches!(part, "" | "." | "..")) {
            self.add(path, "is no absolute path");
        }
        if file["mode"].as_u64().is_none_or(|mode| mode > MODE_MAX) {
            self.add(path, "has no mode from 0 to 07777");
        }
        if contents(file).is_none() {
            self.add(path, "has no content that can be read");
        }
    }

    fn unit(&mut self, document: &Value, unit: &Value) {
        let name = unit["name"].as_str().unwrap_or_default();
        self.keys(
            name,
            unit,
            &["contents", "dropins", "enabled", "mask", "name"],
        );
        let (_, unit_type) = name.rsplit_once('.').unwrap_or_default();
        if !UNIT_TYPES.contains(&unit_type) {
            self.add(name, "has no type that systemd knows");
        }
        let text = unit["contents"].as_str();
        if text.is_some_and(|text| !is_unit_text(text)) {
            self.add(name, "is no unit");
        }
        let path = format!("/etc/systemd/system/{name}");
        let mut files = list(document, "/storage/files").iter();
        let file = files.find(|file| file["path"] == *path).and_then(contents);
        if text.is_some() && file.is_some() {
            self.add(name, "is a file, too");
        }
        let file = file.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let installs = text.or(file.as_deref()).map_or_else(
            || IMAGE_UNITS.contains(&name),
            |text| text.lines().any(|line| line == "[Install]"),
        );
        if unit["enabled"] == json!(true) && !installs {
            self.add(name, "is enabled without an [Install] section");
        }
        for drop_in in list(unit, "/dropins") {
            self.keys(name, drop_in, &["contents", "name"]);
            let drop_in_name = drop_in["name"].as_str().unwrap_or_default();
            if drop_in_name
                .strip_suffix(".conf")
                .is_none_or(|name| name.contains('/'))
            {
                self.add(name, "has a drop-in whose name does not end with .conf");
            }
            if !drop_in["contents"].as_str().is_some_and(is_unit_text) {
                self.add(name, "has a drop-in that is no unit");
            }
        }
    }
}

/// Whether each line is a section, a setting inside of one, a comment, or empty.
fn is_unit_text(text: &str) -> bool {
    let mut has_section = false;
    let mut continues = false;
    text.lines().all(|line| {
        let is_continued = std::mem::replace(&mut continues, line.ends_with('\\'));
        if line.starts_with('[') && line.ends_with(']') {
            has_section = true;
        }
        is_continued
            || line.is_empty()
            || line.starts_with(['#', ';', '['])
            || (has_section && line.contains('='))
    })
}

/// What a file holds, if its data URL can be read.
pub fn contents(file: &Value) -> Option<Vec<u8>> {
    let url = file.pointer("/contents/source")?.as_str()?;
    let (media, data) = url.strip_prefix("data:")?.split_once(',')?;
    let bytes = match media.strip_suffix(";base64") {
        Some(_) => STANDARD.decode(data).ok()?,
        None => unescape(data)?,
    };
    match file
        .pointer("/contents/compression")
        .and_then(Value::as_str)
    {
        None => Some(bytes),
        Some("gzip") => {
            let mut text = Vec::new();
            let mut decoder = GzDecoder::new(bytes.as_slice());
            decoder.read_to_end(&mut text).ok()?;
            Some(text)
        }
        Some(_) => None,
    }
}

fn unescape(data: &str) -> Option<Vec<u8>> {
    let mut bytes = data.bytes();
    let mut out = Vec::with_capacity(data.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            // Of a URL, and nothing that would have to be escaped in one.
            other if other.is_ascii_graphic() => other,
            _ => return None,
        });
    }
    Some(out)
}

/// The same document in 3.3.0.
pub fn to_3_3(document: &Value) -> Value {
    let files = list(document, "/storage/files").iter().map(|file| {
        json!({
            "path": file["path"],
            "overwrite": true,
            "mode": file["mode"],
            "contents": {
                "source": file.pointer("/contents/source"),
                "compression": file.pointer("/contents/compression"),
            },
        })
    });
    json!({
        "ignition": { "version": "3.3.0" },
        "passwd": document["passwd"],
        "storage": { "files": files.collect::<Vec<_>>() },
        "systemd": document["systemd"],
    })
}

/// The elements of a list; none where there is no list.
pub fn list<'a>(document: &'a Value, pointer: &str) -> &'a [Value] {
    let list = document.pointer(pointer).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// The files that would be written into the running kernel.
pub fn kernel_files(document: &Value) -> Vec<&str> {
    let paths = list(document, "/storage/files").iter();
    paths
        .filter_map(|file| file["path"].as_str())
        .filter(|path| KERNEL_FOLDERS.iter().any(|folder| path.starts_with(folder)))
        .collect()
}

/// A document without faults.
fn sound() -> Value {
    json!({
        "ignition": { "version": "2.3.0" },
        "networkd": {},
        "passwd": { "users": [{ "name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"] }] },
        "storage": { "files": [{
            "filesystem": "root",
            "path": "/etc/a",
            "mode": 0o644,
            "contents": { "source": "data:,a%20b", "verification": {} },
        }] },
        "systemd": { "units": [{
            "name": "a.service",
            "enabled": true,
            "contents": "[Service]\nExecStart=/bin/a \\\n  b\n\n[Install]\nWantedBy=b.target\n",
            "dropins": [{ "name": "a.conf", "contents": "[Service]\n# c\nUser=a\n" }],
        }] },
    })
}

/// Puts values into the sound document, and expects what is reported to begin like this.
fn reports(cases: &[(&str, Value, &str)]) {
    assert_eq!(problems(&sound()), [""; 0]);
    for (place, value, expected) in cases {
        let mut document = sound();
        *document.pointer_mut(place).expect("the place is there") = value.clone();
        let found = problems(&document).join(", ");
        assert!(found.starts_with(expected), "{place}: {found}");
    }
}

#[test]
fn a_fault_of_a_file_is_reported() {
    let file = "/storage/files/0";
    let at = |field: &str| format!("{file}/{field}");
    let unread = "/etc/a has no content that can be read";
    let mode = "/etc/a has no mode from 0 to 07777";
    reports(&[
        (&at("filesystem"), json!(null), "/etc/a names no filesystem"),
        (&at("path"), json!("a"), "a is no absolute path"),
        (&at("path"), json!("/../a"), "/../a is no absolute path"),
        (&at("path"), json!("/a//b"), "/a//b is no absolute path"),
        (&at("mode"), json!(0o10000), mode),
        (&at("mode"), json!("0644"), mode),
        (&at("contents"), json!({ "source": "data:a" }), unread),
        (&at("contents"), json!({ "source": "data:,%2" }), unread),
        (&at("contents"), json!({ "source": "data:,a b" }), unread),
        (
            &at("path"),
            json!("/etc/systemd/system/a.service"),
            "a.service is a file, too",
        ),
        (
            &at("contents"),
            json!({ "sauce": "" }),
            "/etc/a has the unknown key sauce",
        ),
        (
            file,
            json!({ "path": "/b", "overwrite": true }),
            "/b has the unknown key overwrite",
        ),
    ]);
}

#[test]
fn what_is_there_twice_is_reported() {
    for (place, expected) in [
        ("/storage/files", "/etc/a is written twice"),
        ("/systemd/units", "a.service is there twice"),
    ] {
        let mut document = sound();
        let elements = document.pointer_mut(place).and_then(Value::as_array_mut);
        let elements = elements.expect("it is a list");
        elements.extend(elements.clone());
        assert_eq!(problems(&document), [expected]);
    }
}

#[test]
fn a_fault_of_a_unit_or_of_the_document_is_reported() {
    let at = |field: &str| format!("/systemd/units/0/{field}");
    let drop_in = |field: &str| format!("/systemd/units/0/dropins/0/{field}");
    reports(&[
        (
            "/ignition/version",
            json!("3.3.0"),
            "ignition.version is not 2.3.0",
        ),
        ("/networkd", json!({ "units": [] }), "networkd is not empty"),
        (
            "/storage",
            json!({ "file": [] }),
            "storage has the unknown key file",
        ),
        (&at("name"), json!("a"), "a has no type that systemd knows"),
        (
            &at("contents"),
            json!("[Service]\n"),
            "a.service is enabled without",
        ),
        (&at("contents"), json!(null), "a.service is enabled without"),
        (
            &at("contents"),
            json!("A=b\n[Install]\n"),
            "a.service is no unit",
        ),
        (
            &drop_in("name"),
            json!("a.cnf"),
            "a.service has a drop-in whose name",
        ),
        (
            &drop_in("contents"),
            json!("User\n"),
            "a.service has a drop-in that is no unit",
        ),
    ]);
}
