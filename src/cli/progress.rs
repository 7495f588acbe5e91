//! Shows on a terminal that a command goes on, and how far it is, once it has taken two seconds.

use std::{future::Future, pin::pin, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{interval, sleep};

use crate::commands::count::Count;
use crate::tenant::report::counted;

/// Who has to wait for longer wants to know for what.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the line is drawn.
const TICK: Duration = Duration::from_millis(200);

/// A line at the end of the terminal, on stderr. Without a terminal, it is not shown.
pub(super) struct Progress {
    bar: ProgressBar,
    terminal: fn() -> ProgressDrawTarget,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr)
    }

    fn on(terminal: fn() -> ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}{elapsed}") {
            bar.set_style(style);
        }
        Self { bar, terminal }
    }

    /// Prints lines above this one.
    pub(super) fn suspended<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Waits for work that handles tenants.
    pub(super) async fn counting<T>(&self, count: &Count, work: impl Future<Output = T>) -> T {
        self.during(work, || match count.read() {
            (_, 0) => String::new(),
            (done, all) => format!("{done} of {}, ", counted(all, "tenant", "tenants")),
        })
        .await
    }

    /// Waits for work that prints its own steps.
    pub(super) async fn waiting<T>(&self, work: impl Future<Output = T>) -> T {
        self.during(work, String::new).await
    }

    async fn during<T>(&self, work: impl Future<Output = T>, text: impl Fn() -> String) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            ended = &mut work => return ended,
            () = sleep(PATIENCE) => {}
        }
        self.bar.set_draw_target((self.terminal)());
        let mut ticks = interval(TICK);
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut work => break ended,
                _ = ticks.tick() => {
                    self.bar.set_message(text());
                    self.bar.tick();
                }
            }
        };
        self.bar.finish_and_clear();
        ended
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use indicatif::InMemoryTerm;

    use super::*;

    static TERMINAL: LazyLock<InMemoryTerm> = LazyLock::new(|| InMemoryTerm::new(4, 60));

    #[tokio::test(start_paused = true)]
    async fn a_command_that_takes_longer_than_two_seconds_shows_how_far_it_is() {
        let count = Count::default();
        count.begin(3);
        let progress = Progress::on(|| ProgressDrawTarget::term_like(Box::new(TERMINAL.clone())));
        let seen = progress.counting(&count, async {
            sleep(PATIENCE / 2).await;
            let early = TERMINAL.contents();
            count.advance();
            sleep(PATIENCE).await;
            (early, TERMINAL.contents())
        });
        let (early, late) = seen.await;
        assert_eq!(early, "");
        assert!(late.contains("1 of 3 tenants, "), "{late}");
        assert_eq!(TERMINAL.contents(), "", "it leaves nothing");
    }
}
