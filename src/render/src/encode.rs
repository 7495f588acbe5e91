//! Encodes a config as the documents that machines read. Their bytes are a contract.

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
    match config.provisioning_utility {
        Some(ProvisioningUtility::Ignition) => ignition::encode(config, half, machine),
        Some(ProvisioningUtility::CloudInit) | None => cloud_init::encode(config, half, machine),
    }
}

/// The placeholder that machine-controller replaces with the machine's name.
const MACHINE_NAME: &str = "<MACHINE_NAME>";

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
