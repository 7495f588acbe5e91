//! Every watch is made here or by a caller of this, in one order: watcher, prune, reflect,
//! interpret, backoff last.
//!
//! The order matters: a watcher that fails to list yields an event between two errors, and a
//! backoff that sees that event starts again from its first delay, about once a second for ever.

use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::runtime::{
    WatchStreamExt,
    watcher::{self, Event},
};

use super::retry_delay::RetryDelay;
use crate::telemetry::logs::chain;

/// The first delay of a watch that failed.
const FIRST: Duration = Duration::from_millis(500);
/// The cap: a cluster that comes back is seen within half a minute.
const CAP: Duration = Duration::from_secs(15);

/// Interprets a watch's events for ever. Failures are logged when they begin, and retried.
pub fn interpret<K, T>(
    what: &'static str,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    mut interpret: impl FnMut(Event<K>) -> Option<T> + Send,
) -> impl Stream<Item = T> + Send
where
    T: Send,
{
    let mut is_failing = false;
    events
        .filter_map(move |event| {
            std::future::ready(match event {
                Ok(event) => interpret(event).map(Ok),
                Err(error) => Some(Err(error)),
            })
        })
        .backoff(RetryDelay::new(FIRST, CAP))
        .filter_map(move |item| {
            let item = item
                .inspect_err(|error| {
                    if !is_failing {
                        tracing::warn!(what, error = %chain(error), "a watch failed");
                    }
                })
                .ok();
            is_failing = item.is_none();
            std::future::ready(item)
        })
}
