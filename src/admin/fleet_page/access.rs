//! Access to the fleet page: this machine, where the port is on loopback; else clients that have
//! the token, or a session that was issued for it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use jiff::Timestamp;
use tokio::time::Instant;

use super::attempts::Attempts;
use super::browser::{is_form, is_same_origin};
use super::session::SessionKey;
use super::token_file::TokenFile;
use crate::admin::hosts::is_host_of;
use crate::port::Source;

/// Decides who may see the page.
pub struct Access {
    rule: Rule,
    /// The names under which browsers may sign in, besides addresses and `localhost`.
    hosts: Arc<[String]>,
    attempts: Attempts,
    /// The wall clock, by which sessions end.
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Set once a request that was refused without a token was logged.
    is_reported: AtomicBool,
}

/// The parts of an [`Access`].
pub struct AccessParams {
    /// Where the port listens.
    pub address: SocketAddr,
    /// The file with the token.
    pub token_file: Option<PathBuf>,
    /// The names under which browsers may sign in, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The wall clock, by which sessions end.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

#[derive(Debug)]
enum Rule {
    /// No client: the port is open to others, and no token is set.
    Nobody,
    /// Every client of the port, which only this machine reaches, and under names of its own.
    Loopback,
    /// Clients that send the token in this file, or a session that was issued for it.
    Token(TokenFile),
}

/// Why a request is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// It comes from this machine.
    Loopback,
    /// It has the token.
    Bearer,
    /// It has a session.
    Session,
}

/// Why somebody does not see the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no page here.
    NotServed,
    /// The request names a host that is not this machine, or not known: a page of somebody else's
    /// whose name leads here would read ours.
    AnotherName,
    /// The form was sent by another page.
    ForeignOrigin,
    /// The request should have been a form.
    NotAForm,
    /// The request has neither a token nor a session.
    NoToken,
    /// The token is not the one in the file.
    WrongToken,
    /// The file has no token.
    NoTokenIsSet,
    /// The source has sent too many tokens. It has to wait this long.
    TooManyAttempts(Duration),
    /// No tenant has this registration.
    NoTenant,
    /// The page cannot be made.
    Failed,
}

/// The parts of a request that decide about it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Where it came from.
    pub source: Source,
}

impl Access {
    /// Creates the rule for a port at this address. A token is asked for wherever one is set.
    pub fn new(params: AccessParams) -> Self {
        let rule = match params.token_file {
            Some(path) => Rule::Token(TokenFile::new(path)),
            None if params.address.ip().to_canonical().is_loopback() => Rule::Loopback,
            None => Rule::Nobody,
        };
        Self {
            rule,
            hosts: params.hosts.into(),
            attempts: Attempts::default(),
            now: params.now,
            is_reported: AtomicBool::new(false),
        }
    }

    /// Returns the names under which browsers may sign in.
    pub fn hosts(&self) -> Arc<[String]> {
        Arc::clone(&self.hosts)
    }

    /// Lets a request in, or says why not.
    ///
    /// # Errors
    ///
    /// The request has neither a valid token nor a session, comes from another machine while none
    /// is set, or its source has sent too many tokens.
    pub async fn admit(&self, asked: Asked<'_>) -> Result<Admitted, Refusal> {
        match &self.rule {
            Rule::Nobody => {
                if !self.is_reported.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "somebody asked for the fleet page; beyond loopback it is served with \
                         --fleet-page-token-file only"
                    );
                }
                Err(Refusal::NotServed)
            }
            Rule::Loopback => Ok(Admitted::Loopback),
            Rule::Token(file) => self.admit_by_token(file, asked).await,
        }
    }

    async fn admit_by_token(
        &self,
        file: &TokenFile,
        asked: Asked<'_>,
    ) -> Result<Admitted, Refusal> {
        if let Some(sent) = bearer(asked.headers) {
            self.compare(file, (sent, asked.source)).await?;
            return Ok(Admitted::Bearer);
        }
        // A browser sends the session under each name that leads here; a program that has the token
        // chooses the name itself.
        if !is_host_of(asked.headers, &self.hosts) {
            return Err(Refusal::AnotherName);
        }
        let key = file.key().await.ok_or(Refusal::NoTokenIsSet)?;
        if key.admits(asked.headers, (self.now)()) {
            Ok(Admitted::Session)
        } else {
            Err(Refusal::NoToken)
        }
    }

    /// Compares a token with that of the file, and returns its key. The attempt counts before.
    async fn compare(
        &self,
        file: &TokenFile,
        (sent, source): (&[u8], Source),
    ) -> Result<SessionKey, Refusal> {
        let attempt = self.attempts.begin(source, Instant::now());
        attempt.map_err(Refusal::TooManyAttempts)?;
        let key = file.key().await.ok_or(Refusal::NoTokenIsSet)?;
        if !key.is(&SessionKey::derive(sent)) {
            return Err(Refusal::WrongToken);
        }
        self.attempts.succeeded(source);
        Ok(key)
    }

    /// Checks, before its body is read, that a form was sent by our own page.
    ///
    /// # Errors
    ///
    /// There is nothing to sign in to, the host is not known, another page sent the form, or it is
    /// no form.
    pub fn accept_form(&self, headers: &HeaderMap) -> Result<Form<'_>, Refusal> {
        let Rule::Token(file) = &self.rule else {
            return Err(Refusal::NotServed);
        };
        if !is_host_of(headers, &self.hosts) {
            return Err(Refusal::AnotherName);
        }
        if !is_same_origin(headers) {
            return Err(Refusal::ForeignOrigin);
        }
        if !is_form(headers) {
            return Err(Refusal::NotAForm);
        }
        Ok(Form { access: self, file })
    }
}

