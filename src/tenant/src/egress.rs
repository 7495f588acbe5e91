//! The operator's HTTP proxy between this process and worker clusters. Names are resolved and
//! checked here, and the proxy connects to the checked address. If the proxy resolved names, a
//! tenant could make it connect anywhere.

use std::{fmt, path::PathBuf, str::FromStr};

use super::{
    address::AddressRange,
    host::{self, Host},
};

/// A proxy, and the servers that are reached without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressProxy {
    /// The proxy's own address. Address rules do not apply to it.
    pub url: ProxyUrl,
    /// A file that contains `user:password`. It is read for each connection.
    pub credentials_file: Option<PathBuf>,
    /// The servers that are reached without it.
    pub exceptions: Vec<Exception>,
}

/// The URL of a proxy that speaks plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUrl {
    host: Host,
    port: u16,
}

/// The error for a text that is not the URL of a proxy. It does not quote the text, which may
/// contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAProxy {
    /// It contains a user or a password.
    #[error("a proxy's user and password belong in a file, not into its URL")]
    Credentials,
    /// It is invalid for another reason.
    #[error("the URL of a proxy is http://, a host and a port, such as http://proxy.example:3128")]
    Form,
}

impl FromStr for ProxyUrl {
    type Err = NotAProxy;

    fn from_str(text: &str) -> Result<Self, NotAProxy> {
        if text.contains('@') {
            return Err(NotAProxy::Credentials);
        }
        let authority = text.strip_prefix("http://").ok_or(NotAProxy::Form)?;
        let (host, port) = host::split_port(authority.strip_suffix('/').unwrap_or(authority));
        let port = port.and_then(host::parse_port).ok_or(NotAProxy::Form)?;
        let host = Host::parse(host).ok_or(NotAProxy::Form)?;
        Ok(Self { host, port })
    }
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}:{}", self.host, self.port)
    }
}

/// Servers that are reached without a proxy, written as in `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exception {
    /// Servers with an address in this range.
    Range(AddressRange),
    /// Servers with this name in their kubeconfig, or a name below it.
    Name(String),
    /// Servers with a name below this one in their kubeconfig.
    Below(String),
}

/// The error for a text that is neither a range of addresses nor a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a range such as 10.0.0.0/8 nor a name such as api.example or .example")]
pub struct NotAnException(String);

impl FromStr for Exception {
    type Err = NotAnException;

    fn from_str(text: &str) -> Result<Self, NotAnException> {
        if let Ok(range) = text.parse() {
            return Ok(Self::Range(range));
        }
        let (name, below) = match text.strip_prefix('.') {
            Some(name) => (name, true),
            None => (text, false),
        };
        match Host::parse(name) {
            Some(Host::Name(name)) if below => Ok(Self::Below(name)),
            Some(Host::Name(name)) => Ok(Self::Name(name)),
            _ => Err(NotAnException(text.to_owned())),
        }
    }
}

impl EgressProxy {
    /// Returns true if a server is reached without the proxy, judging by its host.
    pub fn excepts(&self, host: &Host) -> bool {
        self.exceptions.iter().any(|it| it.has(host))
    }
}

impl Exception {
    fn has(&self, host: &Host) -> bool {
        let is_below = |name: &str, parent: &str| {
            let rest = name.strip_suffix(parent);
            rest.is_some_and(|it| it.ends_with('.'))
        };
        match (self, host) {
            (Self::Range(range), Host::Address(address)) => range.contains(*address),
            (Self::Name(wanted), Host::Name(name)) => name == wanted || is_below(name, wanted),
            (Self::Below(parent), Host::Name(name)) => is_below(name, parent),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_excepted(exceptions: &[&str], host: &str) -> bool {
        let proxy = EgressProxy {
            url: "http://proxy.example:3128".parse().unwrap(),
            credentials_file: None,
            exceptions: exceptions.iter().map(|it| it.parse().unwrap()).collect(),
        };
        proxy.excepts(&Host::parse(host).unwrap())
    }

    #[test]
    fn an_exception_is_a_range_a_name_or_what_is_below_a_name() {
        for (exception, host) in [
            ("10.0.0.0/8", "10.1.2.3"),
            ("fd00::/8", "[fd00::1]"),
            ("192.0.2.7", "192.0.2.7"),
            ("example", "api.example"),
            ("Example.", "example"),
            (".example", "a.b.example"),
        ] {
            assert!(
                is_excepted(&["198.51.100.0/24", exception], host),
                "{exception} {host}"
            );
        }
        for (exception, host) in [
            ("10.0.0.0/8", "11.0.0.1"),
            ("10.0.0.0/8", "ten.example"),
            ("example", "counterexample"),
            (".example", "example"),
        ] {
            assert!(!is_excepted(&[exception], host), "{exception} {host}");
        }
    }

    #[test]
    fn an_exception_that_would_never_apply_is_refused() {
        for text in [
            "10.0.0.0/33",
            "*",
            "*.example",
            "http://a.example",
            "a b",
            "",
            ".",
        ] {
            let refused = text.parse::<Exception>().unwrap_err();
            assert_eq!(refused, NotAnException(text.to_owned()));
        }
    }

    #[test]
    fn the_url_of_a_proxy_has_a_host_and_a_port_and_no_password() {
        for (text, shown) in [
            ("http://proxy.example:3128", "http://proxy.example:3128"),
            ("http://[fd00::1]:8080/", "http://[fd00::1]:8080"),
        ] {
            assert_eq!(text.parse::<ProxyUrl>().unwrap().to_string(), shown);
        }
        for text in [
            "https://proxy:1",
            "proxy:3128",
            "http://proxy",
            "http://p:1/x",
            "http://p:0",
        ] {
            assert_eq!(text.parse::<ProxyUrl>(), Err(NotAProxy::Form), "{text}");
        }
        let refused = "http://user:hunter2@proxy:1"
            .parse::<ProxyUrl>()
            .unwrap_err();
        assert_eq!(refused, NotAProxy::Credentials);
        assert!(!refused.to_string().contains("hunter2"));
    }
}
