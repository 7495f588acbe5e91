//! Holds the pages under `docs/` against the code: what the code can say stands in the pages, and
//! what the pages name exists.

mod chart;
mod commands;
mod compatibility;
mod console;
mod effects;
mod index;
#[expect(
    dead_code,
    reason = "where a page begins and ends matters only where it runs"
)]
#[path = "../pages/page.rs"]
mod page_to_run;
mod reasons_page;
mod shell;
#[expect(
    dead_code,
    reason = "what a stand-in does matters only where pages run"
)]
#[path = "../pages/typed.rs"]
mod typed;
mod worker_cluster;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::CommandFactory;
use osm::{
    api::{profile::OperatingSystemProfile, worker_cluster::WorkerCluster},
    cli::Cli,
    render::{
        overlay,
        reference::{ONLY_IN_JINJA, VARIABLES, Variable},
        template::CompiledProfile,
    },
    rules::rule::Rule,
    telemetry::metrics::reference::{self, Declaration, Label, Values},
    tenant::settings::TenantSettings,
};

use crate::subject::Subject;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    let text = fs::read_to_string(path);
    assert!(text.is_ok(), "{} cannot be read", path.display());
    text.unwrap_or_default()
}

fn page(name: &str) -> String {
    read(&root().join("docs").join(name))
}

/// The files below a path with this extension; the path itself where it is one.
fn files(path: &Path, extension: &str) -> Vec<PathBuf> {
    if path.is_file() {
        let fits = path.extension().is_some_and(|found| found == extension);
        return fits.then(|| path.to_owned()).into_iter().collect();
    }
    let entries = fs::read_dir(path).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .flat_map(|entry| files(&entry.expect("a folder is readable").path(), extension))
        .collect();
    found.sort();
    found
}

/// The lines of a source file before its tests that are no comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| line.trim() != "#[cfg(test)]")
        .filter(|line| !line.trim_start().starts_with("//"))
}

/// What stands between two marks: every second piece.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

/// The rows of the tables under a heading, as cells.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with(heading))
        .unwrap_or_default();
    assert!(!section.is_empty(), "no section `{heading}`");
    let rows = section.lines().filter(|line| line.starts_with('|'));
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

#[test]
fn every_flag_has_a_row_with_its_default() {
    let page = page("flags.md");
    for name in ["run", "webhook"] {
        check_flags(&page, name);
    }
}

fn check_flags(page: &str, name: &str) {
    let rows: BTreeMap<&str, &str> = rows(page, &format!("Flags of `osm {name}`"))
        .into_iter()
        .filter_map(|row| {
            let flag = between(row.first()?, '`').next()?;
            Some((flag.split(' ').next()?, *row.get(1)?))
        })
        .collect();
    let command = Cli::command();
    let command = command.find_subcommand(name).expect("osm has it");
    let mut flags = BTreeSet::new();
    for argument in command.get_arguments() {
        let flag = format!(
            "--{}",
            argument.get_long().expect("every argument is a flag")
        );
        let row = rows.get(flag.as_str());
        assert!(row.is_some(), "{flag} is not in docs/flags.md");
        let row = row.copied().unwrap_or_default();
        if argument.get_action().takes_values() {
            for default in argument.get_default_values() {
                let default = format!("`{}`", default.to_string_lossy());
                assert_eq!(row, default, "{flag}");
            }
        }
        flags.insert(flag);
    }
    let stale: Vec<_> = rows
        .keys()
        .filter(|flag| flag.starts_with("--") && !flags.contains(**flag))
        .collect();
    assert!(stale.is_empty(), "these flags do not exist: {stale:?}");
}

/// Every word that looks like one of our metrics, in the pages and in what we ship.
fn metrics_named() -> BTreeSet<String> {
    let places = [("docs", "md"), ("manifests", "yaml"), ("manifests", "json")];
    let texts = places
        .iter()
        .flat_map(|(folder, extension)| files(&root().join(folder), extension))
        .map(|file| read(&file));
    let mut found = BTreeSet::new();
    for text in texts {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        // A recording rule is named after what it is made of; the tests of monitoring know it.
        let ours = words.filter(|word| word.starts_with("osm_") && !word.ends_with("_late"));
        found.extend(ours.map(str::to_owned));
    }
    found
}

