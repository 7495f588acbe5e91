//! Everything that a command prints: only its result on stdout, notes and errors on stderr.
//!
//! Names and messages come from clusters and from files that others write. Text for people is
//! therefore printed line by line, and no character in a line can begin another line or control the
//! terminal. Output for programs is printed byte for byte. No other file prints.

use std::{
    fs,
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use serde_json::Value as Json;
use serde_saphyr::SerializerOptions;

use super::table::Text;
use crate::telemetry::{chain::whole, logs::printable};

/// The mode of files. Documents contain secrets, so only the owner may read what we write.
const FILE_MODE: u32 = 0o600;

/// The command succeeded. If it answers a question, nothing is wrong or different.
pub(super) const SUCCESS: ExitCode = ExitCode::SUCCESS;

/// Something cannot be read, reached or done, or is refused. For an invalid command line, clap
/// exits with 2.
pub(super) const ERROR: ExitCode = ExitCode::FAILURE;

/// The exit code for an answer that something is wrong, different or would change.
pub(super) fn found() -> ExitCode {
    ExitCode::from(3)
}

/// The exit code for an answer that goes beyond the limit that a flag sets.
pub(super) fn beyond() -> ExitCode {
    ExitCode::from(4)
}

/// Prints a result for people, line by line.
pub(super) fn lines<L: AsRef<str>>(lines: impl IntoIterator<Item = L>) -> anyhow::Result<()> {
    text(&lines.into_iter().collect())
}

/// Prints text for people. Only a terminal gets its colors, unless `NO_COLOR` is set.
pub(super) fn text(text: &Text) -> anyhow::Result<()> {
    let text: String = text
        .lines()
        .iter()
        .map(|line| line.clone() + "\n")
        .collect();
    write(anstream::stdout(), text.as_bytes())
}

/// Prints a result for programs, byte for byte.
pub(super) fn document(bytes: impl AsRef<[u8]>) -> anyhow::Result<()> {
    write(io::stdout(), bytes.as_ref())
}

fn write(mut stdout: impl io::Write, bytes: &[u8]) -> anyhow::Result<()> {
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    match written {
        // A reader that closed the pipe has read enough.
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

/// Writes a value as YAML that every reader accepts.
pub(super) fn yaml(value: &Json, mut options: SerializerOptions) -> anyhow::Result<String> {
    // Go's reader takes a tab at the start of a block as indentation, and refuses it.
    options.prefer_block_scalars &= !starts_with_tab(value);
    serde_saphyr::to_string_with_options(value, options).context("cannot write YAML")
}

/// Returns true if a string in the value has a tab before its first character that is not white
/// space.
fn starts_with_tab(value: &Json) -> bool {
    match value {
        Json::String(text) => text.trim_start_matches([' ', '\n', '\r']).starts_with('\t'),
        Json::Array(items) => items.iter().any(starts_with_tab),
        Json::Object(entries) => entries.values().any(starts_with_tab),
        _ => false,
    }
}

/// Writes a file, and creates its parent folders.
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

/// Prints on stdout what a command has just done. Errors are ignored, so that the command
/// continues.
pub(super) fn progress(line: &str) {
    drop(lines([line]));
}

/// Prints a line on stderr.
pub(super) fn message(line: &str) {
    eprintln!("{}", printable(line));
}

/// Prints a note on stderr.
pub(super) fn note(text: &str) {
    message(&format!("note: {text}"));
}

/// Prints an error with its causes on stderr. Further lines are indented, so that they do not look
/// like lines of their own.
pub(super) fn error(error: &anyhow::Error) {
    message_lines(&format!("error: {}", whole(error.as_ref())), "  ");
}

/// Prints text of several lines on stderr.
pub(super) fn usage(text: &str) {
    message_lines(text.trim_end_matches('\n'), "");
}

fn message_lines(text: &str, indentation: &str) {
    for (index, line) in text.split('\n').enumerate() {
        let indentation = if index == 0 { "" } else { indentation };
        message(&format!("{indentation}{line}"));
    }
}

/// Asks a question on stderr, and returns the answer, if any.
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
