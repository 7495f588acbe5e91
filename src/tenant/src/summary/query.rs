//! What a reader of a summary asks for.

use super::{row::Row, state::State};

/// The highest number of characters of a query.
pub(super) const QUERY_CHARACTERS_MAX: usize = 200;

/// Selects tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The text that the name, cause or version contains, in lower case. If empty, all tenants
    /// match.
    query: String,
    /// The state; `None` matches all.
    state: Option<State>,
}

impl Filter {
    /// Parses a query and the name of a state. An unknown state is ignored.
    pub fn new(query: &str, state: &str) -> Self {
        let query = query.trim().to_lowercase();
        Self {
            query: query.chars().take(QUERY_CHARACTERS_MAX).collect(),
            state: State::parse(state.trim()),
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

    /// Returns true if a row matches.
    pub fn keeps(&self, row: &Row) -> bool {
        if self.state.is_some_and(|state| state != row.state) {
            return false;
        }
        let mut texts = [Some(&row.name), row.why.as_ref(), row.version.as_ref()]
            .into_iter()
            .flatten();
        self.query.is_empty() || texts.any(|text| text.to_lowercase().contains(&self.query))
    }
}
