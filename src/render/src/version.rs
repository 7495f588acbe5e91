//! Versions and constraints with the rules on which existing profiles rely: those of the Go library
//! Masterminds/semver. A missing minor or patch number is 0, and a prerelease satisfies only
//! constraints that name a prerelease themselves.

use std::{cmp::Ordering, fmt};

mod constraint;

pub(super) use constraint::Constraints;

/// A version, with or without a prerelease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    pub(super) prerelease: String,
    pub(super) build: String,
}

impl Version {
    /// Parses a version. It may start with a `v`, and minor and patch may be missing.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, build) = match text.split_once('+') {
            Some((text, build)) => (text, identifiers(build)?),
            None => (text, ""),
        };
        let (numbers, prerelease) = match text.split_once('-') {
            Some((numbers, prerelease)) => (numbers, identifiers(prerelease)?),
            None => (text, ""),
        };
        if prerelease.split('.').any(has_leading_zero) {
            return None;
        }
        let mut parts = numbers.split('.');
        let major = number(parts.next()?)?;
        let minor = parts.next().map_or(Some(0), number)?;
        let patch = parts.next().map_or(Some(0), number)?;
        if parts.next().is_some() {
            return None;
        }
        Some(Self {
            major,
            minor,
            patch,
            prerelease: prerelease.to_owned(),
            build: build.to_owned(),
        })
    }

    /// Compares the precedence of two versions. Build metadata is ignored.
    pub(super) fn precedence(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| prerelease_precedence(&self.prerelease, &other.prerelease))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.prerelease.is_empty() {
            write!(formatter, "-{}", self.prerelease)?;
        }
        if !self.build.is_empty() {
            write!(formatter, "+{}", self.build)?;
        }
        Ok(())
    }
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn identifiers(text: &str) -> Option<&str> {
    let is_identifier = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.split('.').all(is_identifier).then_some(text)
}

fn has_leading_zero(part: &str) -> bool {
    part.len() > 1 && part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Compares the precedence of two prereleases. A release comes after its prereleases, numbers come
/// before words, and more parts come after fewer.
fn prerelease_precedence(left: &str, right: &str) -> Ordering {
    match (left.is_empty(), right.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let mut lefts = left.split('.');
    let mut rights = right.split('.');
    loop {
        let order = match (lefts.next(), rights.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(left), Some(right)) => match (number(left), number(right)) {
                (Some(left), Some(right)) => left.cmp(&right),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => left.cmp(right),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}
