//! The order of the rows of a summary.

use std::cmp::{Ordering, Reverse};

use super::row::Row;

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// The state; ascending is worst first.
    #[default]
    State,
    /// The name.
    Name,
    /// How long it has been in its state; ascending is shortest first.
    For,
    /// The number of failing machine deployments.
    Failing,
    /// How long ago the last reconcile ended; ascending is shortest first.
    Reconcile,
    /// The version of its API server.
    Version,
}

impl Key {
    const ALL: [Self; 6] = [
        Self::State,
        Self::Name,
        Self::For,
        Self::Failing,
        Self::Reconcile,
        Self::Version,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Name => "name",
            Self::For => "for",
            Self::Failing => "failing",
            Self::Reconcile => "reconcile",
            Self::Version => "version",
        }
    }
}

/// From the lowest value to the highest, or back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// The lowest value is first.
    #[default]
    Ascending,
    /// The highest value is first.
    Descending,
}

/// The order of rows. Rows without a value are last in both directions, and rows with the same
/// value are sorted by state and name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    /// What rows are sorted by.
    pub key: Key,
    /// In which direction.
    pub direction: Direction,
}

impl Sort {
    /// Parses a key, behind a dash if it is descending: `-failing`. Returns the default, which is
    /// worst first, for anything else.
    pub fn parse(text: &str) -> Self {
        let (direction, name) = match text.strip_prefix('-') {
            Some(name) => (Direction::Descending, name),
            None => (Direction::Ascending, text),
        };
        let mut keys = Key::ALL.into_iter();
        let key = keys.find(|key| key.as_str() == name);
        key.map_or_else(Self::default, |key| Self { key, direction })
    }

    /// Returns the text that is parsed as this order.
    pub fn text(self) -> String {
        let dash = match self.direction {
            Direction::Ascending => "",
            Direction::Descending => "-",
        };
        format!("{dash}{}", self.key.as_str())
    }

    /// Returns the same key in the other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        let direction = match self.direction {
            Direction::Ascending => Direction::Descending,
            Direction::Descending => Direction::Ascending,
        };
        Self { direction, ..self }
    }

    /// Compares two rows.
    pub fn compare(self, a: &Row, b: &Row) -> Ordering {
        let failing = |row: &Row| row.machine_deployments.map(|it| it.failing);
        let reconcile = |row: &Row| row.last_reconcile.as_ref().map(|it| Reverse(it.at));
        let by_key = match self.key {
            Key::State => self.known_first(Some(a.state), Some(b.state)),
            Key::Name => self.known_first(Some(&a.name), Some(&b.name)),
            Key::For => self.known_first(a.since.map(Reverse), b.since.map(Reverse)),
            Key::Failing => self.known_first(failing(a), failing(b)),
            Key::Reconcile => self.known_first(reconcile(a), reconcile(b)),
            Key::Version => self.known_first(version(a), version(b)),
        };
        by_key.then_with(|| (a.state, &a.name).cmp(&(b.state, &b.name)))
    }

    fn known_first<T: Ord>(self, a: Option<T>, b: Option<T>) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) => match self.direction {
                Direction::Ascending => a.cmp(&b),
                Direction::Descending => b.cmp(&a),
            },
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

/// Returns the numbers of a version: `v1.9` is lower than `v1.10`.
fn version(row: &Row) -> Option<Vec<u64>> {
    let numbers = row
        .version
        .as_deref()?
        .split(|it: char| !it.is_ascii_digit());
    Some(numbers.filter_map(|number| number.parse().ok()).collect())
}
