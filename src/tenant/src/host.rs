//! The host of a server: a literal address, or a name that is resolved later.

use std::{fmt, net::IpAddr};

use rustls::pki_types::ServerName;

/// The host of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A literal address.
    Address(IpAddr),
    /// A name in lower case, without a trailing dot.
    Name(String),
}

impl Host {
    /// Parses an address or a name. Short and hexadecimal forms of IPv4 (`127.1`, `0x7f000001`) are
    /// neither, although resolvers accept them: a name whose last label is a number would hide an
    /// address.
    pub fn parse(host: &str) -> Option<Self> {
        if let Some(rest) = host.strip_prefix('[') {
            let address = rest.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address)));
        }
        if let Ok(address) = host.parse() {
            return Some(Self::Address(IpAddr::V4(address)));
        }
        let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let last = name.rsplit('.').next()?;
        let numeric = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
        match ServerName::try_from(name.as_str()) {
            Ok(ServerName::DnsName(_)) if !numeric => Some(Self::Name(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Name(name) => formatter.write_str(name),
        }
    }
}

/// Splits `host:port`. Colons inside of `[…]` belong to the host.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match authority.rfind(':') {
        Some(colon) if colon >= host_end => {
            let (host, port) = authority.split_at(colon);
            (host, port.strip_prefix(':'))
        }
        _ => (authority, None),
    }
}

/// Parses a port that a server can have.
pub(super) fn parse_port(port: &str) -> Option<u16> {
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|port| digits && *port != 0)
}
