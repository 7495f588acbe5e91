//! The program under the names of those that it replaces: `osm-controller` and `webhook`, with the
//! flags that KubeOne and KKP pass to them.

use std::{ffi::OsString, path::Path, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use tokio::net::TcpListener;

use super::{output, run::run_until_a_signal};
use crate::app::{
    self,
    webhook::{Certificates, Params},
};
use crate::render_worker::Pool;
use crate::settings::drop_in::{
    CONTROLLER_FLAGS, ControllerFlags, Flag, Read, Stop, WEBHOOK_FLAGS, WebhookFlags, read,
};
use crate::telemetry::metrics::{Component, Metrics};

/// The address of the webhooks. No flag changes it.
const WEBHOOK_ADDRESS: &str = "[::]:9443";

/// A program that this one replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Controller,
    Webhook,
}

/// Runs as another program, if the command line has its name. Returns `None` otherwise.
pub fn run(mut words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let called = words.next()?;
    let program = match Path::new(&called).file_name()?.to_str()? {
        "osm-controller" => Program::Controller,
        "webhook" => Program::Webhook,
        _ => return None,
    };
    let called = called.to_string_lossy();
    // Text that is not UTF-8 is not a valid value of any flag.
    let words: Vec<String> = words
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    Some(match program {
        Program::Controller => start(&called, (CONTROLLER_FLAGS, &words), controller),
        Program::Webhook => start(&called, (WEBHOOK_FLAGS, &words), webhook),
    })
}

fn start<T: Default>(
    called: &str,
    (known, words): (&[Flag<T>], &[String]),
    run: fn(Read<T>) -> anyhow::Result<()>,
) -> ExitCode {
    match read(called, known, words) {
        Err(Stop { text, code }) => {
            output::usage(&text);
            ExitCode::from(code)
        }
        Ok(read) => match run(read) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                output::error(&error);
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

fn webhook(read: Read<WebhookFlags>) -> anyhow::Result<()> {
    let settings = read.flags.check()?;
    let telemetry = settings.telemetry.clone();
    run_until_a_signal(&telemetry, async move |cancel| {
        warn_of(&read.ignored);
        let mut admins = Vec::new();
        for address in &settings.admin_addresses {
            admins.push(listen(address).await?);
        }
        let params = Params {
            listener: listen(WEBHOOK_ADDRESS).await?,
            admins,
            certificates: Certificates::FileWatcher(settings.certificate_folder),
            metrics: Metrics::of(Component::Webhook, None),
            workers: Arc::new(Pool::of_this_program()),
        };
        app::webhook::run(params, cancel).await
    })
}

async fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| format!("cannot listen on {address}"))
}

/// Warns of words after the last flag. They have no effect, which is rarely intended.
fn warn_of(ignored: &[String]) {
    if !ignored.is_empty() {
        tracing::warn!(?ignored, "words behind the last flag have no effect");
    }
}
