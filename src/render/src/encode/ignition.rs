//! The Ignition document, as compact JSON.
//!
//! Version 2.3.0 has the bytes that Flatcar's transpiler makes of a Container Linux Config. Text
//! goes through a YAML block first, which ends it with exactly one line break and removes the
//! indent that its lines share. Version 3.3.0 has the same content in another format. The checks
//! and the content of files are implemented here, once for both.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    MACHINE_NAME, MACHINE_NAME_PATH, MachineInput, data_of, distinct_keys, gzip::gzip_base64,
    half_of, literal_block, names_machine, permissions::Permissions,
};
use crate::{
    error::{Half, RenderError},
    user_data::UserData,
};
use osm_api::{
    config::OperatingSystemConfigSpec,
    profile::{CloudProvider, ENCODING_GZIP, File, IgnitionVersion, Unit},
};

mod unit;
mod v2;
mod v3;

/// The mode of that file: `0600`.
const MACHINE_NAME_MODE: u32 = 0o600;

/// What is escaped in a `data:` URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'!')
    .remove(b'~')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');

/// The content of a document, independent of the version.
struct Content<'a> {
    keys: Vec<&'a str>,
    files: Vec<FileContent<'a>>,
    units: Vec<UnitContent<'a>>,
}

/// A file.
struct FileContent<'a> {
    path: &'a str,
    /// The content as a data URL.
    source: String,
    is_compressed: bool,
    mode: u32,
}

/// A systemd unit.
struct UnitContent<'a> {
    name: &'a str,
    text: String,
    is_enabled: bool,
    is_masked: bool,
    /// The name and text of each drop-in.
    drop_ins: Vec<(&'a str, String)>,
}

/// Encodes the document.
///
/// # Errors
///
/// A file or a unit cannot be expressed in this version of Ignition.
pub fn encode(
    config: &OperatingSystemConfigSpec,
    half: Half,
    machine: MachineInput<'_>,
) -> Result<UserData, RenderError> {
    let part = half_of(config, half);
    let mut files = Vec::with_capacity(part.files.len() + 1);
    if names_machine(config, half) {
        let name = match config.cloud_provider.name {
            CloudProvider::Edge => machine.name,
            _ => MACHINE_NAME,
        };
        files.push(FileContent {
            path: MACHINE_NAME_PATH,
            source: data_url(name),
            is_compressed: false,
            mode: MACHINE_NAME_MODE,
        });
    }
    for file in &part.files {
        files.push(file_content(half, file)?);
    }
    let mut units = Vec::with_capacity(part.units.len());
    for unit in &part.units {
        let content = unit_content(unit);
        units
            .push(content.map_err(|(what, reason)| refuse_unit(half, (&unit.name, what), reason))?);
    }
    let content = Content {
        keys: distinct_keys(&part.user_ssh_keys),
        files,
        units,
    };
    match config.ignition_version {
        Some(IgnitionVersion::V3) => v3::encode(half, &content),
        Some(IgnitionVersion::V2) | None => Ok(v2::encode(&content)),
    }
}

fn file_content(half: Half, file: &File) -> Result<FileContent<'_>, RenderError> {
    let refuse = |what, reason| refuse_file(half, (&file.path, what), reason);
    if !file.path.starts_with('/') {
        return Err(refuse("path", "it is not an absolute path"));
    }
    let permissions = Permissions::new(file.permissions)
        .ok_or_else(|| refuse("permissions", "it is no file mode"))?;
    let (data, encoding) = data_of(file);
    let is_compressed = encoding == Some(ENCODING_GZIP);
    let source = if is_compressed {
        gzip_base64(half, data).map(|data| format!("data:;base64,{data}"))
    } else {
        literal_block(data).map(|data| data_url(&data))
    };
    Ok(FileContent {
        path: &file.path,
        source: source.map_err(|reason| refuse("content", reason))?,
        is_compressed,
        mode: permissions.mode(),
    })
}

fn unit_content(unit: &Unit) -> Result<UnitContent<'_>, (&'static str, Cow<'static, str>)> {
    unit::check(unit).map_err(|(what, reason)| (what, reason.into()))?;
    let text = |text: &str| {
        let text = literal_block(text).map_err(|reason| ("content", reason.into()))?;
        unit::check_text(&text).map_err(|reason| ("content", reason.into()))?;
        Ok(text)
    };
    let mut drop_ins = Vec::with_capacity(unit.drop_ins.len());
    for drop_in in &unit.drop_ins {
        drop_ins.push((drop_in.name.as_str(), text(&drop_in.content)?));
    }
    Ok(UnitContent {
        name: &unit.name,
        text: text(unit.content.as_deref().unwrap_or_default())?,
        is_enabled: unit.enable.unwrap_or_default(),
        is_masked: unit.mask.unwrap_or_default(),
        drop_ins,
    })
}

fn refuse_file(half: Half, (path, what): (&str, &str), reason: &'static str) -> RenderError {
    RenderError::Unsafe {
        half,
        place: format!("file `{}`, {what}", path.escape_debug()),
        reason: reason.into(),
    }
}

fn refuse_unit(
    half: Half,
    (name, what): (&str, &str),
    reason: impl Into<Cow<'static, str>>,
) -> RenderError {
    RenderError::Unsafe {
        half,
        place: format!("unit `{}`, {what}", name.escape_debug()),
        reason: reason.into(),
    }
}

fn data_url(text: &str) -> String {
    let mut url = String::with_capacity(text.len() * 2 + 8);
    url.push_str("data:,");
    url.extend(utf8_percent_encode(text, ESCAPED));
    url
}
