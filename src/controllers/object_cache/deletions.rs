//! Deletions that a late event or answer may contradict.

use std::collections::VecDeque;

use super::LogicalTime;

/// The newest deletions, by the uid of the object. Older ones are forgotten: a cluster that never
/// reports a deletion would otherwise have them kept without end.
#[derive(Debug)]
pub(super) struct Deletions {
    newest: VecDeque<(String, LogicalTime)>,
    max: usize,
}

impl Deletions {
    pub(super) const fn of_at_most(max: usize) -> Self {
        Self {
            newest: VecDeque::new(),
            max,
        }
    }

    pub(super) fn add(&mut self, uid: String, at: LogicalTime) {
        self.newest.push_front((uid, at));
        self.newest.truncate(self.max);
    }

    pub(super) fn at(&self, uid: &str) -> Option<LogicalTime> {
        let mut newest = self.newest.iter();
        newest
            .find(|(deleted, _)| deleted == uid)
            .map(|(_, at)| *at)
    }

    /// Forgets a deletion. Returns false if it is not known.
    pub(super) fn remove(&mut self, uid: &str) -> bool {
        let before = self.newest.len();
        self.newest.retain(|(deleted, _)| deleted != uid);
        self.newest.len() < before
    }

    pub(super) fn forget_before(&mut self, time: LogicalTime) {
        self.newest.retain(|(_, at)| *at > time);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.newest.len()
    }
}
