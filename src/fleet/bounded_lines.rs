//! The body of a watch, with lines of bounded length. A watch never ends, so its size says nothing;
//! but whoever reads it keeps a line until its end, and a hostile server could send none.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame};

use super::connect::ResponseBody;

/// An API server refuses objects over 1.5 MiB; an event is one of them with a few words around it.
const LINE_MIB_MAX: usize = 4;
const LINE_BYTES_MAX: usize = LINE_MIB_MAX * 1024 * 1024;

/// A body that fails where a line grows too long.
pub(super) struct BoundedLines {
    body: ResponseBody,
    /// What the last line has so far.
    line_bytes: usize,
}

impl BoundedLines {
    /// Bounds the lines of a body.
    pub(super) fn new(body: ResponseBody) -> Self {
        Self {
            body,
            line_bytes: 0,
        }
    }

    /// Counts what came; a line that begins and ends in it is no longer than what a server may send
    /// at once.
    fn count(&mut self, data: &[u8]) -> io::Result<()> {
        let is_break = |byte: &u8| *byte == b'\n';
        let first = data.iter().position(is_break).unwrap_or(data.len());
        if self.line_bytes + first > LINE_BYTES_MAX {
            let why = format!("a line of the watch is longer than {LINE_MIB_MAX} MiB");
            return Err(io::Error::other(why));
        }
        self.line_bytes = match data.iter().rposition(is_break) {
            Some(last) => data.len() - last - 1,
            None => self.line_bytes + data.len(),
        };
        Ok(())
    }
}

impl Body for BoundedLines {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(frame.and_then(|frame| {
            self.count(frame.data_ref().map_or(&[], |data| data))?;
            Ok(frame)
        })))
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// What is read of a body with these parts before it fails, and whether it fails.
    async fn read(parts: Vec<Vec<u8>>) -> (usize, bool) {
        let frames = parts.into_iter().map(|part| Ok(Frame::data(part.into())));
        let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
        let mut body = BoundedLines::new(body);
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes += frame.into_data().unwrap_or_default().len(),
                Err(_) => return (bytes, true),
            }
        }
        (bytes, false)
    }

    #[tokio::test]
    async fn a_watch_may_go_on_for_ever_but_a_line_may_not() {
        let half = vec![b'a'; LINE_BYTES_MAX / 2];
        let ended = [half.as_slice(), b"\n"].concat();
        let lines = vec![half.clone(), ended.clone(), half.clone(), ended.clone()];
        let bytes = lines.iter().map(Vec::len).sum();
        assert_eq!(read(lines).await, (bytes, false));
        let line = vec![half.clone(), half.clone(), b"a".to_vec(), half.clone()];
        assert_eq!(read(line).await, (LINE_BYTES_MAX, true));
        let late = vec![ended.clone(), half.clone(), half, ended];
        let (_, fails) = read(late).await;
        assert!(fails);
    }
}
