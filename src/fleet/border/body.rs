//! Bodies of answers, as they are let through.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tower::BoxError;

use super::{Border, Refused, Shape};
use crate::fleet::connect::ResponseBody;

/// A page is read up to this size; of large objects fewer are asked for.
const PAGE_BYTES_MAX: usize = 32 << 20;
/// What an API server says where it refuses.
const STATUS_KIB_MAX: usize = 256;

/// An answer that refuses, and is too large.
#[derive(Debug, thiserror::Error)]
#[error("the answer is larger than {STATUS_KIB_MAX} KiB, and is not read")]
struct StatusTooLarge;

/// What is let through of a body, in one piece: a list of frames would cost more than what is in
/// them, where a hostile server sends a byte at a time.
///
/// # Errors
///
/// When the connection fails, or the body has more than it may.
pub(in crate::fleet) async fn read(
    mut body: ResponseBody,
    shape: Shape,
) -> Result<Bytes, BoxError> {
    let (mut border, mut through, mut read) = (Border::new(shape), Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let data = frame.data_ref().map_or(&[][..], |data| data);
        read += data.len();
        if read > PAGE_BYTES_MAX {
            return Err(Refused::Page.into());
        }
        border.push(data, &mut through)?;
    }
    Ok(through.into())
}

/// The whole of a body that says why a request is refused: it need not be JSON.
///
/// # Errors
///
/// When the connection fails, or the body has more than it may.
pub(in crate::fleet) async fn read_status(mut body: ResponseBody) -> Result<Bytes, BoxError> {
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

/// What is let through of the events of a watch.
pub(in crate::fleet) struct Events {
    body: ResponseBody,
    border: Border,
}

impl Events {
    /// Of the body of a watch.
    pub(in crate::fleet) fn new(body: ResponseBody) -> Self {
        Self {
            body,
            border: Border::new(Shape::Events),
        }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let mut through = Vec::new();
            if let Err(refused) = self.border.push(&data, &mut through) {
                return Poll::Ready(Some(Err(io::Error::other(refused))));
            }
            // Of an object that is not at its end yet nothing is handed on.
            if !through.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(through.into()))));
            }
        }
    }
}
