//! URLs as Go's `net/url` parses and writes them. The mirrors in `hosts.toml` have always been
//! written in that form. URLs that Go accepts but that lead to no registry are refused. Profiles in
//! Go's language split URLs with the same rules for schemes and escapes.

use std::fmt::{self, Write};

use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode, utf8_percent_encode,
};

/// What is escaped in a query: all bytes except for letters, digits and `-._~`.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
/// What is escaped in a name and in a password.
const USER: &AsciiSet = &RESERVED
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=');
/// What is escaped in a path.
pub(super) const PATH: &AsciiSet = &USER.remove(b'/').remove(b':').remove(b'@');

/// A URL, split into the same parts as in Go.
#[derive(Debug)]
pub(super) struct GoUrl<'a> {
    /// The scheme in lower case, with the `://` or `:` that follows it.
    scheme: String,
    user: Option<&'a str>,
    /// The host with its port. Without `://` it is part of `path`.
    host: &'a str,
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> GoUrl<'a> {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// Returns the reason why it is not a URL. It quotes nothing, because a URL may contain a
    /// password.
    pub(super) fn parse(text: &'a str) -> Result<Self, &'static str> {
        if text.chars().any(|character| character.is_ascii_control()) {
            return Err("it holds a control character");
        }
        if text.contains('#') {
            return Err("it has a fragment (`#`)");
        }
        let (text, query) = match text.split_once('?') {
            Some((text, query)) => (text, Some(query)),
            None => (text, None),
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Self::without_slashes(text, query);
        };
        if !is_scheme(scheme) {
            return Err("the part before `://` is not a URL scheme");
        }
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        check_user(user.unwrap_or_default())?;
        check_host(host)?;
        unescape(path)?;
        Ok(Self {
            scheme: format!("{}://", scheme.to_ascii_lowercase()),
            user,
            host,
            path,
            query,
        })
    }

    /// Parses a host without a scheme, which containerd reaches by HTTPS. Go reads what comes
    /// before a port as a scheme, and refuses it if it cannot be one.
    fn without_slashes(text: &'a str, query: Option<&'a str>) -> Result<Self, &'static str> {
        let is_plain = |byte: u8| is_unreserved(byte) || matches!(byte, b'/' | b':');
        let (scheme, path) = match text.split_once(':') {
            Some((scheme, _)) if !is_scheme(scheme) => {
                return Err("it has a port and no scheme: write `https://` before it");
            }
            Some((scheme, path)) => (format!("{}:", scheme.to_ascii_lowercase()), path),
            None => (String::new(), text),
        };
        if path.is_empty() || path.starts_with('/') {
            return Err("it names no host");
        }
        if !text.bytes().all(is_plain) {
            return Err("it has no scheme and holds more than letters, digits and `-._~/:`");
        }
        Ok(Self {
            scheme,
            user: None,
            host: "",
            path,
            query,
        })
    }

    /// Returns the host with its port; empty if Go finds none.
    pub(super) const fn host(&self) -> &'a str {
        self.host
    }
}

impl fmt::Display for GoUrl<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.scheme)?;
        if let Some(user) = self.user {
            let (name, password) = match user.split_once(':') {
                Some((name, password)) => (name, Some(password)),
                None => (user, None),
            };
            write_escaped(formatter, name, USER)?;
            if let Some(password) = password {
                formatter.write_char(':')?;
                write_escaped(formatter, password, USER)?;
            }
            formatter.write_char('@')?;
        }
        formatter.write_str(self.host)?;
        if self.path.bytes().all(may_stand_in_path) {
            formatter.write_str(self.path)?;
        } else {
            write_escaped(formatter, self.path, PATH)?;
        }
        match self.query {
            Some(query) => write!(formatter, "?{query}"),
            None => Ok(()),
        }
    }
}

/// Returns true if Go reads the text as a scheme.
pub(super) fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

/// Returns true if the byte is allowed in a path. A path of only such bytes is written unchanged.
fn may_stand_in_path(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@[]%/".contains(&byte)
}

fn check_user(user: &str) -> Result<(), &'static str> {
    let may_stand = |byte: u8| is_unreserved(byte) || b":!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(may_stand) {
        return Err("the part before `@` must be percent-encoded");
    }
    unescape(user).map(drop)
}

fn check_host(host: &str) -> Result<(), &'static str> {
    let (name, port) = match host.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((address, port))) => {
            if address.parse::<std::net::Ipv6Addr>().is_err() {
                return Err("what stands in brackets is no address of IPv6");
            }
            ("", port)
        }
        Some(None) => return Err("its host has an opening bracket alone"),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    if host.is_empty() {
        return Err("it names no host");
    }
    let may_stand = |byte: u8| is_unreserved(byte) || b"!$&'()*+,;=<>\"".contains(&byte);
    if !name.bytes().all(may_stand) {
        return Err("its host holds a character that no host has");
    }
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || (port == digits && !port.is_empty()) {
        return Err("its port is no number");
    }
    Ok(())
}

/// Returns the bytes of a text with percent-encoding.
///
/// # Errors
///
/// Returns an error if a `%` is not followed by two hexadecimal digits.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, &'static str> {
    let starts_with_byte = |rest: &str| {
        let digits = rest.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(starts_with_byte) {
        return Err("a `%` in it is followed by no two hexadecimal digits");
    }
    Ok(percent_decode_str(text).collect())
}

/// Escapes a part of a query, where a space is a plus.
pub(super) fn push_query_escaped(text: &str, out: &mut String) {
    for (index, word) in text.split(' ').enumerate() {
        if index > 0 {
            out.push('+');
        }
        out.extend(utf8_percent_encode(word, RESERVED));
    }
}

/// Writes a text whose escapes are replaced by those of Go.
fn write_escaped(out: &mut impl Write, text: &str, escaped: &'static AsciiSet) -> fmt::Result {
    // Invalid escapes were refused when the URL was parsed.
    let bytes = unescape(text).unwrap_or_default();
    write!(out, "{}", percent_encode(&bytes, escaped))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of Go's own `net/url`, or null if it refuses the URL.
    const GOLDEN: &str = include_str!("../../../tests/golden/go-urls.jsonl");

    #[test]
    fn a_url_is_written_as_go_writes_it_or_refused() {
        let mut refused = 0;
        let mut rows = 0;
        for line in GOLDEN.lines() {
            let (url, go): (String, Option<String>) = serde_json::from_str(line).unwrap();
            rows += 1;
            match (GoUrl::parse(&url), go) {
                (Ok(ours), go) => assert_eq!(Some(ours.to_string()), go, "{url}"),
                (Err(_), None) => {}
                (Err(reason), Some(go)) => {
                    refused += 1;
                    let has_host = go.contains("://mirror") || go.contains("://Mirror");
                    let is_odd = ["no host", "has no scheme", "no scheme", "character that no"];
                    let is_expected = is_odd.iter().any(|odd| reason.contains(odd));
                    assert!(is_expected && !has_host, "{url}: {reason}, but Go: {go}");
                }
            }
        }
        assert!(rows > 500 && refused < rows / 5, "{refused} of {rows}");
    }
}
