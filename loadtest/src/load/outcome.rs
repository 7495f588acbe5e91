//! One run: what was measured, on which machine and commit, and what comes of it. It is written as
//! JSON for later, and as a table for people.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::latency::Latencies;
use super::measure::Sample;
use super::requests::Requests;
use super::stage::Params;
use crate::demo::cluster::Kind;
use crate::demo::screen::Screen;

/// One run.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// What was done.
    pub scenario: String,
    /// Tenants.
    pub tenants: usize,
    /// Machine deployments of each.
    pub machine_deployments: usize,
    /// The delay of every answer, in milliseconds.
    pub latency_milliseconds: u64,
    /// Whether the management cluster was a real kube-apiserver.
    pub real_management: bool,
    /// When it ended.
    pub at: String,
    /// The commit of the sources.
    pub commit: String,
    /// The machine.
    pub machine: String,
    /// The process at named moments.
    pub samples: BTreeMap<String, Sample>,
    /// Named durations.
    pub latencies: BTreeMap<String, Latencies>,
    /// Requests in named spans of time.
    pub requests: BTreeMap<String, Requests>,
    /// What is wanted of the manager, and what it gives.
    pub figures: Vec<Figure>,
}

/// One number, of which less is better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// What it must not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub must: Option<f64>,
    /// What it should not exceed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<f64>,
}

impl Figure {
    /// A number that nothing is wanted of.
    pub fn new(name: &str, value: f64, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            must: None,
            aim: None,
        }
    }

    /// With what it must not and should not exceed.
    #[must_use]
    pub fn wanted(mut self, must: f64, aim: f64) -> Self {
        (self.must, self.aim) = (Some(must), Some(aim));
        self
    }

    fn verdict(&self) -> &'static str {
        match (self.must, self.aim) {
            (Some(must), _) if self.value > must => "MISSED",
            (_, Some(aim)) if self.value > aim => "ok",
            (Some(_), _) => "good",
            _ => "",
        }
    }
}

impl Outcome {
    /// A run in which nothing has been measured yet.
    pub fn new(scenario: &str, params: &Params) -> Self {
        Self {
            scenario: scenario.to_owned(),
            tenants: params.tenants,
            machine_deployments: params.machine_deployments,
            latency_milliseconds: u64::try_from(params.latency.as_millis()).unwrap_or(u64::MAX),
            real_management: params.management == Kind::Real,
            at: Timestamp::now().to_string(),
            commit: commit(),
            machine: machine(),
            ..Self::default()
        }
    }

    /// Adds durations under a name.
    pub fn add_latencies(&mut self, name: &str, found: Latencies) {
        self.latencies.insert(name.to_owned(), found);
    }

    /// Adds the process at a named moment.
    pub fn add_sample(&mut self, name: &str, found: Sample) {
        self.samples.insert(name.to_owned(), found);
    }

    /// Adds the requests of a named span of time.
    pub fn add_requests(&mut self, name: &str, found: Requests) {
        self.requests.insert(name.to_owned(), found);
    }

    /// A figure by its name.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// Prints everything as tables.
    pub fn print(&self, screen: Screen) {
        screen.heading(&format!(
            "{}: {} tenants, {} machine deployments each, {} ms{}",
            self.scenario,
            self.tenants,
            self.machine_deployments,
            self.latency_milliseconds,
            if self.real_management {
                ", a real management cluster"
            } else {
                ""
            }
        ));
        screen.print(&format!("  commit {} on {}", self.commit, self.machine));
        let rows: Vec<[String; 5]> = self.figures.iter().map(row).collect();
        screen.table(["FIGURE", "VALUE", "MUST", "AIM", ""], &rows);
        self.print_samples(screen);
        self.print_latencies(screen);
        self.print_requests(screen);
    }

    fn print_samples(&self, screen: Screen) {
        let row = |(name, sample): (&String, &Sample)| {
            [
                name.clone(),
                sample.resident_kib.to_string(),
                sample.private_kib.to_string(),
                sample.cpu_milliseconds.to_string(),
                sample.threads.to_string(),
                sample.descriptors.to_string(),
                sample.series.to_string(),
                sample.tasks.to_string(),
            ]
        };
        let rows: Vec<[String; 8]> = self.samples.iter().map(row).collect();
        let titles = [
            "PROCESS",
            "RESIDENT KiB",
            "PRIVATE KiB",
            "CPU ms",
            "THREADS",
            "DESCRIPTORS",
            "SERIES",
            "TASKS",
        ];
        screen.table(titles, &rows);
    }

    fn print_latencies(&self, screen: Screen) {
        let rows: Vec<[String; 6]> = self
            .latencies
            .iter()
            .map(|(name, found)| {
                let [p50, p90, p99, max] =
                    [found.p50, found.p90, found.p99, found.max].map(|value| format!("{value:.1}"));
                [name.clone(), found.count.to_string(), p50, p90, p99, max]
            })
            .collect();
        if !rows.is_empty() {
            screen.table(["DURATION ms", "COUNT", "P50", "P90", "P99", "MAX"], &rows);
        }
    }

    fn print_requests(&self, screen: Screen) {
        let mut rows = Vec::new();
        for (span, requests) in &self.requests {
            for (kind, count) in &requests.by_kind {
                rows.push([span.clone(), kind.clone(), count.to_string()]);
            }
            for (kind, count) in &requests.failures {
                rows.push([span.clone(), format!("failed {kind}"), count.to_string()]);
            }
            for (what, count) in [
                ("leases", requests.leases),
                ("writes", requests.writes),
                ("mutating", requests.mutating),
                ("failed", requests.failed),
            ] {
                rows.push([span.clone(), format!("= {what}"), count.to_string()]);
            }
        }
        if !rows.is_empty() {
            screen.table(["REQUESTS", "KIND", "COUNT"], &rows);
        }
    }
}

/// A count as a number to calculate with.
pub fn count(value: usize) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

/// A measured number as one to calculate with.
pub fn float(value: u64) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

fn row(figure: &Figure) -> [String; 5] {
    let number = |value: f64| {
        format!("{value:.4}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    };
    let wanted = |value: Option<f64>| value.map(number).unwrap_or_default();
    [
        figure.name.clone(),
        format!("{} {}", number(figure.value), figure.unit),
        wanted(figure.must),
        wanted(figure.aim),
        figure.verdict().to_owned(),
    ]
}

#[expect(
    clippy::disallowed_methods,
    reason = "only git knows which commit the sources are of"
)]
fn commit() -> String {
    let mut git = std::process::Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=9"]);
    git.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    let output = git.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

/// The processor and how many of it this process may use.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    format!("{cores} cores of {model}")
}
