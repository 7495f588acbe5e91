//! Access to the fleet page: this machine, where the port is on loopback; else clients that have
//! the token.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use subtle::ConstantTimeEq;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::attempts::Attempts;
use super::browser::names_this_machine;
use crate::port::Source;

/// A token is no longer than this: a file that is has been mistaken for one.
const TOKEN_BYTES_MAX: u64 = 4_096;
/// A token is no shorter than this: a shorter one would be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Decides who may see the page.
#[derive(Debug)]
pub struct Access {
    rule: Rule,
    attempts: Attempts,
    /// Set once an obstacle was logged; it is logged again if it comes back.
    is_told: AtomicBool,
}

#[derive(Debug)]
enum Rule {
    /// No client: the port is open to others, and no token is set.
    Nobody,
    /// Every client of the port, which only this machine reaches.
    Loopback,
    /// Clients that send the token in this file.
    Token(PathBuf),
}

/// Why somebody does not see the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no page here.
    NotServed,
    /// The request names a host that is not this machine: a page of somebody else's whose name
    /// leads here would read ours.
    AnotherName,
    /// The token is missing or wrong, or the file has none.
    NoToken,
    /// The source has sent too many tokens. It has to wait this long.
    TooManyAttempts(Duration),
}

/// The parts of a request that decide about it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Where it came from.
    pub source: Source,
}

/// Why a file has no token.
#[derive(Debug, thiserror::Error)]
enum NoToken {
    #[error("cannot read it")]
    Unreadable(#[source] std::io::Error),
    #[error("its content has fewer than {TOKEN_BYTES_MIN} or more than {TOKEN_BYTES_MAX} bytes")]
    Length,
}

impl Access {
    /// The rule for a port at this address. A token is asked for wherever one is set.
    pub fn at(address: SocketAddr, token_file: Option<PathBuf>) -> Self {
        let rule = match token_file {
            Some(path) => Rule::Token(path),
            None if address.ip().to_canonical().is_loopback() => Rule::Loopback,
            None => Rule::Nobody,
        };
        Self {
            rule,
            attempts: Attempts::default(),
            is_told: AtomicBool::new(false),
        }
    }

    /// Lets a request in, or says why not.
    ///
    /// # Errors
    ///
    /// The request has no valid token, comes from another machine while none is set, or its source
    /// has sent too many tokens.
    pub async fn admit(&self, asked: Asked<'_>) -> Result<(), Refusal> {
        match &self.rule {
            Rule::Nobody => {
                if !self.is_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "somebody asked for the fleet page; beyond loopback it is served with \
                         --fleet-page-token-file only"
                    );
                }
                Err(Refusal::NotServed)
            }
            Rule::Loopback if names_this_machine(asked.headers) => Ok(()),
            Rule::Loopback => Err(Refusal::AnotherName),
            Rule::Token(path) => self.compare(path, asked).await,
        }
    }

    /// Reads the file at each request, so that a new token counts at once.
    async fn compare(&self, path: &Path, asked: Asked<'_>) -> Result<(), Refusal> {
        let Some(sent) = bearer(asked.headers) else {
            return Err(Refusal::NoToken);
        };
        let attempt = self.attempts.begin(asked.source, Instant::now());
        attempt.map_err(Refusal::TooManyAttempts)?;
        let token = read(path).await;
        let is_new = self.is_told.swap(token.is_err(), Ordering::Relaxed) != token.is_err();
        match token {
            Ok(token) if bool::from(token.ct_eq(sent)) => {
                self.attempts.succeeded(asked.source);
                Ok(())
            }
            Ok(_) => Err(Refusal::NoToken),
            Err(error) => {
                if is_new {
                    let error = crate::telemetry::chain::chain(&error);
                    let file = path.display();
                    tracing::warn!(%file, %error, "--fleet-page-token-file has no token");
                }
                Err(Refusal::NoToken)
            }
        }
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, NoToken> {
    let file = tokio::fs::File::open(path).await;
    let mut bytes = Vec::new();
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
    Ok(token.to_vec())
}

/// The scheme is a word in any case.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    let token = scheme.eq_ignore_ascii_case(BEARER).then_some(token)?;
    Some(token.trim_ascii())
}

