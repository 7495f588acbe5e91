//! Encodes a config as the documents that machines read. Their bytes are a contract.

use std::collections::BTreeMap;

use self::permissions::Permissions;
use super::{
    error::{Half, RenderError},
    user_data::UserData,
};
use osm_api::{
    config::{ConfigHalf, OperatingSystemConfigSpec},
    profile::{CloudProvider, ENCODING_GZIP, File, ProvisioningUtility},
};

pub mod cloud_init;
pub mod gzip;
pub mod ignition;
mod permissions;

/// The parts of a document that are not in the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineInput<'a> {
    /// The machine deployment's name.
    pub name: &'a str,
    /// True if packages are upgraded at the first boot.
    pub dist_upgrade_on_boot: bool,
}

/// Encodes one of a config's two documents, for the tool that the config names.
///
/// # Errors
///
/// The tool does not exist on the operating system, or cannot express a file or unit.
pub fn encode(
    config: &OperatingSystemConfigSpec,
    half: Half,
    machine: MachineInput<'_>,
) -> Result<UserData, RenderError> {
    check_paths(config, half)?;
    match config.provisioning_utility {
        Some(ProvisioningUtility::Ignition) => ignition::encode(config, half, machine),
        Some(ProvisioningUtility::CloudInit) | None => cloud_init::encode(config, half, machine),
    }
}

/// Refuses a file whose path is below that of another: a machine can have only one of them.
fn check_paths(config: &OperatingSystemConfigSpec, half: Half) -> Result<(), RenderError> {
    let paths = half_of(config, half).files.iter().map(|file| &*file.path);
    let named = names_machine(config, half).then_some(MACHINE_NAME_PATH);
    let mut known: BTreeMap<Vec<&str>, &str> = BTreeMap::new();
    for path in paths.chain(named) {
        known.insert(
            path.split('/').filter(|part| !part.is_empty()).collect(),
            path,
        );
    }
    for (parts, path) in &known {
        let above = (1..parts.len()).find_map(|end| known.get(parts.get(..end)?));
        if let Some(above) = above {
            return Err(RenderError::Unsafe {
                half,
                place: format!("file `{}`, path", path.escape_debug()),
                reason: format!("it is below `{}`, which is a file", above.escape_debug()).into(),
            });
        }
    }
    Ok(())
}

/// The placeholder that machine-controller replaces with the machine's name.
const MACHINE_NAME: &str = "<MACHINE_NAME>";
/// The file that holds the machine's name.
const MACHINE_NAME_PATH: &str = "/etc/machine-name";

fn half_of(config: &OperatingSystemConfigSpec, half: Half) -> &ConfigHalf {
    match half {
        Half::Bootstrap => &config.bootstrap_config,
        Half::Provisioning => &config.provisioning_config,
    }
}

/// Returns true if the document sets the machine's name. AWS sets the names of its machines itself.
fn names_machine(config: &OperatingSystemConfigSpec, half: Half) -> bool {
    half == Half::Bootstrap && config.cloud_provider.name != CloudProvider::Aws
}

/// Returns the keys, trimmed, without empty ones and duplicates, in their order. Ignition refuses
/// duplicates.
fn distinct_keys(keys: &[String]) -> Vec<&str> {
    let mut distinct: Vec<&str> = Vec::with_capacity(keys.len());
    for key in keys.iter().map(|key| key.trim()) {
        if !key.is_empty() && !distinct.contains(&key) {
            distinct.push(key);
        }
    }
    distinct
}

/// Returns a file's data and encoding. A missing content is an empty one.
fn data_of(file: &File) -> (&str, Option<&str>) {
    file.content.inline.as_ref().map_or(("", None), |inline| {
        let encoding = inline.encoding.as_deref().filter(|name| !name.is_empty());
        (&inline.data, encoding)
    })
}

/// How cloud-init reads the data of a file, by the name of its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// As text.
    Text,
    /// In base64, which the renderer writes.
    Base64,
    /// Compressed, which the renderer does.
    Gzip,
    /// Decoded from what its author encoded.
    ByAuthor,
    /// As text, with a warning.
    Unknown,
}

impl Encoding {
    /// Returns the encoding of this name.
    ///
    /// # Errors
    ///
    /// Returns the reason if cloud-init would fail with it: no later file of the document would be
    /// written.
    pub fn of(name: &str) -> Result<Self, &'static str> {
        Ok(match (name, &*name.trim().to_lowercase()) {
            ("b64", _) => Self::Base64,
            (ENCODING_GZIP, _) => Self::Gzip,
            (_, "" | "text/plain") => Self::Text,
            (_, "base64" | "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64") => Self::ByAuthor,
            (_, "b64") => return Err("only `b64` in lower case and without spaces is encoded"),
            (_, "gz" | "gzip") => return Err("only `gzip` in this spelling is compressed"),
            _ => Self::Unknown,
        })
    }
}

