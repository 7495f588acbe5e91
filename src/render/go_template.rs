//! The boundary behind which profiles in Go's template language will be served.
//!
//! Until then such a profile is refused with the field that names its language.

use super::error::RenderError;

/// Refuses a profile in Go's template language.
pub(super) fn refuse() -> RenderError {
    RenderError::UnsupportedLanguage {
        language: "GoTemplate",
    }
}
