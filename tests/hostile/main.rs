//! What templates cost that want more than their share. Each is rendered in a process of its own,
//! since a process's peak of memory is its only lasting trace of a render, and each is a test: it
//! is refused for the meant reason, and takes no more memory than the bound. Time is printed,
//! but not checked.
//!
//! And what a worker does with those that the engine would not stop: `worker.rs`.
//!
//! `cargo test --test hostile` prints a line for each, and the worst at the end.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, ExitCode},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use osm::{
    api::profile::TemplateLanguage,
    render::{Limits, RenderError, template::CompiledProfile},
};

use regex::{Captures, Regex};
use serde::Deserialize;
use subject::Subject;

#[path = "../rendering/one_file.rs"]
mod one_file;
#[path = "../rendering/subject.rs"]
mod subject;
mod worker;

/// What one render may take at worst, besides what the process had before.
const PEAK_BYTES_MAX: u64 = 64 << 20;

/// The argument with which this program renders one case and tells what it took.
const RENDER: &str = "--render-one";

/// Templates that are refused alike.
#[derive(Deserialize)]
struct Group {
    language: TemplateLanguage,
    refused_as: Vec<String>,
    /// The maximum number of instructions, if it is not the usual one.
    fuel: Option<u64>,
    /// By name. `«20000×text»` stands for 20,000 times the text.
    templates: BTreeMap<String, String>,
}

/// A template that wants more than its share.
pub struct Case {
    /// A name to know it by, with its language.
    pub name: String,
    /// The language.
    pub language: TemplateLanguage,
    /// The template.
    pub template: String,
    /// The categories of the errors that may end it.
    pub refused_as: Vec<String>,
    /// The limits of its render.
    pub limits: Limits,
}

/// What a render came to.
#[derive(Clone)]
struct Cost {
    category: String,
    peak_bytes: u64,
    time: Duration,
}

/// What the renders came to, by the names of their cases.
type Costs = Arc<Mutex<Vec<(String, Cost)>>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if let [_, option, name] = words.as_slice()
        && option == RENDER
    {
        return render_one(name);
    }
    let costs = Arc::new(Mutex::new(Vec::new()));
    let mut arguments = Arguments::from_args();
    // A process beside each case: as many at once as the machine has cores.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let trials = every_case()
        .into_iter()
        .map(|case| trial(case, Arc::clone(&costs)))
        .chain(worker::trials())
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let costs = costs
        .lock()
        .expect("no test panics while it holds the lock");
    tell_worst(&costs);
    conclusion.exit_code()
}

fn every_case() -> Vec<Case> {
    let groups: Vec<Group> =
        serde_saphyr::from_str(include_str!("cases.yaml")).expect("the table is YAML");
    let repeated = Regex::new("«([0-9]+)×(.*?)»").expect("it is an expression");
    let repeat = |found: &Captures<'_>| found[2].repeat(found[1].parse().expect("a number"));
    let of_group = |group: Group| {
        let prefix = match group.language {
            TemplateLanguage::Jinja => "jinja",
            TemplateLanguage::GoTemplate => "go",
        };
        let usual = Limits::default();
        let fuel = group.fuel.unwrap_or(usual.fuel);
        let limits = Limits { fuel, ..usual };
        let cases = group.templates.into_iter();
        let cases = cases.map(|(name, template)| Case {
            name: format!("{prefix}::{name}"),
            language: group.language,
            template: repeated.replace_all(&template, repeat).into_owned(),
            refused_as: group.refused_as.clone(),
            limits,
        });
        cases.collect::<Vec<_>>()
    };
    groups.into_iter().flat_map(of_group).collect()
}

/// Renders a case, and tells in one line what it took.
fn render_one(name: &str) -> ExitCode {
    let Some(case) = every_case().into_iter().find(|case| case.name == name) else {
        eprintln!("there is no case `{name}`");
        return ExitCode::FAILURE;
    };
    let mut subject = Subject::new();
    subject.limits = case.limits;
    let profile = one_file::a_profile_of(case.language, &case.template);
    let before = memory("VmRSS:");
    let begun = Instant::now();
    let outcome = CompiledProfile::compile(&profile).and_then(|profile| subject.render(&profile));
    let time = begun.elapsed();
    let category = outcome
        .as_ref()
        .map_or_else(RenderError::category, |_| "rendered");
    let peak = memory("VmHWM:").saturating_sub(before);
    println!("{category} {peak} {}", time.as_micros());
    ExitCode::SUCCESS
}

/// A figure of this process, in bytes.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells about a process");
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|value| value.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .expect("the figure is there")
        * 1024
}

fn trial(case: Case, costs: Costs) -> Trial {
    let Case {
        name, refused_as, ..
    } = case;
    Trial::test(name.clone(), move || {
        let cost = measure(&name)?;
        costs
            .lock()
            .map_err(|_| "another test panicked")?
            .push((name.clone(), cost.clone()));
        if !refused_as.contains(&cost.category) {
            return Err(format!("`{}` is not among {:?}", cost.category, refused_as).into());
        }
        if cost.peak_bytes > PEAK_BYTES_MAX {
            return Err(format!("{} bytes of memory are too many", cost.peak_bytes).into());
        }
        Ok(())
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the program that is started is this one"
)]
fn measure(name: &str) -> Result<Cost, Failed> {
    let program = std::env::current_exe()?;
    let output = Command::new(program).args([RENDER, name]).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the render ended with {}: {said}", output.status).into());
    }
    let said = String::from_utf8(output.stdout)?;
    let [category, peak, micros] = said.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err(format!("a line of three words was expected: {said}").into());
    };
    Ok(Cost {
        category: category.to_owned(),
        peak_bytes: peak.parse()?,
        time: Duration::from_micros(micros.parse()?),
    })
}

fn tell_worst(costs: &[(String, Cost)]) {
    let mut sorted: Vec<_> = costs.iter().collect();
    sorted.sort_by_key(|(_, cost)| std::cmp::Reverse(cost.peak_bytes));
    println!("memory above the start, time, outcome (largest first):");
    for (name, cost) in sorted {
        println!(
            "{:>8} KiB {:>7.1} ms  {:<16} {name}",
            cost.peak_bytes / 1024,
            cost.time.as_secs_f64() * 1000.0,
            cost.category,
        );
    }
}
