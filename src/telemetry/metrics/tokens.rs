//! The known bootstrap tokens, by cluster: the page shows the sum of them all, and no
//! series of any cluster.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;

/// The tokens of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokensKnown {
    /// How many there are.
    pub count: usize,
    /// When the first of them ends; nothing where none does.
    pub first_end: Option<Timestamp>,
}

/// The tokens by cluster.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<HashMap<String, TokensKnown>>);

impl Ledger {
    pub(super) fn set(&self, cluster: &str, tokens: TokensKnown) {
        let mut known = self.0.lock();
        match known.get_mut(cluster) {
            Some(before) => *before = tokens,
            None => drop(known.insert(cluster.to_owned(), tokens)),
        }
    }

    pub(super) fn remove(&self, cluster: &str) {
        let mut known = self.0.lock();
        known.remove(cluster);
    }

    pub(super) fn sum(&self) -> TokensKnown {
        let known = self.0.lock();
        TokensKnown {
            count: known.values().map(|it| it.count).sum(),
            first_end: known.values().filter_map(|it| it.first_end).min(),
        }
    }
}
