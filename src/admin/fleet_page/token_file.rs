//! The file with the fleet page's token.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

use super::session::SessionKey;

/// A token is no longer than this: a file that is has been mistaken for one.
pub const TOKEN_BYTES_MAX: u64 = 4_096;
/// A token is no shorter than this: a shorter one would be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// The file. It is read at each request, so that a new token counts at once.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// Set once an obstacle was logged; it is logged again if it comes back.
    is_reported: AtomicBool,
}

/// Why a file has no token.
#[derive(Debug, thiserror::Error)]
enum NoToken {
    #[error("cannot read it")]
    Unreadable(#[source] std::io::Error),
    #[error("its content has fewer than {TOKEN_BYTES_MIN} or more than {TOKEN_BYTES_MAX} bytes")]
    Length,
}

impl TokenFile {
    /// Creates the reader of this file.
    pub const fn new(path: PathBuf) -> Self {
        Self {
            path,
            is_reported: AtomicBool::new(false),
        }
    }

    /// Returns the key that is derived from the token, or `None` if the file has none, which is
    /// logged once.
    pub async fn key(&self) -> Option<SessionKey> {
        let token = read(&self.path).await;
        let is_new = self.is_reported.swap(token.is_err(), Ordering::Relaxed) != token.is_err();
        match token {
            Ok(token) => Some(SessionKey::derive(&token)),
            Err(error) => {
                if is_new {
                    let error = crate::telemetry::chain::chain(&error);
                    let file = self.path.display();
                    tracing::warn!(%file, %error, "--fleet-page-token-file has no token");
                }
                None
            }
        }
    }
}

async fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, NoToken> {
    let file = tokio::fs::File::open(path).await;
    let mut bytes = Zeroizing::new(Vec::new());
    file.map_err(NoToken::Unreadable)?
        .take(TOKEN_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .await
        .map_err(NoToken::Unreadable)?;
    let is_long = bytes.len() as u64 > TOKEN_BYTES_MAX;
    let token = bytes.trim_ascii();
    if is_long || token.len() < TOKEN_BYTES_MIN {
        return Err(NoToken::Length);
    }
    Ok(Zeroizing::new(token.to_vec()))
}
