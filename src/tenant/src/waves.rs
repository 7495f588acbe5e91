//! The waves in which newer default profiles reach a fleet.

use std::{fmt, str::FromStr};

/// The number of tenants that have got their slot after a wave, including those of earlier waves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wave {
    /// This many tenants.
    Tenants(usize),
    /// This percentage of the tenants, rounded up.
    Percent(u8),
}

impl Wave {
    /// Returns the size in a fleet of `total` tenants.
    pub fn size(self, total: usize) -> usize {
        match self {
            Self::Tenants(count) => count,
            Self::Percent(percent) => total.saturating_mul(percent.into()).div_ceil(100).max(1),
        }
    }
}

/// The error for a text that is not a wave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither a number of tenants nor a share from 1% to 100%")]
pub struct NoWave(String);

impl FromStr for Wave {
    type Err = NoWave;

    fn from_str(text: &str) -> Result<Self, NoWave> {
        let wave = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(Self::Percent),
            None => text.parse().ok().map(Self::Tenants),
        };
        wave.filter(|wave| match wave {
            Self::Tenants(count) => *count > 0,
            Self::Percent(percent) => (1..=100).contains(percent),
        })
        .ok_or_else(|| NoWave(text.to_owned()))
    }
}

impl fmt::Display for Wave {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenants(count) => write!(formatter, "{count}"),
            Self::Percent(percent) => write!(formatter, "{percent}%"),
        }
    }
}

/// The strategy of a rollout through the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The waves in their order. After the last one, all tenants get a slot.
    pub waves: Vec<Wave>,
    /// If more than this percentage of the machine deployments with a newer profile fail, no tenant
    /// has a slot.
    pub failures_percent_max: u8,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            waves: vec![Wave::Tenants(1), Wave::Percent(10), Wave::Percent(100)],
            failures_percent_max: 10,
        }
    }
}

/// Parses a percentage from 0 to 100.
///
/// ```
/// use osm_tenant::waves::percent;
///
/// assert_eq!(percent("10%"), Ok(10));
/// assert!(percent("10").is_err() && percent("101%").is_err());
/// ```
///
/// # Errors
///
/// The text is no such percentage.
pub fn percent(text: &str) -> Result<u8, String> {
    let share = text.strip_suffix('%').and_then(|text| text.parse().ok());
    share
        .filter(|share| *share <= 100)
        .ok_or_else(|| format!("`{text}` is no share from 0% to 100%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_is_a_number_or_a_share() {
        for (text, expected) in [
            ("1", Some(Wave::Tenants(1))),
            ("10%", Some(Wave::Percent(10))),
            ("0", None),
            ("0%", None),
            ("101%", None),
            ("", None),
            ("%", None),
            ("-1", None),
        ] {
            assert_eq!(text.parse::<Wave>().ok(), expected, "{text}");
        }
        for (text, expected) in [
            ("0%", Some(0)),
            ("100%", Some(100)),
            ("101%", None),
            ("7", None),
        ] {
            assert_eq!(percent(text).ok(), expected, "{text}");
        }
        assert_eq!(Wave::Percent(10).size(1), 1, "rounded up");
    }
}
