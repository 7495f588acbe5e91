//! The class of a tenant: a name that the operator gives to tenants of whom the same is expected.
//! It is the value of a label of metrics, so it is short, and few are allowed.

use std::{fmt, str::FromStr, sync::Arc};

/// The maximum number of names that the rules may use, beside the class of tenants without one.
/// Each class costs 16 metric series per replica.
pub const CLASSES_MAX: usize = 8;

/// The maximum length: a legend of a dashboard still shows it.
const CHARACTERS_MAX: usize = 20;

/// The class of tenants that no rule puts into another.
const DEFAULT: &str = "default";

/// The class of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantClass(Arc<str>);

/// The error for a text that is not the name of a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a class has 1 to {CHARACTERS_MAX} lower-case letters, digits and hyphens, and begins and ends \
     with a letter or digit"
)]
pub struct InvalidClass;

impl TenantClass {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TenantClass {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl FromStr for TenantClass {
    type Err = InvalidClass;

    fn from_str(text: &str) -> Result<Self, InvalidClass> {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        let is_valid = bytes.len() <= CHARACTERS_MAX
            && bytes.iter().all(|byte| is_word(*byte) || *byte == b'-')
            && ends.iter().all(|end| end.copied().is_some_and(is_word));
        if !is_valid {
            return Err(InvalidClass);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for TenantClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_a_short_lower_case_label() {
        for (text, is_valid) in [
            ("gold", true),
            ("tier-1", true),
            ("1", true),
            ("a-name-of-20-letters", true),
            ("a-name-of-21-letters1", false),
            ("", false),
            ("Gold", false),
            ("-gold", false),
            ("gold-", false),
            ("gold\"} 1", false),
            ("gold_1", false),
            ("größe", false),
        ] {
            assert_eq!(text.parse::<TenantClass>().is_ok(), is_valid, "{text}");
        }
        assert_eq!(
            TenantClass::default().to_string().parse(),
            Ok(TenantClass::default())
        );
    }
}
