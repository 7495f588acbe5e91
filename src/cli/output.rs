//! What a command says: its result on stdout and nothing else there, notes on stderr.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use serde_json::Value as Json;
use serde_saphyr::SerializerOptions;

/// Documents hold secrets: what we write is for its owner alone.
const FILE_MODE: u32 = 0o600;

/// Nothing was found, nothing differs.
pub(super) const SUCCESS: ExitCode = ExitCode::SUCCESS;

/// Something was found, differs or is refused.
pub(super) fn found() -> ExitCode {
    ExitCode::from(1)
}

/// Something cannot be read, or not be asked for like this.
pub(super) fn unusable() -> ExitCode {
    ExitCode::from(2)
}

/// Writes a result. A reader that has gone has read enough.
pub(super) fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(text.as_ref())
        .and_then(|()| stdout.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the result")
        }
        _ => Ok(()),
    }
}

/// Writes a value as YAML that every reader reads.
pub(super) fn yaml(value: &Json, mut options: SerializerOptions) -> anyhow::Result<String> {
    // Go's reader takes a tab at the start of a block for indentation, and refuses it.
    options.prefer_block_scalars &= !starts_with_tab(value);
    serde_saphyr::to_string_with_options(value, options).context("cannot write YAML")
}

/// Whether a text within a value has a tab before its first character that is no space.
fn starts_with_tab(value: &Json) -> bool {
    match value {
        Json::String(text) => text.trim_start_matches([' ', '\n', '\r']).starts_with('\t'),
        Json::Array(items) => items.iter().any(starts_with_tab),
        Json::Object(entries) => entries.values().any(starts_with_tab),
        _ => false,
    }
}

/// Writes a file, and the folders above it.
pub(super) fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let what = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(what)?;
    }
    let mut options = fs::OpenOptions::new();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE);
    let mut file = options.open(path).with_context(what)?;
    file.write_all(bytes).with_context(what)
}

/// Tells something beside the result.
pub(super) fn note(text: &str) {
    eprintln!("note: {text}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(text: &str) -> String {
        yaml(&json!({"data": text}), SerializerOptions::default()).unwrap()
    }

    #[test]
    fn a_text_that_starts_with_a_tab_stands_in_quotes_which_every_reader_reads() {
        assert_eq!(written("a\n\tx\n"), "data: |\n  a\n  \tx\n");
        for text in ["\tx\n", "\n\n \tx\ny\n"] {
            let yaml = written(text);
            assert!(yaml.starts_with("data: \""), "{yaml}");
            let read: Json = serde_saphyr::from_str(&yaml).unwrap();
            assert_eq!(read["data"], text);
        }
    }
}
