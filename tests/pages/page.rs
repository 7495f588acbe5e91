//! The pages, and where each begins and ends.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use super::typed::{self, Typed};

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

impl Page {
    /// Its commands, in order.
    pub fn commands(self) -> anyhow::Result<Vec<Typed>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("docs")
            .join(self.name);
        Ok(typed::commands(
            &fs::read_to_string(&path).with_context(|| self.name)?,
        ))
    }
}
