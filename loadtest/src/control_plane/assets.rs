//! Finds the binaries of the control plane, in the layout that the ecosystem calls envtest assets:
//! one folder with everything side by side. It looks at `$KUBEBUILDER_ASSETS`, then into the user's
//! cache folder, and has Go build what is missing there from `loadtest/control-plane`. The folder's
//! name has a digest of the pins, so that all clones with the same pins share one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::go::{self, GoError};

/// The ecosystem's name for the folder with the binaries.
const VARIABLE: &str = "KUBEBUILDER_ASSETS";
/// Enough of a digest to tell pins apart, and short enough for a path.
const DIGEST_BYTES: usize = 6;

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
    /// Neither binaries nor the means to build them.
    #[error(
        "there is no Kubernetes to test against: KUBEBUILDER_ASSETS is not set, {folder} does not \
         hold the pinned version, and Go is not installed; install Go 1.26 or later \
         (https://go.dev/dl) to have it built once, or set KUBEBUILDER_ASSETS to a folder with \
         etcd, kube-apiserver, kube-controller-manager and kubectl"
    )]
    NoToolchain {
        /// Where they would have been built.
        folder: PathBuf,
    },
    /// A file or folder.
    #[error("using {path}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Go could not build them.
    #[error("building the control plane")]
    Go(#[source] GoError),
    /// The runtime ended while they were being built.
    #[error("waiting for the build")]
    Interrupted(#[source] tokio::task::JoinError),
}

impl Assets {
    /// Finds the binaries; builds them first where that is needed, with its progress on stderr.
    pub async fn find() -> Result<Self, AssetsError> {
        tokio::task::spawn_blocking(|| Search::here().find())
            .await
            .map_err(AssetsError::Interrupted)?
    }

    /// What was found or built before, without building anything.
    pub fn built() -> Option<Self> {
        let search = Search::here();
        let assets = search.assets(&search.pins().ok()?);
        assets.missing().is_none().then_some(assets)
    }

    /// The folder that holds them all.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of one of them.
    pub fn binary(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn missing(&self) -> Option<&'static str> {
        go::PROGRAMS
            .iter()
            .map(|it| it.name)
            .find(|name| !self.binary(name).is_file())
    }
}

/// Where to look; a value, so that a test can look elsewhere.
struct Search {
    named: Option<PathBuf>,
    module: PathBuf,
    cache: PathBuf,
    go: PathBuf,
}

impl Search {
    #[expect(
        clippy::disallowed_methods,
        reason = "the variables are conventions of tests and caches, not settings of this program"
    )]
    fn here() -> Self {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let workspace = package.parent().unwrap_or(package);
        let folder = |name: &str| {
            let value = std::env::var(name).ok().filter(|it| !it.is_empty());
            value.map(PathBuf::from)
        };
        let of_user =
            folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
        Self {
            named: folder(VARIABLE),
            module: package.join("control-plane"),
            cache: match of_user {
                Some(caches) => caches.join("operating-system-manager"),
                None => workspace.join("target"),
            },
            go: PathBuf::from("go"),
        }
    }

    fn find(&self) -> Result<Assets, AssetsError> {
        if let Some(folder) = &self.named {
            let assets = Assets {
                folder: folder.clone(),
            };
            return match assets.missing() {
                Some(missing) => Err(AssetsError::Incomplete {
                    folder: folder.clone(),
                    missing,
                }),
                None => Ok(assets),
            };
        }
        let assets = self.assets(&self.pins()?);
        // Under the lock from the first look on: test processes start together, and the second
        // one must find what the first one builds.
        let _lock = self.lock()?;
        if assets.missing().is_none() {
            return Ok(assets);
        }
        if !go::is_installed(&self.go) {
            return Err(AssetsError::NoToolchain {
                folder: assets.folder,
            });
        }
        self.build(&assets)?;
        Ok(assets)
    }

    /// Where the binaries of these pins are, once they are built.
    fn assets(&self, pins: &str) -> Assets {
        let digest = Sha256::digest(pins.as_bytes());
        let short = digest.get(..DIGEST_BYTES).unwrap_or(&digest);
        Assets {
            folder: self.cache.join(format!("kube-{}", hex::encode(short))),
        }
    }

    /// Builds beside the final folder and moves the whole, so that the folder is never half full.
    fn build(&self, assets: &Assets) -> Result<(), AssetsError> {
        let unfinished = self.unfinished();
        create_folder(&unfinished)?;
        go::build(&self.go, &self.module, &unfinished).map_err(AssetsError::Go)?;
        match std::fs::remove_dir_all(&assets.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(file(&assets.folder)(error));
            }
            _ => {}
        }
        std::fs::rename(&unfinished, &assets.folder).map_err(file(&assets.folder))
    }

    /// Everything that decides what the binaries are.
    fn pins(&self) -> Result<String, AssetsError> {
        let mut pins = go::FLAGS.join(" ");
        for name in ["go.mod", "go.sum"] {
            let path = self.module.join(name);
            pins.push('\n');
            pins.push_str(&std::fs::read_to_string(&path).map_err(file(&path))?);
        }
        Ok(pins)
    }

    fn unfinished(&self) -> PathBuf {
        self.cache.join("kube.unfinished")
    }

    fn lock(&self) -> Result<File, AssetsError> {
        create_folder(&self.cache)?;
        let path = self.cache.join("kube.lock");
        let lock = File::create(&path).map_err(file(&path))?;
        if lock.try_lock().is_err() {
            if self.unfinished().exists() {
                go::report("waiting for another process that builds the control plane");
            }
            lock.lock().map_err(file(&path))?;
        }
        Ok(lock)
    }
}

