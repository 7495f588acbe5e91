//! Reads the bodies of answers through the filter.

use std::{error::Error, io, iter, mem, num::NonZeroU32, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{future::BoxFuture, stream};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::Instant;
use tower::BoxError;

use crate::client::{
    memory::Reservation,
    rate_limit::Budget,
    response_filter::{EVENTS_MIB_MAX, Refused, ResponseFilter, Shape, WATCH_MIN},
    transport::ResponseBody,
};
use crate::tenant::policy::RequestBudget;

/// The maximum size of a page. For large objects, smaller pages are requested.
const PAGE_BYTES_MAX: usize = 32 << 20;
/// The maximum size of the body of an error response.
const STATUS_KIB_MAX: usize = 256;

/// The error for an error response that is too large.
#[derive(Debug, thiserror::Error)]
#[error("the answer is larger than {STATUS_KIB_MAX} KiB, and is not read")]
struct StatusTooLarge;

/// Returns the part of a body that is let through, in one piece. A list of frames would cost more
/// than its content if a hostile server sends one byte at a time. The memory stays reserved as long
/// as the bytes exist.
///
/// # Errors
///
/// Returns an error if the connection fails, the body exceeds a limit, or no memory is left for it.
pub(in crate::client) async fn read(
    mut body: ResponseBody,
    shape: Shape,
    mut memory: Option<Reservation>,
) -> Result<Bytes, BoxError> {
    let (mut filter, mut through, mut read) = (ResponseFilter::new(shape), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        read += data.len();
        if read > PAGE_BYTES_MAX {
            return Err(Refused::Page.into());
        }
        filter.push(data, &mut through)?;
        let has_memory = |it: &mut Reservation| it.resize(through.len() + filter.kept());
        if !memory.as_mut().is_none_or(has_memory) {
            return Err(Refused::Memory.into());
        }
    }
    let bytes = Reserved {
        bytes: through,
        _memory: memory,
    };
    Ok(Bytes::from_owner(bytes))
}

/// Bytes, with the memory that is reserved for them and for the objects in them.
struct Reserved {
    bytes: Vec<u8>,
    _memory: Option<Reservation>,
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads the whole body of an error response, which need not be JSON.
///
/// # Errors
///
/// Returns an error if the connection fails, or if the body is too large.
pub(in crate::client) async fn read_status(mut body: ResponseBody) -> Result<Bytes, BoxError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        if bytes.len() + data.len() > STATUS_KIB_MAX << 10 {
            return Err(StatusTooLarge.into());
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes.freeze())
}

/// The rate and burst of a watch in KiB. A machine deployment takes 5.
const PACE: RequestBudget = RequestBudget {
    per_second: kib(EVENTS_MIB_MAX << 10),
    burst: kib(32 << 10),
};
/// The cost of an event in KiB beyond its bytes: it is parsed and compared, and wakes its
/// followers.
const EVENT_KIB: usize = 4;

/// Shorter waits are not counted.
const WAIT_MIN: Duration = Duration::from_millis(1);

const fn kib(count: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(count - 1)
}

/// Returns a body with the events of a watch that are let through. A cluster that sends events
/// faster than its pace is slowed down: its data stays in the connection, and TCP makes it wait.
pub(in crate::client) fn events(
    body: ResponseBody,
    waited: Option<impl Fn(Duration) + Send + Sync + 'static>,
    memory: Option<Reservation>,
    lost: Option<BoxFuture<'static, ()>>,
) -> ResponseBody {
    let watch = Watch {
        body,
        lost: lost.unwrap_or_else(|| Box::pin(std::future::pending())),
        memory,
        filter: ResponseFilter::new(Shape::Events),
        begun: Instant::now(),
        has_failed: false,
        pace: waited.map(|waited| (Budget::new(PACE), waited)),
    };
    let frames = stream::try_unfold(watch, |mut watch| async {
        let through = watch.next().await?;
        Ok(through.map(|through| (Frame::data(through), watch)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The error for a watch whose connection is dead. Nothing else would reveal it.
#[derive(Debug, thiserror::Error)]
#[error("the server does not answer; the connection of the watch is given up")]
struct Lost;

struct Watch<W> {
    body: ResponseBody,
    /// Completes when the server is known not to answer.
    lost: BoxFuture<'static, ()>,
    memory: Option<Reservation>,
    filter: ResponseFilter,
    begun: Instant,
    has_failed: bool,
    pace: Option<(Budget, W)>,
}

impl<W: Fn(Duration)> Watch<W> {
    /// Returns the next whole events, or `None` at the end. kube restarts a watch at once after its
    /// end and after some errors. To enforce a delay, an early end is turned into a different
    /// error.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let through = self.read().await;
        let is_over = match &through {
            Ok(events) => events.is_none(),
            Err(error) => is_end(error),
        };
        let is_early = self.begun.elapsed() < WATCH_MIN;
        if is_over && is_early && !mem::replace(&mut self.has_failed, true) {
            return Err(io::Error::other(Refused::Ended));
        }
        through
    }

    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        if self.has_failed {
            return Ok(None);
        }
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = &mut self.lost => {
                    self.has_failed = true;
                    return Err(io::Error::other(Lost));
                }
            };
            let Some(frame) = frame else { return Ok(None) };
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            if let Some((budget, waited)) = &self.pace {
                let took = budget.take(cost(&data)).await;
                if took >= WAIT_MIN {
                    waited(took);
                }
            }
            let mut through = Vec::new();
            let pushed = self.filter.push(&data, &mut through);
            pushed.map_err(io::Error::other)?;
            let has_memory = |it: &mut Reservation| it.resize(self.filter.kept());
            if !self.memory.as_mut().is_none_or(has_memory) {
                return Err(io::Error::other(Refused::Memory));
            }
            // An object is passed on once it is complete.
            if !through.is_empty() {
                return Ok(Some(through.into()));
            }
        }
    }
}

/// Returns true for an error that kube treats as the end of a watch.
fn is_end(error: &io::Error) -> bool {
    let first: &(dyn Error + 'static) = error;
    let causes = iter::successors(Some(first), |&cause| cause.source());
    let mut causes = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    causes.any(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
        || error.to_string().contains("unexpected EOF")
}

/// Returns the cost of a frame in KiB. A frame costs at least one, so that a server that sends one
/// byte at a time pays for it.
fn cost(data: &[u8]) -> NonZeroU32 {
    let events = memchr::memchr_iter(b'\n', data).count();
    let cost = data.len().div_ceil(1 << 10) + events * EVENT_KIB;
    let cost = u32::try_from(cost.max(1)).unwrap_or(u32::MAX);
    NonZeroU32::new(cost).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;
    use crate::client::memory::{GUARANTEED_BYTES, Memory};

    const EVENT: &[u8] = b"{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}\n";

    fn many() -> ResponseBody {
        let frames = (0..1_000_000).map(|_| Ok(Frame::data(Bytes::from_static(EVENT))));
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    /// Returns the number of events within a minute. The watch may end earlier.
    async fn in_a_minute(mut body: ResponseBody) -> usize {
        let mut count = 0;
        let counting = async {
            while let Some(Ok(frame)) = body.frame().await {
                assert_eq!(frame.into_data().unwrap(), EVENT);
                count += 1;
            }
        };
        let _ = tokio::time::timeout(Duration::from_mins(1), counting).await;
        count
    }

    #[tokio::test(start_paused = true)]
    async fn events_without_end_are_taken_at_a_pace() {
        let slept = Arc::<AtomicU32>::default();
        let reported = Arc::clone(&slept);
        let waited = move |waited: Duration| {
            assert!(!waited.is_zero());
            reported.fetch_add(1, Ordering::Relaxed);
        };
        let count = in_a_minute(events(many(), Some(waited), None, None)).await;
        let kib = PACE.burst.get() + 60 * PACE.per_second.get();
        let expected = usize::try_from(kib).unwrap() / (1 + EVENT_KIB);
        assert!(count.abs_diff(expected) <= 10, "{count}, not {expected}");
        assert!(
            slept.load(Ordering::Relaxed) > 0,
            "the delay is not reported"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_events_of_the_management_cluster_are_taken_as_they_come() {
        let count = in_a_minute(events(many(), None::<fn(Duration)>, None, None)).await;
        assert_eq!(count, 1_000_000);
    }

    fn in_parts(parts: impl Iterator<Item = String> + Send + 'static) -> ResponseBody {
        let frames = parts.map(|part| Ok(Frame::data(Bytes::from(part))));
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    /// Returns a list of objects of 100 KiB.
    fn list(objects: usize) -> ResponseBody {
        let head = std::iter::once("{\"items\":[".to_owned());
        let object = |index| {
            let comma = if index == 0 { "" } else { "," };
            let long = "a".repeat(100 << 10);
            format!("{comma}{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{\"a\":\"{long}\"}}}}")
        };
        let objects = (0..objects).map(object);
        in_parts(head.chain(objects).chain(["]}".to_owned()]))
    }

    #[tokio::test]
    async fn beyond_the_guaranteed_memory_an_answer_reserves_what_is_left() {
        let none = Arc::new(Memory::within(0, 0));
        let read = async |memory: &Arc<Memory>, objects| {
            let memory = Some(Reservation::guaranteed(memory));
            read(list(objects), Shape::List(100), memory).await
        };
        let small = read(&none, 4).await.unwrap();
        assert!((800 << 10..GUARANTEED_BYTES).contains(&none.reserved()));
        drop(small);
        let error = read(&none, 20).await.err().unwrap();
        assert!(super::super::is_page_too_large(&*error), "{error}");
        assert_eq!(none.reserved(), 0);
        let plenty = Arc::new(Memory::unlimited());
        read(&plenty, 20).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_event_reserves_memory_until_it_is_whole() {
        let none = Arc::new(Memory::within(0, 0));
        let long = |kib: usize| {
            let head = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"},\"a\":\"";
            let long = (0..kib).map(|_| "a".repeat(1 << 10));
            let parts = std::iter::once(head.to_owned()).chain(long);
            in_parts(parts.chain(["\"}}\n".to_owned()]))
        };
        for (kib, fits) in [(900, true), (1_100, false)] {
            let memory = Some(Reservation::guaranteed(&none));
            let mut body = events(long(kib), None::<fn(Duration)>, memory, None);
            tokio::time::advance(WATCH_MIN).await;
            let mut is_read = true;
            while let Some(frame) = body.frame().await
                && is_read
            {
                is_read = frame.is_ok();
            }
            assert_eq!(is_read, fits, "{kib} KiB");
            assert!(!fits || none.reserved() == 0, "it is whole");
            drop(body);
            assert_eq!(none.reserved(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_ends_early_is_an_error_and_one_that_ends_late_is_none() {
        let watch = || {
            let empty = StreamBody::new(stream::empty());
            events(empty.boxed_unsync(), None::<fn(Duration)>, None, None)
        };
        let mut early = watch();
        let error = early.frame().await.expect("it says so").unwrap_err();
        assert!(super::super::has_ended(error.get_ref().unwrap()), "{error}");
        assert_ne!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(early.frame().await.is_none());
        let mut late = watch();
        tokio::time::advance(WATCH_MIN).await;
        assert!(late.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_server_is_frozen_is_given_up() {
        let pending = StreamBody::new(stream::pending()).boxed_unsync();
        let lost: BoxFuture<'static, ()> = Box::pin(tokio::time::sleep(Duration::from_secs(9)));
        let mut body = events(pending, None::<fn(Duration)>, None, Some(lost));
        let error = body.frame().await.expect("it says so").unwrap_err();
        assert!(error.to_string().contains("given up"), "{error}");
        assert!(body.frame().await.is_none());
    }
}
