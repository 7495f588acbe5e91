//! sprig's functions on URLs and on versions as values.

use std::{cmp::Ordering, collections::BTreeMap, fmt::Write};

use minijinja::{Error, Value};
use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::{
    super::{
        super::{
            go_url::{PATH, is_scheme, unescape},
            version::Version,
        },
        problem::refuse,
        value::{Field, Kind, Map, Pointer, Struct, Typed, kind, pointee},
    },
    Function,
    dicts::any_map,
    function,
    texts::{first, texts},
};

pub(super) const TABLE: &[Function] = &[
    function("urlParse", (1, 1), 8, parse),
    function("urlJoin", (1, 1), 4, join),
    function("semver", (1, 1), 1, semver),
];

fn parse(arguments: &[Value]) -> Result<Value, Error> {
    let [url] = texts(arguments)?;
    let invalid = || refuse("unable to parse url");
    if url.chars().any(|character| character.is_ascii_control()) {
        return Err(invalid());
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((&url, ""));
    let (scheme, rest) = match rest.split_once(':') {
        Some((scheme, after)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), after),
        _ => (String::new(), rest),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut parts = BTreeMap::from(
        ["host", "hostname", "path", "opaque", "userinfo"].map(|name| (name, String::new())),
    );
    if !scheme.is_empty() && !rest.starts_with('/') {
        parts.insert("opaque", rest.to_owned());
    } else if let Some(after) = rest.strip_prefix("//") {
        let end = after.find('/').unwrap_or(after.len());
        let (authority, path) = after.split_at_checked(end).unwrap_or((after, ""));
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        parts.insert("userinfo", user.to_owned());
        parts.insert("host", host.to_owned());
        parts.insert("hostname", hostname(host).to_owned());
        parts.insert("path", unescaped(path).ok_or_else(invalid)?);
    } else {
        let first = rest.split('/').next().unwrap_or_default();
        if first.contains(':') {
            return Err(invalid());
        }
        parts.insert("path", unescaped(rest).ok_or_else(invalid)?);
    }
    parts.insert("scheme", scheme);
    parts.insert("query", query.to_owned());
    parts.insert("fragment", unescaped(fragment).ok_or_else(invalid)?);
    let entries = parts.into_iter();
    Ok(Map::value(
        entries
            .map(|(name, part)| (name.to_owned(), Value::from(part)))
            .collect(),
    ))
}

fn hostname(host: &str) -> &str {
    if let Some(inside) = host.strip_prefix('[') {
        return inside.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

fn unescaped(text: &str) -> Option<String> {
    String::from_utf8(unescape(text).ok()?).ok()
}

/// What is escaped in a fragment.
const FRAGMENT: &AsciiSet = &PATH
    .remove(b'?')
    .remove(b'!')
    .remove(b'(')
    .remove(b')')
    .remove(b'*');

fn join(arguments: &[Value]) -> Result<Value, Error> {
    let parts = any_map(first(arguments)?)?;
    let part = |name: &str| match parts.get(name) {
        None => Ok(String::new()),
        Some(value) => match kind(&value) {
            Kind::Text(text) => Ok(text.to_owned()),
            _ => Err(refuse(format!(
                "unable to parse {name} key, must be of type string"
            ))),
        },
    };
    let (scheme, host, path) = (part("scheme")?, part("host")?, part("path")?);
    let (opaque, userinfo) = (part("opaque")?, part("userinfo")?);
    let mut out = String::new();
    if !scheme.is_empty() {
        let _ = write!(out, "{scheme}:");
    }
    if opaque.is_empty() {
        if !scheme.is_empty() || !host.is_empty() || !userinfo.is_empty() {
            if !host.is_empty() || !path.is_empty() || !userinfo.is_empty() {
                out.push_str("//");
            }
            if !userinfo.is_empty() {
                let _ = write!(out, "{userinfo}@");
            }
            out.push_str(&host);
        }
        if !path.is_empty() && !path.starts_with('/') && !host.is_empty() {
            out.push('/');
        }
        out.extend(utf8_percent_encode(&path, PATH));
    } else {
        out.push_str(&opaque);
    }
    let (query, fragment) = (part("query")?, part("fragment")?);
    if !query.is_empty() {
        let _ = write!(out, "?{query}");
    }
    if !fragment.is_empty() {
        let _ = write!(out, "#{}", utf8_percent_encode(&fragment, FRAGMENT));
    }
    Ok(Value::from(out))
}

fn semver(arguments: &[Value]) -> Result<Value, Error> {
    let [source] = texts(arguments)?;
    let version = Version::parse(&source).ok_or_else(|| refuse("invalid semantic version"))?;
    let number = |number: u64| Typed::number("uint64", i64::try_from(number).unwrap_or(i64::MAX));
    let printed = version.to_string();
    let fields = [
        ("Major", number(version.major)),
        ("Minor", number(version.minor)),
        ("Patch", number(version.patch)),
        ("Prerelease", Value::from(version.prerelease)),
        ("Metadata", Value::from(version.build)),
        ("Original", Value::from(source)),
        ("String", Value::from(printed)),
    ];
    let fields = fields.map(|(name, value)| Field::method(name, value));
    Ok(Pointer::to(Value::from_object(Struct {
        fields: fields.into(),
        type_name: VERSION,
    })))
}

const VERSION: &str = "semver.Version";

/// Returns the order of two versions, or `None` if one is invalid.
pub(super) fn order(left: &Value, right: &Value) -> Option<Ordering> {
    Some(version(left)?.precedence(&version(right)?))
}

fn version(value: &Value) -> Option<Version> {
    match kind(&pointee(value)) {
        Kind::Struct(fields) if fields.type_name == VERSION => {
            Version::parse(fields.field("Original")?.as_str()?)
        }
        _ => None,
    }
}
