//! Sessions of browsers that have signed in to the fleet page, as values in a cookie.
//!
//! Nothing is stored: a session is its expiry with a MAC, whose key is derived from the token. So
//! every replica with the same token accepts it, and another token ends all sessions. It is not
//! renewed: cookies ignore ports, so other servers on the same host receive it, and what they could
//! use it for must end soon.

use std::time::Duration;

use axum::http::HeaderMap;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::browser::cookies;

/// How long a session lasts. One hour: long enough for an incident, and short for a cookie that
/// cannot be revoked alone and that other servers on the same host receive.
pub const LIFETIME: Duration = Duration::from_hours(1);
/// How far the clocks of replicas may differ, in seconds.
const CLOCK_SKEW: i64 = 60;

/// Separates the key from every other use of the token.
const KEY: &[u8] = b"operatingsystemmanager.k8c.io/fleet-page session v1";
/// Separates the key's id from sessions.
const NAME: &[u8] = b"name";
/// Separates sessions from the key's id.
const SESSION: &[u8] = b"session";
/// The characters of the key's id in the cookie's name. Pages behind two forwarded ports share the
/// cookies of `localhost`, and must not end each other's sessions.
const ID_CHARACTERS: usize = 8;

/// The key of the sessions of one token.
pub struct SessionKey(Zeroizing<[u8; 32]>);

impl SessionKey {
    /// Derives the key from a token.
    pub fn derive(token: &[u8]) -> Self {
        let key = mac(token).chain_update(KEY).finalize();
        Self(Zeroizing::new(key.into_bytes().into()))
    }

    /// Returns true if both keys have been derived from the same token. The time that it takes says
    /// nothing about the tokens, not even their lengths.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(other.0.as_slice()).into()
    }

    /// Returns the name of the cookie.
    pub fn cookie_name(&self) -> String {
        let mut id = hex::encode(self.mac(NAME).finalize().into_bytes());
        id.truncate(ID_CHARACTERS);
        format!("osm-fleet-{id}")
    }

    /// Returns the value of a cookie that is a session from now on.
    pub fn issue(&self, now: Timestamp) -> String {
        let expiry = now.as_second().saturating_add(lifetime());
        let tag = self.tag(&expiry.to_string()).finalize().into_bytes();
        format!("{expiry}.{}", hex::encode(tag))
    }

    /// Returns true if one of the cookies of a request is a session that has not expired.
    pub fn admits(&self, headers: &HeaderMap, now: Timestamp) -> bool {
        let name = self.cookie_name();
        // Another server on the same host can set cookies of the same name, so each is tried.
        cookies(headers, &name).any(|value| self.is_session(value, now))
    }

    fn is_session(&self, value: &str, now: Timestamp) -> bool {
        let Some((expiry, tag)) = value.split_once('.') else {
            return false;
        };
        let Ok(tag) = hex::decode(tag) else {
            return false;
        };
        if self.tag(expiry).verify_slice(&tag).is_err() {
            return false;
        }
        let now = now.as_second();
        let latest = now.saturating_add(lifetime() + CLOCK_SKEW);
        let expiry = expiry.parse::<i64>();
        expiry.is_ok_and(|expiry| now < expiry && expiry <= latest)
    }

    fn tag(&self, expiry: &str) -> Hmac<Sha256> {
        self.mac(SESSION).chain_update(expiry)
    }

    fn mac(&self, purpose: &[u8]) -> Hmac<Sha256> {
        mac(self.0.as_slice()).chain_update(purpose)
    }
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC accepts a key of any length")
}

/// Returns the lifetime in seconds.
const fn lifetime() -> i64 {
    LIFETIME.as_secs().cast_signed()
}

#[cfg(test)]
mod tests {
    use axum::http::header::COOKIE;

    use super::*;

    const TOKEN: &[u8] = b"s3cr3t-of-sixteen-bytes";

    fn after(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn with_cookies(cookies: &[String]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for cookie in cookies {
            headers.append(COOKIE, cookie.parse().unwrap());
        }
        headers
    }

    fn sends(key: &SessionKey, value: &str) -> HeaderMap {
        with_cookies(&[format!("{}={value}", key.cookie_name())])
    }

    #[test]
    fn a_session_lasts_an_hour_at_every_holder_of_the_token_and_nowhere_else() {
        let key = SessionKey::derive(TOKEN);
        let value = key.issue(after(0));
        let sent = sends(&key, &value);
        for (at, expected) in [
            (0, true),
            (3_599, true),
            (3_600, false),
            // Clocks may differ by a minute.
            (-60, true),
            (-61, false),
        ] {
            let of_another_replica = SessionKey::derive(TOKEN);
            let admitted = of_another_replica.admits(&sent, after(at));
            assert_eq!(admitted, expected, "{at}");
        }
        let rotated = SessionKey::derive(b"another-of-sixteen-bytes");
        assert!(!key.is(&rotated) && key.is(&SessionKey::derive(TOKEN)));
        assert_ne!(rotated.cookie_name(), key.cookie_name());
        assert!(!rotated.admits(&sent, after(0)));
        assert!(!rotated.admits(&sends(&rotated, &value), after(0)));
    }

    #[test]
    fn a_changed_session_is_refused() {
        let key = SessionKey::derive(TOKEN);
        let value = key.issue(after(0));
        let (expiry, tag) = value.split_once('.').unwrap();
        let later = expiry.parse::<i64>().unwrap() + 1;
        for forged in [
            String::new(),
            expiry.to_owned(),
            format!("{expiry}."),
            format!("{expiry}.{}", &tag[..62]),
            format!("{expiry}.{tag}00"),
            format!("{later}.{tag}"),
            format!("0{expiry}.{tag}"),
            format!("{expiry}.{}", "0".repeat(64)),
        ] {
            let admitted = key.admits(&sends(&key, &forged), after(0));
            assert!(!admitted, "{forged}");
        }
    }

    #[test]
    fn cookies_that_others_set_do_not_hide_a_session() {
        let key = SessionKey::derive(TOKEN);
        let name = key.cookie_name();
        let value = key.issue(after(0));
        let foreign = with_cookies(&[
            format!("a=b; {name}=forged; {name}"),
            format!("{name}=forged;{name}={value}; c=d"),
        ]);
        assert!(key.admits(&foreign, after(0)));
        let of_another_name = with_cookies(&[format!("x{name}={value}; {name}x={value}")]);
        assert!(!key.admits(&of_another_name, after(0)));
    }
}
