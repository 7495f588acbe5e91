//! A `#cloud-config` document as its reader understands it, and what a machine must have of it.

use serde::Deserialize;

use crate::boot::{
    documents::SSH_KEY,
    files::{Entry, File},
    machine::{Stopped, is_recorded},
};

/// The keys of a document, as far as they are written to a machine.
#[derive(Deserialize)]
pub struct CloudConfig {
    hostname: Option<String>,
    write_files: Vec<Entry>,
    #[serde(default)]
    runcmd: Vec<String>,
}

impl CloudConfig {
    pub fn parse(document: &[u8]) -> Self {
        let text = std::str::from_utf8(document).expect("a document is text");
        serde_saphyr::from_str(text).expect("a document is YAML")
    }

    /// Returns everything but the contents of files: documents with the same form boot alike.
    pub fn form(&self) -> String {
        let files: Vec<_> = self
            .write_files
            .iter()
            .map(|file| (&file.path, &file.permissions, &file.encoding))
            .collect();
        let is_named = self.hostname.is_some();
        format!("{is_named} {files:?} {:?}", self.runcmd)
    }

    /// What a machine that booted from this document lacks, or has otherwise.
    pub fn missing_on(&self, machine: &Stopped) -> Vec<String> {
        let files = self.write_files.iter().map(File::from);
        let mut missing: Vec<_> = files.flat_map(|file| file.missing_on(machine)).collect();
        missing.extend(self.missing_commands(machine));
        let mut demand = |holds: bool, what: &str| {
            if !holds {
                missing.push(what.to_owned());
            }
        };
        if let Some(name) = &self.hostname {
            let line = format!("{name}\n").into_bytes();
            demand(machine.file("/etc/hostname") == Some(line), "hostname");
        }
        let keys = "/home/debian/.ssh/authorized_keys";
        let has_key = machine
            .file(keys)
            .is_some_and(|text| String::from_utf8_lossy(&text).contains(SSH_KEY));
        demand(has_key, "the user's key");
        let mode = machine.mode(keys).unwrap_or_default();
        demand(
            mode.starts_with("600 ") && !mode.contains(" 0"),
            "keys of the user's own",
        );
        demand(
            machine
                .file("/etc/sudoers.d/90-cloud-init-users")
                .is_some_and(|text| String::from_utf8_lossy(&text).contains("debian ALL=")),
            "a user who may do everything",
        );
        missing.extend(errors(machine));
        missing
    }

    fn missing_commands(&self, machine: &Stopped) -> Vec<String> {
        let script = "/var/lib/cloud/instance/scripts/runcmd";
        let recorded: Vec<_> = self
            .runcmd
            .iter()
            .filter(|command| command.split(' ').next().is_some_and(is_recorded))
            .cloned()
            .collect();
        let calls = machine.calls_by(script);
        if calls == recorded {
            Vec::new()
        } else {
            vec![format!("commands: {calls:?}, not {recorded:?}")]
        }
    }
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
    let text = machine.file("/var/lib/cloud/data/result.json");
    let text = String::from_utf8(text.unwrap_or_default()).expect("a result is text");
    let Ok(Outcome { v1 }) = serde_json::from_str(&text) else {
        return vec![format!("result.json: {text}")];
    };
    let mut errors = v1.errors;
    if !v1.datasource.is_some_and(|name| name.contains("NoCloud")) {
        errors.push("cloud-init did not find its user data".to_owned());
    }
    errors
}