const BEARER: &[u8] = b"bearer ";

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicU32;

    use super::*;

    const TOKEN: &str = "s3cr3t-of-sixteen-bytes";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = axum::http::HeaderName::from_static(name);
            (name, value.parse().expect("a value of a header"))
        });
        pairs.collect()
    }

    fn a_file(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    /// Asks from a source of its own, so that nothing is refused for its attempts.
    async fn admit(access: &Access, headers: &HeaderMap) -> Result<(), Refusal> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let source = Source::of(Ipv4Addr::from_bits(number).into());
        access.admit(Asked { headers, source }).await
    }

    fn access(address: &str, file: Option<&Path>) -> Access {
        Access::at(address.parse().unwrap(), file.map(Path::to_owned))
    }

    #[tokio::test]
    async fn where_there_is_no_token_the_page_is_for_this_machine_alone() {
        for (address, host, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", Ok(())),
            ("127.0.0.1:1", "127.0.0.1", Ok(())),
            ("127.0.0.1:1", "LOCALHOST:8080", Ok(())),
            ("127.9.9.9:1", "localhost", Ok(())),
            ("[::1]:1", "[::1]:8080", Ok(())),
            ("[::1]:1", "[::1]", Ok(())),
            ("[::ffff:127.0.0.1]:1", "localhost", Ok(())),
            ("127.0.0.1:1", "evil.example:1", Err(Refusal::AnotherName)),
            (
                "127.0.0.1:1",
                "localhost.evil.example",
                Err(Refusal::AnotherName),
            ),
            ("127.0.0.1:1", "", Err(Refusal::AnotherName)),
            ("0.0.0.0:1", "localhost", Err(Refusal::NotServed)),
            ("[::]:1", "localhost", Err(Refusal::NotServed)),
            ("10.0.0.1:1", "10.0.0.1", Err(Refusal::NotServed)),
        ] {
            // A token that nobody asked for opens nothing.
            let authorization = format!("Bearer {TOKEN}");
            let sent = headers(&[("host", host), ("authorization", &authorization)]);
            let admitted = admit(&access(address, None), &sent).await;
            assert_eq!(admitted, expected, "{address} as {host:?}");
        }
        let nameless = admit(&access("127.0.0.1:1", None), &HeaderMap::new()).await;
        assert_eq!(nameless, Err(Refusal::AnotherName));
    }

    #[tokio::test]
    async fn where_there_is_a_token_it_is_asked_for_wherever_the_port_is() {
        let file = a_file(&format!("{TOKEN}\n"));
        for address in ["127.0.0.1:1", "0.0.0.0:1"] {
            let access = access(address, Some(file.path()));
            for (sent, expected) in [
                (format!("Bearer {TOKEN}"), Ok(())),
                (format!("bearer  {TOKEN}"), Ok(())),
                (format!("Bearer {TOKEN}x"), Err(Refusal::NoToken)),
                ("Bearer s3cr3t".to_owned(), Err(Refusal::NoToken)),
                ("Bearer ".to_owned(), Err(Refusal::NoToken)),
                ("Bearer".to_owned(), Err(Refusal::NoToken)),
                (format!("Basic {TOKEN}"), Err(Refusal::NoToken)),
                (TOKEN.to_owned(), Err(Refusal::NoToken)),
            ] {
                let sent = headers(&[("host", "osm.example"), ("authorization", &sent)]);
                let admitted = admit(&access, &sent).await;
                assert_eq!(admitted, expected, "{sent:?} at {address}");
            }
            let nothing = headers(&[("host", "localhost")]);
            assert_eq!(admit(&access, &nothing).await, Err(Refusal::NoToken));
        }
    }

    #[tokio::test]
    async fn the_file_is_read_at_each_request_and_one_without_a_token_opens_nothing() {
        let file = a_file(TOKEN);
        let access = access("0.0.0.0:1", Some(file.path()));
        let with = |token: &str| headers(&[("authorization", &format!("Bearer {token}"))]);
        assert_eq!(admit(&access, &with(TOKEN)).await, Ok(()));
        std::fs::write(file.path(), "another-of-sixteen-bytes").unwrap();
        let another = with("another-of-sixteen-bytes");
        assert_eq!(admit(&access, &with(TOKEN)).await, Err(Refusal::NoToken));
        assert_eq!(admit(&access, &another).await, Ok(()));
        for content in ["", "\n", "short", &"long".repeat(2_000)] {
            std::fs::write(file.path(), content).unwrap();
            for token in ["", content.trim(), TOKEN] {
                let admitted = admit(&access, &with(token)).await;
                assert_eq!(admitted, Err(Refusal::NoToken), "{token:?}");
            }
        }
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!(admit(&access, &another).await, Err(Refusal::NoToken));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_tries_tokens_has_to_wait_and_hinders_no_other() {
        let file = a_file(TOKEN);
        let access = access("0.0.0.0:1", Some(file.path()));
        let [right, wrong] = [TOKEN, "wrong-of-sixteen-bytes"]
            .map(|token| headers(&[("authorization", &format!("Bearer {token}"))]));
        let ask = async |headers, number| {
            let source = Source::of([10, 0, 0, number].into());
            access.admit(Asked { headers, source }).await
        };
        for _ in 0..30 {
            assert_eq!(ask(&right, 1).await, Ok(()), "the right token is free");
        }
        for _ in 0..10 {
            assert_eq!(ask(&wrong, 1).await, Err(Refusal::NoToken));
        }
        let minute = Duration::from_mins(1);
        let expected = Err(Refusal::TooManyAttempts(minute));
        assert_eq!(ask(&right, 1).await, expected);
        assert_eq!(ask(&right, 2).await, Ok(()));
        let none = HeaderMap::new();
        assert_eq!(ask(&none, 1).await, Err(Refusal::NoToken));
        tokio::time::advance(minute).await;
        assert_eq!(ask(&right, 1).await, Ok(()));
    }
}
