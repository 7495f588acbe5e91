//! The `#cloud-config` document.
//!
//! It writes values into YAML as they are, and its bytes are a contract. Where it has quotes,
//! quotes in a value are escaped. Elsewhere, a value that would end its place in the document, or
//! change what follows it, is refused with its place and the reason.

use std::{borrow::Cow, fmt::Write};

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    CRLF, Encoding, MACHINE_NAME, MachineInput, data_of, distinct_keys, gzip::gzip_base64, half_of,
    names_machine, permissions::Permissions,
};
use crate::{
    error::{Half, RenderError},
    user_data::UserData,
};
use osm_api::{
    config::OperatingSystemConfigSpec,
    profile::{CloudInitModules, CloudProvider, File, Unit},
};

mod implicit;
mod scalar;

/// Encodes the document.
///
/// # Errors
///
/// A module or a unit cannot be expressed in a cloud-config.
pub fn encode(
    config: &OperatingSystemConfigSpec,
    half: Half,
    machine: MachineInput<'_>,
) -> Result<UserData, RenderError> {
    let content = half_of(config, half);
    let machine_name = match config.cloud_provider.name {
        CloudProvider::Edge => machine.name,
        _ => MACHINE_NAME,
    };
    let size: usize = content
        .files
        .iter()
        .map(|file| data_of(file).0.len() * 2)
        .sum();
    let mut document = Document {
        half,
        out: String::with_capacity(size + 1024),
    };
    document.out.push_str("#cloud-config");
    if names_machine(config, half) {
        let _ = write!(document.out, "\nhostname: {machine_name}");
    }
    document.out.push_str("\n\n");
    if machine.dist_upgrade_on_boot {
        document
            .out
            .push_str("package_upgrade: true\npackage_reboot_if_required: true\n");
    }
    document.push_keys(&content.user_ssh_keys)?;
    // A list without items would be null, with which cloud-init's modules fail.
    if names_machine(config, half) || !content.files.is_empty() {
        document.out.push_str("write_files:");
    }
    for file in &content.files {
        document.push_file(file)?;
    }
    if names_machine(config, half) {
        let _ = write!(
            document.out,
            "\n- path: /etc/machine-name\n  permissions: '0600'\n  content: |-\n        \
             {machine_name}\n"
        );
    }
    document.push_units(&content.units)?;
    if let Some(modules) = &content.modules {
        document.push_modules(modules)?;
    }
    Ok(UserData::new(document.out.into_bytes()))
}

/// Returns a text as the value of a module. A text that YAML reads as itself is unchanged, and so
/// is one that its author quoted. Any other text is quoted.
pub fn module_value(text: &str) -> String {
    let quoted = match scalar::text_value(text) {
        Ok(()) => None,
        Err(_) => scalar::single_quoted(text).ok().map(|it| it.to_string()),
    };
    quoted.unwrap_or_else(|| text.to_owned())
}

struct Document {
    half: Half,
    out: String,
}

impl Document {
    fn push_keys(&mut self, keys: &[String]) -> Result<(), RenderError> {
        self.out.push_str("ssh_pwauth: false\n\n");
        for (index, key) in distinct_keys(keys).into_iter().enumerate() {
            if index == 0 {
                self.out.push_str("ssh_authorized_keys:\n");
            }
            let key = self.check(scalar::single_quoted(key), || {
                format!("userSSHKeys[{index}]")
            })?;
            let _ = writeln!(self.out, "- {key}");
        }
        Ok(())
    }

    fn push_file(&mut self, file: &File) -> Result<(), RenderError> {
        let place = |what: &str| format!("file `{}`, {what}", file.path.escape_debug());
        let (data, encoding) = data_of(file);
        let form = Encoding::of(encoding.unwrap_or_default());
        let form = self.check(form, || place("encoding"))?;
        if form == Encoding::ByAuthor && !is_base64(data) {
            return Err(self.refuse(place("content"), "it is not base64, as its encoding says"));
        }
        let path = self.check(scalar::single_quoted(&file.path), || place("path"))?;
        let permissions = Permissions::new(file.permissions).ok_or("it is no file mode");
        let permissions = self.check(permissions, || place("permissions"))?;
        let _ = write!(self.out, "\n- path: {path}\n  permissions: '{permissions}'");
        if let Some(encoding) = encoding {
            let encoding = match form {
                Encoding::Gzip => "gz+b64",
                _ => encoding,
            };
            let encoding = self.check(scalar::single_quoted(encoding), || place("encoding"))?;
            let _ = write!(self.out, "\n  encoding: {encoding}");
        }
        self.out.push_str("\n  content: |-\n");
        match form {
            Encoding::Base64 => {
                self.out.push_str("    ");
                STANDARD.encode_string(data, &mut self.out);
            }
            Encoding::Gzip => {
                let encoded = gzip_base64(self.half, data);
                let encoded = encoded.map_err(|reason| self.refuse(place("content"), reason))?;
                let _ = write!(self.out, "    {encoded}");
            }
            _ => {
                scalar::block(data).map_err(|reason| {
                    let remedy = "write `encoding: b64` beside it";
                    self.refuse(place("content"), format!("{reason}; {remedy}"))
                })?;
                push_indented(&mut self.out, 4, data);
            }
        }
        self.out.push('\n');
        Ok(())
    }

