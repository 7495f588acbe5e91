//! `osm tenants`: shows the fleet in a table.

use std::{cmp::Reverse, collections::BTreeMap, path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::{
    clusters::{ManagementFlags, ManagerNamespace, SelectionFlags},
    format::{Format, OutputFlags},
    output,
    table::{Cell, Layout, Table, Text, Tone},
};
use crate::api::{
    change::Class,
    reason::{Reason, Severity},
};
use crate::commands::{
    inventory,
    tenants::{self, Row, TenantEvent},
};
use crate::settings::inventories;
use crate::tenant::inventory::Inventory;

/// The flags of `osm tenants`.
#[derive(Args, Debug)]
pub(super) struct TenantsFlags {
    #[command(flatten)]
    selection: SelectionFlags,
    #[command(flatten)]
    management: ManagementFlags,
    #[command(flatten)]
    manager: ManagerNamespace,
    #[command(flatten)]
    output: OutputFlags,
    /// Show only tenants that are not ready, the worst first
    #[arg(long, conflicts_with_all = ["watch", "inventory"])]
    not_ready: bool,
    /// Continue, and print every change as a further line
    #[arg(short, long)]
    watch: bool,
    /// Show all worker clusters of an inventory, and why some are not served
    #[arg(
        long,
        value_name = "INVENTORY",
        num_args = 0..=1,
        default_missing_value = "kkp",
        conflicts_with_all = ["watch", "selector"]
    )]
    inventory: Option<String>,
    /// The file with the manager's rules for inventories
    #[arg(long, value_name = "FILE", requires = "inventory")]
    inventory_rules: Option<PathBuf>,
}

const COLUMNS: [&str; 12] = [
    "TENANT", "NAME", "STATE", "SINCE", "VERSION", "MDS", "CURRENT", "OUTDATED", "WAITING",
    "FAILING", "BEHIND", "AGE",
];
const INVENTORY: [&str; 5] = ["TENANT", "CLUSTER", "REPLICAS", "STATE", "MESSAGE"];
const WIDE: [&str; 5] = ["SERVER", "FLEET", "REPLICA", "PAUSED", "MESSAGE"];

pub(super) fn run(flags: TenantsFlags) -> anyhow::Result<ExitCode> {
    let (source, selection) = (flags.management.source(), flags.selection.selection());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (output, manager) = (flags.output, flags.manager.manager_namespace);
    if let Some(name) = flags.inventory {
        let mut rows = Vec::new();
        for inventory in inventories(&[name], flags.inventory_rules.as_deref())? {
            rows.extend(match inventory {
                Inventory::Label => bail!("osm tenants shows all clusters of this inventory"),
                Inventory::Kkp => {
                    runtime.block_on(inventory::kkp(&source, &selection, &manager))?
                }
                Inventory::Rule(rule) => {
                    runtime.block_on(inventory::of_rule((&source, &manager), &selection, &rule))?
                }
            });
        }
        return print_inventory(output, &rows);
    }
    if flags.watch {
        let mut widths = Vec::new();
        let mut handler = move |event| print(output, &mut widths, event);
        runtime.block_on(tenants::watch(
            &source,
            (&selection, &manager),
            &mut handler,
        ))?;
        return Ok(output::SUCCESS);
    }
    let listed = runtime.block_on(tenants::list(&source, &selection, &manager))?;
    if let Some(remark) = &listed.remark {
        output::note(&format!(
            "whether a manager serves each tenant is not known: {remark}"
        ));
    }
    let mut rows = listed.rows;
    if flags.not_ready {
        rows.retain(|row| row.severity() != Severity::Normal);
        rows.sort_by_key(|row| Reverse(row.severity()));
    }
    if rows.is_empty() && matches!(output.output, Format::Table | Format::Wide) {
        output::message(if flags.not_ready {
            "No tenant is not ready."
        } else {
            "No tenants found."
        });
        return Ok(output::SUCCESS);
    }
    output.print(&rows, rows.iter().map(name), |layout| {
        Text::from(&table(layout, &rows))
    })?;
    Ok(output::SUCCESS)
}

fn print_inventory(output: OutputFlags, rows: &[inventory::Row]) -> anyhow::Result<ExitCode> {
    if rows.is_empty() && matches!(output.output, Format::Table | Format::Wide) {
        output::message("No worker clusters found.");
        return Ok(output::SUCCESS);
    }
    let names = rows.iter().map(|row| row.cluster.clone());
    output.print(&rows, names, |layout| {
        let mut table = Table::new(layout, INVENTORY.iter());
        for row in rows {
            let replicas = row.replicas.map_or_else(dash, |it| it.to_string().into());
            table.push([
                Cell::from(&row.tenant),
                Cell::from(&row.cluster),
                replicas,
                Cell::new(&row.state, tone(&row.state)),
                row.message.replace('\n', " ").into(),
            ]);
        }
        Text::from(&table)
    })?;
    Ok(output::SUCCESS)
}

/// Prints a change. Later lines have the widths of the first ones, as far as they suffice.
fn print(output: OutputFlags, widths: &mut Vec<usize>, event: TenantEvent) -> anyhow::Result<()> {
    let rows = match event {
        TenantEvent::Listed(rows) => rows,
        TenantEvent::Row(row) => vec![*row],
        TenantEvent::Gone(tenant, name) => return gone(output, widths, (&tenant, &name)),
    };
    match output.output {
        Format::Table | Format::Wide => {
            let layout = Layout {
                has_headings: output.layout().has_headings && widths.is_empty(),
                ..output.layout()
            };
            let table = table(layout, &rows);
            let printed = output::text(&text(&table, widths));
            merge(widths, table.widths());
            printed
        }
        Format::Json => rows.iter().try_for_each(json),
        Format::Yaml => rows.iter().try_for_each(yaml),
        Format::Name => output::lines(rows.iter().map(name)),
    }
}