/// A form of our own page.
pub struct Form<'a> {
    access: &'a Access,
    file: &'a TokenFile,
}

/// A cookie: its name and its value.
pub struct Cookie(pub String, pub String);

impl Form<'_> {
    /// Returns the session of a browser that sent the token.
    ///
    /// # Errors
    ///
    /// The token is not the one in the file, the file has none, or the source has sent too many.
    pub async fn sign_in(&self, token: &[u8], source: Source) -> Result<Cookie, Refusal> {
        let key = self.access.compare(self.file, (token, source)).await?;
        let session = key.issue((self.access.now)());
        Ok(Cookie(key.cookie_name(), session))
    }

    /// Returns the name of the cookie that a browser has to forget, or `None` if the file has no
    /// token.
    pub async fn sign_out(&self) -> Option<String> {
        let key = self.file.key().await;
        key.map(|key| key.cookie_name())
    }
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
    use std::path::Path;
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
    async fn admit(access: &Access, headers: &HeaderMap) -> Result<Admitted, Refusal> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let source = Source::of(Ipv4Addr::from_bits(number).into());
        access.admit(Asked { headers, source }).await
    }

    fn access(address: &str, file: Option<&Path>) -> Access {
        Access::new(AccessParams {
            address: address.parse().unwrap(),
            token_file: file.map(Path::to_owned),
            hosts: vec!["osm.example".to_owned()],
            now: Arc::new(|| Timestamp::from_second(1_000_000).unwrap()),
        })
    }

    #[tokio::test]
    async fn where_there_is_no_token_the_page_is_for_this_machine_alone() {
        for (address, expected) in [
            ("127.0.0.1:1", Ok(Admitted::Loopback)),
            ("127.9.9.9:1", Ok(Admitted::Loopback)),
            ("[::1]:1", Ok(Admitted::Loopback)),
            ("[::ffff:127.0.0.1]:1", Ok(Admitted::Loopback)),
            ("0.0.0.0:1", Err(Refusal::NotServed)),
            ("[::]:1", Err(Refusal::NotServed)),
            ("10.0.0.1:1", Err(Refusal::NotServed)),
        ] {
            // A token that nobody asked for opens nothing.
            let authorization = format!("Bearer {TOKEN}");
            let sent = headers(&[("host", "localhost"), ("authorization", &authorization)]);
            let admitted = admit(&access(address, None), &sent).await;
            assert_eq!(admitted, expected, "{address}");
        }
    }

    #[tokio::test]
    async fn where_there_is_a_token_it_is_asked_for_wherever_the_port_is() {
        let file = a_file(&format!("{TOKEN}\n"));
        for address in ["127.0.0.1:1", "0.0.0.0:1"] {
            let access = access(address, Some(file.path()));
            for (sent, expected) in [
                (format!("Bearer {TOKEN}"), Ok(Admitted::Bearer)),
                (format!("bearer  {TOKEN}"), Ok(Admitted::Bearer)),
                (format!("Bearer {TOKEN}x"), Err(Refusal::WrongToken)),
                ("Bearer s3cr3t".to_owned(), Err(Refusal::WrongToken)),
                ("Bearer ".to_owned(), Err(Refusal::WrongToken)),
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
        assert_eq!(admit(&access, &with(TOKEN)).await, Ok(Admitted::Bearer));
        std::fs::write(file.path(), "another-of-sixteen-bytes").unwrap();
        let another = with("another-of-sixteen-bytes");
        assert_eq!(admit(&access, &with(TOKEN)).await, Err(Refusal::WrongToken));
        assert_eq!(admit(&access, &another).await, Ok(Admitted::Bearer));
        for content in ["", "\n", "short", &"long".repeat(2_000)] {
            std::fs::write(file.path(), content).unwrap();
            for token in ["", content.trim(), TOKEN] {
                let admitted = admit(&access, &with(token)).await;
                assert_eq!(admitted, Err(Refusal::NoTokenIsSet), "{token:?}");
            }
        }
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!(admit(&access, &another).await, Err(Refusal::NoTokenIsSet));
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
            assert_eq!(
                ask(&right, 1).await,
                Ok(Admitted::Bearer),
                "the right token is free"
            );
        }
        for _ in 0..10 {
            assert_eq!(ask(&wrong, 1).await, Err(Refusal::WrongToken));
        }
        let minute = Duration::from_mins(1);
        let expected = Err(Refusal::TooManyAttempts(minute));
        assert_eq!(ask(&right, 1).await, expected);
        assert_eq!(ask(&right, 2).await, Ok(Admitted::Bearer));
        let none = headers(&[("host", "localhost")]);
        assert_eq!(ask(&none, 1).await, Err(Refusal::NoToken));
        tokio::time::advance(minute).await;
        assert_eq!(ask(&right, 1).await, Ok(Admitted::Bearer));
    }
}
