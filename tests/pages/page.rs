//! The commands of a page.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::shell;

/// What stands behind a command that something else takes the place of here.
const NOT_TESTED: &str = "# not tested";

/// A page, by its name below `docs`.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub name: &'static str,
    pub start: Start,
    /// What the last command prints.
    pub end: &'static str,
}

/// What is there before the first command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing.
    Nothing,
    /// The clusters of `tests/install/upgrade/recorded`, which an older build has served.
    Recorded,
}

/// Those whose commands all run.
pub const PAGES: [Page; 4] = [
    Page {
        name: "kind.md",
        start: Start::Nothing,
        end: "berlin-workers-kube-system-bootstrap-config",
    },
    Page {
        name: "k3s.md",
        start: Start::Nothing,
        end: "berlin-workers-kube-system-bootstrap-config",
    },
    Page {
        name: "upgrade.md",
        start: Start::Recorded,
        end: "operating-system-manager-worker",
    },
    Page {
        name: "backup.md",
        start: Start::Recorded,
        end: "tenants: 1, 1 unchanged; machine deployments: 3, 3 unchanged",
    },
];

/// One command.
#[derive(Debug)]
pub struct Line {
    /// As it is typed, in one line and without the comment.
    pub line: String,
    /// Whether the page says that it runs here.
    pub is_tested: bool,
}

impl Page {
    /// The commands of its `sh` blocks, in order.
    pub fn commands(self) -> anyhow::Result<Vec<Line>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("docs")
            .join(self.name);
        let page = fs::read_to_string(&path).with_context(|| self.name)?;
        let lines = shell::lines(&page);
        let lines = lines.iter().filter(|line| !line.is_empty());
        Ok(lines
            .map(|line| {
                let command = line.strip_suffix(NOT_TESTED);
                let words = command.unwrap_or(line).split_whitespace();
                Line {
                    is_tested: command.is_none(),
                    line: words.collect::<Vec<_>>().join(" "),
                }
            })
            .collect())
    }
}
