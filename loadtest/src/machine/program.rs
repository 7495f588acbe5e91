//! Programs of the developer's machine that end by themselves.

use std::process::Command;

use anyhow::{Context as _, bail};

/// Runs a program, and returns when it has succeeded.
///
/// # Errors
///
/// When it does not start, or fails; with what it said.
pub(super) fn run(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("running {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed ({}): {}", output.status, said.trim_end());
    }
    Ok(())
}
