//! A text that is charged before it grows.

use minijinja::Error;

use super::spend;

/// A text that a template's function writes. Each byte is charged to the render before memory is
/// allocated for it, so a function that writes here alone allocates no output that it did not
/// charge, whatever numbers it was given.
#[derive(Debug, Default)]
pub(in crate::render) struct MeteredText(String);

impl MeteredText {
    /// Appends a text.
    pub(in crate::render) fn push_str(&mut self, text: &str) -> Result<(), Error> {
        spend(text.len())?;
        self.0.push_str(text);
        Ok(())
    }

    /// Appends a character.
    pub(in crate::render) fn push(&mut self, character: char) -> Result<(), Error> {
        spend(character.len_utf8())?;
        self.0.push(character);
        Ok(())
    }

    /// Appends a text `times` times.
    pub(in crate::render) fn push_repeated(
        &mut self,
        text: &str,
        times: usize,
    ) -> Result<(), Error> {
        spend(text.len().saturating_mul(times))?;
        self.0.push_str(&text.repeat(times));
        Ok(())
    }

    /// Appends the text with each `from` replaced by `to`. An empty `from` stands before each
    /// character and at the end.
    pub(in crate::render) fn push_replaced(
        &mut self,
        text: &str,
        (from, to): (&str, &str),
    ) -> Result<(), Error> {
        let mut end = 0;
        for (start, found) in text.match_indices(from) {
            self.push_str(text.get(end..start).unwrap_or_default())?;
            self.push_str(to)?;
            end = start + found.len();
        }
        self.push_str(text.get(end..).unwrap_or_default())
    }

    /// Appends the texts with the separator between them.
    pub(in crate::render) fn push_joined<T: AsRef<str>>(
        &mut self,
        texts: impl IntoIterator<Item = T>,
        separator: &str,
    ) -> Result<(), Error> {
        for (index, text) in texts.into_iter().enumerate() {
            if index > 0 {
                self.push_str(separator)?;
            }
            self.push_str(text.as_ref())?;
        }
        Ok(())
    }

    /// The text as it is so far.
    pub(in crate::render) fn as_str(&self) -> &str {
        &self.0
    }

    /// The text.
    pub(in crate::render) fn into_string(self) -> String {
        self.0
    }
}
