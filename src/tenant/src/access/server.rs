//! The URL of an API server, split into validated parts.

use std::fmt;

use super::super::host::{self, Host};
use super::error::AccessError;

/// The port of a URL without a port.
const HTTPS_PORT: u16 = 443;

/// The address of an API server. The scheme is always https.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// The host.
    pub host: Host,
    /// True if the name ends with a dot. DNS then looks up only this name, and does not try search
    /// domains. TLS uses the name without the dot.
    pub is_rooted: bool,
    /// The port.
    pub port: u16,
    /// The prefix of `/api` in every path: empty, or `/` and a path without a `/` at its end.
    pub path: String,
}

impl Server {
    /// Returns the URL with its port, and without a `/` at its end. A dot at the end of the name is
    /// kept.
    pub fn url(&self) -> String {
        self.to_string()
    }

    /// Parses the URL at `field` of a kubeconfig.
    pub(super) fn parse(url: &str, field: &str) -> Result<Self, AccessError> {
        let field = || field.to_owned();
        let rest = match url.split_at_checked("https://".len()) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https://") => rest,
            _ => return Err(AccessError::ServerNotHttps { field: field() }),
        };
        let (authority, path) = match rest.find('/') {
            Some(end) => rest.split_at(end),
            None => (rest, ""),
        };
        if authority.contains('@') {
            return Err(AccessError::ServerUserInfo { field: field() });
        }
        if rest.contains(['?', '#']) {
            return Err(AccessError::ServerQuery { field: field() });
        }
        let (host, port) = host::split_port(authority);
        let is_rooted = host.ends_with('.');
        let host = Host::parse(host).ok_or_else(|| AccessError::ServerHost { field: field() })?;
        let port = match port {
            None => HTTPS_PORT,
            Some(port) => {
                host::parse_port(port).ok_or_else(|| AccessError::ServerPort { field: field() })?
            }
        };
        let path = path.trim_end_matches('/');
        if !is_plain_path(path) {
            return Err(AccessError::ServerPath { field: field() });
        }
        Ok(Self {
            host,
            is_rooted,
            port,
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host, port, path, ..
        } = self;
        let dot = if self.is_rooted { "." } else { "" };
        write!(formatter, "https://{host}{dot}:{port}{path}")
    }
}

/// Returns true if a path can be used as a prefix without escaping.
fn is_plain_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
    let mut segments = path.split('/').skip(1);
    path.bytes().all(plain) && segments.all(|segment| !["", ".", ".."].contains(&segment))
}
