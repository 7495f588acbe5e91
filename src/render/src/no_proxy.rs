//! Whether Go's HTTP clients, and so the kubelet and containerd, reach a server without the proxy.
//! Other programs read the same list otherwise: curl knows networks only from 7.86 on, none of
//! IPv6, and no `*.name`.
//!
//! The rules are those of `golang.org/x/net/http/httpproxy`.

use std::net::IpAddr;

use osm_tenant::address::AddressRange;

/// Returns true if a server is reached without the proxy. `server` is a URL with HTTPS.
pub(super) fn is_direct(server: &str, no_proxy: &str) -> bool {
    let address = server.split_once("://").map_or(server, |(_, rest)| rest);
    let address = address.split(['/', '?', '#']).next().unwrap_or_default();
    let without_port = (address.trim_matches(['[', ']']), "443");
    let (host, port) = host_and_port(address).unwrap_or(without_port);
    let host = host.to_ascii_lowercase();
    let ip: Option<IpAddr> = host.parse().ok();
    let ip = ip.map(|ip| ip.to_canonical());
    if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
        return true;
    }
    let mut entries = no_proxy
        .split(',')
        .map(|entry| entry.trim().to_ascii_lowercase());
    entries.any(|entry| entry == "*" || covers(&entry, (&host, port), ip))
}

/// Splits `host:port` and `[address]:port`. Returns `None` if there is no port, or more than one
/// colon without brackets.
fn host_and_port(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return Some((host, rest.strip_prefix(':')?));
    }
    let (host, port) = text.split_once(':')?;
    (!port.contains(':')).then_some((host, port))
}

/// Returns true if an entry of the list is for this host and port.
fn covers(entry: &str, (host, port): (&str, &str), ip: Option<IpAddr>) -> bool {
    if entry.contains('/')
        && let Ok(network) = entry.parse::<AddressRange>()
    {
        return ip.is_some_and(|ip| network.contains(ip));
    }
    let (name, only) = match host_and_port(entry) {
        Some((name, port)) => (name, Some(port).filter(|port| !port.is_empty())),
        None => (entry, None),
    };
    let is_for_port = only.is_none_or(|only| only == port);
    if let Ok(named) = name.parse::<IpAddr>() {
        return is_for_port && ip == Some(named.to_canonical());
    }
    let name = name
        .strip_prefix('*')
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or(name);
    let suffix = name.strip_prefix('.').unwrap_or(name);
    let is_below = host
        .strip_suffix(suffix)
        .is_some_and(|before| before.ends_with('.'));
    ip.is_none() && !suffix.is_empty() && is_for_port && (is_below || host == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_reached_directly_where_gos_clients_reach_it_so() {
        let (address, name) = ("https://10.20.0.5:6443", "https://api.berlin.example:6443");
        let six = "https://[fd00::5]:6443";
        for (server, no_proxy, expected) in [
            (address, "", false),
            (address, "a, *", true),
            (address, "10.0.0.0/8", true),
            (address, " 10.20.0.5/32 ,a", true),
            (address, "10.21.0.0/16", false),
            (address, "0.0.0.0/0", true),
            (address, "10.20.0.5", true),
            (address, "10.20.0.5:6443", true),
            (address, "10.20.0.5:443", false),
            (address, "10.20.0", false),
            (address, "*.0.5", false),
            (name, "berlin.example:", true),
            (address, "::/0", false),
            (name, "berlin.example", true),
            (name, ".berlin.example", true),
            (name, "*.berlin.example", true),
            (name, "API.berlin.example", true),
            (name, ".api.berlin.example", false),
            (name, "*.api.berlin.example", false),
            (name, "erlin.example", false),
            (name, "berlin.example:6443", true),
            (name, "berlin.example:443", false),
            (name, "10.0.0.0/8,*,", true),
            (name, "*berlin.example", false),
            ("https://api.berlin.example", "berlin.example:443", true),
            (six, "fd00::/8", true),
            (six, "fd00::5", true),
            (six, "[fd00::5]:6443", true),
            (six, "[fd00::5]:443", false),
            (six, "0.0.0.0/0", false),
            (six, "[fd00::5]", false),
            ("https://[fd00::5]", "[fd00::5]:443", true),
            ("https://localhost:6443", "", true),
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
        ] {
            assert_eq!(
                is_direct(server, no_proxy),
                expected,
                "{server} {no_proxy:?}"
            );
        }
    }
}
