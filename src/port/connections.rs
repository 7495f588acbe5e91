//! The connections of a port, and who leaves where one more is to come.

use std::collections::HashMap;

use tokio::{
    sync::watch,
    task::{AbortHandle, Id, JoinSet},
    time::Instant,
};

use super::Source;

/// Connections that are open, never more than may be.
pub(super) struct Connections {
    max: usize,
    open: HashMap<Id, Open>,
    tasks: JoinSet<()>,
}

struct Open {
    source: Source,
    since: Instant,
    useful: watch::Receiver<Instant>,
    task: AbortHandle,
}

impl Connections {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            open: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Lets a connection in. Where there are as many as may be, another one is closed.
    pub(super) fn admit(
        &mut self,
        (source, useful): (Source, watch::Receiver<Instant>),
        served: impl Future<Output = ()> + Send + 'static,
    ) {
        if self.open.len() >= self.max
            && let Some(leaves) = self.who_leaves(source)
            && let Some(open) = self.open.remove(&leaves)
        {
            open.task.abort();
        }
        let task = self.tasks.spawn(served);
        let since = *useful.borrow();
        let open = Open {
            source,
            since,
            useful,
            task,
        };
        self.open.insert(open.task.id(), open);
    }

    /// Of those of the source that holds the most, the newcomer counted: the oldest one that was
    /// never of use, or else the one that was of use the longest time ago.
    fn who_leaves(&self, newcomer: Source) -> Option<Id> {
        let mut held = HashMap::from([(newcomer, 1)]);
        for open in self.open.values() {
            *held.entry(open.source).or_insert(0) += 1;
        }
        let most = held.values().max();
        let of_the_largest = |open: &Open| held.get(&open.source) == most;
        let candidates = self.open.iter().filter(|(_, open)| of_the_largest(open));
        let least = candidates.min_by_key(|(_, open)| {
            let useful = *open.useful.borrow();
            (useful != open.since, useful)
        });
        least.map(|(id, _)| *id)
    }

    /// Waits until a connection has ended, and makes room. Without any it never ends.
    pub(super) async fn one_ended(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => self.forget(id),
            Some(Err(error)) => self.forget(error.id()),
            None => std::future::pending().await,
        }
    }

    /// Waits until all have ended.
    pub(super) async fn all_ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    fn forget(&mut self, id: Id) {
        self.open.remove(&id);
    }
}
