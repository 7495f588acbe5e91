//! Checks a unit as the transpiler does. Any problem that it reports fails the machine, so it is an
//! error here.

use osm_api::profile::Unit;

const EXTENSIONS: [&str; 12] = [
    ".service",
    ".socket",
    ".device",
    ".mount",
    ".automount",
    ".swap",
    ".target",
    ".path",
    ".timer",
    ".snapshot",
    ".slice",
    ".scope",
];

/// Checks a unit. Returns the field and the reason if something is wrong.
pub(super) fn check(unit: &Unit) -> Result<(), (&'static str, &'static str)> {
    if !EXTENSIONS
        .iter()
        .any(|extension| unit.name.ends_with(extension))
    {
        return Err(("name", "it ends with no unit type that systemd knows"));
    }
    let content = unit.content.as_deref().unwrap_or_default();
    let is_enabled = unit.enable.unwrap_or_default();
    if is_enabled && !content.is_empty() && !has_install_section(content) {
        return Err((
            "content",
            "the unit is enabled and has no [Install] section",
        ));
    }
    if unit
        .drop_ins
        .iter()
        .any(|drop_in| drop_in.name.strip_suffix(".conf").is_none())
    {
        return Err(("drop-in, name", "it does not end with .conf"));
    }
    Ok(())
}

/// The longest line that Ignition is sure to take. Longer ones fail or not with what stands around
/// them: its reader looks only as far as it has read ahead (2.24.0).
const LINE_BYTES_MAX: usize = 2_047;

/// What goes on in the next line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Continued {
    Nothing,
    Comment,
    Value,
}

/// Checks the text of a unit or a drop-in by the rules of Ignition's own reader, which is stricter
/// than systemd. Returns the line and the reason if something is wrong.
pub(super) fn check_text(text: &str) -> Result<(), String> {
    let (mut is_in_section, mut continued) = (false, Continued::Nothing);
    for (number, line) in (1..).zip(text.lines()) {
        let begins = line.trim_start();
        let is_new = continued == Continued::Nothing;
        let is_comment = match continued {
            Continued::Nothing => begins.starts_with(['#', ';']),
            Continued::Comment => true,
            Continued::Value => false,
        };
        let is_name = is_new && begins.starts_with('[');
        is_in_section |= is_name;
        let fault = if line.len() > LINE_BYTES_MAX {
            Some("is longer than the 2,047 bytes that Ignition takes; continue it with a backslash")
        } else if is_name {
            match begins.split_once(']') {
                Some((_, rest)) if rest.trim().is_empty() => None,
                Some(_) => Some("has text after the name of a section"),
                None => Some("has the name of a section without `]`"),
            }
        } else {
            let is_setting = is_new && is_in_section && !begins.is_empty() && !is_comment;
            (is_setting && !line.contains('=')).then_some("is no setting such as `Name=value`")
        };
        if let Some(fault) = fault {
            return Err(format!("line {number} {fault}"));
        }
        // After the backslash, a comment may have a space, and a value may not.
        continued = if is_comment && line.strip_suffix(' ').unwrap_or(line).ends_with('\\') {
            Continued::Comment
        } else if !is_comment && !is_name && is_in_section && line.ends_with('\\') {
            Continued::Value
        } else {
            Continued::Nothing
        };
    }
    Ok(())
}

fn has_install_section(content: &str) -> bool {
    content.lines().any(|line| line.trim() == "[Install]")
}
