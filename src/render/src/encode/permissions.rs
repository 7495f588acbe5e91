//! The mode of a file: decimal digits in a config that are read as octal.

use std::fmt;

/// A file's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permissions {
    digits: i32,
    mode: u32,
}

impl Permissions {
    /// Parses the digits. Returns `None` if they are not a mode.
    pub(super) fn new(digits: i32) -> Option<Self> {
        const MODE_MAX: u32 = 0o7777;
        let positive = u32::try_from(digits).ok()?;
        let mode = u32::from_str_radix(&positive.to_string(), 8).ok()?;
        (mode <= MODE_MAX).then_some(Self { digits, mode })
    }

    /// Returns the mode as a number.
    pub(super) fn mode(self) -> u32 {
        self.mode
    }
}

/// Three digits get a leading zero. Any other number of digits is unchanged.
impl fmt::Display for Permissions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zero = if (100..1000).contains(&self.digits) {
            "0"
        } else {
            ""
        };
        write!(formatter, "{zero}{}", self.digits)
    }
}
