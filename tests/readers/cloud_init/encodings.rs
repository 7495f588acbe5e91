//! Values and encodings of our own choice, read by cloud-init's own YAML reader and decoder: what
//! the encoder takes must reach the machine as it was written.

use std::fs;

use osm::{
    api::{
        config::{ConfigHalf, OperatingSystemConfigSpec},
        profile::{CloudInitModules, File},
    },
    render::{
        Half,
        encode::{MachineInput, encode},
    },
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use crate::{
    cloud_init::{consumer_python, schema},
    programs::text,
};

/// Prints a document as cloud-init reads it, with the files decoded.
const READ: &str = "\
import base64, json, sys
from cloudinit import util
from cloudinit.config import cc_write_files as module
document = util.load_yaml(open(sys.argv[1]).read())
for file in document.get('write_files') or []:
    steps = module.canonicalize_extraction(file.get('encoding'))
    content = module.extract_contents(file['content'], steps)
    content = content if isinstance(content, bytes) else content.encode()
    file['decoded'] = base64.b64encode(content).decode()
print(json.dumps(document))
";

/// Parts that mean something in YAML, and words around them.
const PARTS: [&str; 40] = [
    "a",
    "b",
    "key",
    "0",
    "7",
    "1e5",
    "yes",
    "Off",
    "null",
    "~",
    " ",
    "  ",
    "\t",
    "\n",
    "\u{85}",
    "'",
    "\"",
    "\\",
    ":",
    ": ",
    " #",
    "#",
    "-",
    "- ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a",
    "*a",
    "!",
    "|",
    "%",
    "@",
    "=",
    "<<",
    "ä€",
    "2026-01-01",
];

fn a_config(half: ConfigHalf) -> OperatingSystemConfigSpec {
    let mut config: OperatingSystemConfigSpec = serde_json::from_value(json!({
        "osName": "ubuntu",
        "osVersion": "",
        "cloudProvider": {"name": "aws"},
        "bootstrapConfig": {},
        "provisioningConfig": {},
    }))
    .expect("the fixture is a config");
    config.provisioning_config = half;
    config
}

fn a_file(path: &str, encoding: &str, data: &str) -> File {
    let content = json!({"inline": {"data": data, "encoding": encoding}});
    serde_json::from_value(json!({"path": path, "content": content})).expect("it is a file")
}

/// The document of a half, if nothing in it is refused.
fn document(half: ConfigHalf) -> Option<Vec<u8>> {
    let machine = MachineInput {
        name: "workers",
        dist_upgrade_on_boot: false,
    };
    let document = encode(&a_config(half), Half::Provisioning, machine);
    document.ok().map(|document| document.as_bytes().to_vec())
}

/// A document as cloud-init reads it.
fn read(document: &[u8]) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("document.yaml");
    fs::write(&path, document).expect("a document can be written");
    let output = consumer_python(READ, &[path]);
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice(&output.stdout).expect("the answer is JSON")
}

#[test]
fn cloud_init_unpacks_a_compressed_file_to_the_byte() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let content = "  first: 'line'\n\u{2028}\x0bsecond\r\n\n\n";
    let half = ConfigHalf {
        user_ssh_keys: vec!["ssh-ed25519 AAAA user@host".to_owned()],
        files: vec![
            a_file("/compressed", "gzip", content),
            a_file("/encoded", "b64", content),
        ],
        ..ConfigHalf::default()
    };
    let document = document(half).expect("nothing is refused");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("document.yaml");
    fs::write(&path, &document).expect("a document can be written");
    let output = schema(&[path]);
    assert!(output.status.success(), "{}", text(&output));
    for file in read(&document)["write_files"].as_array().expect("a list") {
        assert_eq!(file["decoded"], STANDARD.encode(content), "{file}");
    }
}

/// What cloud-init reads of a text in a block: the indent of the first line that is not blank is
/// removed from every line.
fn block_content(text: &str) -> String {
    let indent = text.split('\n').find_map(|line| line.find(|it| it != ' '));
    let indent = indent.unwrap_or(usize::MAX);
    let lines = text
        .split('\n')
        .map(|line| line.get(indent..).unwrap_or_default());
    lines
        .collect::<Vec<_>>()
        .join("\n")
        .trim_end_matches('\n')
        .to_owned()
}

#[test]
fn cloud_init_reads_every_value_that_is_taken_as_it_was_written() {
    let mut random = StdRng::seed_from_u64(20_260_102);
    let mut part = || PARTS[random.random_range(0..PARTS.len())];
    let mut half = ConfigHalf::default();
    let mut modules = CloudInitModules::default();
    for _ in 0..3_000 {
        let value = [part(), part(), part()].concat();
        for value in spellings(&value) {
            let one = CloudInitModules {
                runcmd: vec![value.clone()],
                ..CloudInitModules::default()
            };
            if document(with_modules(&one)).is_some() {
                modules.runcmd.push(value.clone());
            }
            let pair = (format!("key{}", modules.rh_subscription.len()), value);
            let mut one = CloudInitModules::default();
            one.rh_subscription.extend([pair.clone()]);
            if document(with_modules(&one)).is_some() {
                modules.rh_subscription.extend([pair]);
            }
        }
        let file = ConfigHalf {
            files: vec![a_file(&format!("/{value}"), "", &value)],
            ..ConfigHalf::default()
        };
        if document(file.clone()).is_some() {
            half.files.extend(file.files);
        }
    }
    half.modules = Some(modules.clone());
    let read = read(&document(half.clone()).expect("each was taken alone"));
    let taken = [
        modules.runcmd.len(),
        modules.rh_subscription.len(),
        half.files.len(),
    ];
    assert!(
        taken.iter().all(|taken| *taken > 300),
        "{taken:?}: most were refused"
    );
    let commands = read["runcmd"].as_array().expect("a list");
    assert_eq!(commands.len(), modules.runcmd.len());
    for (text, command) in modules.runcmd.iter().zip(commands) {
        assert_eq!(*command, meant(text), "{text}");
    }
    let files = read["write_files"].as_array().expect("a list");
    for (file, read) in half.files.iter().zip(files) {
        assert_eq!(read["path"], file.path);
        let inline = file.content.inline.as_ref().expect("it has content");
        assert_eq!(
            read["content"],
            block_content(&inline.data),
            "{:?}",
            inline.data
        );
    }
    let subscription = read["rh_subscription"].as_object().expect("a map");
    assert_eq!(subscription.len(), modules.rh_subscription.len());
    for (key, text) in &modules.rh_subscription {
        // A whole number may be one, as long as it prints as it was written.
        let read = match &subscription[key] {
            Value::Number(number) => json!(number.to_string()),
            read => read.clone(),
        };
        assert_eq!(read, meant(text), "{key}");
    }
}

/// A text as it is, in quotes of both kinds, and in a list.
fn spellings(text: &str) -> [String; 4] {
    let single = text.replace('\'', "''");
    [
        text.to_owned(),
        format!("'{single}'"),
        format!("\"{text}\""),
        format!("[{text}]"),
    ]
}

/// What the author of a command or a setting means.
fn meant(text: &str) -> Value {
    match text.chars().next() {
        Some('\'' | '"') => serde_saphyr::from_str(text).expect("it was taken"),
        Some('[') => json!(serde_saphyr::from_str::<Vec<String>>(text).expect("it was taken")),
        _ => json!(text),
    }
}

fn with_modules(modules: &CloudInitModules) -> ConfigHalf {
    ConfigHalf {
        modules: Some(modules.clone()),
        ..ConfigHalf::default()
    }
}
