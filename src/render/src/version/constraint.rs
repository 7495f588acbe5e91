//! Constraints on versions: `~1.33`, `>=1.29, <1.31`, `1.x || ^2.1`, `1.29 - 1.31`.

use std::cmp::Ordering;

use super::Version;

/// Alternatives. Each is a list of conditions that must all be satisfied.
#[derive(Clone, Debug)]
pub(crate) struct Constraints(Vec<Vec<Condition>>);

#[derive(Clone, Debug)]
struct Condition {
    operator: Operator,
    version: Version,
    precision: Precision,
    /// True if a prerelease may satisfy it, because one of the conditions beside it names a
    /// prerelease.
    admits_prereleases: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// How much of a condition's version is specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    /// None of it: `*`.
    Any,
    /// The major number: `1`, `1.x`.
    Major,
    /// Major and minor number: `1.2`, `1.2.x`.
    Minor,
    /// All of it.
    Full,
}

/// The operators. Longer ones come before their prefixes.
const OPERATORS: [(&str, Operator); 11] = [
    ("!=", Operator::NotEqual),
    (">=", Operator::GreaterOrEqual),
    ("=>", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("=<", Operator::LessOrEqual),
    ("~>", Operator::Tilde),
    ("~", Operator::Tilde),
    ("^", Operator::Caret),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("=", Operator::Equal),
];

impl Constraints {
    /// Parses constraints.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.split("||")
            .map(parse_alternative)
            .collect::<Option<Vec<_>>>()
            .map(Self)
    }

    /// Returns true if the version satisfies one of the alternatives.
    pub(crate) fn is_satisfied_by(&self, version: &Version) -> bool {
        self.0.iter().any(|conditions| {
            conditions
                .iter()
                .all(|condition| condition.is_satisfied_by(version))
        })
    }
}

fn parse_alternative(text: &str) -> Option<Vec<Condition>> {
    let mut conditions = Vec::new();
    let mut rest = text.trim();
    if rest.is_empty() {
        rest = "*";
    }
    while !rest.is_empty() {
        let (condition, after) = Condition::parse_first(rest)?;
        let after_space = after.trim_start();
        if let Some((upper, after_range)) = hyphen_range(&condition, after, after_space) {
            conditions.push(condition.with(Operator::GreaterOrEqual));
            conditions.push(upper?.with(Operator::LessOrEqual));
            rest = after_separator(after_range)?;
            continue;
        }
        conditions.push(condition);
        rest = after_separator(after)?;
    }
    let names_prerelease = conditions
        .iter()
        .any(|condition| !condition.version.prerelease.is_empty());
    for condition in &mut conditions {
        condition.admits_prereleases = names_prerelease;
    }
    Some(conditions)
}

/// Returns the upper bound of `lower - upper`, and the rest, if `lower` is followed by one.
fn hyphen_range<'t>(
    lower: &Condition,
    after: &str,
    after_space: &'t str,
) -> Option<(Option<Condition>, &'t str)> {
    let upper = after_space.strip_prefix('-')?;
    let is_spaced = after.len() > after_space.len() && upper.starts_with(char::is_whitespace);
    if lower.operator != Operator::Equal || !is_spaced {
        return None;
    }
    match Condition::parse_first(upper.trim_start()) {
        Some((upper, rest)) if upper.operator == Operator::Equal => Some((Some(upper), rest)),
        _ => Some((None, "")),
    }
}

/// Returns the text after a comma or spaces. Nothing else may separate conditions.
fn after_separator(text: &str) -> Option<&str> {
    let trimmed = text.trim_start();
    match trimmed.strip_prefix(',') {
        Some(rest) if !rest.trim().is_empty() => Some(rest.trim_start()),
        None if trimmed.is_empty() || trimmed.len() < text.len() => Some(trimmed),
        Some(_) | None => None,
    }
}

