//! Filters what an API server sends while it is read. Managed fields are left out. An object that
//! would take too much memory is reduced to the fields that identify it.
//!
//! ```text
//! bytes ──► ResponseFilter ──► object ──► weighed, trimmed or named ──► kube
//!              └─ around: lists and events, bounded
//! ```
//!
//! A body is read as a stream, and at most one object of a refused body is kept. The text that is
//! let through is parsed afterwards. So that both parsers find the same objects, the text around
//! the objects must have the form that API servers write: each event on one line, no escapes, and
//! only objects in the list.

pub(super) mod body;
mod object;
pub(super) mod request;

use std::time::Duration;

use http::StatusCode;
use memchr::memchr3;

use crate::api::weight;

/// An API server refuses objects over 1.5 MiB; with their managed fields they stay below this.
const TEXT_MIB_MAX: usize = 4;
const TEXT_BYTES_MAX: usize = TEXT_MIB_MAX << 20;
/// The maximum weight of an object in a list or a watch.
const OBJECT_MIB_MAX: usize = 2;
/// The maximum weight of an object that is fetched by itself, such as a CRD with its schema.
const SINGLE_MIB_MAX: usize = 8;
/// The maximum weight of a page. 100 machine deployments take 3 MiB.
const PAGE_MIB_MAX: usize = 8;
/// The maximum rate of a watch in MiB per second. Further events are read with a delay.
pub(super) const EVENTS_MIB_MAX: u32 = 4;
/// The maximum size of the text around the objects of a page, or around one event. A watch keeps
/// the resource version that is in it, and a list the token of its next page.
const AROUND_KIB_MAX: usize = 8;
/// The number of bytes of a key that are kept. The keys that matter are shorter.
const KEY_BYTES: usize = 8;

/// The shape of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A single object.
    Object,
    /// A list, with at most this number of objects under `items`.
    List(usize),
    /// Events of a watch, each in a line, with its object under `object`.
    Events,
}

/// The reason why the rest of an answer is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the list has more objects than were asked for")]
    Objects,
    #[error("the page would take more than {PAGE_MIB_MAX} MiB of memory")]
    Page,
    #[error("no memory is left for a page of this size")]
    Memory,
    #[error("the object would take more than {SINGLE_MIB_MAX} MiB of memory")]
    Object,
    #[error("an object of the answer is longer than {TEXT_MIB_MAX} MiB")]
    Text,
    #[error("the answer has more than {AROUND_KIB_MAX} KiB that belong to no object")]
    Around,
    #[error("an object of the answer has a name that no object can have")]
    Name,
    #[error("an object of the answer has a name, uid or resourceVersion longer than any object's")]
    Identity,
    #[error("the answer is not the JSON of a Kubernetes object")]
    Json,
    #[error("the server answers {0}, as no API server does")]
    Status(StatusCode),
    #[error("it ends within {} s of its beginning", WATCH_MIN.as_secs())]
    Ended,
}

/// A watch that ends sooner than this is retried with a growing delay. API servers end a watch
/// after minutes, proxies after half a minute.
const WATCH_MIN: Duration = Duration::from_secs(5);

/// Returns an error unless API servers answer with this status. A redirect or 204 would act as an
/// empty watch, which ends at once and is restarted without a delay.
pub(super) fn expect_answer(status: StatusCode) -> Result<(), Refused> {
    let is_answer = (status.is_success() && status != StatusCode::NO_CONTENT)
        || status.is_client_error()
        || status.is_server_error();
    is_answer.then_some(()).ok_or(Refused::Status(status))
}

/// Returns true if a watch was refused because it ended too soon.
pub(super) fn has_ended(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref() == Some(&Refused::Ended)
}

/// Filters one body.
#[derive(Debug)]
pub(super) struct ResponseFilter {
    shape: Shape,
    place: Place,
    /// The number of objects and lists that are open.
    depth: usize,
    /// The beginning of the last string at the first level, at most `KEY_BYTES` long.
    key: Vec<u8>,
    /// True while the objects of the list are read.
    is_in_items: bool,
    /// The text of the object that is being read, and the depth at which it began.
    object: Option<(usize, Vec<u8>)>,
    /// The number of objects of the page or of the event.
    objects: usize,
    /// The weight of the objects of the page so far.
    weight: usize,
    around: usize,
}

/// The position in the text: between strings, in a string, or after a backslash in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Between,
    InString,
    AfterBackslash,
}

