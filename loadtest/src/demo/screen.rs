//! What a person sees: steps with their time, headings, tables. Colours and moving lines appear on
//! a terminal only; a pipe gets plain text.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tokio::time::{Instant, interval};

/// Often enough to see that something moves.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
const SPINNER: [&str; 4] = ["|", "/", "-", "\\"];

/// Where everything is printed.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    terminal: bool,
    colour: bool,
}

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Headings and names.
    Bold,
    /// What matters less.
    Dim,
    /// What went well.
    Good,
    /// What did not.
    Bad,
}

impl Look {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Bad => "31",
        }
    }
}

impl Screen {
    /// Looks at what standard output is, and whether the user wants colours.
    #[expect(
        clippy::disallowed_methods,
        reason = "NO_COLOR is the convention of all programs with colours"
    )]
    pub fn of_this_process() -> Self {
        let terminal = io::stdout().is_terminal();
        let refused = std::env::var("NO_COLOR").is_ok_and(|value| !value.is_empty());
        Self {
            terminal,
            colour: terminal && !refused,
        }
    }

    /// The text with a look, where there are colours.
    pub fn paint(self, look: Look, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{}m{text}\u{1b}[0m", look.code())
        } else {
            text.to_owned()
        }
    }

    /// Prints one line, or several.
    pub fn print(self, text: &str) {
        // A reader that has gone away is no reason to stop: the clusters must still be ended.
        let _ = writeln!(io::stdout(), "{text}");
    }

    /// Prints a heading, after an empty line.
    pub fn heading(self, text: &str) {
        self.print(&format!("\n{}", self.paint(Look::Bold, text)));
    }

    /// Waits for some work, shows that it goes on, and says how long it took.
    pub async fn step<T, E>(
        self,
        what: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        let result = self.watched(what, begun, work).await;
        let (mark, look) = match &result {
            Ok(_) => ("ok", Look::Good),
            Err(_) => ("failed", Look::Bad),
        };
        let took = seconds(begun.elapsed());
        let took = self.paint(Look::Dim, &took);
        let mark = self.paint(look, &format!("{mark:>6}"));
        self.clear_line();
        self.print(&format!("{mark}  {what}  {took}"));
        result
    }

    async fn watched<T>(self, what: &str, begun: Instant, work: impl Future<Output = T>) -> T {
        if !self.terminal {
            return work.await;
        }
        let mut redraw = interval(REDRAW_INTERVAL);
        let mut spinner = SPINNER.iter().cycle();
        tokio::pin!(work);
        loop {
            tokio::select! {
                // Work that is done ends the line.
                biased;
                result = &mut work => return result,
                _ = redraw.tick() => {
                    let turn = spinner.next().unwrap_or(&"");
                    let took = self.paint(Look::Dim, &seconds(begun.elapsed()));
                    self.clear_line();
                    let _ = write!(io::stdout(), "{turn:>6}  {what}  {took}");
                    let _ = io::stdout().flush();
                }
            }
        }
    }

    /// Removes what a step has drawn so far.
    pub fn clear_line(self) {
        if self.terminal {
            let _ = write!(io::stdout(), "\r\u{1b}[K");
        }
    }

    /// Prints rows below their titles, each column as wide as it must be.
    pub fn table<const N: usize>(self, titles: [&str; N], rows: &[[String; N]]) {
        let mut lines = aligned(titles, rows).into_iter();
        if let Some(first) = lines.next() {
            self.print(&self.paint(Look::Dim, &first));
        }
        for line in lines {
            self.print(&line);
        }
    }
}

/// A duration as people read it.
pub fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn aligned<const N: usize>(titles: [&str; N], rows: &[[String; N]]) -> Vec<String> {
    let titles = titles.map(str::to_owned);
    let all = || std::iter::once(&titles).chain(rows);
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = all().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    });
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        format!("  {}", cells.join("  ")).trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["tenant-berlin".to_owned(), "True".to_owned()],
            ["x".to_owned(), "False".to_owned()],
        ];
        assert_eq!(
            aligned(["TENANT", "READY"], &rows),
            [
                "  TENANT         READY",
                "  tenant-berlin  True",
                "  x              False",
            ]
        );
    }

    #[test]
    fn a_pipe_gets_no_colours() {
        let screen = Screen {
            terminal: false,
            colour: false,
        };
        assert_eq!(screen.paint(Look::Bold, "text"), "text");
    }
}
