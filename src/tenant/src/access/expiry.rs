//! Determines when the credentials in a kubeconfig expire: its client certificate, its certificate
//! authority, and its token if that is a JWT. Nothing is verified here. A time is not a secret.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::Deserialize;

use super::{ClusterAccess, principal::claims_of};
use crate::{report::ConditionState, secret_text::SecretText};
use osm_api::reason::Reason;

/// The first warning comes this long before the end, or a fifth of the lifetime if that is less. A
/// credential that lives for an hour and is renewed in time causes no warning.
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);
const SOON_PART: i32 = 5;
/// The second warning comes this long before the end, or a twentieth of the lifetime if that is
/// less.
const VERY_SOON: SignedDuration = SignedDuration::from_hours(7 * 24);
const VERY_SOON_PART: i32 = 20;

/// What the parts are called.
const AUTHORITY: &str = "certificate authority";
const TOKEN: &str = "token";

/// The lifetime of a part of a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    what: &'static str,
    begins: Timestamp,
    ends: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    None,
    Soon,
    VerySoon,
    Expired,
}

impl ClusterAccess {
    /// Returns the parts that expire, if their end is known.
    pub fn expiries(&self) -> Vec<Expiry> {
        // Of a certificate chain the first to expire counts.
        let certificate = self.credential.certificate();
        let certificate = certificate
            .and_then(|pair| validities(&pair.certificate).min_by_key(|(_, ends)| *ends));
        let token = self.credential.token().and_then(token_validity);
        let named = [("client certificate", certificate), (TOKEN, token)];
        let named = named.into_iter().filter_map(|(what, validity)| {
            let (begins, ends) = validity?;
            Some(Expiry { what, begins, ends })
        });
        of_authority(&self.certificate_authority)
            .into_iter()
            .chain(named)
            .collect()
    }
}

/// Returns when the token is to be renewed: once it is as old as this, or after half of its
/// lifetime if that is earlier. `None` if it does not expire.
pub fn token_renewal(expiries: &[Expiry], age: Duration) -> Option<Timestamp> {
    let token = expiries.iter().find(|it| it.what == TOKEN)?;
    let half = token.ends.duration_since(token.begins) / 2;
    let age = SignedDuration::try_from(age).map_or(half, |age| age.min(half));
    token.begins.checked_add(age).ok()
}

/// Returns the lifetime of the certificate in a bundle of authorities that is the last to expire,
/// because a bundle contains old and new ones. `None` if there is no certificate.
pub fn of_authority(pem: &[u8]) -> Option<Expiry> {
    let (begins, ends) = validities(pem).max_by_key(|(_, ends)| *ends)?;
    Some(Expiry {
        what: AUTHORITY,
        begins,
        ends,
    })
}

impl Expiry {
    /// Returns the end.
    pub const fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Returns true if it is time for a warning.
    pub fn is_near(&self, now: Timestamp) -> bool {
        self.priority(now) > Priority::None
    }

    fn priority(&self, now: Timestamp) -> Priority {
        let [soon, very_soon] = self.thresholds();
        if now >= self.ends {
            Priority::Expired
        } else if now >= very_soon {
            Priority::VerySoon
        } else if now >= soon {
            Priority::Soon
        } else {
            Priority::None
        }
    }

    fn thresholds(&self) -> [Timestamp; 2] {
        let lifetime = self.ends.duration_since(self.begins);
        let before = |most: SignedDuration, part: i32| {
            let left = most.min(lifetime / part);
            self.ends.checked_sub(left).unwrap_or(self.ends)
        };
        [before(SOON, SOON_PART), before(VERY_SOON, VERY_SOON_PART)]
    }
}

/// Returns the state of the condition for all parts: the most urgent one, and of those the first to
/// end.
pub fn finding(expiries: &[Expiry], now: Timestamp) -> ConditionState {
    let most_urgent = expiries
        .iter()
        .max_by_key(|expiry| (expiry.priority(now), std::cmp::Reverse(expiry.ends)));
    let priority = most_urgent.map_or(Priority::None, |expiry| expiry.priority(now));
    let (reason, verb) = match priority {
        Priority::None => return ConditionState::well(Reason::Valid),
        Priority::Soon => (Reason::ExpiresSoon, "expires"),
        Priority::VerySoon => (Reason::ExpiresVerySoon, "expires"),
        Priority::Expired => (Reason::Expired, "expired"),
    };
    let message = most_urgent.map(|Expiry { what, ends, .. }| {
        format!("the {what} of the kubeconfig {verb} at {ends}; put a new kubeconfig in its place")
    });
    ConditionState::wrong(reason, message.unwrap_or_default())
}

