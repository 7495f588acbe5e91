//! Everything that a command prints: its result on stdout and nothing else there, notes and errors
//! on stderr.
//!
//! Names and messages come from clusters and files that others write. So text for people is printed
//! line by line, and no character in a line can begin another one or control the terminal. What
//! programs read is printed byte for byte. No other file prints.

use std::{
    fs,
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::Value as Json;
use serde_saphyr::SerializerOptions;

use crate::telemetry::{chain::whole, logs::printable};

/// Documents hold secrets: what we write is for its owner alone.
const FILE_MODE: u32 = 0o600;

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Done; where the command answers a question, nothing is wrong or differs.
pub(super) const SUCCESS: ExitCode = ExitCode::SUCCESS;

/// Something cannot be read, reached or done, or is refused. A wrong command line is clap's to
/// refuse, with 2.
pub(super) const ERROR: ExitCode = ExitCode::FAILURE;

/// The question is answered, and something is wrong, differs or would change.
pub(super) fn found() -> ExitCode {
    ExitCode::from(3)
}

/// Prints a result for people, a line each.
pub(super) fn lines<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> anyhow::Result<()> {
    let lines = lines.into_iter();
    let text: String = lines.map(|line| printable(line.as_ref()) + "\n").collect();
    document(text)
}

/// Prints a result for programs, byte for byte.
pub(super) fn document(bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let written = stdout
        .write_all(bytes.as_ref())
        .and_then(|()| stdout.flush());
    match written {
        // A reader that has gone has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the result")
        }
        _ => Ok(()),
    }
}

/// Returns stdout as an unbuffered file, for a process that reads binary data from it.
pub(super) fn pipe() -> io::Result<fs::File> {
    io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .map(fs::File::from)
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

/// Prints what a command has just done on stdout. The command goes on if nobody can read it.
pub(super) fn progress(line: &str) {
    drop(lines([line]));
}

/// Prints a line on stderr.
pub(super) fn remark(line: &str) {
    eprintln!("{}", printable(line));
}

/// Prints a note on stderr.
pub(super) fn note(text: &str) {
    remark(&format!("note: {text}"));
}

/// Prints an error with its causes on stderr. Its further lines are indented, so that none looks
/// like a line of its own.
pub(super) fn error(error: &anyhow::Error) {
    remark_lines(&format!("error: {}", whole(error.as_ref())), "  ");
}

/// Prints text of several lines on stderr.
pub(super) fn usage(text: &str) {
    remark_lines(text.trim_end_matches('\n'), "");
}

fn remark_lines(text: &str, indentation: &str) {
    for (index, line) in text.split('\n').enumerate() {
        let indentation = if index == 0 { "" } else { indentation };
        remark(&format!("{indentation}{line}"));
    }
}

/// Asks on stderr, and returns what was answered, if anything was.
pub(super) fn ask(question: &str) -> Option<String> {
    eprint!("{} ", printable(question));
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    read.is_ok().then(|| line.trim().to_owned())
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
