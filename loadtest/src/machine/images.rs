//! Where the disks of machines are, and the files of the mirror. A script makes what is missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

const SCRIPT: &str = ".ci/node-images";

/// What a machine can boot from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Debian 12 with all packages that the profile installs.
    Bookworm,
    /// Debian 13 with all packages that the profile installs.
    Trixie,
    /// Debian 13 without them: they come from the mirror.
    TrixieBare,
    /// Ubuntu 24.04 with all packages that the profile installs.
    Noble,
}

impl Image {
    /// The name of its folder, and the script's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::TrixieBare => "trixie-bare",
            Self::Noble => "noble",
        }
    }
}

/// A folder with disks and the mirror's files.
#[derive(Clone, Debug)]
pub struct Images {
    folder: PathBuf,
}

impl Images {
    /// Finds them, and has the script make those that are missing, with its progress on stderr.
    /// The names are those of images and of kubelets, as the script takes them.
    ///
    /// # Errors
    ///
    /// When the script fails; stderr has why.
    #[expect(
        clippy::disallowed_methods,
        reason = "runs the developer's own programs"
    )]
    pub fn find<'a>(names: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Self> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = Command::new(package.parent().unwrap_or(package).join(SCRIPT))
            .args(names)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("running {SCRIPT}"))?;
        if !output.status.success() {
            bail!(
                "there is no image to boot: {SCRIPT} failed ({}); `.ci/needs nodes` installs what it \
                 needs",
                output.status
            );
        }
        let folder = String::from_utf8_lossy(&output.stdout);
        let folder = PathBuf::from(folder.lines().last().unwrap_or_default());
        Ok(Self { folder })
    }

    /// A file of an image: `disk.img`, `vmlinuz` or `initrd.img`.
    pub fn file(&self, image: Image, name: &str) -> PathBuf {
        self.folder.join(image.name()).join(name)
    }

    /// What the mirror serves.
    pub fn mirror(&self) -> PathBuf {
        self.folder.join("mirror")
    }
}