#[test]
fn every_metric_that_is_named_exists() {
    let declared: BTreeSet<String> = reference::ALL.iter().map(Declaration::name).collect();
    let is_one = |word: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        let of_histogram = ends.iter().filter_map(|end| word.strip_suffix(end));
        std::iter::once(word)
            .chain(of_histogram)
            .any(|name| declared.contains(name))
    };
    // Functions of the templates' engine.
    let is_function =
        |word: &str| read(&root().join("src/render/src/allocation_limit.rs")).contains(word);
    let named = metrics_named();
    assert!(named.contains("osm_cluster_up"));
    let unknown: Vec<_> = named
        .iter()
        .filter(|word| !is_one(word) && !is_function(word))
        .collect();
    assert!(unknown.is_empty(), "no metrics: {unknown:?}");
}

fn values(label: &Label) -> String {
    match label.values {
        Values::Closed(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{}`: {}", label.name, values.join(", "))
        }
        Values::Words(words) | Values::Configured(words) | Values::PerCluster(words) => {
            format!("`{}`: {words}", label.name)
        }
    }
}

#[test]
fn the_page_of_metrics_is_what_is_declared() {
    let row = |declared: &Declaration| {
        let labels: Vec<String> = declared.labels.iter().map(values).collect();
        let cells = [
            &format!("`{}`", declared.name()),
            declared.kind.as_str(),
            declared.unit.as_str(),
            &labels.join("; "),
            &format!("{}.", declared.help),
        ];
        format!("| {} |\n", cells.join(" | "))
    };
    let rows: Vec<String> = reference::ALL.iter().map(row).collect();
    check_table("metrics.md", &rows);
}

/// All pages, and the one that leads to them.
fn pages() -> Vec<PathBuf> {
    let mut found = files(&root().join("docs"), "md");
    found.push(root().join("README.md"));
    found
}

#[test]
fn every_test_that_a_page_names_exists() {
    let sources: String = ["src", "tests", "loadtest"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), "rs"))
        .map(|file| read(&file))
        .collect();
    let mut missing = Vec::new();
    for file in pages() {
        let text = read(&file);
        for name in between(&text, '`') {
            let is_test = name.matches('_').count() > 2
                && !name.starts_with("osm_")
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if is_test && !sources.contains(&format!("fn {name}(")) {
                missing.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_module_has_its_place_on_the_map() {
    let page = page("architecture.md");
    let map: Vec<&str> = rows(&page, "Code map")
        .into_iter()
        .filter_map(|row| between(row.first()?, '`').next())
        .collect();
    let entries = fs::read_dir(root().join("src")).expect("it is a folder");
    let names = entries.map(|entry| entry.expect("it is readable").file_name());
    let names = names.map(|name| name.to_string_lossy().replace(".rs", ""));
    let others = ["main", "lib", "clippy.toml"];
    let modules: BTreeSet<String> = names.filter(|it| !others.contains(&it.as_str())).collect();
    assert_eq!(modules, map.into_iter().map(str::to_owned).collect());
}

#[test]
fn the_walks_name_files_and_functions_that_exist() {
    let page = page("architecture.md");
    let reconcile = "controllers/machine_deployment";
    for row in rows(&page, "Two walks through the code") {
        let words: Vec<&str> = row
            .get(1)
            .into_iter()
            .flat_map(|it| between(it, '`'))
            .collect();
        let mut text = String::new();
        for word in words {
            if Path::new(word).extension().is_some_and(|it| it == "rs") {
                let below = [format!("src/{word}"), format!("src/{reconcile}/{word}")];
                let file = below
                    .iter()
                    .map(|it| root().join(it))
                    .find(|it| it.exists());
                text = read(&file.unwrap_or_else(|| root().join(word)));
            } else {
                assert!(
                    text.contains(&format!("fn {word}(")),
                    "{row:?}: no `{word}`"
                );
            }
        }
    }
}

/// What a page shows in a fence of this language.
fn fence<'a>(page: &'a str, language: &str) -> &'a str {
    let start = format!("```{language}\n");
    let shown = page.rsplit_once(&start).map_or("", |(_, rest)| rest);
    shown.split("```").next().unwrap_or_default()
}

#[test]
fn the_example_of_a_profile_renders_as_the_page_shows() {
    let page = page("write-a-profile.md");
    let profile: OperatingSystemProfile =
        serde_saphyr::from_str(fence(&page, "yaml")).expect("the example is a profile");
    let compiled = CompiledProfile::compile(&profile.spec).expect("the example compiles");
    let subject = Subject {
        provider_spec: serde_json::json!({"operatingSystem": "ubuntu", "cloudProvider": "aws"}),
        kubelet_version: "1.35.2".to_owned(),
        api_server: "https://10.0.0.1:6443".to_owned(),
        ..Subject::new()
    };
    let rendered = subject.render(&compiled).expect("the example renders");
    let files = &rendered.config.provisioning_config.files;
    let inline = files.first().and_then(|file| file.content.inline.as_ref());
    let data = inline.map(|inline| inline.data.as_str());
    assert_eq!(data, Some(fence(&page, "text")));
}

#[test]
fn the_example_of_an_overlay_can_be_laid_over_our_own_profile() {
    let page = page("write-a-profile.md");
    let (shown, _) = page.rsplit_once("```yaml\n").expect("there are two");
    let overlay: OperatingSystemProfile =
        serde_saphyr::from_str(fence(shown, "yaml")).expect("the example is a profile");
    let base = overlay.spec.extends.clone().expect("it extends another");
    let text = read(&root().join(format!("manifests/profiles/{base}.yaml")));
    let base: OperatingSystemProfile = serde_saphyr::from_str(&text).expect("it is ours");
    let resolved = overlay::resolve("example", &overlay.spec, |name| {
        (Some(name) == overlay.spec.extends.as_deref()).then(|| Arc::new(base.spec.clone()))
    });
    let resolved = resolved.expect("the two fit");
    CompiledProfile::compile(&resolved).expect("what comes of them compiles");
}

#[test]
fn every_filter_and_function_stands_in_the_page() {
    let page = page("write-a-profile.md");
    let words: BTreeSet<&str> = between(&page, '`')
        .flat_map(|code| code.split(['(', '.']))
        .collect();
    let functions = read(&root().join("src/render/src/functions.rs"));
    let mut names = BTreeSet::new();
    for mark in ["add_function(", "add_filter(", "add_test("] {
        let calls = functions.split(mark).skip(1);
        names.extend(calls.filter_map(|call| between(call, '"').next()));
    }
    assert!(names.contains("b64encode"));
    let missing: Vec<_> = names
        .iter()
        .filter(|name| !words.contains(**name))
        .collect();
    assert!(
        missing.is_empty(),
        "not in docs/write-a-profile.md: {missing:?}"
    );
}

/// Holds the only table of a page to the rows that the code gives.
fn check_table(name: &str, rows: &[String]) {
    check_tables(name, &[rows]);
}

/// Holds the tables of a page, in their order, to the rows that the code gives.
fn check_tables(name: &str, tables: &[&[String]]) {
    let before = page(name);
    let mut wanted = String::new();
    let mut tables = tables.iter();
    let mut lines = before.lines().peekable();
    while let Some(line) = lines.next() {
        wanted.push_str(line);
        wanted.push('\n');
        if line.starts_with("|---|") {
            let rows = tables.next().expect("the page has no table more");
            wanted.push_str(&rows.concat());
            while lines.next_if(|line| line.starts_with('|')).is_some() {}
        }
    }
    assert_eq!(tables.len(), 0, "docs/{name} lacks tables");
    assert_current(name, &wanted);
}

/// Asserts that a page is what it should be; writes it with `UPDATE_DOCS`.
fn assert_current(name: &str, wanted: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join("docs").join(name), wanted).expect("the page is writable");
    }
    assert!(
        page(name) == wanted,
        "docs/{name} is stale: UPDATE_DOCS=1 cargo test --test shape docs"
    );
}