fn create_folder(path: &Path) -> Result<(), AssetsError> {
    std::fs::create_dir_all(path).map_err(file(path))
}

fn file(path: &Path) -> impl Fn(io::Error) -> AssetsError {
    let path = path.to_owned();
    move |source| AssetsError::File {
        path: path.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with neither binaries nor Go.
    fn bare(scratch: &Path) -> Search {
        let module = scratch.join("control-plane");
        std::fs::create_dir_all(&module).expect("a temporary folder takes a folder");
        for name in ["go.mod", "go.sum"] {
            std::fs::write(module.join(name), "pins").expect("a temporary folder takes a file");
        }
        Search {
            named: None,
            module,
            cache: scratch.join("cache"),
            go: scratch.join("no-go"),
        }
    }

    fn fill(folder: &Path) {
        create_folder(folder).expect("a temporary folder takes a folder");
        for program in go::PROGRAMS {
            std::fs::write(folder.join(program.name), "").expect("a folder takes a file");
        }
    }

    #[test]
    fn without_assets_and_without_go_the_error_says_what_to_install_and_what_to_set() {
        let scratch = tempfile::tempdir().unwrap();
        let error = bare(scratch.path()).find().unwrap_err().to_string();
        for word in [
            "install Go",
            "https://go.dev/dl",
            "set KUBEBUILDER_ASSETS",
            "cache/kube-",
        ] {
            assert!(error.contains(word), "{word} is not in: {error}");
        }
    }

    #[test]
    fn a_named_folder_that_is_not_complete_is_refused_with_the_name_of_what_is_missing() {
        let scratch = tempfile::tempdir().unwrap();
        let named = scratch.path().join("envtest");
        fill(&named);
        std::fs::remove_file(named.join("kube-controller-manager")).unwrap();
        let search = Search {
            named: Some(named),
            ..bare(scratch.path())
        };
        let error = search.find().unwrap_err().to_string();
        assert!(
            error.contains("where kube-controller-manager is missing"),
            "{error}"
        );
    }

    #[test]
    fn a_named_folder_comes_before_the_built_one() {
        let scratch = tempfile::tempdir().unwrap();
        let named = scratch.path().join("envtest");
        fill(&named);
        let bare = bare(scratch.path());
        fill(bare.assets(&bare.pins().unwrap()).folder());
        let search = Search {
            named: Some(named.clone()),
            ..bare
        };
        assert_eq!(search.find().unwrap().folder(), named);
    }

    #[test]
    fn built_binaries_are_used_until_the_pins_change() {
        let scratch = tempfile::tempdir().unwrap();
        let search = bare(scratch.path());
        let built = search.assets(&search.pins().unwrap()).folder;
        fill(&built);
        assert_eq!(search.find().unwrap().folder(), built);

        std::fs::write(search.module.join("go.sum"), "other pins").unwrap();
        assert!(matches!(
            search.find(),
            Err(AssetsError::NoToolchain { .. })
        ));
    }

    #[test]
    fn a_failed_build_leaves_no_half_full_folder_and_shows_what_go_said() {
        let scratch = tempfile::tempdir().unwrap();
        let go = scratch.path().join("go");
        std::fs::write(
            &go,
            "#!/bin/sh\n[ \"$1\" = version ] || { echo no such module >&2; exit 1; }\n",
        )
        .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&go, mode).unwrap();
        let search = Search {
            go,
            ..bare(scratch.path())
        };
        std::fs::write(search.module.join("go.mod"), "\tk8s.io/kubernetes v1.2.3\n").unwrap();

        let Err(AssetsError::Go(error)) = search.find() else {
            panic!("the build did not fail")
        };
        assert!(error.to_string().contains("no such module"), "{error}");
        let built = search.assets(&search.pins().unwrap());
        assert!(!built.folder().exists());
    }
}