/// Returns true if cloud-init decodes a file from what its author encoded.
pub(super) fn is_encoded_by_author(file: &File) -> bool {
    Encoding::of(data_of(file).1.unwrap_or_default()) == Ok(Encoding::ByAuthor)
}

/// Returns what a machine has once it has read the provisioning document: mode and content by path,
/// or nothing of a file whose author has encoded it. The units of cloud-init are left out, since it
/// decides where they are, and so are paths that begin or end with white space.
pub(super) fn on_machine(
    half: &ConfigHalf,
    utility: ProvisioningUtility,
) -> BTreeMap<String, Option<(u32, String)>> {
    const UNIT_MODE: u32 = 0o644;
    let is_ignition = utility == ProvisioningUtility::Ignition;
    let mut all = BTreeMap::new();
    for file in &half.files {
        let (data, encoding) = data_of(file);
        let content = match encoding {
            Some("b64") if !is_ignition => Some(data.to_owned()),
            Some(ENCODING_GZIP) => Some(data.to_owned()),
            _ if is_ignition => literal_block(data).ok(),
            _ if is_encoded_by_author(file) => None,
            _ => {
                let block = literal_block(data).ok();
                block.map(|text| text.trim_end_matches('\n').to_owned())
            }
        };
        let mode = Permissions::new(file.permissions).map(Permissions::mode);
        all.insert(file.path.clone(), mode.zip(content));
    }
    let units = half
        .units
        .iter()
        .filter(|it| is_ignition && it.mask != Some(true));
    for unit in units {
        let path = format!("/etc/systemd/system/{}", unit.name);
        let drop_ins = unit.drop_ins.iter().map(|it| {
            let path = format!("{path}.d/{}", it.name);
            (path, it.content.as_str())
        });
        let own = unit.content.as_deref().map(|text| (path.clone(), text));
        for (path, text) in own.into_iter().chain(drop_ins) {
            let text = literal_block(text).ok().filter(|text| !text.is_empty());
            all.extend(text.map(|text| (path, Some((UNIT_MODE, text)))));
        }
    }
    all.retain(|path, _| path.trim() == path && !path.contains(char::is_control));
    all
}

/// Returns a text as it is read from a YAML literal block that keeps one line break at its end.
fn literal_block(text: &str) -> Result<String, &'static str> {
    let text = text.replace(CRLF, "\n");
    let Some(indent) = block_indent(&text)? else {
        return Ok(String::new());
    };
    let mut out = String::with_capacity(text.len() + 1);
    for line in text.split('\n') {
        out.push_str(line.get(indent..).unwrap_or_default());
        out.push('\n');
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    Ok(out)
}

/// Returns the number of bytes that a file's data takes in a document, before indents and escapes.
pub fn carried_bytes(file: &File) -> usize {
    let in_base64 = |bytes: usize| bytes.div_ceil(3) * 4;
    match data_of(file) {
        (data, Some("b64")) => in_base64(data.len()),
        (data, Some(ENCODING_GZIP)) => {
            in_base64(gzip::gzip(data.as_bytes(), gzip::LEVEL_SMALLEST).len())
        }
        (data, _) => data.len(),
    }
}

/// Returns the number of spaces that a YAML reader removes from every line of a text in a literal
/// block: the indent of the first line that is not blank. Returns `None` if all lines are blank,
/// because the block is then empty. The lines must end without carriage returns.
fn block_indent(text: &str) -> Result<Option<usize>, &'static str> {
    if text.chars().any(breaks_yaml_text) {
        return Err("it holds a character that YAML takes for a line break or refuses");
    }
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let is_blank = |line: &&str| indent(line) == line.len();
    let lines = text.split('\n');
    let Some(first) = lines.clone().find(|line| !is_blank(line)).map(indent) else {
        return Ok(None);
    };
    if lines
        .clone()
        .take_while(is_blank)
        .any(|line| line.len() > first)
    {
        return Err("its first lines are indented deeper than what follows");
    }
    let is_short = |line: &str| !is_blank(&line) && indent(line) < first;
    if lines.clone().any(is_short) {
        return Err("a line is indented less than the first one, which would end the block");
    }
    Ok(Some(first))
}

/// The line ending that every YAML reader reads as a plain line break.
const CRLF: &str = "\r\n";

/// Returns true for characters that end a line for a YAML reader, or that it refuses, anywhere.
fn breaks_yaml_text(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x08'
            | '\x0b'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}'
    )
}
