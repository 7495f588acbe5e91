//! Log lines: their form, what they may contain, and the trace that they belong to.
//!
//! One event is one line, whatever is in it. What other crates may log is bounded here, because
//! some of them log what they received: no setting widens that.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use clap::ValueEnum;
use parking_lot::Mutex;
use tracing::{Event, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::filter::{EnvFilter, FilterExt, Targets};
use tracing_subscriber::fmt::format::{self, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt as log};

use crate::telemetry::{TelemetryError, traces};

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line, for machines.
    #[default]
    Json,
    /// One line of text, for people.
    Text,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        <Self as ValueEnum>::from_str(text, false)
    }
}

/// Logs to `writer` what passes `filter` and the ceiling.
///
/// The ceiling is a filter of its own beside the user's: both must agree. In one filter the most
/// specific directive would win, and `kube_client::client=debug` would lift ours.
///
/// # Errors
///
/// The filter cannot be parsed.
pub fn layer<S, W>(
    writer: W,
    format: LogFormat,
    filter: &str,
) -> Result<Box<dyn Layer<S> + Send + Sync>, TelemetryError>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let wanted = EnvFilter::builder()
        .parse(filter)
        .map_err(|source| TelemetryError::Filter {
            filter: filter.to_owned(),
            source,
        })?;
    let filter = wanted.and(ceiling());
    Ok(match format {
        LogFormat::Json => {
            let object = log::format()
                .json()
                .flatten_event(true)
                .with_current_span(false);
            log::layer()
                .fmt_fields(JsonFields::new())
                .event_format(Line {
                    event: object,
                    format,
                })
                .with_writer(writer)
                .with_filter(filter)
                .boxed()
        }
        LogFormat::Text => log::layer()
            .with_ansi(false)
            .event_format(Line {
                event: log::format().with_ansi(false),
                format,
            })
            .with_writer(writer)
            .with_filter(filter)
            .boxed(),
    })
}

/// The most that each crate may log.
///
/// - `kube_client::client` logs the whole body of an answer that it cannot read, at WARN, and
///   error answers and headers below that: kubeconfigs and tokens. Its errors name only a status.
/// - `kube_runtime::watcher` logs errors whole, and those quote values of what it received.
/// - Below INFO any HTTP or TLS library shows frames and headers, and with them bearer tokens;
///   so nobody but ourselves goes below.
fn ceiling() -> Targets {
    Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("osm", LevelFilter::TRACE)
        .with_target("kube_client::client", LevelFilter::ERROR)
        .with_target("kube_runtime::watcher", LevelFilter::ERROR)
}

/// Writes an event as one line that ends with the ids of the current trace and span.
struct Line<F> {
    event: F,
    format: LogFormat,
}

impl<S, N, F> FormatEvent<S, N> for Line<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.event
            .format_event(context, format::Writer::new(&mut line), event)?;
        let line = line.trim_end();
        match self.format {
            LogFormat::Json => finish_object(line, writer),
            LogFormat::Text => finish_text(line, writer),
        }
    }
}

/// The formatter has closed the object; the ids go inside, at the top level.
fn finish_object(object: &str, mut writer: Writer<'_>) -> fmt::Result {
    match (object.strip_suffix('}'), traces::current()) {
        (Some(open), Some(context)) => writeln!(
            writer,
            r#"{open},"trace_id":"{}","span_id":"{}"}}"#,
            context.trace_id(),
            context.span_id()
        ),
        _ => writeln!(writer, "{object}"),
    }
}

/// Returns the text as one line that can be shown on a terminal: characters that begin a line,
/// control the terminal or change the direction of writing are escaped. Tabs stay.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let is_bidirectional = matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
        );
        let is_separator = matches!(character, '\u{2028}' | '\u{2029}');
        if character != '\t' && (character.is_control() || is_bidirectional || is_separator) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A value that contains a line break must not look like our own line.
fn finish_text(line: &str, mut writer: Writer<'_>) -> fmt::Result {
    writer.write_str(&printable(line))?;
    if let Some(context) = traces::current() {
        write!(
            writer,
            " trace_id={} span_id={}",
            context.trace_id(),
            context.span_id()
        )?;
    }
    writeln!(writer)
}

/// Log lines in memory, for tests: a clone is given to [`layer`], and the other is read.
#[derive(Clone, Debug, Default)]
pub struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl LogBuffer {
    /// Everything that was logged.
    pub fn text(&self) -> String {
        let bytes = self.0.lock();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl io::Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogBuffer {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shown_as_one_line_that_controls_nothing() {
        for (text, shown) in [
            ("v1.36.0", "v1.36.0"),
            ("größer\t→ 日本", "größer\t→ 日本"),
            ("a\nb\r", "a\\nb\\r"),
            ("\u{1b}[2J\u{7}\u{7f}", "\\u{1b}[2J\\u{7}\\u{7f}"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{61c}\u{200e}\u{200f}", "\\u{61c}\\u{200e}\\u{200f}"),
            ("\u{202a}\u{202e}", "\\u{202a}\\u{202e}"),
            ("\u{2066}\u{2069}\u{206f}", "\\u{2066}\\u{2069}\\u{206f}"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
        ] {
            assert_eq!(printable(text), shown);
            assert_eq!(printable(shown), shown, "what is escaped stays");
        }
    }
}
