//! Traces that others began, as W3C Trace Context writes them: `00-TRACE-SPAN-FLAGS`.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The header, and the annotation.
pub const TRACEPARENT: &str = "traceparent";

/// Lets a span stand below the one that called, where a `traceparent` of it is given. An invalid
/// one is ignored; so is a span that has begun.
pub fn follow(span: &Span, traceparent: Option<&str>) {
    if let Some(caller) = traceparent.and_then(read) {
        let caller = opentelemetry::Context::new().with_remote_span_context(caller);
        // It fails where nothing is traced.
        let _ = span.set_parent(caller);
    }
}

/// Links a span to the one that a `traceparent` names. Invalid values are ignored.
pub fn link(span: &Span, traceparent: Option<&str>) {
    if let Some(cause) = traceparent.and_then(read) {
        span.add_link(cause);
    }
}

/// Reads a `traceparent`. A version that is not known may have more behind it.
fn read(text: &str) -> Option<SpanContext> {
    let mut parts = text.trim().split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (span, flags) = (parts.next()?, parts.next()?);
    let rest = parts.next();
    let is_hex = |part: &str, length: usize| {
        part.len() == length
            && part
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_one = is_hex(version, 2)
        && is_hex(trace, 32)
        && is_hex(span, 16)
        && is_hex(flags, 2)
        && version != "ff"
        && (version != "00" || rest.is_none());
    let context = is_one.then(|| {
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(SpanContext::new(
            TraceId::from_hex(trace).ok()?,
            SpanId::from_hex(span).ok()?,
            TraceFlags::new(flags) & TraceFlags::SAMPLED,
            true,
            TraceState::default(),
        ))
    });
    context.flatten().filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn valid_traceparents_name_a_span_and_invalid_ones_name_nothing() {
        let whole = format!("00-{TRACE}-{SPAN}-01");
        let read_back = read(&whole).unwrap();
        assert_eq!(read_back.trace_id().to_string(), TRACE);
        assert_eq!(read_back.span_id().to_string(), SPAN);
        assert!(read_back.is_sampled() && read_back.is_remote());
        assert!(!read(&format!("00-{TRACE}-{SPAN}-00")).unwrap().is_sampled());
        assert!(read(&format!("01-{TRACE}-{SPAN}-01-more")).is_some());
        let zeros = "0".repeat(32);
        for none in [
            String::new(),
            TRACE.to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-{SPAN}-zz"),
            "00-ä-b-c".to_owned(),
        ] {
            assert!(read(&none).is_none(), "{none}");
        }
    }
}