impl ResponseFilter {
    /// Creates a filter for a body of this shape.
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            shape,
            place: Place::Between,
            depth: 0,
            key: Vec::new(),
            is_in_items: false,
            object: None,
            objects: 0,
            weight: 0,
            around: 0,
        }
    }

    /// Reads the next bytes, and appends those that are let through to `through`.
    ///
    /// # Errors
    ///
    /// Returns the reason why no more of the body may be read.
    pub(super) fn push(&mut self, bytes: &[u8], through: &mut Vec<u8>) -> Result<(), Refused> {
        // The bytes before `from` are handled already.
        let (mut from, mut at) = (0, 0);
        while let Some(&byte) = bytes.get(at) {
            match self.place {
                Place::InString => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    let length = memchr3(b'"', b'\\', b'\n', rest).unwrap_or(rest.len());
                    self.note_key(rest.get(..length).unwrap_or_default());
                    self.place = match rest.get(length) {
                        Some(b'"') => Place::Between,
                        Some(b'\\') if self.object.is_some() => Place::AfterBackslash,
                        Some(_) => return Err(Refused::Json),
                        None => Place::InString,
                    };
                    at += length + 1;
                }
                Place::AfterBackslash => {
                    self.place = Place::InString;
                    at += 1;
                }
                Place::Between => {
                    if byte == b'{' && self.object.is_none() && self.object_begins() {
                        self.keep(bytes.get(from..at).unwrap_or_default(), through)?;
                        from = at;
                        self.begin()?;
                    }
                    self.follow(byte)?;
                    at += 1;
                    let depth = self.object.as_ref().map(|(depth, _)| *depth);
                    if byte == b'}' && depth == Some(self.depth) {
                        self.keep(bytes.get(from..at).unwrap_or_default(), through)?;
                        from = at;
                        self.end(through)?;
                    }
                }
            }
        }
        self.keep(bytes.get(from..).unwrap_or_default(), through)
    }

    /// Returns the number of bytes to reserve for the objects so far and the one that is being
    /// read.
    pub(super) fn kept(&self) -> usize {
        let text = self.object.as_ref().map_or(0, |(_, text)| text.len());
        match self.shape {
            // Whole events are passed on, so they need no reservation.
            Shape::Events => text,
            Shape::Object | Shape::List(_) => self.weight.saturating_add(text),
        }
    }

    /// Reads a byte outside of strings.
    fn follow(&mut self, byte: u8) -> Result<(), Refused> {
        if self.object.is_none() && self.is_strange(byte) {
            return Err(Refused::Json);
        }
        match byte {
            b'"' => {
                self.place = Place::InString;
                if self.depth == 1 {
                    self.key.clear();
                }
            }
            b'{' | b'[' => {
                if self.depth == 1 {
                    self.is_in_items = byte == b'[' && self.key == b"items";
                }
                self.depth += 1;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b'\n' if self.shape == Shape::Events => {
                if self.depth > 0 {
                    return Err(Refused::Json);
                }
                // The next event begins.
                self.around = 0;
                self.objects = 0;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns true if a byte between the objects could belong to an object that this filter would
    /// not recognize as one.
    fn is_strange(&self, byte: u8) -> bool {
        match self.shape {
            Shape::List(_) if self.is_in_items && self.depth == 2 => {
                !byte.is_ascii_whitespace() && !matches!(byte, b',' | b']')
            }
            Shape::Events => byte == b'[',
            Shape::List(_) | Shape::Object => false,
        }
    }

    fn note_key(&mut self, text: &[u8]) {
        if self.depth == 1 {
            let room = KEY_BYTES.saturating_sub(self.key.len());
            self.key.extend(text.iter().take(room));
        }
    }

    fn object_begins(&self) -> bool {
        match self.shape {
            Shape::Object => self.depth == 0,
            Shape::List(_) => self.is_in_items && self.depth == 2,
            Shape::Events => self.depth == 1 && self.key == b"object",
        }
    }

    fn begin(&mut self) -> Result<(), Refused> {
        self.objects += 1;
        match self.shape {
            Shape::List(most) if self.objects > most => return Err(Refused::Objects),
            // An event on one line, which is parsed as a whole, has one object.
            Shape::Events | Shape::Object if self.objects > 1 => return Err(Refused::Json),
            _ => {}
        }
        self.object = Some((self.depth, Vec::new()));
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8], through: &mut Vec<u8>) -> Result<(), Refused> {
        if let Some((_, text)) = &mut self.object {
            if text.len() + bytes.len() > TEXT_BYTES_MAX {
                return Err(Refused::Text);
            }
            text.extend_from_slice(bytes);
            return Ok(());
        }
        self.around += bytes.len();
        if self.around > AROUND_KIB_MAX << 10 {
            return Err(Refused::Around);
        }
        through.extend_from_slice(bytes);
        Ok(())
    }

    fn end(&mut self, through: &mut Vec<u8>) -> Result<(), Refused> {
        let Some((_, text)) = self.object.take() else {
            return Ok(());
        };
        let object = object::trimmed(&text)?;
        let weight = weight::of(&object);
        if self.shape == Shape::Object {
            if weight > SINGLE_MIB_MAX << 20 {
                return Err(Refused::Object);
            }
            through.extend_from_slice(&object);
            return Ok(());
        }
        let before = through.len();
        if weight > OBJECT_MIB_MAX << 20 {
            through.extend_from_slice(&object::named(&object, weight)?);
            self.weight += through.len() - before;
        } else {
            through.extend_from_slice(&object);
            self.weight += weight;
        }
        if matches!(self.shape, Shape::List(_)) && self.weight > PAGE_MIB_MAX << 20 {
            return Err(Refused::Page);
        }
        Ok(())
    }
}

/// Returns true if the content of an answer was refused, and not the connection that it came by.
pub(super) fn is_refusal(error: &(dyn std::error::Error + 'static)) -> bool {
    // The `source` of an I/O error is that of the error which it wraps.
    let io = error.downcast_ref::<std::io::Error>();
    let wrapped = io.and_then(|io| io.get_ref()?.downcast_ref::<Refused>());
    error.is::<Refused>() || wrapped.is_some()
}

/// Returns true if a list failed because a page was too large. A page of fewer objects may succeed.
pub(super) fn is_page_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&cause| cause.source());
    let is_page = |refused: &Refused| matches!(refused, Refused::Page | Refused::Memory);
    causes.any(|cause| cause.downcast_ref().is_some_and(is_page))
}

/// Returns the error as a watch reports it.
#[cfg(test)]
pub(super) fn page_too_large() -> kube::runtime::watcher::Error {
    let refused = kube::Error::Service(Refused::Page.into());
    kube::runtime::watcher::Error::InitialListFailed(refused)
}

/// Returns the error as a body reports it.
#[cfg(test)]
pub(super) fn refused_name() -> impl std::error::Error + Send + Sync {
    Refused::Name
}

#[cfg(test)]
mod tests;
