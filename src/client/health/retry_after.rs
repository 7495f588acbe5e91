//! Parses the header `Retry-After`, in seconds or as a date.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use jiff::{Timestamp, fmt::rfc2822};

/// Returns the time that an overloaded server asks us to wait. With other statuses the header is
/// ignored, because it concerns one request only.
pub fn retry_after(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let is_overloaded = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ]
    .contains(&status);
    let asked = headers.get(RETRY_AFTER).filter(|_| is_overloaded)?;
    let asked = asked.to_str().ok()?.trim();
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = rfc2822::DateTimeParser::new().parse_timestamp(asked).ok()?;
    // A date in the past requests no wait.
    Duration::try_from(until.duration_since(now)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nothing_else() {
        let now: Timestamp = "1994-11-06T08:49:07Z".parse().unwrap();
        for (status, header, expected) in [
            (429, "7", Some(7)),
            (503, " 0 ", Some(0)),
            (503, "Sun, 06 Nov 1994 08:49:37 GMT", Some(30)),
            (429, "Sun, 06 Nov 1994 08:48:37 GMT", None),
            (429, "soon", None),
            (429, "-1", None),
            (429, "99999999999999999999999", None),
            (500, "7", None),
            (200, "7", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, header.parse().unwrap())]);
            let status = StatusCode::from_u16(status).unwrap();
            let found = retry_after(status, &headers, now);
            assert_eq!(
                found,
                expected.map(Duration::from_secs),
                "{status} {header}"
            );
        }
    }
}
