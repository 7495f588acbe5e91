//! The memory of reviews under way, by their source.
//!
//! Each source may take as much as is left for all others. So one that takes all it can has half
//! of it, and later clients find room.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Error,
    body::{Body, Bytes},
};
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::port::Source;

/// The memory limit of all reviews under way: the largest of one API server,
/// and dozens of ordinary ones.
pub(super) const BYTES_MAX: usize = 64 << 20;

/// The memory for reviews; a clone is the same memory.
#[derive(Clone, Default)]
pub(super) struct MemoryPool(Arc<Room>);

#[derive(Default)]
struct Room {
    taken: Mutex<Taken>,
    less: Notify,
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_source: HashMap<Option<Source>, usize>,
}

/// The memory of one review; dropping it frees the memory.
pub(super) struct Share {
    pool: MemoryPool,
    source: Option<Source>,
    bytes: usize,
}

/// The body is larger than it may be, or broke off.
#[derive(Debug)]
pub(super) struct Unreadable;

impl From<Error> for Unreadable {
    fn from(_: Error) -> Self {
        Self
    }
}

impl MemoryPool {
    /// The share of a review that takes nothing yet.
    pub(super) fn share(&self, source: Option<Source>) -> Share {
        Share {
            pool: self.clone(),
            source,
            bytes: 0,
        }
    }
}

impl Share {
    /// Reads a body of at most `max` bytes, with room for each part before it is kept.
    pub(super) async fn read(&mut self, body: Body, max: usize) -> Result<Vec<u8>, Unreadable> {
        let (mut whole, mut parts) = (Vec::new(), body.into_data_stream());
        while let Some(part) = parts.next().await {
            let part: Bytes = part?;
            let length = whole.len() + part.len();
            if length > max {
                return Err(Unreadable);
            }
            if length > whole.capacity() {
                let capacity = length.next_power_of_two().min(max);
                self.reach(capacity).await;
                whole.reserve_exact(capacity - whole.len());
            }
            whole.extend_from_slice(&part);
        }
        Ok(whole)
    }

    /// Waits until this share has this many bytes.
    pub(super) async fn reach(&mut self, bytes: usize) {
        let room = Arc::clone(&self.pool.0);
        loop {
            let less = room.less.notified();
            tokio::pin!(less);
            // What is given back from here on is not missed.
            less.as_mut().enable();
            if self.take(bytes) {
                return;
            }
            less.await;
        }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let mut taken = self.pool.0.taken.lock();
        let own = taken.by_source.get(&self.source).copied().unwrap_or(0) + more;
        if own > (BYTES_MAX - taken.total).saturating_sub(more) {
            return false;
        }
        taken.total += more;
        taken.by_source.insert(self.source, own);
        drop(taken);
        self.bytes += more;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.pool.0.taken.lock();
        taken.total -= self.bytes;
        if let Some(own) = taken.by_source.get_mut(&self.source) {
            *own -= self.bytes;
            if *own == 0 {
                taken.by_source.remove(&self.source);
            }
        }
        drop(taken);
        self.pool.0.less.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures::{FutureExt as _, poll};

    use super::*;

    const MIB: usize = 1 << 20;

    fn source(number: u8) -> Source {
        Source::of([10, 0, 0, number].into())
    }

    #[tokio::test]
    async fn who_takes_all_it_can_leaves_room_for_another() {
        let pool = MemoryPool::default();
        let mut greedy = Vec::new();
        loop {
            let mut share = pool.share(Some(source(1)));
            if share.reach(4 * MIB).now_or_never().is_none() {
                break;
            }
            greedy.push(share);
        }
        assert_eq!(greedy.len(), 8, "half of it");
        let mut other = pool.share(Some(source(2)));
        assert!(other.reach(16 * MIB).now_or_never().is_some());
        // What it has counts: it takes as much more as it asked for in all.
        let mut third = pool.share(Some(source(3)));
        assert!(third.reach(12 * MIB).now_or_never().is_none());
        assert!(third.reach(8 * MIB).now_or_never().is_some());
        assert!(third.reach(9 * MIB).now_or_never().is_none());
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_something_is_given_back() {
        let pool = MemoryPool::default();
        let mut first = pool.share(Some(source(1)));
        first.reach(20 * MIB).await;
        let mut second = pool.share(Some(source(1)));
        let mut waiting = Box::pin(second.reach(20 * MIB));
        assert!(poll!(&mut waiting).is_pending());
        drop(first);
        assert_eq!(poll!(&mut waiting), Poll::Ready(()));
        drop(waiting);
        drop(second);
        let taken = pool.0.taken.lock();
        assert_eq!((taken.total, taken.by_source.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_body_is_read_while_it_has_room() {
        let pool = MemoryPool::default();
        let mut share = pool.share(Some(source(1)));
        let body = || {
            let parts = (0..5).map(|_| Ok::<_, std::io::Error>(vec![b'x'; MIB]));
            Body::from_stream(futures::stream::iter(parts))
        };
        let read = share.read(body(), 5 * MIB).await.unwrap();
        assert_eq!(read.len(), 5 * MIB);
        assert_eq!(pool.0.taken.lock().total, read.capacity());
        assert!(
            pool.share(Some(source(1)))
                .read(body(), 5 * MIB - 1)
                .await
                .is_err()
        );
        let mut rest = pool.share(Some(source(1)));
        rest.reach(BYTES_MAX / 2 - 7 * MIB).await;
        let mut late = pool.share(Some(source(1)));
        assert!(late.read(body(), 5 * MIB).now_or_never().is_none());
    }
}
