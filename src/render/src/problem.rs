//! Errors of Go's functions. Their texts may quote the template's source, but never a value.

use std::{borrow::Cow, error, fmt};

use minijinja::{Error, ErrorKind};

/// Marks an error whose text quotes no value, so that it may be shown.
#[derive(Debug)]
pub(super) struct QuotesNoValue;

impl fmt::Display for QuotesNoValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("quotes no value")
    }
}

impl error::Error for QuotesNoValue {}

/// Creates an error with a text that quotes no value.
pub(super) fn refuse(text: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text).with_source(QuotesNoValue)
}

/// Returns true if an error's text may be shown.
pub(super) fn quotes_no_value(error: &Error) -> bool {
    error::Error::source(error).is_some_and(<dyn error::Error>::is::<QuotesNoValue>)
}
