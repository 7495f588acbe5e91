//! Text for people: lines and tables. No character of a name or message can begin another line or
//! control the terminal; the only control sequences are our own colors.

use tabled::{
    builder::Builder,
    settings::{
        Color, Padding, Style, Width,
        object::{Cell as At, Columns},
    },
};

use crate::telemetry::logs::printable;

/// The number of spaces between columns.
const GAP: usize = 2;

/// The layout of text for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// All columns are shown.
    pub(super) is_wide: bool,
    /// Columns have headings.
    pub(super) has_headings: bool,
}

/// Lines for people.
#[derive(Debug, Default)]
pub(super) struct Text(Vec<String>);

impl Text {
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        self.0.push(printable(line.as_ref()));
    }

    /// Adds an empty line and a heading.
    pub(super) fn section(&mut self, heading: &str) {
        self.line("");
        self.line(heading);
    }

    /// Adds the lines of tables, which are printable.
    pub(super) fn rows(&mut self, lines: impl IntoIterator<Item = String>) {
        self.0.extend(lines);
    }

    pub(super) fn lines(&self) -> &[String] {
        &self.0
    }
}

impl From<&Table> for Text {
    fn from(table: &Table) -> Self {
        Self(table.lines(&[]))
    }
}

impl<L: AsRef<str>> FromIterator<L> for Text {
    fn from_iter<I: IntoIterator<Item = L>>(lines: I) -> Self {
        let lines = lines.into_iter();
        Self(lines.map(|line| printable(line.as_ref())).collect())
    }
}

/// How good the content of a cell is, which decides its color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// Neither.
    Plain,
    /// As it should be.
    Good,
    /// It may need attention, or passes by itself.
    Doubtful,
    /// Somebody must act.
    Wrong,
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn new(text: &str, tone: Tone) -> Self {
        Self {
            text: printable(text),
            tone,
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text.as_ref(), Tone::Plain)
    }
}

/// A table without lines between its cells, as kubectl prints it.
#[derive(Clone, Debug, Default)]
pub(super) struct Table(Vec<Vec<Cell>>);

impl Table {
    /// Creates a table with these headings, if the layout has any.
    pub(super) fn new<'a>(
        layout: Layout,
        headings: impl IntoIterator<Item = &'a &'static str>,
    ) -> Self {
        let headings = headings.into_iter().map(Cell::from).collect();
        Self(Vec::from_iter(layout.has_headings.then_some(headings)))
    }

    pub(super) fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        self.0.push(row.into_iter().collect());
    }

    /// Returns the width of each column in characters.
    pub(super) fn widths(&self) -> Vec<usize> {
        let mut widths = Vec::new();
        for row in &self.0 {
            widths.resize(row.len().max(widths.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.text.chars().count().max(*width);
            }
        }
        widths
    }

    /// Returns one line per row. Each column has at least the given width.
    pub(super) fn lines(&self, widths_min: &[usize]) -> Vec<String> {
        let mut builder = Builder::with_capacity(self.0.len(), 0);
        for row in &self.0 {
            builder.push_record(row.iter().map(|cell| &cell.text));
        }
        let mut table = builder.build();
        table.with(Style::empty()).with(Padding::new(0, GAP, 0, 0));
        for (column, &width) in widths_min.iter().enumerate() {
            table.modify(Columns::one(column), Width::increase(width));
        }
        for (line, row) in self.0.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let color = match cell.tone {
                    Tone::Plain => continue,
                    Tone::Good => Color::FG_GREEN,
                    Tone::Doubtful => Color::FG_YELLOW,
                    Tone::Wrong => Color::FG_RED,
                };
                table.modify(At::new(line, column), color);
            }
        }
        let lines = table.to_string();
        lines.lines().map(|it| it.trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        is_wide: false,
        has_headings: true,
    };

    #[test]
    fn columns_are_aligned_whatever_is_in_them() {
        let mut table = Table::new(LAYOUT, &["NAME", "STATE", "MESSAGE"]);
        table.push([
            "berlin".into(),
            Cell::new("Refused", Tone::Wrong),
            "a\nb\x1b[2J".into(),
        ]);
        table.push(["münchen-süd".into(), "Ready".into(), "".into()]);
        let red = "\x1b[31mRefused\x1b[39m";
        assert_eq!(
            table.lines(&[]),
            [
                "NAME         STATE    MESSAGE".to_owned(),
                format!("berlin       {red}  a\\nb\\u{{1b}}[2J"),
                "münchen-süd  Ready".to_owned(),
            ]
        );
        assert_eq!(table.widths().first(), Some(&11));
        let mut further = Table::default();
        further.push(["bonn".into(), "Ready".into()]);
        assert_eq!(further.lines(&table.widths()), ["bonn         Ready"]);
    }

    #[test]
    fn a_table_without_rows_has_no_lines() {
        assert!(Table::default().lines(&[3]).is_empty());
    }
}
