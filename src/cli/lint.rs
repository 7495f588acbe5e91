//! `osm lint`: finds problems in profiles. Prints one line per finding, JSON or SARIF.

use std::{collections::BTreeSet, process::ExitCode};

use clap::{Args, ValueEnum};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value as Json, json};

use super::{
    format::{Format, OutputFlags},
    input::{BaseFlags, profile_text},
    output,
};
use crate::rules::{
    lint::{Finding, lint},
    rule::{Rule, Severity},
};

/// What is escaped in a path that is a URI reference.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The flags of `osm lint`.
#[derive(Args, Debug)]
pub(super) struct LintFlags {
    /// The files, or names of default profiles; `-` reads stdin.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,

    #[command(flatten)]
    bases: BaseFlags,

    /// The output format
    #[arg(
        short,
        long,
        alias = "format",
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: Output,

    /// Treat warnings as errors for the exit code.
    #[arg(long)]
    deny_warnings: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One line per finding
    #[value(alias = "text")]
    Table,
    /// A list of findings in JSON
    Json,
    /// The same list in YAML
    Yaml,
    /// The files with findings
    Name,
    /// SARIF 2.1.0 for code scanners
    Sarif,
}

pub(super) fn run(flags: &LintFlags) -> anyhow::Result<ExitCode> {
    let bases = flags.bases.load()?;
    let mut findings = Vec::new();
    for file in &flags.files {
        let found = lint(&profile_text(file)?, &|name| bases.find(name)).into_iter();
        findings.extend(found.map(|finding| (file.clone(), finding)));
    }
    let entries: Vec<_> = findings.iter().map(entry).collect();
    let files: BTreeSet<_> = findings.iter().map(|(file, _)| file.clone()).collect();
    let print = |format| {
        let text = |_| findings.iter().map(line).collect();
        OutputFlags::from(format).print(&entries, files, text)
    };
    match flags.output {
        Output::Table => print(Format::Table)?,
        Output::Json => print(Format::Json)?,
        Output::Yaml => print(Format::Yaml)?,
        Output::Name => print(Format::Name)?,
        Output::Sarif => output::document(format!("{:#}\n", sarif(&findings)))?,
    }
    let counts = |severity| severity == Severity::Error || flags.deny_warnings;
    let fails = findings
        .iter()
        .any(|(_, finding)| counts(finding.rule.severity()));
    Ok(if fails {
        output::found()
    } else {
        output::SUCCESS
    })
}

fn line((file, finding): &(String, Finding)) -> String {
    let Finding {
        rule,
        place,
        message,
        fix,
    } = finding;
    format!(
        "{file}:{place}: {}[{rule}]: {message}; {fix}",
        rule.severity()
    )
}

fn entry((file, finding): &(String, Finding)) -> Json {
    json!({
        "file": file,
        "line": finding.place.line,
        "column": finding.place.column,
        "severity": finding.rule.severity().to_string(),
        "rule": finding.rule.id(),
        "message": finding.message,
        "fix": finding.fix,
    })
}

fn sarif(findings: &[(String, Finding)]) -> Json {
    let rule = |rule: Rule| {
        json!({
            "id": rule.id(),
            "shortDescription": {"text": rule.summary()},
            "defaultConfiguration": {"level": rule.severity().to_string()},
        })
    };
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "osm",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": Rule::ALL.map(rule).to_vec(),
            }},
            "columnKind": "unicodeCodePoints",
            "results": findings.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

fn result((file, finding): &(String, Finding)) -> Json {
    json!({
        "ruleId": finding.rule.id(),
        "ruleIndex": Rule::ALL.iter().position(|rule| *rule == finding.rule),
        "level": finding.rule.severity().to_string(),
        "message": {"text": format!("{}; {}", finding.message, finding.fix)},
        "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": utf8_percent_encode(file, ESCAPED).to_string()},
            "region": {"startLine": finding.place.line, "startColumn": finding.place.column},
        }}],
    })
}
