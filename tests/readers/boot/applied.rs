//! What a machine must have of a document that it booted from.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    boot::machine::{Stopped, is_recorded},
    cases::SSH_KEY,
    consumers::ignition_2::list,
    documents::{files_of, parse},
};

/// What a machine lacks, or has otherwise, of a `#cloud-config` document.
pub fn missing_on(machine: &Stopped, document: &[u8]) -> Vec<String> {
    let mut missing = missing_files(machine, document);
    let document = parse(document);
    missing.extend(missing_commands(machine, &document));
    let mut demand = |holds: bool, what: &str| {
        if !holds {
            missing.push(what.to_owned());
        }
    };
    let text = |path: &str| String::from_utf8(machine.file(path).unwrap_or_default());
    let has = |path: &str, part: &str| text(path).is_ok_and(|text| text.contains(part));
    if let Some(name) = document.get("hostname").and_then(Value::as_str) {
        demand(has("/etc/hostname", &format!("{name}\n")), "hostname");
    }
    let keys = "/home/debian/.ssh/authorized_keys";
    demand(has(keys, SSH_KEY), "the user's key");
    let mode = machine.mode(keys).unwrap_or_default();
    let is_own = mode.starts_with("600 ") && !mode.contains(" 0");
    demand(is_own, "keys of the user's own");
    let rights = has("/etc/sudoers.d/90-cloud-init-users", "debian ALL=");
    demand(rights, "a user who may do everything");
    missing.extend(errors(machine));
    missing
}

/// The files of a document that a machine lacks, or has otherwise.
pub fn missing_files(machine: &Stopped, document: &[u8]) -> Vec<String> {
    let mut missing = Vec::new();
    for file in files_of(document) {
        let path = &file.path;
        let content = machine.file(path);
        if content.as_deref() != Some(file.content.as_bytes()) {
            missing.push(format!("content of {path}: {content:?}"));
        }
        let expected = format!("{:o} 0 0", file.mode);
        let mode = machine.mode(path);
        if mode != Some(&expected) {
            missing.push(format!("mode of {path}: {mode:?}, not {expected}"));
        }
    }
    missing
}

fn missing_commands(machine: &Stopped, document: &Value) -> Option<String> {
    let commands = list(document, "/runcmd").iter().filter_map(Value::as_str);
    let recorded: Vec<_> = commands
        .filter(|command| command.split(' ').next().is_some_and(is_recorded))
        .collect();
    let calls = machine.calls_by("/var/lib/cloud/instance/scripts/runcmd");
    (calls != recorded).then(|| format!("commands: {calls:?}, not {recorded:?}"))
}

/// What cloud-init says went wrong.
fn errors(machine: &Stopped) -> Vec<String> {
    #[derive(Deserialize)]
    struct Outcome {
        v1: Version1,
    }
    #[derive(Deserialize)]
    struct Version1 {
        datasource: Option<String>,
        errors: Vec<String>,
    }
    let text = machine.shared("result.json");
    let Ok(Outcome { v1 }) = serde_json::from_str(&text) else {
        return vec![format!("result.json: {text}")];
    };
    let mut errors = v1.errors;
    if !v1.datasource.is_some_and(|name| name.contains("NoCloud")) {
        errors.push("cloud-init did not find its user data".to_owned());
    }
    errors
}
