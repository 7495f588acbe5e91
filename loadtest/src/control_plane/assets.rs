//! Finds the binaries of the control plane, in the layout that the ecosystem calls envtest assets:
//! one folder with everything side by side. It is `$KUBEBUILDER_ASSETS`, or what Go builds from the
//! pins in `loadtest/control-plane`, once for all clones of a machine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// The ecosystem's name for the folder with the binaries.
const VARIABLE: &str = "KUBEBUILDER_ASSETS";
const PROGRAMS: [&str; 4] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
];
/// Builds where that is needed, and prints the folder; its progress goes to stderr, past the test
/// harness, which holds back what a running test prints.
const SCRIPT: &str = ".ci/go-programs";

/// A folder with `etcd`, `kube-apiserver`, `kube-controller-manager` and `kubectl`.
#[derive(Clone, Debug)]
pub struct Assets {
    folder: PathBuf,
}

/// Why there are no binaries to run.
#[derive(Debug, thiserror::Error)]
pub enum AssetsError {
    /// The variable points to a folder that is not complete.
    #[error(
        "KUBEBUILDER_ASSETS names {folder}, where {missing} is missing; add it (the archives of \
         setup-envtest lack kube-controller-manager), or unset KUBEBUILDER_ASSETS to have \
         everything built by Go"
    )]
    Incomplete {
        /// What the variable says.
        folder: PathBuf,
        /// The first binary that is not there.
        missing: &'static str,
    },
    /// The script did not start.
    #[error("running {SCRIPT}")]
    Run(#[source] io::Error),
    /// Neither binaries nor the means to build them; stderr has why.
    #[error(
        "there is no Kubernetes to test against: `{SCRIPT} kubernetes` failed ({0}), as said \
         above; make it succeed, or set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver, \
         kube-controller-manager and kubectl"
    )]
    NotBuilt(ExitStatus),
    /// The runtime ended while they were being built.
    #[error("waiting for the build")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl Assets {
    /// Finds the binaries; builds them first where that is needed, with its progress on stderr.
    ///
    /// # Errors
    ///
    /// When `$KUBEBUILDER_ASSETS` names a folder that is not complete, or the build fails.
    pub async fn find() -> Result<Self, AssetsError> {
        tokio::task::spawn_blocking(Self::find_now)
            .await
            .map_err(AssetsError::Interrupted)?
    }

    /// As [`Self::find`], for a thread that may wait for minutes.
    ///
    /// # Errors
    ///
    /// As [`Self::find`].
    pub fn find_now() -> Result<Self, AssetsError> {
        match named() {
            Some(folder) => Self::complete(folder),
            None => Self::from_script(&["kubernetes"]),
        }
    }

    /// What Go built before, without building anything.
    pub fn built() -> Option<Self> {
        Self::from_script(&["kubernetes", "--if-built"]).ok()
    }

    /// The folder that holds them all.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of one of them.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn complete(folder: PathBuf) -> Result<Self, AssetsError> {
        match PROGRAMS.iter().find(|it| !folder.join(it).is_file()) {
            Some(missing) => Err(AssetsError::Incomplete { folder, missing }),
            None => Ok(Self { folder }),
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "runs the developer's own toolchain"
    )]
    fn from_script(arguments: &[&str]) -> Result<Self, AssetsError> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = Command::new(package.parent().unwrap_or(package).join(SCRIPT))
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(AssetsError::Run)?;
        if !output.status.success() {
            return Err(AssetsError::NotBuilt(output.status));
        }
        let folder = String::from_utf8_lossy(&output.stdout);
        Self::complete(PathBuf::from(folder.trim_end()))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the variable is a convention of tests, not a setting of this program"
)]
fn named() -> Option<PathBuf> {
    let value = std::env::var(VARIABLE).ok().filter(|it| !it.is_empty());
    value.map(PathBuf::from)
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "runs the script as a developer does"
)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Output;

    use tempfile::TempDir;

    use super::*;

    /// A clone with the pins of Kubernetes alone, on a machine with this `go`.
    struct Workplace {
        folder: TempDir,
    }

    /// It "builds" what the pins name, and writes down that it was asked.
    const GO: &str = r#"
        [ "$1" != version ] || exit 0
        echo built >> "$HOME/builds"
        while [ "$1" != -o ]; do shift; done
        for it in server kube-apiserver kube-controller-manager kubectl; do : > "$2$it"; done"#;

    impl Workplace {
        fn new(go: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let here = folder.path();
            for it in ["bin", ".ci", "loadtest/control-plane"] {
                fs::create_dir_all(here.join(it)).unwrap();
            }
            for it in [SCRIPT, ".ci/cache"] {
                fs::copy(repository.join(it), here.join(it)).unwrap();
            }
            let program = here.join("bin/go");
            fs::write(&program, format!("#!/bin/sh\n{go}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
            let workplace = Self { folder };
            workplace.pin("v1.2.3");
            workplace
        }

        fn pin(&self, version: &str) {
            let path = self.folder.path().join("loadtest/control-plane/go.mod");
            fs::write(path, format!("\tk8s.io/kubernetes {version}\n")).unwrap();
        }

        fn command(&self, arguments: &[&str]) -> Command {
            let here = self.folder.path();
            let mut command = Command::new(here.join(SCRIPT));
            command
                .arg("kubernetes")
                .args(arguments)
                .env("PATH", format!("{}/bin:/usr/bin:/bin", here.display()))
                .env("HOME", here)
                .env_remove("XDG_CACHE_HOME")
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command
        }

        fn run(&self, arguments: &[&str]) -> Output {
            self.command(arguments).output().unwrap()
        }

        fn builds(&self) -> usize {
            let builds = fs::read_to_string(self.folder.path().join("builds"));
            builds.unwrap_or_default().lines().count()
        }
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).trim_end().to_owned()
    }

    #[test]
    fn without_go_the_script_says_what_to_install() {
        let output = Workplace::new("exit 1").run(&[]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(
            said.contains("install Go 1.26 or later (https://go.dev/dl)"),
            "{said}"
        );
    }

    #[test]
    fn a_failed_build_leaves_no_programs_and_shows_what_go_said() {
        let go = "[ \"$1\" = version ] || { echo no such module >&2; exit 1; }";
        let workplace = Workplace::new(go);
        let output = workplace.run(&[]);
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("no such module"), "{said}");
        assert_eq!(workplace.run(&["--if-built"]).status.code(), Some(1));
    }

    #[test]
    fn what_is_built_is_used_until_the_pins_change() {
        let workplace = Workplace::new(GO);
        assert_eq!(workplace.run(&["--if-built"]).status.code(), Some(1));
        let first = Assets::complete(text(&workplace.run(&[]).stdout).into()).unwrap();
        let second = Assets::complete(text(&workplace.run(&["--if-built"]).stdout).into());
        assert_eq!(second.unwrap().folder(), first.folder());
        assert_eq!(workplace.builds(), 1);

        workplace.pin("v1.2.4");
        assert_eq!(workplace.run(&["--if-built"]).status.code(), Some(1));
        assert_ne!(
            text(&workplace.run(&[]).stdout),
            text(first.folder().as_os_str().as_encoded_bytes())
        );
        assert_eq!(workplace.builds(), 2);
    }

    #[test]
    fn of_two_that_start_together_one_builds() {
        let workplace = Workplace::new(GO);
        let started = [(); 2].map(|()| workplace.command(&[]).spawn().unwrap());
        let folders = started.map(|it| text(&it.wait_with_output().unwrap().stdout));
        assert_eq!(folders[0], folders[1]);
        assert!(Assets::complete((&folders[0]).into()).is_ok());
        assert_eq!(workplace.builds(), 1);
    }

    #[test]
    fn a_folder_that_is_not_complete_is_refused_with_the_name_of_what_is_missing() {
        let scratch = tempfile::tempdir().unwrap();
        for program in ["etcd", "kube-apiserver", "kubectl"] {
            fs::write(scratch.path().join(program), "").unwrap();
        }
        let error = Assets::complete(scratch.path().to_owned()).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("where kube-controller-manager is missing"),
            "{said}"
        );
    }
}
