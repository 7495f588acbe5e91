//! `osm run`: settings, telemetry, signals, and then the app.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app;
use crate::commands::doctor::{DESCRIPTORS_BESIDE, DESCRIPTORS_PER_CLUSTER};
use crate::settings::RunFlags;
use crate::telemetry::{self, TelemetrySettings};

/// The exit code of a process that was ended by a second signal.
const EXIT_AT_ONCE: i32 = 130;

pub(super) fn run(flags: RunFlags) -> anyhow::Result<()> {
    let settings = flags.check()?;
    let telemetry = settings.telemetry.clone();
    run_until_a_signal(&telemetry, async move |cancel| {
        app::run(settings, cancel).await
    })
}

/// Runs a task that ends once it is cancelled, with telemetry around it.
pub(super) fn run_until_a_signal<W>(
    telemetry: &TelemetrySettings,
    work: impl FnOnce(CancellationToken) -> W,
) -> anyhow::Result<()>
where
    W: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let telemetry = telemetry::start(telemetry)?;
        hide_panic_messages();
        raise_descriptor_limit();
        let cancel = CancellationToken::new();
        let signals = follow_signals(&cancel);
        tokio::pin!(signals);
        let ended = tokio::select! {
            ended = work(cancel.clone()) => ended,
            never = &mut signals => return never,
        };
        // A second signal also counts while the last spans are exported.
        tokio::select! {
            () = telemetry.shutdown() => ended,
            never = &mut signals => never,
        }
    })
}

/// Ends the process gracefully at the first signal, and immediately at the second.
async fn follow_signals(cancel: &CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    either(&mut terminate, &mut interrupt).await;
    tracing::info!("ending; a second signal ends at once");
    cancel.cancel();
    either(&mut terminate, &mut interrupt).await;
    std::process::exit(EXIT_AT_ONCE);
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Raises the limit of file descriptors. Shells and services start with 1,024, which are too few
/// for a large fleet, and allow far more on request.
fn raise_descriptor_limit() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(descriptors) => {
            let clusters = descriptors.saturating_sub(DESCRIPTORS_BESIDE) / DESCRIPTORS_PER_CLUSTER;
            tracing::info!(
                descriptors,
                clusters,
                "descriptors are enough for this many clusters"
            );
        }
        Err(error) => {
            tracing::warn!(%error, "the limit of descriptors cannot be raised; it may stop a large fleet");
        }
    }
}

/// Logs only the place of a panic. Its message may contain a tenant's data.
fn hide_panic_messages() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        tracing::error!(place, "a panic");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::logs::LogBuffer;

    #[test]
    fn a_panic_is_reported_by_its_place_alone() {
        let logs = LogBuffer::default();
        let (dispatch, _telemetry) =
            telemetry::prepare(&TelemetrySettings::default(), logs.clone()).unwrap();
        let before = std::panic::take_hook();
        hide_panic_messages();
        tracing::dispatcher::with_default(&dispatch, || {
            let panicked = std::panic::catch_unwind(|| panic!("{}", "c4n4ry".to_owned()));
            assert!(panicked.is_err());
        });
        std::panic::set_hook(before);
        assert!(logs.text().contains("run.rs"), "{}", logs.text());
        assert!(!logs.text().contains("c4n4ry"), "{}", logs.text());
    }
}
