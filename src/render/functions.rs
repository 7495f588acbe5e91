//! The functions that templates have besides the engine's own.
//!
//! All are functions of their arguments alone, and their errors quote no value.

use base64::{Engine, engine::general_purpose::STANDARD};
use minijinja::{Environment, Error, ErrorKind};

use super::version::{Constraints, Version};

/// What printing `none` says.
pub(super) const PRINTS_NONE: &str = "`none` is printed; say what stands in its place, or ask `if`";
const NO_VERSION: &str = "semver_matches: the version is not a semantic version";
const NO_CONSTRAINT: &str = "semver_matches: the constraint is not a constraint on versions";

const OWN_TEXTS: [&str; 3] = [PRINTS_NONE, NO_VERSION, NO_CONSTRAINT];

/// Whether the text of an error is one of ours, and so quotes no value.
pub(super) fn is_own_text(text: &str) -> bool {
    OWN_TEXTS.contains(&text)
}

/// Adds the functions, and takes away what would print every variable at once.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.remove_global("debug");
    environment.remove_filter("pprint");
    environment.add_function("semver_matches", semver_matches);
    environment.add_filter("semver_matches", semver_matches);
    environment.add_function("b64encode", b64encode);
    environment.add_filter("b64encode", b64encode);
}

/// Whether a version satisfies a constraint: `semver_matches(KubeVersion, ">=1.34")`.
fn semver_matches(version: &str, constraint: &str) -> Result<bool, Error> {
    let invalid = |text: &'static str| Error::new(ErrorKind::InvalidOperation, text);
    let constraints = Constraints::parse(constraint).ok_or_else(|| invalid(NO_CONSTRAINT))?;
    let version = Version::parse(version).ok_or_else(|| invalid(NO_VERSION))?;
    Ok(constraints.is_satisfied_by(&version))
}

/// A text in standard base64, on one line.
fn b64encode(text: &str) -> String {
    STANDARD.encode(text)
}
