//! Facts about the client that a request has in its headers.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, header};

/// Returns true if the host of a request is an address or `localhost`. A stranger can point neither
/// to this machine.
pub fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST);
    let Some(host) = host.and_then(|host| host.to_str().ok()) else {
        return false;
    };
    if host.parse::<SocketAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
    {
        return true;
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
}
