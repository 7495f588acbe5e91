//! The files that a document writes, whichever tool reads it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::boot::machine::Stopped;

/// A file as a machine must have it.
pub struct File {
    pub path: String,
    pub mode: u32,
    pub content: String,
}

/// An entry of `write_files` of a `#cloud-config` document.
#[derive(Deserialize)]
pub struct Entry {
    pub path: String,
    pub permissions: String,
    pub encoding: Option<String>,
    content: String,
}

/// The files of a document, in its order.
pub fn files_of(document: &[u8]) -> Vec<File> {
    #[derive(Deserialize)]
    struct Document {
        write_files: Vec<Entry>,
    }
    let text = std::str::from_utf8(document).expect("a document is text");
    if text.starts_with('{') {
        return ignition_files(text);
    }
    let document: Document = serde_saphyr::from_str(text).expect("a document is YAML");
    document.write_files.iter().map(File::from).collect()
}

impl File {
    /// What differs on a machine.
    pub fn missing_on(&self, machine: &Stopped) -> Vec<String> {
        let mut missing = Vec::new();
        let path = &self.path;
        let content = machine.file(path);
        if content.as_deref() != Some(self.content.as_bytes()) {
            missing.push(format!("content of {path}: {content:?}"));
        }
        let expected = format!("{:o} 0 0", self.mode);
        let mode = machine.mode(path);
        if mode != Some(&expected) {
            missing.push(format!("mode of {path}: {mode:?}, not {expected}"));
        }
        missing
    }
}

impl From<&Entry> for File {
    fn from(entry: &Entry) -> Self {
        let content = match entry.encoding.as_deref() {
            None => entry.content.clone(),
            Some(encoding) => {
                assert_eq!(encoding, "b64", "{}", entry.path);
                let decoded = STANDARD.decode(&entry.content);
                String::from_utf8(decoded.expect("the content is base64"))
                    .expect("the content is text")
            }
        };
        Self {
            path: entry.path.clone(),
            mode: u32::from_str_radix(&entry.permissions, 8).expect("a mode is octal"),
            content,
        }
    }
}

fn ignition_files(text: &str) -> Vec<File> {
    #[derive(Deserialize)]
    struct Document {
        storage: Storage,
    }
    #[derive(Deserialize)]
    struct Storage {
        files: Vec<Node>,
    }
    #[derive(Deserialize)]
    struct Node {
        path: String,
        mode: u32,
        contents: Contents,
    }
    #[derive(Deserialize)]
    struct Contents {
        source: String,
    }
    let document: Document = serde_json::from_str(text).expect("a document is JSON");
    let decode = |node: Node| File {
        content: decode_url(&node.contents.source),
        path: node.path,
        mode: node.mode,
    };
    document.storage.files.into_iter().map(decode).collect()
}

/// What stands in a `data:` URL of plain text.
fn decode_url(url: &str) -> String {
    let data = url
        .strip_prefix("data:,")
        .expect("a file is in its document");
    let mut parts = data.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).expect("an escape is hexadecimal"));
        bytes.extend(rest.bytes());
    }
    String::from_utf8(bytes).expect("the content is text")
}
