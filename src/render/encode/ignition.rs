//! The Ignition document, version 2.3.0, as compact JSON.
//!
//! The bytes are the ones that a Container Linux Config gives when Flatcar's transpiler converts
//! it: text goes through a YAML block first, which ends it with exactly one line break and takes
//! away the indent that its lines share.

use std::fmt::Write;

use super::{
    MACHINE_NAME, MachineFacts, breaks_yaml_text, data_of, distinct_keys, half_of, names_machine,
    permissions::Permissions,
};
use crate::api::config::OperatingSystemConfigSpec;
use crate::api::profile::{CloudProvider, File, Unit};
use crate::render::error::{Half, RenderError};
use crate::render::go_json;
use crate::render::user_data::UserData;

mod unit;

/// The mode of the file with the machine's name: `0600`.
const MACHINE_NAME_MODE: u32 = 0o600;

/// Makes the document.
pub fn encode(
    config: &OperatingSystemConfigSpec,
    half: Half,
    machine: MachineFacts<'_>,
) -> Result<UserData, RenderError> {
    let content = half_of(config, half);
    let size: usize = content
        .files
        .iter()
        .map(|file| data_of(file).0.len() * 2)
        .sum();
    let mut document = Document {
        half,
        out: String::with_capacity(size + 1024),
    };
    document.out.push_str(
        r#"{"ignition":{"config":{},"security":{"tls":{}},"timeouts":{},"version":"2.3.0"},"networkd":{},"passwd":{"#,
    );
    document.push_keys(&content.user_ssh_keys);
    document.out.push_str(r#"},"storage":{"#);
    let machine_name = names_machine(config, half).then_some(match config.cloud_provider.name {
        CloudProvider::Edge => machine.name,
        _ => MACHINE_NAME,
    });
    document.push_files(machine_name, &content.files)?;
    document.out.push_str(r#"},"systemd":{"#);
    document.push_units(&content.units)?;
    document.out.push_str("}}");
    Ok(UserData::new(document.out.into_bytes()))
}

struct Document {
    half: Half,
    out: String,
}

impl Document {
    fn push_keys(&mut self, keys: &[String]) {
        let keys = distinct_keys(keys);
        if keys.is_empty() {
            return;
        }
        self.out
            .push_str(r#""users":[{"name":"core","sshAuthorizedKeys":["#);
        for (index, key) in keys.into_iter().enumerate() {
            self.push_comma(index);
            go_json::push_string(&mut self.out, key);
        }
        self.out.push_str("]}]");
    }

    fn push_files(
        &mut self,
        machine_name: Option<&str>,
        files: &[File],
    ) -> Result<(), RenderError> {
        if machine_name.is_none() && files.is_empty() {
            return Ok(());
        }
        self.out.push_str(r#""files":["#);
        if let Some(name) = machine_name {
            self.push_file("/etc/machine-name", name, MACHINE_NAME_MODE);
        }
        let first = usize::from(machine_name.is_some());
        for (index, file) in files.iter().enumerate() {
            let refuse = |what: &str, reason| RenderError::Unsafe {
                half: self.half,
                place: format!("file `{}`, {what}", file.path.escape_debug()),
                reason,
            };
            if !file.path.starts_with('/') {
                return Err(refuse("path", "it is not an absolute path"));
            }
            let permissions = Permissions::new(file.permissions)
                .ok_or_else(|| refuse("permissions", "it is no file mode"))?;
            let data = block(data_of(file).0).map_err(|reason| refuse("content", reason))?;
            self.push_comma(index + first);
            self.push_file(&file.path, &data, permissions.mode());
        }
        self.out.push(']');
        Ok(())
    }

    fn push_file(&mut self, path: &str, data: &str, mode: u32) {
        self.out.push_str(r#"{"filesystem":"root","path":"#);
        go_json::push_string(&mut self.out, path);
        self.out.push_str(r#","contents":{"source":"data:,"#);
        push_percent_escaped(&mut self.out, data);
        let _ = write!(self.out, r#"","verification":{{}}}},"mode":{mode}}}"#);
    }

    fn push_units(&mut self, units: &[Unit]) -> Result<(), RenderError> {
        if units.is_empty() {
            return Ok(());
        }
        self.out.push_str(r#""units":["#);
        for (index, unit) in units.iter().enumerate() {
            unit::check(unit).map_err(|(what, reason)| self.refuse_unit(unit, what, reason))?;
            self.push_comma(index);
            self.push_unit(unit)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn push_unit(&mut self, unit: &Unit) -> Result<(), RenderError> {
        let text =
            |text: &str| block(text).map_err(|reason| self.refuse_unit(unit, "content", reason));
        let content = text(unit.content.as_deref().unwrap_or_default())?;
        let mut drop_ins = Vec::with_capacity(unit.drop_ins.len());
        for drop_in in &unit.drop_ins {
            drop_ins.push((drop_in.name.as_str(), text(&drop_in.content)?));
        }
        self.out.push('{');
        self.push_contents(&content);
        if !drop_ins.is_empty() {
            self.out.push_str(r#""dropins":["#);
            for (index, (name, content)) in drop_ins.iter().enumerate() {
                self.push_comma(index);
                self.out.push('{');
                self.push_contents(content);
                self.out.push_str(r#""name":"#);
                go_json::push_string(&mut self.out, name);
                self.out.push('}');
            }
            self.out.push_str("],");
        }
        let _ = write!(
            self.out,
            r#""enabled":{},"#,
            unit.enable.unwrap_or_default()
        );
        if unit.mask.unwrap_or_default() {
            self.out.push_str(r#""mask":true,"#);
        }
        self.out.push_str(r#""name":"#);
        go_json::push_string(&mut self.out, &unit.name);
        self.out.push('}');
        Ok(())
    }

    fn push_contents(&mut self, text: &str) {
        if !text.is_empty() {
            self.out.push_str(r#""contents":"#);
            go_json::push_string(&mut self.out, text);
            self.out.push(',');
        }
    }

    fn push_comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push(',');
        }
    }

    fn refuse_unit(&self, unit: &Unit, what: &str, reason: &'static str) -> RenderError {
        RenderError::Unsafe {
            half: self.half,
            place: format!("unit `{}`, {what}", unit.name.escape_debug()),
            reason,
        }
    }
}

/// A text as a YAML literal block gives it back.
fn block(text: &str) -> Result<String, &'static str> {
    if text.chars().any(breaks_yaml_text) {
        return Err("it holds a character that YAML takes for a line break or refuses");
    }
    let is_blank = |line: &&str| line.bytes().all(|byte| byte == b' ');
    let Some(first) = text.split('\n').find(|line| !is_blank(line)) else {
        return Ok(String::new());
    };
    let indent = first.len() - first.trim_start_matches(' ').len();
    let mut out = String::with_capacity(text.len() + 1);
    let mut is_leading = true;
    for line in text.split('\n') {
        if is_leading && is_blank(&line) && line.len() > indent {
            return Err("its first lines are indented deeper than what follows");
        }
        is_leading &= is_blank(&line);
        match line.split_at_checked(indent) {
            Some((margin, rest)) if is_blank(&margin) => out.push_str(rest),
            _ if is_blank(&line) => {}
            _ => return Err("a line is indented less than the first one"),
        }
        out.push('\n');
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    Ok(out)
}

fn push_percent_escaped(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let hex = |nibble: u8| {
        HEX.get(usize::from(nibble))
            .copied()
            .map_or('0', char::from)
    };
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'!' | b'~' | b'*' | b'\'' | b'(' | b')' => {
                out.push(char::from(byte));
            }
            other => {
                out.push('%');
                out.push(hex(other >> 4));
                out.push(hex(other & 0xf));
            }
        }
    }
}
