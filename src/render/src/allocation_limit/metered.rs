//! A string that is charged before it grows.

use minijinja::Error;

use super::{left, spend};

/// A string that a template function writes. Each byte is charged to the render before memory is
/// allocated for it. A function that writes only here therefore never allocates output that it did
/// not charge, whatever numbers it was given. The capacity is never more than the render can still
/// fill, so that even while the string grows it takes at most twice what the render may allocate.
#[derive(Debug, Default)]
pub(crate) struct MeteredText(String);

impl MeteredText {
    /// Charges bytes, and makes room for them. The capacity doubles, up to what the render can
    /// fill.
    fn grow(&mut self, bytes: usize) -> Result<(), Error> {
        spend(bytes)?;
        let (length, capacity) = (self.0.len(), self.0.capacity());
        let needed = length.saturating_add(bytes);
        if needed > capacity {
            let useful = needed.saturating_add(left());
            let wanted = capacity.saturating_mul(2).clamp(needed, useful);
            self.0.reserve_exact(wanted.saturating_sub(length));
        }
        Ok(())
    }

    /// Appends a string.
    pub(crate) fn push_str(&mut self, text: &str) -> Result<(), Error> {
        self.grow(text.len())?;
        self.0.push_str(text);
        Ok(())
    }

    /// Appends a character.
    pub(crate) fn push(&mut self, character: char) -> Result<(), Error> {
        self.grow(character.len_utf8())?;
        self.0.push(character);
        Ok(())
    }

    /// Appends a string `times` times.
    pub(crate) fn push_repeated(&mut self, text: &str, times: usize) -> Result<(), Error> {
        let bytes = text.len().saturating_mul(times);
        self.grow(bytes)?;
        let start = self.0.len();
        let end = start.saturating_add(bytes);
        if times > 0 {
            self.0.push_str(text);
        }
        while self.0.len() < end {
            let copied = self.0.len().min(start + (end - self.0.len()));
            self.0.extend_from_within(start..copied);
        }
        Ok(())
    }

    /// Appends the string with each `from` replaced by `to`. An empty `from` matches before each
    /// character and at the end.
    pub(crate) fn push_replaced(
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

    /// Appends the strings with the separator between them.
    pub(crate) fn push_joined<T: AsRef<str>>(
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

    /// Returns the string so far.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the string.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{super::start, MeteredText};

    const BYTES: usize = 1000;

    #[test]
    fn the_capacity_is_at_most_what_can_still_be_charged() {
        start(BYTES, |_| Vec::new());
        let mut text = MeteredText::default();
        while text.push_str("seven..").is_ok() {
            assert!(text.0.capacity() <= BYTES, "{}", text.0.capacity());
        }
        assert_eq!(text.as_str().len(), BYTES / 7 * 7);
    }

    #[test]
    fn a_repeated_text_is_appended_without_a_copy_beside_it() {
        for (repeated, times) in [("", 3), ("ab", 0), ("ab", 1), ("äb", 5), ("a", 900)] {
            start(BYTES, |_| Vec::new());
            let mut text = MeteredText::default();
            text.push_str("before").expect("it is short");
            let counted = allocation_counter::measure(|| {
                let pushed = text.push_repeated(repeated, times);
                assert!(pushed.is_ok(), "{times}");
            });
            assert_eq!(text.as_str(), ["before", &repeated.repeat(times)].concat());
            assert!(counted.bytes_max <= BYTES as u64, "{counted:?}");
        }
    }
}
