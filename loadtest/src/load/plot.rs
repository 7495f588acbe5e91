//! Draws the results of several runs: what was measured against the number of tenants, as SVG. The
//! card is white with dark lines, so that it is as readable on a dark page as on a light one.

use std::path::Path;

use anyhow::Context as _;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::outcome::{Figure, Outcome, count};

/// Width and height of one panel, in pixels.
const PANEL: (u32, u32) = (440, 300);
const COLUMNS: usize = 3;
const ROWS: usize = 2;
/// Above the highest point there is room for the legend.
const ROOM: f64 = 1.6;
const TITLE: (&str, u32) = ("sans-serif", 16);
const LABEL: (&str, u32) = ("sans-serif", 13);
const INK: RGBColor = RGBColor(0x24, 0x29, 0x2f);
const GRID: RGBColor = RGBColor(0xd0, 0xd7, 0xde);
/// What must not be exceeded.
const MUST: RGBColor = RGBColor(0xb0, 0x00, 0x20);
/// Told apart by those who see few colours, too.
const COLOURS: [RGBColor; 3] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
];

type Failure = Box<dyn std::error::Error>;

/// One panel.
struct Panel {
    /// What is drawn, with its unit.
    title: &'static str,
    curves: &'static [Curve],
}

/// One figure of one scenario.
struct Curve {
    scenario: &'static str,
    figure: &'static str,
    label: &'static str,
}

const PANELS: [Panel; COLUMNS * ROWS] = [
    Panel {
        title: "resident memory, MiB",
        curves: &[
            curve("idle", "memory, served", "when all have joined"),
            curve("restart", "memory after a restart", "after a restart"),
        ],
    },
    Panel {
        title: "resident memory for each tenant, KiB",
        curves: &[curve("idle", "memory per tenant", "when all have joined")],
    },
    Panel {
        title: "CPU at rest, thousandths of a core",
        curves: &[curve("idle", "CPU at rest", "at rest")],
    },
    Panel {
        title: "machine deployment to both Secrets, ms",
        curves: &[
            curve("steady", "made to both Secrets, p99", "p99"),
            curve("steady", "made to both Secrets, p50", "p50"),
        ],
    },
    Panel {
        title: "registered to engaged, ms",
        curves: &[
            curve("steady", "Secret to engaged, p99", "p99"),
            curve("steady", "Secret to engaged, p50", "p50"),
        ],
    },
    Panel {
        title: "start until all are engaged, s",
        curves: &[
            curve("cold-start", "all engaged", "never served before"),
            curve("restart", "all engaged", "after a restart"),
        ],
    },
];

const fn curve(scenario: &'static str, figure: &'static str, label: &'static str) -> Curve {
    Curve {
        scenario,
        figure,
        label,
    }
}

/// Draws all panels into a file.
pub fn draw(runs: &[Outcome], out: &Path) -> anyhow::Result<()> {
    let size = |pixels: u32, count: usize| u32::try_from(count).map(|count| pixels * count);
    let size = (size(PANEL.0, COLUMNS)?, size(PANEL.1, ROWS)?);
    let area = SVGBackend::new(out, size).into_drawing_area();
    area.fill(&WHITE).context("drawing")?;
    let tenants = runs.iter().map(|run| count(run.tenants));
    let tenants = tenants.clone().fold(10.0, f64::min)..tenants.fold(100.0, f64::max);
    for (panel, area) in PANELS.iter().zip(area.split_evenly((ROWS, COLUMNS))) {
        draw_panel((panel, &tenants), runs, &area)
            .map_err(|error| anyhow::anyhow!("drawing {}: {error}", panel.title))?;
    }
    area.present()
        .with_context(|| format!("writing {}", out.display()))
}

fn draw_panel(
    (panel, tenants): (&Panel, &std::ops::Range<f64>),
    runs: &[Outcome],
    area: &DrawingArea<SVGBackend<'_>, Shift>,
) -> Result<(), Failure> {
    let lines: Vec<_> = panel.curves.iter().map(|curve| curve.line(runs)).collect();
    // The strictest curve stands first.
    let must = panel.curves.first().and_then(|curve| curve.must(runs));
    let points = lines.iter().flatten().map(|point| point.1);
    let top = points.chain(must).fold(1.0, f64::max) * ROOM;
    let (from, to) = (tenants.start * 0.8, tenants.end * 1.25);
    let mut chart = ChartBuilder::on(area)
        .caption(panel.title, TITLE.into_font().color(&INK))
        .margin(14)
        .x_label_area_size(38)
        .y_label_area_size(52)
        .build_cartesian_2d((from..to).log_scale(), 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("tenants")
        .x_label_formatter(&|tenants| format!("{tenants:.0}"))
        .y_label_formatter(&|value| format!("{value}"))
        .label_style(LABEL.into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for ((curve, line), colour) in panel.curves.iter().zip(&lines).zip(COLOURS) {
        let series = LineSeries::new(line.iter().copied(), colour.stroke_width(2));
        chart
            .draw_series(series)?
            .label(curve.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        let dots = line.iter().map(|at| Circle::new(*at, 3, colour.filled()));
        chart.draw_series(dots)?;
    }
    if let Some(must) = must {
        let line = [(from, must), (to, must)];
        let series = DashedLineSeries::new(line, 6, 4, MUST.stroke_width(1));
        chart
            .draw_series(series)?
            .label(format!("must be below {must}"))
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], MUST));
    }
    let legend = SeriesLabelPosition::UpperLeft;
    chart
        .configure_series_labels()
        .position(legend)
        .label_font(LABEL.into_font().color(&INK))
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

impl Curve {
    fn of<'a>(&self, run: &'a Outcome) -> Option<&'a Figure> {
        let is_mine = run.scenario == self.scenario;
        is_mine.then(|| run.figure(self.figure)).flatten()
    }

    /// Where the runs have a point.
    fn line(&self, runs: &[Outcome]) -> Vec<(f64, f64)> {
        let found = runs.iter().filter_map(|run| {
            let figure = self.of(run)?;
            Some((count(run.tenants), figure.value))
        });
        let mut line: Vec<(f64, f64)> = found.collect();
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        line
    }

    fn must(&self, runs: &[Outcome]) -> Option<f64> {
        runs.iter().find_map(|run| self.of(run)?.must)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_run(tenants: usize, memory: f64) -> Outcome {
        let figure = Figure::new("memory per tenant", memory, "KiB");
        Outcome {
            scenario: "idle".to_owned(),
            tenants,
            figures: vec![figure.wanted(256.0, 128.0)],
            ..Outcome::default()
        }
    }

    #[test]
    fn a_line_goes_from_few_tenants_to_many_and_the_drawing_says_what_must_be() {
        let mut runs = vec![a_run(1000, 300.0), a_run(10, 1400.0)];
        let curve = &PANELS[1].curves[0];
        assert_eq!(curve.line(&runs), [(10.0, 1400.0), (1000.0, 300.0)]);
        runs.push(Outcome {
            scenario: "storm".to_owned(),
            ..a_run(100, 1.0)
        });
        assert_eq!(curve.line(&runs).len(), 2, "of another scenario");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.svg");
        draw(&runs, &file).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        for said in ["<svg", "KiB", "must be below 256", "when all have joined"] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