/// Returns the beginning and end of each certificate's validity. Certificates that cannot be parsed
/// are skipped, because TLS refuses them with a better message.
fn validities(pem: &[u8]) -> impl Iterator<Item = (Timestamp, Timestamp)> {
    CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .filter_map(|der| {
            let (_, certificate) = x509_parser::parse_x509_certificate(&der).ok()?;
            let validity = certificate.validity();
            let begins = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
            let ends = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
            Some((begins, ends))
        })
}

/// The claims of a JWT about its lifetime.
#[derive(Deserialize)]
struct Claims {
    exp: i64,
    iat: Option<i64>,
    nbf: Option<i64>,
}

fn token_validity(token: &SecretText) -> Option<(Timestamp, Timestamp)> {
    let Claims { exp, iat, nbf } = claims_of(token)?;
    let ends = Timestamp::from_second(exp).ok()?;
    // A token without its time of issue may already be old.
    let begins = Timestamp::from_second(iat.or(nbf)?).ok()?;
    Some((begins, ends))
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    fn day(day: i64) -> Timestamp {
        Timestamp::from_second(day * 86_400).unwrap()
    }

    fn an_expiry(what: &'static str, begins: i64, ends: i64) -> Expiry {
        Expiry {
            what,
            begins: day(begins),
            ends: day(ends),
        }
    }

    #[test]
    fn a_token_is_renewed_at_that_age_or_after_half_of_its_life() {
        let due = |ends, age| {
            let token = an_expiry(TOKEN, 0, ends);
            token_renewal(&[an_expiry("client certificate", 0, 1), token], age)
        };
        let one = Duration::from_hours(24);
        assert_eq!(due(7, one), Some(day(1)));
        assert_eq!(due(7, one * 6), Timestamp::from_second(7 * 43_200).ok());
        assert_eq!(due(2, Duration::MAX), Some(day(1)));
        assert_eq!(
            token_renewal(&[an_expiry("client certificate", 0, 1)], one),
            None
        );
    }

    #[test]
    fn a_year_warns_thirty_and_seven_days_before_its_end() {
        let year = [an_expiry("client certificate", 0, 365)];
        for (now, reason) in [
            (0, "Valid"),
            (334, "Valid"),
            (335, "ExpiresSoon"),
            (357, "ExpiresSoon"),
            (358, "ExpiresVerySoon"),
            (364, "ExpiresVerySoon"),
            (365, "Expired"),
        ] {
            let found = finding(&year, day(now));
            assert_eq!(found.reason, reason, "day {now}");
            assert_eq!(found.holds, reason == "Valid");
        }
        let message = finding(&year, day(340)).message;
        assert!(
            message.contains("client certificate") && message.contains("1971-01-01"),
            "{message}"
        );
    }

    #[test]
    fn what_lives_for_a_short_time_warns_only_when_it_is_not_renewed() {
        let hour = Expiry {
            what: "token",
            begins: Timestamp::UNIX_EPOCH,
            ends: Timestamp::from_second(3_600).unwrap(),
        };
        for (second, reason) in [
            (0, "Valid"),
            (2_879, "Valid"),
            (2_881, "ExpiresSoon"),
            (3_421, "ExpiresVerySoon"),
        ] {
            let now = Timestamp::from_second(second).unwrap();
            assert_eq!(finding(&[hour], now).reason, reason, "{second}");
        }
    }

    #[test]
    fn the_most_urgent_is_reported() {
        let all = [
            an_expiry("certificate authority", 0, 3_650),
            an_expiry("client certificate", 0, 380),
            an_expiry("token", 0, 370),
        ];
        assert!(finding(&all, day(355)).message.contains("the token"));
        assert!(finding(&all, day(371)).message.contains("the token"));
        assert_eq!(finding(&all, day(300)).reason, "Valid");
        assert_eq!(finding(&[], day(0)).reason, "Valid");
    }

    #[test]
    fn the_ends_are_read_from_certificates_and_tokens() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let short = params.self_signed(&key).unwrap().pem();
        params.not_after = rcgen::date_time_ymd(2028, 1, 1);
        let long = params.self_signed(&key).unwrap().pem();
        let bundle = format!("{short}{long}");
        let ends: Vec<String> = validities(bundle.as_bytes())
            .map(|(_, ends)| ends.to_string())
            .collect();
        assert_eq!(ends, ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]);
        assert_eq!(validities(b"no PEM").count(), 0);
        let jwt =
            |claims: &str| SecretText::new(format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims)));
        let read = token_validity(&jwt(r#"{"exp":86400,"iat":0,"sub":"x"}"#));
        assert_eq!(read, Some((day(0), day(1))));
        for text in [r#"{"iat":0}"#, r#"{"exp":"soon","iat":0}"#, "nothing"] {
            assert_eq!(token_validity(&jwt(text)), None, "{text}");
        }
        assert_eq!(token_validity(&SecretText::new("opaque".to_owned())), None);
    }
}