fn gone(output: OutputFlags, widths: &[usize], (tenant, name): (&str, &str)) -> anyhow::Result<()> {
    let gone = serde_json::json!({ "tenant": tenant, "name": name, "gone": true });
    match output.output {
        Format::Table | Format::Wide => {
            let mut table = Table::default();
            table.push([tenant.into(), name.into(), "Gone".into()]);
            output::text(&text(&table, widths))
        }
        Format::Json => json(&gone),
        Format::Yaml => yaml(&gone),
        Format::Name => Ok(()),
    }
}

fn json(value: &impl Serialize) -> anyhow::Result<()> {
    output::document(serde_json::to_string(value)? + "\n")
}

fn yaml(value: &impl Serialize) -> anyhow::Result<()> {
    let options = serde_saphyr::SerializerOptions::default();
    let text = output::yaml(&serde_json::to_value(value)?, options)?;
    output::document(format!("---\n{text}"))
}

fn merge(widths: &mut Vec<usize>, more: Vec<usize>) {
    widths.resize(more.len().max(widths.len()), 0);
    for (width, more) in widths.iter_mut().zip(more) {
        *width = more.max(*width);
    }
}

fn text(table: &Table, widths: &[usize]) -> Text {
    let mut text = Text::default();
    text.rows(table.lines(widths));
    text
}

fn name(row: &Row) -> String {
    format!("workercluster.operatingsystemmanager.k8c.io/{}", row.name)
}

fn table(layout: Layout, rows: &[Row]) -> Table {
    let wide = WIDE.iter().filter(|_| layout.is_wide);
    let mut table = Table::new(layout, COLUMNS.iter().chain(wide));
    let now = Timestamp::now();
    for row in rows {
        table.push(cells(row, layout, now));
    }
    table
}

fn cells(row: &Row, layout: Layout, now: Timestamp) -> Vec<Cell> {
    let number = |number: Option<u32>| number.map_or_else(dash, |it| it.to_string().into());
    let text = |text: &Option<String>| text.as_ref().map_or_else(dash, Cell::from);
    let age = |time: Option<Timestamp>| time.map_or_else(dash, |it| age(it, now).into());
    let mut cells = vec![
        Cell::from(&row.tenant),
        Cell::from(&row.name),
        Cell::new(&row.state, tone(&row.state)),
        age(row.since),
        text(&row.version),
        number(row.machine_deployments),
        number(row.served),
        number(row.outdated),
        number(row.waiting()),
        number(row.failing),
        row.behind
            .as_ref()
            .map_or_else(dash, |it| behind(it).into()),
        age(row.created),
    ];
    if layout.is_wide {
        cells.extend([
            text(&row.server),
            text(&row.fleet),
            text(&row.replica),
            row.paused.to_string().into(),
            row.message.replace('\n', " ").into(),
        ]);
    }
    cells
}

/// A state is the reason of a condition.
fn tone(state: &str) -> Tone {
    match Reason::named(state).map(Reason::severity) {
        Some(Severity::Normal) => Tone::Good,
        Some(Severity::Warning) => Tone::Doubtful,
        Some(Severity::Error) => Tone::Wrong,
        Some(Severity::Pending) | None => Tone::Plain,
    }
}

/// Says how many machine deployments are behind, such as `2 NewMachine, 1 Reload`.
fn behind(count: &BTreeMap<Class, usize>) -> String {
    if count.is_empty() {
        return "0".to_owned();
    }
    let classes = count.iter().rev();
    let classes = classes.map(|(class, count)| format!("{count} {class}"));
    classes.collect::<Vec<_>>().join(", ")
}

fn dash() -> Cell {
    Cell::from("-")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_reported_in_their_own_unit() {
        let begin = Timestamp::UNIX_EPOCH;
        for (seconds, reported) in [(5, "5s"), (600, "10m"), (10_800, "3h"), (864_000, "10d")] {
            let now = Timestamp::from_second(seconds).unwrap();
            assert_eq!(age(begin, now), reported);
        }
        assert_eq!(age(Timestamp::from_second(9).unwrap(), begin), "0s");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let row = Row {
            tenant: "tenant-of-a-long-name".to_owned(),
            name: "berlin".to_owned(),
            state: "Unknown".to_owned(),
            since: None,
            version: None,
            served: Some(2),
            machine_deployments: Some(3),
            outdated: None,
            behind: None,
            failing: Some(1),
            created: None,
            server: Some("https://berlin.example".to_owned()),
            fleet: None,
            fleet_namespace: None,
            replica: None,
            paused: false,
            message: String::new(),
        };
        let layout = Layout {
            is_wide: true,
            has_headings: true,
        };
        let lines = table(layout, &[row]).lines(&[]);
        let [first, second] = lines.as_slice() else {
            panic!("a heading and a row: {lines:?}");
        };
        assert_eq!(first.find("SERVER"), second.find("https://"));
        assert_eq!(first.find("FAILING"), second.find("1  "));
    }
}