#[test]
fn the_page_of_variables_is_what_the_reference_says() {
    let row = |row: &Variable| {
        let secret = if row.is_secret { "secret" } else { "" };
        let kind = row.kind.as_str();
        let go_type = match row.go_type {
            ONLY_IN_JINJA => "only in Jinja".to_owned(),
            go_type => format!("`{go_type}`"),
        };
        let cells = [
            &format!("`{}`", row.name),
            kind,
            &go_type,
            secret,
            row.meaning,
        ];
        format!("| {} |\n", cells.join(" | "))
    };
    let rows: Vec<String> = VARIABLES.iter().map(row).collect();
    check_table("template-data.md", &rows);
}

#[test]
fn the_page_of_the_linter_has_every_rule() {
    let row = |rule: Rule| {
        format!(
            "| `{}` | {} | {} |\n",
            rule.id(),
            rule.severity(),
            rule.summary()
        )
    };
    check_table("lint.md", &Rule::ALL.map(row));
}

#[test]
fn the_example_of_an_air_gapped_site_is_a_worker_cluster() {
    let page = page("air-gapped.md");
    let example: WorkerCluster =
        serde_saphyr::from_str(fence(&page, "yaml")).expect("the example is a WorkerCluster");
    let settings = TenantSettings::default().with(&example.spec);
    let settings = settings.expect("the example's settings are valid");
    let readme = read(&root().join("manifests/profiles/README.md"));
    for variable in settings.variables.keys() {
        assert!(readme.contains(&format!("| `{variable}` |")), "{variable}");
    }
}
