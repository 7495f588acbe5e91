//! What can go wrong with a control plane. Every failure of a component carries the end of its
//! log, because its data are gone by the time somebody reads the message.

use std::error::Error as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::{fmt, io};

use super::{ApplyError, AssetsError};

/// Why a control plane did not start, or could not do what was asked.
#[derive(thiserror::Error)]
pub enum Error {
    /// There is nothing to run.
    #[error("finding the control plane's binaries")]
    Assets(#[source] AssetsError),
    /// No folder with free ports.
    #[error("claiming a folder and ports")]
    Slot(#[source] io::Error),
    /// The list of tested servers.
    #[error("adding to the list of tested servers")]
    Record(#[source] io::Error),
    /// Keys and certificates.
    #[error("making keys and certificates")]
    Certificates(#[source] rcgen::Error),
    /// A file of the cluster's folder.
    #[error("using the file {path}")]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A component could not be started at all, or not be waited for.
    #[error("running {component}")]
    Spawn {
        /// Which component.
        component: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A component ended by itself.
    #[error("{component} ended ({status}); the end of its log:\n{log}")]
    Ended {
        /// Which component.
        component: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it wrote.
        log: String,
    },
    /// A component runs and does not become ready.
    #[error("{component} was not ready in time ({reason}); the end of its log:\n{log}")]
    NotReady {
        /// Which component.
        component: &'static str,
        /// The last answer.
        reason: String,
        /// The last lines that it wrote.
        log: String,
    },
    /// A kubeconfig cannot be read.
    #[error("reading a kubeconfig")]
    Kubeconfig(#[source] kube::config::KubeconfigError),
    /// The settings of a kubeconfig do not make a client.
    #[error("making a client")]
    Client(#[source] Box<kube::Error>),
    /// The API server refused or did not answer.
    #[error("asking the API server to {doing}")]
    Api {
        /// What it was asked to do.
        doing: &'static str,
        /// Its answer.
        source: Box<kube::Error>,
    },
    /// Objects could not be applied.
    #[error("applying objects")]
    Apply(#[source] ApplyError),
}

impl Error {
    /// For `map_err` on a request.
    pub(super) fn api(doing: &'static str) -> impl Fn(kube::Error) -> Self {
        move |source| Self::Api {
            doing,
            source: Box::new(source),
        }
    }
}

/// The chain, as text: a failed test prints `Debug`, and a derived one would escape every line
/// end of the log.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")?;
        let mut cause = self.source();
        while let Some(error) = cause {
            write!(formatter, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
