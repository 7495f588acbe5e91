//! The record of requests that a cluster has seen, for tests that ask "who wrote what, and when".
//! It is bounded and forgets the oldest; it is not a log and prints nothing.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::request::{Target, Verb};

/// One request as the cluster saw it.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    /// Counts all requests of the cluster from 1.
    pub sequence: u64,
    /// When the answer was made.
    pub at: Instant,
    /// What was asked for.
    pub verb: Verb,
    /// On which object; empty fields for paths that are no resources.
    pub target: Target,
    /// The path without its query.
    pub path: String,
    /// Who asked.
    pub user: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The status code of the answer; 0 when none was sent.
    pub code: u16,
    /// Whether it was a dry run.
    pub dry_run: bool,
    /// Whether an object was created, changed or removed.
    pub wrote: bool,
}

#[derive(Debug)]
pub(crate) struct Audit {
    entries: VecDeque<AuditEntry>,
    entries_max: usize,
    sequence: u64,
}

impl Audit {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            entries_max,
            sequence: 0,
        }
    }

    pub(crate) fn record(&mut self, mut entry: AuditEntry) {
        self.sequence += 1;
        entry.sequence = self.sequence;
        self.entries.push_back(entry);
        while self.entries.len() > self.entries_max {
            self.entries.pop_front();
        }
    }

    pub(crate) fn entries(&self) -> Vec<AuditEntry> {
        self.entries.iter().cloned().collect()
    }

    pub(crate) fn count(&self, is_one: impl Fn(&AuditEntry) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_one(entry)).count()
    }

    pub(crate) fn take(&mut self) -> Vec<AuditEntry> {
        std::mem::take(&mut self.entries).into()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    pub(crate) fn requests(&self) -> u64 {
        self.sequence
    }
}