    fn push_units(&mut self, units: &[Unit]) -> Result<(), RenderError> {
        if units.is_empty() {
            return Ok(());
        }
        self.out.push_str("coreos:\n  units:");
        for unit in units {
            self.push_unit(unit)?;
        }
        Ok(())
    }

    fn push_unit(&mut self, unit: &Unit) -> Result<(), RenderError> {
        let place = |what: &str| format!("unit `{}`, {what}", unit.name.escape_debug());
        self.check(scalar::double_quoted(&unit.name), || place("name"))?;
        let is_enabled = unit.enable.unwrap_or_default();
        let command = if is_enabled { "command: start" } else { "" };
        let _ = writeln!(
            self.out,
            "\n  - name: \"{}\"\n    enable: {is_enabled}\n    {command}\n    mask: {}",
            unit.name,
            unit.mask.unwrap_or_default()
        );
        if let Some(content) = unit
            .content
            .as_deref()
            .filter(|content| !content.is_empty())
        {
            self.check(scalar::block(content), || place("content"))?;
            self.out.push_str("\n    content: |\n");
            push_indented(&mut self.out, 6, content);
        }
        self.out.push('\n');
        if unit.drop_ins.is_empty() {
            return Ok(());
        }
        self.out.push_str("\n    drop_ins:");
        for drop_in in &unit.drop_ins {
            self.check(scalar::double_quoted(&drop_in.name), || {
                place("drop-in, name")
            })?;
            self.check(scalar::block(&drop_in.content), || {
                place("drop-in, content")
            })?;
            let _ = write!(
                self.out,
                "\n      - name: \"{}\"\n        content: |\n",
                drop_in.name
            );
            push_indented(&mut self.out, 10, &drop_in.content);
        }
        Ok(())
    }

    fn push_modules(&mut self, modules: &CloudInitModules) -> Result<(), RenderError> {
        self.push_commands("bootcmd", &modules.bootcmd)?;
        self.push_commands("runcmd", &modules.runcmd)?;
        if !modules.rh_subscription.is_empty() {
            self.out.push_str("\nrh_subscription:");
            for (key, value) in &modules.rh_subscription {
                let validate = match key.as_str() {
                    "auto-attach" => scalar::value,
                    _ => scalar::text_value,
                };
                let place = "modules.rh_subscription";
                self.push_pair("\n    ", (key, value), place)?;
                self.check(validate(value), || format!("{place}.{key}"))?;
            }
            self.out.push('\n');
        }
        let repositories = modules.yum_repos.iter().filter(|(_, it)| !it.is_empty());
        let repositories: Vec<_> = repositories.collect();
        if !repositories.is_empty() {
            self.out.push_str("\nyum_repos:");
            for (name, settings) in repositories {
                self.check(scalar::key(name), || "modules.yum_repos, a name".to_owned())?;
                let _ = write!(self.out, "\n    {name}:");
                for (key, value) in settings {
                    self.push_pair("\n       ", (key, value), "modules.yum_repos")?;
                }
            }
            self.out.push('\n');
        }
        if let Some(folder) = modules
            .yum_repo_dir
            .as_deref()
            .filter(|dir| !dir.is_empty())
        {
            self.check(scalar::text_value(folder), || {
                "modules.yum_repo_dir".to_owned()
            })?;
            let _ = write!(self.out, "\nyum_repo_dir: {folder}");
        }
        Ok(())
    }

    fn push_commands(&mut self, module: &str, commands: &[String]) -> Result<(), RenderError> {
        if commands.is_empty() {
            return Ok(());
        }
        let _ = write!(self.out, "\n{module}:");
        for (index, command) in commands.iter().enumerate() {
            self.check(scalar::command(command), || {
                format!("modules.{module}[{index}]")
            })?;
            let _ = write!(self.out, "\n- {command}");
        }
        self.out.push('\n');
        Ok(())
    }

    fn push_pair(
        &mut self,
        indent: &str,
        (key, value): (&str, &str),
        place: &str,
    ) -> Result<(), RenderError> {
        self.check(scalar::key(key), || format!("{place}, a key"))?;
        self.check(scalar::value(value), || format!("{place}.{key}"))?;
        let _ = write!(self.out, "{indent}{key}: {value}");
        Ok(())
    }

    fn check<T>(
        &self,
        outcome: Result<T, &'static str>,
        place: impl Fn() -> String,
    ) -> Result<T, RenderError> {
        outcome.map_err(|reason| self.refuse(place(), reason))
    }

    fn refuse(&self, place: String, reason: impl Into<Cow<'static, str>>) -> RenderError {
        RenderError::Unsafe {
            half: self.half,
            place,
            reason: reason.into(),
        }
    }
}

/// Returns true if a text without its white space is base64.
fn is_base64(text: &str) -> bool {
    let encoded: String = text.split_whitespace().collect();
    STANDARD.decode(encoded).is_ok()
}

/// Appends a text with an indent before every line, including empty ones. Line breaks are those
/// that a YAML reader returns.
fn push_indented(out: &mut String, width: usize, text: &str) {
    for (index, line) in text.replace(CRLF, "\n").split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let _ = write!(out, "{:width$}{line}", "");
    }
}
