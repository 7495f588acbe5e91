//! The program under the names of those that it stands in for: `osm-controller` and `webhook`, with
//! the flags that KubeOne and KKP give them.

use std::{ffi::OsString, path::Path, process::ExitCode};

use super::run::run_until_a_signal;
use crate::app;
use crate::settings::drop_in::{
    CONTROLLER_FLAGS, ControllerFlags, Flag, Read, Stop, WEBHOOK_FLAGS, WebhookFlags, read,
};

/// A program that this one stands in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Controller,
    Webhook,
}

/// Runs in the place of another program, where the command line has its name.
pub fn run(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let called = words.next()?;
    let program = match Path::new(&called).file_name()?.to_str()? {
        "osm-controller" => Program::Controller,
        "webhook" => Program::Webhook,
        _ => return None,
    };
    let called = called.to_string_lossy();
    // What is no text is no value of any flag.
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    Some(match program {
        Program::Controller => start(&called, (CONTROLLER_FLAGS, &words), controller),
        Program::Webhook => start(&called, (WEBHOOK_FLAGS, &words), |read| {
            webhook(&read.flags)
        }),
    })
}

fn start<T: Default>(
    called: &str,
    (known, words): (&[Flag<T>], &[String]),
    run: fn(Read<T>) -> anyhow::Result<()>,
) -> ExitCode {
    match read(called, known, words) {
        Err(Stop { text, code }) => {
            eprint!("{text}");
            ExitCode::from(code)
        }
        Ok(read) => match run(read) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn controller(read: Read<ControllerFlags>) -> anyhow::Result<()> {
    let settings = read.flags.check()?;
    let telemetry = settings.telemetry.clone();
    run_until_a_signal(&telemetry, async move |cancel| {
        warn_of(&read.ignored);
        app::single::run(settings, cancel).await
    })
}

/// The seam for the admission webhooks: flags are read and judged, and nothing listens yet.
fn webhook(flags: &WebhookFlags) -> anyhow::Result<()> {
    flags.check()?;
    anyhow::bail!("admission webhooks are not built in")
}

/// Words behind the end of the flags have no effect, which is seldom what was meant.
fn warn_of(ignored: &[String]) {
    if !ignored.is_empty() {
        tracing::warn!(?ignored, "words behind the last flag have no effect");
    }
}
