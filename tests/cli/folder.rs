//! A folder with the files that `docs/cli.md` shows, and programs that run in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// Every secret of the page's `facts.yaml`.
pub const SECRETS: [&str; 3] = ["the-token-of-cloud-init-getter", "kind: Config", "hidden"];

pub fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    fs::read_to_string(path).expect("the page is readable")
}

/// The fences of the page, each with its language.
pub fn fences(page: &str) -> Vec<(&str, &str)> {
    // Every second piece stands between two fences.
    let between = page.split("\n```").skip(1).step_by(2);
    between.filter_map(|fence| fence.split_once('\n')).collect()
}

/// A folder with the files that the page shows.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        let folder = Self(tempfile::tempdir().expect("there is room for a folder"));
        for (language, text) in fences(&page()) {
            let name = text.strip_prefix("# ").and_then(|text| text.lines().next());
            if let (true, Some(name)) = (language == "yaml", name) {
                folder.write(name, &format!("{text}\n"));
            }
        }
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the folder is ours");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("the file was written")
    }

    /// Rewrites a file of the page with a replacement.
    pub fn change(&self, (from, to): (&str, &str), old: &str, new: &str) {
        let text = self.read(from);
        assert!(text.contains(old), "{from}: {old}");
        self.write(to, &text.replace(old, new));
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> Ran {
        let mut command = command(program);
        command.args(arguments).current_dir(self.0.path());
        let osm = Path::new(env!("CARGO_BIN_EXE_osm"))
            .parent()
            .expect("a folder");
        command.env("PATH", format!("{}:/usr/bin:/bin", osm.display()));
        Ran::new(&command.output().expect("the program starts; install bash"))
    }

    pub fn osm(&self, line: &str) -> Ran {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        self.run(env!("CARGO_BIN_EXE_osm"), &arguments)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the commands are programs, and their examples are a shell's"
)]
pub fn command(program: &str) -> Command {
    Command::new(program)
}

/// What a command said.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the output is text");
        Self {
            code: output.status.code().expect("no signal ended it"),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}
