//! The order in which the join check visits the machine deployments of a tenant.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Selects the next machine deployment of a tenant to check, by its key.
#[derive(Debug, Default)]
pub struct JoinQueue {
    state: Mutex<State>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The one whose machines could not join. It is checked until they can.
    failed: Option<String>,
    /// Those for which something was written since their last check.
    changed: BTreeSet<String>,
    /// The last one that was selected round-robin.
    last: Option<String>,
}

impl JoinQueue {
    /// Records that something was written for a machine deployment.
    pub fn changed(&self, key: &str) {
        self.state.lock().changed.insert(key.to_owned());
        self.notify.notify_one();
    }

    /// Forgets the keys that are not in use.
    pub fn keep(&self, is_in_use: impl Fn(&str) -> bool) {
        self.state.lock().changed.retain(|key| is_in_use(key));
    }

    /// Waits until something was written for a machine deployment.
    pub async fn is_due(&self) {
        self.notify.notified().await;
    }

    /// Returns one of these keys: the one that failed, else one that changed, else the next one,
    /// round-robin.
    pub fn next(&self, keys: &BTreeSet<String>) -> Option<String> {
        let mut state = self.state.lock();
        state.changed.retain(|key| keys.contains(key));
        state.failed.take_if(|key| !keys.contains(key));
        if state.failed.is_some() {
            return state.failed.clone();
        }
        if let Some(changed) = state.changed.pop_first() {
            return Some(changed);
        }
        let after = state.last.clone().unwrap_or_default();
        let mut later = keys.iter().filter(|key| **key > after);
        let next = later.next().or_else(|| keys.first()).cloned();
        state.last.clone_from(&next);
        next
    }

    /// Records the end of a check. A machine deployment that failed is checked again until its
    /// machines can join.
    pub fn ended(&self, failed: Option<&str>) {
        self.state.lock().failed = failed.map(str::to_owned);
    }

    /// Returns true if the machines of a machine deployment could not join.
    pub fn has_failed(&self, key: &str) -> bool {
        self.state.lock().failed.as_deref() == Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_failed_come_first_then_those_that_changed_then_all_round_robin() {
        let queue = JoinQueue::default();
        let keys: BTreeSet<String> = ["a", "b", "c"].map(str::to_owned).into();
        let next = || queue.next(&keys).unwrap();
        assert_eq!([next(), next(), next(), next()], ["a", "b", "c", "a"]);
        queue.changed("c");
        queue.changed("gone");
        assert_eq!([next(), next()], ["c", "b"]);
        queue.ended(Some("a"));
        assert_eq!([next(), next()], ["a", "a"]);
        queue.ended(None);
        assert_eq!(next(), "c");
        queue.ended(Some("b"));
        queue.ended(None);
        assert_eq!(
            next(),
            "a",
            "the others do not wait for what comes to nothing"
        );
        assert_eq!(queue.next(&BTreeSet::new()), None);
    }
}
