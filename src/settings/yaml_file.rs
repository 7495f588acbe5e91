//! A YAML file that a flag names.

use std::{fmt::Display, path::Path};

use serde::de::DeserializeOwned;

use super::InvalidSetting;

/// A YAML file, and the flag that names it.
#[derive(Clone, Copy)]
pub(super) struct YamlFile<'a> {
    pub(super) flag: &'static str,
    pub(super) path: &'a Path,
}

impl YamlFile<'_> {
    /// Returns what the file has.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is not of this type.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, InvalidSetting> {
        let text = std::fs::read_to_string(self.path).map_err(|error| self.unreadable(error))?;
        serde_saphyr::from_str(&text).map_err(|error| self.refused(error))
    }

    /// Returns the bytes of the file.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, InvalidSetting> {
        std::fs::read(self.path).map_err(|error| self.unreadable(error))
    }

    fn unreadable(&self, source: std::io::Error) -> InvalidSetting {
        InvalidSetting::Unreadable {
            flag: self.flag,
            path: self.path.to_owned(),
            source,
        }
    }

    /// Returns the error for what is wrong with the content.
    pub(super) fn refused(&self, why: impl Display) -> InvalidSetting {
        InvalidSetting::Content {
            flag: self.flag,
            path: self.path.to_owned(),
            why: why.to_string(),
        }
    }
}
