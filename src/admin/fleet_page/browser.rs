//! What the headers of a request say about the page that sent it.

use axum::http::{HeaderMap, HeaderName, header};

use crate::admin::hosts::only;

/// Sent by browsers: how the page that made a request is related to this server.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Sent by proxies: the scheme of the client's request.
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORM: &str = "application/x-www-form-urlencoded";

/// Returns true if a request was sent by a page of the same origin. Cookies ignore ports, also with
/// `SameSite=Strict`; an origin does not.
pub fn is_same_origin(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    if sites.any(|site| site != "same-origin") {
        return false;
    }
    let origin = only(headers, &header::ORIGIN);
    let authority = origin.and_then(|it| {
        it.strip_prefix("http://")
            .or_else(|| it.strip_prefix("https://"))
    });
    match (authority, only(headers, &header::HOST)) {
        (Some(authority), Some(host)) => authority.eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// Returns true if the body is a form, as the sign-in page sends it.
pub fn is_form(headers: &HeaderMap) -> bool {
    let kind = only(headers, &header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case(FORM)
}

/// Returns true if a proxy says that the client uses TLS.
pub fn is_over_tls(headers: &HeaderMap) -> bool {
    only(headers, &X_FORWARDED_PROTO).is_some_and(|it| it.eq_ignore_ascii_case("https"))
}

/// Returns the values of all cookies of this name.
pub fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let headers = headers.get_all(header::COOKIE).iter();
    let pairs = headers.filter_map(|it| it.to_str().ok());
    let pairs = pairs.flat_map(|it| it.split(';'));
    let pairs = pairs.filter_map(|pair| pair.trim().split_once('='));
    pairs.filter_map(move |(key, value)| (key == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().expect("a value of a header"));
        }
        headers
    }

    #[test]
    fn a_page_of_another_port_or_site_is_of_another_origin() {
        const HOST: (&str, &str) = ("host", "localhost:8080");
        for (origin, expected) in [
            ("http://localhost:8080", true),
            ("https://LOCALHOST:8080", true),
            ("http://localhost", false),
            ("http://localhost:9090", false),
            ("http://localhost:8080.evil.example", false),
            ("ftp://localhost:8080", false),
            ("localhost:8080", false),
            ("null", false),
            ("", false),
        ] {
            let sent = headers(&[HOST, ("origin", origin)]);
            assert_eq!(is_same_origin(&sent), expected, "{origin:?}");
        }
        let origin = ("origin", "http://localhost:8080");
        for (site, expected) in [
            ("same-origin", true),
            ("same-site", false),
            ("cross-site", false),
            ("none", false),
        ] {
            let sent = headers(&[HOST, origin, ("sec-fetch-site", site)]);
            assert_eq!(is_same_origin(&sent), expected, "{site}");
        }
        for sent in [&[HOST][..], &[origin], &[HOST, origin, origin]] {
            assert!(!is_same_origin(&headers(sent)), "{sent:?}");
        }
    }

    #[test]
    fn a_form_is_known_by_its_content_type() {
        for (kind, expected) in [
            (FORM, true),
            ("Application/X-WWW-Form-Urlencoded; charset=utf-8", true),
            ("text/plain", false),
            ("multipart/form-data", false),
            ("", false),
        ] {
            let sent = headers(&[("content-type", kind)]);
            assert_eq!(is_form(&sent), expected, "{kind}");
        }
        assert!(!is_form(&HeaderMap::new()));
    }
}
