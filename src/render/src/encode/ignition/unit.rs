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

fn has_install_section(content: &str) -> bool {
    content.lines().any(|line| line.trim() == "[Install]")
}
