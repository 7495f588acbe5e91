//! The names under which the port answers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

/// The answer to requests under another name.
pub const UNKNOWN_HOST: &str = "this host is not known: ask by an address, as localhost, or by a \
                                name of --fleet-page-host of osm run";

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

/// Answers no request under a name that is not known. A port that only this machine reaches is
/// otherwise open to each page that its browsers show. A program in front of such a port asks by
/// address.
pub fn known_only(router: Router, names: Arc<[String]>) -> Router {
    router.layer(middleware::from_fn_with_state(names, refuse_unknown))
}

async fn refuse_unknown(State(names): State<Arc<[String]>>, sent: Request, next: Next) -> Response {
    if is_host_of(sent.headers(), &names) {
        next.run(sent).await
    } else {
        (StatusCode::FORBIDDEN, format!("{UNKNOWN_HOST}\n")).into_response()
    }
}

/// Returns the value of a header that a request has exactly once.
pub fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    value.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let sent = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
            assert_eq!(is_host_of(&sent, &names), expected, "{host:?}");
        }
        let mut sent = HeaderMap::new();
        assert!(!is_host_of(&sent, &names));
        sent.insert(header::HOST, "osm.example".parse().unwrap());
        assert!(!is_host_of(&sent, &[]));
        sent.append(header::HOST, "localhost".parse().unwrap());
        assert!(!is_host_of(&sent, &names), "either could be meant");
    }
}
