//! What a reader of a summary asks for.

use jiff::Timestamp;

use super::{overview::is_recent, row::Row, state::State};
use crate::report::excerpt;

/// The highest number of characters of a query.
pub(super) const QUERY_CHARACTERS_MAX: usize = 200;
/// The only value of `changed`: the last hour.
const LAST_HOUR: &str = "1h";

/// Selects tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The text that the name, cause or version contains, in lower case. If empty, all tenants
    /// match.
    query: String,
    /// The state; `None` matches all.
    state: Option<State>,
    /// A state that does not exist, so that no tenant matches.
    unknown_state: Option<String>,
    /// The reason of the first problem; `None` matches all.
    reason: Option<String>,
    /// True if only tenants match whose state began in the last hour.
    is_recent: bool,
}

impl Filter {
    /// Sets a parameter of a query string: `q`, `state`, `reason` or `changed`. An empty value
    /// matches all tenants. Other parameters are ignored.
    pub fn set(&mut self, name: &str, value: &str) {
        let value = value.trim();
        match name {
            "q" => {
                let query = value.to_lowercase();
                self.query = query.chars().take(QUERY_CHARACTERS_MAX).collect();
            }
            "state" => {
                self.state = State::parse(value);
                let is_unknown = self.state.is_none() && !value.is_empty();
                self.unknown_state = is_unknown.then(|| excerpt(value, QUERY_CHARACTERS_MAX));
            }
            "reason" => {
                let reason = excerpt(value, QUERY_CHARACTERS_MAX);
                self.reason = Some(reason).filter(|it| !it.is_empty());
            }
            "changed" => self.is_recent = value == LAST_HOUR,
            _ => {}
        }
    }

    /// Returns the query in lower case.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// Returns the state.
    pub const fn state(&self) -> Option<State> {
        self.state
    }

    /// Returns the state that was asked for, and does not exist.
    pub fn unknown_state(&self) -> Option<&str> {
        self.unknown_state.as_deref()
    }

    /// Returns the reason.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Returns the value of `changed`; empty if tenants match whose state began at any time.
    pub const fn changed(&self) -> &'static str {
        if self.is_recent { LAST_HOUR } else { "" }
    }

    /// Returns true if all tenants match.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if a row matches at this time.
    pub fn keeps(&self, row: &Row, now: Timestamp) -> bool {
        if self.unknown_state.is_some()
            || self.state.is_some_and(|state| state != row.state)
            || (self.reason.is_some() && self.reason != row.reason)
            || (self.is_recent && !is_recent(row, now))
        {
            return false;
        }
        let mut texts = [Some(&row.name), row.why.as_ref(), row.version.as_ref()]
            .into_iter()
            .flatten();
        self.query.is_empty() || texts.any(|text| text.to_lowercase().contains(&self.query))
    }
}