impl Condition {
    fn parse_first(text: &str) -> Option<(Self, &str)> {
        let (operator, rest) = OPERATORS
            .iter()
            .find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?)))
            .unwrap_or((Operator::Equal, text));
        let rest = rest.trim_start();
        let end = rest
            .find(|character: char| character.is_whitespace() || character == ',')
            .unwrap_or(rest.len());
        let (version, rest) = rest.split_at_checked(end)?;
        let (version, precision) = parse_partial(version)?;
        let condition = Self {
            operator,
            version,
            precision,
            admits_prereleases: false,
        };
        Some((condition, rest))
    }

    fn with(self, operator: Operator) -> Self {
        Self { operator, ..self }
    }

    fn is_satisfied_by(&self, version: &Version) -> bool {
        let is_bare_prerelease =
            !version.prerelease.is_empty() && self.version.prerelease.is_empty();
        let is_refused = is_bare_prerelease && !self.admits_prereleases;
        if is_refused {
            return false;
        }
        let order = version.precedence(&self.version);
        match self.operator {
            Operator::Equal if self.precision == Precision::Full => order == Ordering::Equal,
            Operator::Equal | Operator::Tilde => self.tilde(version),
            Operator::NotEqual => self.differs(version),
            Operator::Greater => self.is_greater(version),
            Operator::Less => order == Ordering::Less,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::LessOrEqual => self.is_at_most(version),
            Operator::Caret => self.caret(version),
        }
    }

    fn differs(&self, version: &Version) -> bool {
        match self.precision {
            Precision::Full | Precision::Any => {
                version.precedence(&self.version) != Ordering::Equal
            }
            Precision::Major => version.major != self.version.major,
            Precision::Minor => {
                (version.major, version.minor) != (self.version.major, self.version.minor)
                    || version.prerelease != self.version.prerelease
            }
        }
    }

    /// Evaluates `>`: a version is greater than `1` from 2.0.0 on, and greater than `1.2` from
    /// 1.3.0 on.
    fn is_greater(&self, version: &Version) -> bool {
        match self.precision {
            Precision::Major => version.major > self.version.major,
            Precision::Minor => {
                (version.major, version.minor) > (self.version.major, self.version.minor)
            }
            Precision::Any | Precision::Full => {
                version.precedence(&self.version) == Ordering::Greater
            }
        }
    }

    /// Evaluates `<=`: every 1.x is at most `1`, and every 1.2.x is at most `1.2`.
    fn is_at_most(&self, version: &Version) -> bool {
        match self.precision {
            Precision::Full => version.precedence(&self.version) != Ordering::Greater,
            Precision::Major => version.major <= self.version.major,
            Precision::Any | Precision::Minor => {
                (version.major, version.minor) <= (self.version.major, self.version.minor)
            }
        }
    }

    fn tilde(&self, version: &Version) -> bool {
        if version.precedence(&self.version) == Ordering::Less {
            return false;
        }
        let wanted = &self.version;
        let is_zero = (wanted.major, wanted.minor, wanted.patch) == (0, 0, 0);
        if is_zero && matches!(self.precision, Precision::Any | Precision::Full) {
            return true;
        }
        version.major == wanted.major
            && (version.minor == wanted.minor || self.precision == Precision::Major)
    }

    fn caret(&self, version: &Version) -> bool {
        if version.precedence(&self.version) == Ordering::Less {
            return false;
        }
        let wanted = &self.version;
        if wanted.major > 0 || self.precision == Precision::Major {
            return version.major == wanted.major;
        }
        if version.major > 0 {
            return false;
        }
        if wanted.minor > 0 || self.precision == Precision::Minor {
            return version.minor == wanted.minor;
        }
        if version.minor > 0 {
            return false;
        }
        version.patch == wanted.patch
    }
}

/// Parses a version with parts that are missing or written as `x`, `X` or `*`.
fn parse_partial(text: &str) -> Option<(Version, Precision)> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let numbers_end = bare.find(['-', '+']).unwrap_or(bare.len());
    let (numbers, suffix) = bare.split_at_checked(numbers_end)?;
    let mut parts = numbers.split('.');
    let major = parts.next().filter(|part| !part.is_empty())?;
    let minor = parts.next();
    let patch = parts.next();
    if parts.next().is_some() || [minor, patch].contains(&Some("")) {
        return None;
    }
    // The build metadata of an incomplete version is dropped, a prerelease is kept.
    let prerelease = suffix.split_once('+').map_or(suffix, |(before, _)| before);
    let (full, precision) = match (minor, patch) {
        _ if is_wildcard(major) => (format!("0.0.0{prerelease}"), Precision::Any),
        (None, _) => (format!("{major}.0.0{prerelease}"), Precision::Major),
        (Some(minor), _) if is_wildcard(minor) => {
            (format!("{major}.0.0{prerelease}"), Precision::Major)
        }
        (Some(minor), None) => (format!("{major}.{minor}.0{prerelease}"), Precision::Minor),
        (Some(minor), Some(patch)) if is_wildcard(patch) => {
            (format!("{major}.{minor}.0{prerelease}"), Precision::Minor)
        }
        (Some(_), Some(_)) => (bare.to_owned(), Precision::Full),
    };
    Some((Version::parse(&full)?, precision))
}

fn is_wildcard(part: &str) -> bool {
    matches!(part, "x" | "X" | "*")
}
