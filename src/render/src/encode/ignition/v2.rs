//! Version 2.3.0. Its bytes are a contract, including the order of the keys.

use std::fmt::Write;

use super::{Content, FileContent, UnitContent};
use crate::{go_json, user_data::UserData};

/// Encodes the document.
pub(super) fn encode(content: &Content<'_>) -> UserData {
    let size: usize = content.files.iter().map(|file| file.source.len()).sum();
    let mut out = String::with_capacity(size + 1024);
    out.push_str(
        r#"{"ignition":{"config":{},"security":{"tls":{}},"timeouts":{},"version":"2.3.0"},"networkd":{},"passwd":{"#,
    );
    push_keys(&mut out, &content.keys);
    out.push_str(r#"},"storage":{"#);
    push_list(&mut out, "files", &content.files, push_file);
    out.push_str(r#"},"systemd":{"#);
    push_list(&mut out, "units", &content.units, push_unit);
    out.push_str("}}");
    UserData::new(out.into_bytes())
}

fn push_keys(out: &mut String, keys: &[&str]) {
    if keys.is_empty() {
        return;
    }
    out.push_str(r#""users":[{"name":"core","sshAuthorizedKeys":["#);
    for (index, key) in keys.iter().enumerate() {
        push_comma(out, index);
        go_json::push_string(out, key);
    }
    out.push_str("]}]");
}

/// Appends a list, unless it is empty.
fn push_list<T>(out: &mut String, name: &str, items: &[T], push: impl Fn(&mut String, &T)) {
    if items.is_empty() {
        return;
    }
    let _ = write!(out, r#""{name}":["#);
    for (index, item) in items.iter().enumerate() {
        push_comma(out, index);
        push(out, item);
    }
    out.push(']');
}

fn push_file(out: &mut String, file: &FileContent<'_>) {
    out.push_str(r#"{"filesystem":"root","path":"#);
    go_json::push_string(out, file.path);
    out.push_str(r#","contents":{"#);
    if file.is_compressed {
        out.push_str(r#""compression":"gzip","#);
    }
    let _ = write!(
        out,
        r#""source":"{}","verification":{{}}}},"mode":{}}}"#,
        file.source, file.mode
    );
}

fn push_unit(out: &mut String, unit: &UnitContent<'_>) {
    out.push('{');
    push_text(out, &unit.text);
    push_list(out, "dropins", &unit.drop_ins, |out, (name, text)| {
        out.push('{');
        push_text(out, text);
        out.push_str(r#""name":"#);
        go_json::push_string(out, name);
        out.push('}');
    });
    if !unit.drop_ins.is_empty() {
        out.push(',');
    }
    let _ = write!(out, r#""enabled":{},"#, unit.is_enabled);
    if unit.is_masked {
        out.push_str(r#""mask":true,"#);
    }
    out.push_str(r#""name":"#);
    go_json::push_string(out, unit.name);
    out.push('}');
}

fn push_text(out: &mut String, text: &str) {
    if !text.is_empty() {
        out.push_str(r#""contents":"#);
        go_json::push_string(out, text);
        out.push(',');
    }
}

fn push_comma(out: &mut String, index: usize) {
    if index > 0 {
        out.push(',');
    }
}
