//! The output formats, which mean the same for each command.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_saphyr::SerializerOptions;

use super::{
    output,
    table::{Layout, Text},
};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for people
    #[value(alias = "text")]
    Table,
    /// The same, with more columns
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// Only the names, one per line
    Name,
}

/// The flags of a command that prints a result.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct OutputFlags {
    /// The output format
    #[arg(
        short,
        long,
        alias = "format",
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub(super) output: Format,
    /// Print no headings
    #[arg(long)]
    no_headers: bool,
}

impl From<Format> for OutputFlags {
    fn from(output: Format) -> Self {
        Self {
            output,
            no_headers: false,
        }
    }
}

impl OutputFlags {
    pub(super) fn layout(self) -> Layout {
        Layout {
            is_wide: self.output == Format::Wide,
            has_headings: !self.no_headers,
        }
    }

    /// Prints what a command found: as a value, by its names, or as text.
    pub(super) fn print<T: Serialize>(
        self,
        found: &T,
        names: impl IntoIterator<Item = String>,
        text: impl FnOnce(Layout) -> Text,
    ) -> anyhow::Result<()> {
        match self.output {
            Format::Table | Format::Wide => output::text(&text(self.layout())),
            Format::Json => output::document(serde_json::to_string_pretty(found)? + "\n"),
            Format::Yaml => {
                let value = serde_json::to_value(found)?;
                output::document(output::yaml(&value, SerializerOptions::default())?)
            }
            Format::Name => output::lines(names),
        }
    }
}
