//! What a document has its reader write, whichever program that is.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{
    cases::every_case,
    consumers::ignition_2::{contents, list},
};

/// A file as a machine must have it.
pub struct File {
    pub path: String,
    pub mode: u32,
    pub content: String,
}

/// A document as its reader understands it. JSON is YAML, too.
pub fn parse(document: &[u8]) -> Value {
    let text = std::str::from_utf8(document).expect("a document is text");
    serde_saphyr::from_str(text).expect("a document is YAML, in which no key stands twice")
}

/// The files of a document, in its order.
pub fn files_of(document: &[u8]) -> Vec<File> {
    let document = parse(document);
    let of_cloud_config = list(&document, "/write_files").iter().map(|entry| {
        let permissions = entry["permissions"].as_str().expect("a file has a mode");
        assert!(permissions.len() == 4 && permissions.starts_with('0'));
        File {
            path: path_of(entry),
            mode: u32::from_str_radix(permissions, 8).expect("a mode is octal"),
            content: cloud_config_content(entry),
        }
    });
    let of_ignition = list(&document, "/storage/files").iter().map(|file| {
        let mode = file["mode"].as_u64().expect("a file has a mode");
        let content = contents(file).expect("a file has content");
        File {
            path: path_of(file),
            mode: u32::try_from(mode).expect("a mode is small"),
            content: String::from_utf8(content).expect("the content is text"),
        }
    });
    of_cloud_config.chain(of_ignition).collect()
}

fn path_of(file: &Value) -> String {
    let path = file["path"].as_str().expect("a file has a path");
    path.to_owned()
}

fn cloud_config_content(entry: &Value) -> String {
    let content = entry["content"].as_str().expect("a file has content");
    if entry["encoding"].is_null() {
        return content.to_owned();
    }
    assert_eq!(entry["encoding"], "b64");
    let bytes = STANDARD.decode(content).expect("the content is base64");
    String::from_utf8(bytes).expect("the content is text")
}

#[test]
#[should_panic(expected = "no key stands twice")]
fn a_document_that_repeats_a_key_is_not_read() {
    parse(b"a: 1\na: 2\n");
}

#[test]
fn every_file_has_a_path_of_its_own_a_mode_and_the_content_of_the_config() {
    for case in every_case() {
        let mut paths = BTreeSet::new();
        for (name, half) in case.halves() {
            let written = files_of(&half.document);
            for text in half.texts.keys() {
                let is_written = written.iter().any(|file| file.path == *text);
                assert!(is_written, "{name}: {text} is not in the document");
            }
            for file in written {
                let path = file.path;
                assert!(path.starts_with('/') && !path.contains(".."), "{path}");
                if let Some(expected) = half.texts.get(&path) {
                    assert_eq!(file.content.trim_end(), expected.trim_end(), "{path}");
                }
                assert!(paths.insert(path), "{name}: a path is written twice");
            }
        }
    }
}
