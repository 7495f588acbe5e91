//! `osm tenants`: shows the fleet in a table.

use std::{fmt::Write as _, process::ExitCode};

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use super::{clusters::ManagementFlags, output};
use crate::commands::tenants::{self, News, Row, Selection};

/// The flags of `osm tenants`.
#[derive(Args, Debug)]
pub(super) struct TenantsFlags {
    /// Show only the tenant with this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    management: ManagementFlags,
    /// The output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
    /// Continue, and print every change as a further line
    #[arg(short, long)]
    watch: bool,
}

/// The output format of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// A table with server and message.
    Wide,
    /// JSON for programs: an array, or with --watch one object per line.
    Json,
}

const COLUMNS: [&str; 10] = [
    "TENANT", "NAME", "STATE", "SINCE", "VERSION", "MDS", "CURRENT", "OUTDATED", "FAILING", "AGE",
];
const WIDE: [&str; 3] = ["SERVER", "PAUSED", "MESSAGE"];
/// The minimum width of columns in lines that are printed one by one.
const WIDTH_MIN: usize = 9;

pub(super) fn run(flags: &TenantsFlags) -> anyhow::Result<ExitCode> {
    let selection = Selection {
        management: flags.management.way(),
        namespace: flags.namespace.clone(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if flags.watch {
        runtime.block_on(watch(&selection, flags.output))?;
        return Ok(output::SUCCESS);
    }
    let rows = runtime.block_on(tenants::list(&selection))?;
    match flags.output {
        Format::Json => output::document(serde_json::to_string_pretty(&rows)? + "\n")?,
        format => output::lines(table(&rows, format))?,
    }
    Ok(output::SUCCESS)
}

fn table(rows: &[Row], format: Format) -> Vec<String> {
    let now = now();
    let mut lines = vec![heading(format)];
    lines.extend(rows.iter().map(|row| cells(row, format, now)));
    let mut widths = vec![0; lines.first().map_or(0, Vec::len)];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    lines.iter().map(|cells| line(cells, &widths)).collect()
}

async fn watch(selection: &Selection, format: Format) -> anyhow::Result<()> {
    let mut widths = vec![WIDTH_MIN; heading(format).len()];
    if format != Format::Json {
        output::lines([line(&heading(format), &widths)])?;
    }
    tenants::watch(selection, &mut move |news| match (news, format) {
        (News::Row(row), Format::Json) => output::document(serde_json::to_string(&row)? + "\n"),
        (News::Gone(tenant, name), Format::Json) => {
            let gone = serde_json::json!({ "tenant": tenant, "name": name, "gone": true });
            output::document(format!("{gone}\n"))
        }
        (News::Row(row), format) => {
            let cells = cells(&row, format, now());
            for (width, cell) in widths.iter_mut().zip(&cells) {
                *width = cell.chars().count().max(*width);
            }
            output::lines([line(&cells, &widths)])
        }
        (News::Gone(tenant, name), _) => {
            output::lines([line(&[tenant, name, "Gone".to_owned()], &widths)])
        }
    })
    .await
}

fn heading(format: Format) -> Vec<String> {
    let wide = WIDE.iter().filter(|_| format == Format::Wide);
    COLUMNS
        .iter()
        .chain(wide)
        .map(|&it| it.to_owned())
        .collect()
}

fn cells(row: &Row, format: Format, now: Timestamp) -> Vec<String> {
    let number = |number: Option<u32>| number.map_or_else(dash, |it| it.to_string());
    let text = |text: &Option<String>| text.clone().unwrap_or_else(dash);
    let age = |time: Option<Timestamp>| time.map_or_else(dash, |it| age(it, now));
    let mut cells = vec![
        row.tenant.clone(),
        row.name.clone(),
        row.state.clone(),
        age(row.since),
        text(&row.version),
        number(row.machine_deployments),
        number(row.served),
        number(row.outdated),
        row.failing.to_string(),
        age(row.created),
    ];
    if format == Format::Wide {
        cells.push(text(&row.server));
        cells.push(row.paused.to_string());
        cells.push(row.message.replace('\n', " "));
    }
    cells
}

fn dash() -> String {
    "-".to_owned()
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let _ = write!(line, "{cell:<width$}  ");
    }
    line.trim_end().to_owned()
}

/// Returns an age such as `12s`, `5m`, `3h` or `40d`, roughly as kubectl prints it.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn now() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_their_own_unit() {
        let begin = Timestamp::UNIX_EPOCH;
        for (seconds, told) in [(5, "5s"), (600, "10m"), (10_800, "3h"), (864_000, "10d")] {
            let now = Timestamp::from_second(seconds).unwrap();
            assert_eq!(age(begin, now), told);
        }
        assert_eq!(age(Timestamp::from_second(9).unwrap(), begin), "0s");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let row = Row {
            tenant: "tenant-of-a-long-name".to_owned(),
            name: "berlin".to_owned(),
            state: "Ready".to_owned(),
            since: None,
            version: None,
            served: Some(2),
            machine_deployments: Some(3),
            outdated: None,
            failing: 1,
            created: None,
            server: Some("https://berlin.example".to_owned()),
            paused: false,
            message: String::new(),
        };
        let lines = table(&[row], Format::Wide);
        let [first, second] = lines.as_slice() else {
            panic!("a heading and a row: {lines:?}");
        };
        assert_eq!(first.find("SERVER"), second.find("https://"));
        assert_eq!(first.find("FAILING"), second.find("1  "));
    }
}
