//! What the headers of a request say about the page that sent it.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName, header};

/// Sent by browsers: how the page that made a request is related to this server.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Sent by proxies: the scheme of the client's request.
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORM: &str = "application/x-www-form-urlencoded";

/// Returns true if the only host of a request is an address, `localhost` or one of these names. Any
/// other name may be a stranger's that leads here, so that a browser takes the stranger's page and
/// ours for one site.
pub fn is_host_of(headers: &HeaderMap, names: &[String]) -> bool {
    let Some(host) = only(headers, &header::HOST) else {
        return false;
    };
    if host.parse::<SocketAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
    {
        return true;
    }
    let host = host.split_once(':').map_or(host, |(name, _)| name);
    let mut names = names.iter().map(String::as_str).chain(["localhost"]);
    names.any(|name| name.eq_ignore_ascii_case(host))
}

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

/// Returns the value of a header that a request has exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    value.to_str().ok()
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
    fn a_host_is_an_address_or_a_name_that_is_set() {
        let names = ["osm.example".to_owned()];
        for (host, expected) in [
            ("127.0.0.1:8080", true),
            ("10.0.0.1", true),
            ("[::1]:8080", true),
            ("[::1]", true),
            ("LOCALHOST:1", true),
            ("osm.example", true),
            ("OSM.example:443", true),
            ("evil.example", false),
            ("osm.example.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            let sent = headers(&[("host", host)]);
            assert_eq!(is_host_of(&sent, &names), expected, "{host:?}");
        }
        assert!(!is_host_of(&HeaderMap::new(), &names));
        let two = headers(&[("host", "localhost"), ("host", "evil.example")]);
        assert!(!is_host_of(&two, &names), "either could be meant");
        assert!(!is_host_of(&headers(&[("host", "osm.example")]), &[]));
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
