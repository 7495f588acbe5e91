//! A certificate in a folder, as Kubernetes mounts a Secret of type `kubernetes.io/tls`. It is read
//! again and again: the program that renews it need not notify us.

use std::{io, path::PathBuf, time::Duration};

use tokio::sync::watch;

use super::identity::{Identity, IdentityError};
use crate::telemetry::{chain::chain, metrics::Metrics};

const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
/// The kubelet brings another content of a Secret within a minute or two.
const LOOK: Duration = Duration::from_secs(10);

/// Why a folder gives no certificate. The one before stays in use.
#[derive(Debug, thiserror::Error)]
pub enum FileWatcherError {
    /// A file cannot be read.
    #[error("cannot read {file} of the certificate folder")]
    Read {
        /// The file.
        file: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The files do not hold an identity.
    #[error("tls.crt and tls.key of the certificate folder cannot be used")]
    Unusable(#[from] IdentityError),
}

/// A folder with a certificate.
#[derive(Debug)]
pub struct FileWatcher {
    path: PathBuf,
    shown: watch::Sender<Option<Identity>>,
    metrics: Metrics,
    seen: Option<Files>,
    /// The error that was logged last, so that it is logged once.
    logged: Option<String>,
}

/// The content of both files.
#[derive(PartialEq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Files")
    }
}

impl FileWatcher {
    /// A folder, and who is shown what is in it.
    pub fn new(path: PathBuf, shown: watch::Sender<Option<Identity>>, metrics: Metrics) -> Self {
        Self {
            path,
            shown,
            metrics,
            seen: None,
            logged: None,
        }
    }

    /// Watches the folder until cancelled.
    pub async fn run(mut self) {
        loop {
            match self.check().await {
                Ok(()) => self.logged = None,
                Err(error) => self.report(&error),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Looks once, and shows what is new.
    ///
    /// # Errors
    ///
    /// The files cannot be read, or are no certificate with its key.
    pub async fn check(&mut self) -> Result<(), FileWatcherError> {
        let files = Files {
            certificate: self.read(CERTIFICATE).await?,
            key: self.read(KEY).await?,
        };
        if self.seen.as_ref() == Some(&files) {
            return Ok(());
        }
        let identity = Identity::from_pem(&files.certificate, &files.key)?;
        tracing::info!(ends = %identity.ends(), "a certificate was read");
        self.metrics.set_certificate_end(identity.ends());
        self.shown.send_replace(Some(identity));
        self.seen = Some(files);
        Ok(())
    }

    async fn read(&self, file: &'static str) -> Result<Vec<u8>, FileWatcherError> {
        let read = tokio::fs::read(self.path.join(file)).await;
        read.map_err(|source| FileWatcherError::Read { file, source })
    }

    fn report(&mut self, error: &FileWatcherError) {
        let error = chain(error).to_string();
        if self.logged.as_ref() != Some(&error) {
            tracing::warn!(
                error,
                "the certificate cannot be read, and the one before stays"
            );
        }
        self.logged = Some(error);
    }
}
