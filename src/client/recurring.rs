//! Decides which failures of a retried operation are logged: each when it begins, not at every
//! attempt.

use crate::tenant::report::is_same_failure;

/// The last logged failure of an operation that is retried.
#[derive(Debug, Default)]
pub struct Recurring {
    last: Option<String>,
}

impl Recurring {
    /// Returns true if the failure differs from the one that was logged last. Different numbers are
    /// not a difference.
    pub fn is_news(&mut self, failure: &str) -> bool {
        let last = self.last.as_deref();
        let is_news = !last.is_some_and(|last| is_same_failure(last, failure));
        if is_news {
            self.last = Some(failure.to_owned());
        }
        is_news
    }

    /// Records a success. Returns true if the operation had failed before.
    pub fn is_over(&mut self) -> bool {
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_news_when_it_begins_and_when_its_cause_changes() {
        let mut failure = Recurring::default();
        assert!(!failure.is_over());
        assert!(failure.is_news("port 1: reset"));
        assert!(!failure.is_news("port 2: reset"));
        assert!(failure.is_news("refused"));
        assert!(failure.is_over());
        assert!(failure.is_news("refused"));
    }
}
