//! Draws the results of several runs: what was measured against the number of tenants, as SVG.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::outcome::Outcome;

/// Width and height of one panel, in pixels.
const PANEL: (u32, u32) = (480, 300);
const FONT: (&str, u32) = ("sans-serif", 14);

/// One panel: what is drawn, with its unit.
struct Panel {
    title: &'static str,
    /// How much of each run, if it has it.
    value: fn(&Outcome) -> Option<f64>,
}

/// Where the runs have a point, by scenario.
type Lines = BTreeMap<String, Vec<(f64, f64)>>;

const PANELS: [Panel; 3] = [
    Panel {
        title: "resident memory at the end, MiB",
        value: |run| {
            let last = run.samples.values().next_back()?;
            Some(super::outcome::float(last.resident_kib) / 1024.0)
        },
    },
    Panel {
        title: "CPU at rest, mcore",
        value: |run| run.figure("CPU at rest").map(|figure| figure.value),
    },
    Panel {
        title: "machine deployment to both Secrets, p99, ms",
        value: |run| Some(run.latencies.get("made to both Secrets")?.p99),
    },
];

/// Draws all panels beside each other into a file.
pub fn draw(runs: &[Outcome], out: &Path) -> anyhow::Result<()> {
    let (width, height) = PANEL;
    let count = u32::try_from(PANELS.len())?;
    let area = SVGBackend::new(out, (width * count, height)).into_drawing_area();
    area.fill(&WHITE).context("drawing")?;
    for (panel, area) in PANELS.iter().zip(area.split_evenly((1, PANELS.len()))) {
        draw_panel(panel, runs, &area)
            .map_err(|error| anyhow::anyhow!("drawing {}: {error}", panel.title))?;
    }
    area.present()
        .with_context(|| format!("writing {}", out.display()))
}

fn draw_panel(
    panel: &Panel,
    runs: &[Outcome],
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Box<dyn std::error::Error>> {
    let lines = lines(panel, runs);
    let points = || lines.values().flatten();
    let tenants = points().map(|point| point.0).fold(10.0, f64::max);
    let value = points().map(|point| point.1).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, FONT)
        .margin(12)
        .x_label_area_size(32)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..tenants * 1.05, 0.0..value * 1.1)?;
    chart.configure_mesh().x_desc("tenants").draw()?;
    for (index, (scenario, points)) in lines.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(
                points.iter().copied(),
                colour.stroke_width(2),
            ))?
            .label(scenario)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
        let dots = points
            .iter()
            .map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots)?;
    }
    if !lines.is_empty() {
        let position = SeriesLabelPosition::UpperLeft;
        chart.configure_series_labels().position(position).draw()?;
    }
    Ok(())
}

fn lines(panel: &Panel, runs: &[Outcome]) -> Lines {
    let mut lines = Lines::new();
    for run in runs {
        if let Some(value) = (panel.value)(run) {
            let line = lines.entry(run.scenario.clone()).or_default();
            line.push((super::outcome::count(run.tenants), value));
        }
    }
    for line in lines.values_mut() {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::measure::Sample;

    fn a_run(tenants: usize, resident_kib: u64) -> Outcome {
        let sample = Sample {
            resident_kib,
            ..Sample::default()
        };
        Outcome {
            scenario: "idle".to_owned(),
            tenants,
            samples: [("rested".to_owned(), sample)].into(),
            ..Outcome::default()
        }
    }

    #[test]
    fn a_line_goes_from_few_tenants_to_many_and_its_file_names_the_scenario() {
        let runs = [a_run(1000, 2048 * 1024), a_run(10, 1024 * 1024)];
        let lines = lines(&PANELS[0], &runs);
        assert_eq!(lines["idle"], [(10.0, 1024.0), (1000.0, 2048.0)]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.svg");
        draw(&runs, &file).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains("<svg") && text.contains("idle"), "{text}");
    }
}
