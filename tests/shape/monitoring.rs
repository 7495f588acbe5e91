//! Holds dashboards and rules to what is measured: each expression is one that Prometheus reads
//! and asks for metrics, labels, values and buckets that exist, each alert fires when its thing
//! happens, and Grafana knows each field of a dashboard.
//!
//! What is here reads files alone; programs of Prometheus and Grafana, and the built `osm`, are run
//! in the modules below.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use osm::telemetry::metrics::{
    Metrics,
    reference::{self, Declaration, Type, Values},
};
use regex::Regex;
use serde_json::Value;

#[cfg(test)]
mod chain;
#[cfg(test)]
mod grafana;
#[cfg(test)]
mod prometheus;
#[cfg(test)]
mod scraped;

/// Labels that Prometheus adds, the one of buckets, and the one of a whole process.
const ADDED: [&str; 7] = [
    "instance",
    "job",
    "le",
    "namespace",
    "pod",
    "container",
    "fleet",
];

/// The names of the recording rules.
static RECORDED: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let rules = rules();
    let names = rules.iter().filter_map(|rule| rule["record"].as_str());
    names.map(str::to_owned).collect()
});

/// What a new process shows, with the buckets of most histograms.
static PAGE: LazyLock<String> = LazyLock::new(|| {
    let metrics = Metrics::new();
    metrics.begin_class("default");
    metrics.encode()
});

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("it is in the repository")
}

fn rule() -> Value {
    serde_saphyr::from_str(&read("manifests/monitoring/alerts.yaml")).expect("it is YAML")
}

/// The rules of all groups, which alert or record.
fn rules() -> Vec<Value> {
    let rule = rule();
    let groups = rule.pointer("/spec/groups").and_then(Value::as_array);
    let groups = groups.into_iter().flatten();
    let rules = groups.flat_map(|group| group["rules"].as_array().expect("it has rules"));
    rules.cloned().collect()
}

/// The alerts by name.
fn alerts() -> BTreeMap<String, Value> {
    let alerts = rules().into_iter().filter_map(|rule| {
        let name = rule.get("alert").and_then(Value::as_str)?.to_owned();
        Some((name, rule))
    });
    alerts.collect()
}

fn dashboards() -> Vec<(String, Value)> {
    let folder = root().join("manifests/monitoring/dashboards");
    let files = fs::read_dir(folder).expect("the folder exists");
    let boards = files.map(|file| {
        let path = file.expect("it is readable").path();
        let text = fs::read_to_string(&path).expect("it is text");
        let dashboard = serde_json::from_str(&text).expect("it is JSON");
        (path.display().to_string(), dashboard)
    });
    boards.collect()
}

/// The expressions of a dashboard's panels as Grafana sends them, by the panel's title.
fn panels(dashboard: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().expect("it has panels") {
        let title = panel["title"].as_str().expect("each has a title");
        let targets = panel["targets"].as_array().into_iter().flatten();
        for target in targets {
            let asked = target["expr"].as_str().expect("each target asks");
            let sent = asked
                .replace("$__rate_interval", "5m")
                .replace("$cluster", "berlin/prod|oslo/prod")
                .replace("$fleet", ".*");
            assert!(!sent.contains('$'), "{title}: {sent}");
            found.push((title.to_owned(), sent));
        }
    }
    found
}

/// Everything that is asked for, with where.
fn expressions() -> Vec<(String, String)> {
    let rules = rules().into_iter().map(|rule| {
        let text = |key| rule.get(key).and_then(Value::as_str).map(str::to_owned);
        let name = text("alert").or(text("record"));
        (name.expect("it has a name"), text("expr").expect("it asks"))
    });
    let panels = dashboards().into_iter().flat_map(|(file, dashboard)| {
        let panels = panels(&dashboard).into_iter();
        panels.map(move |(title, asked)| (format!("{file}: {title}"), asked))
    });
    rules.chain(panels).collect()
}

fn declared(name: &str) -> Option<&'static Declaration> {
    reference::ALL.iter().find(|declaration| {
        let of = declaration.name();
        match declaration.kind {
            Type::Histogram => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| format!("{of}{end}") == name),
            _ => of == name,
        }
    })
}

/// Whether a histogram has the boundary. Those that start without series have no known buckets.
fn has_boundary(name: &str, boundary: &str) -> bool {
    let of_it = PAGE.lines().filter(|line| line.starts_with(name));
    let mut buckets = of_it.skip_while(|line| !line.contains("{le=")).peekable();
    let text = format!("{{le=\"{boundary}\"");
    buckets.peek().is_some() && buckets.any(|line| line.contains(&text))
}

/// What is wrong with an expression: metrics, labels, values and buckets that do not exist.
fn mistakes(asked: &str) -> Vec<String> {
    let words = |pattern| Regex::new(pattern).expect("it is a pattern");
    let mut wrong = Vec::new();
    let mut labels: BTreeSet<&str> = ADDED.into_iter().collect();
    for found in words(r"((?:\w+:)?\bosm_[\w:]+)(?:\{([^}]*)\})?").captures_iter(asked) {
        let name = found.get(1).map_or("", |name| name.as_str());
        // The name of a recording rule begins with its labels.
        if let Some((label, _)) = name.split_once(':') {
            labels.insert(label);
            if !RECORDED.contains(name) {
                wrong.push(format!("no recording rule {name}"));
            }
            continue;
        }
        let Some(declaration) = declared(name) else {
            wrong.push(format!("no metric {name}"));
            continue;
        };
        labels.extend(declaration.labels.iter().map(|label| label.name));
        let matchers = found.get(2).map_or("", |matchers| matchers.as_str());
        for matcher in words(r#"(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)""#).captures_iter(matchers) {
            let (_, [label, _, values]) = matcher.extract();
            let known = declaration.labels.iter().find(|known| known.name == label);
            match known.map(|known| known.values) {
                None if label == "le" && !has_boundary(name, values) => {
                    wrong.push(format!("{name} has no bucket up to {values}"));
                }
                None if ADDED.contains(&label) => {}
                None => wrong.push(format!("{name} has no label {label}")),
                Some(Values::Closed(known)) => {
                    let strange = values.split('|').filter(|value| !known.contains(value));
                    wrong.extend(strange.map(|value| format!("{name}: {label} is never {value}")));
                }
                Some(_) => {}
            }
        }
    }
    for group in words(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)").captures_iter(asked) {
        let (_, [group]) = group.extract();
        let strange = group.split(',').map(str::trim);
        let strange = strange.filter(|label| !labels.contains(label));
        wrong.extend(strange.map(|label| format!("nothing in it has the label {label}")));
    }
    wrong
}

#[test]
fn each_panel_and_alert_asks_for_what_exists() {
    let asked = expressions();
    assert!(asked.len() > 50, "{}", asked.len());
    for (place, asked) in &asked {
        let wrong = mistakes(asked);
        assert!(wrong.is_empty(), "{place}: {asked}: {wrong:?}");
    }
    for (asked, expected) in [
        ("osm_cluster_upp == 0", "no metric osm_cluster_upp"),
        (
            "osm_reconcile_duration_seconds > 1",
            "no metric osm_reconcile_duration_seconds",
        ),
        (
            r#"osm_tenants{cluster="a"}"#,
            "osm_tenants has no label cluster",
        ),
        (
            r#"osm_tenants{state=~"engaged|lost"}"#,
            "osm_tenants: state is never lost",
        ),
        (
            "sum by (outcome) (osm_tenants)",
            "nothing in it has the label outcome",
        ),
        (
            r#"osm_time_to_served_seconds_bucket{le="10.0"}"#,
            "osm_time_to_served_seconds_bucket has no bucket up to 10.0",
        ),
        (
            r#"osm_tasks{le="5.0"}"#,
            "osm_tasks has no bucket up to 5.0",
        ),
        (
            "class:osm_time_to_served_late:ratio_rate2h",
            "no recording rule class:osm_time_to_served_late:ratio_rate2h",
        ),
    ] {
        assert_eq!(mistakes(asked), [expected]);
    }
}

#[test]
fn each_metric_of_the_manager_is_on_a_dashboard() {
    let boards = dashboards();
    let asked: Vec<String> = boards
        .iter()
        .flat_map(|(_, dashboard)| panels(dashboard))
        .map(|it| it.1)
        .collect();
    for declaration in reference::ALL {
        let name = declaration.name();
        let is_shown = asked.iter().any(|asked| asked.contains(&name));
        assert!(is_shown, "{name} is on no dashboard");
    }
}

#[test]
fn each_panel_says_what_it_shows_and_has_a_place_of_its_own() {
    for (file, dashboard) in dashboards() {
        let mut taken = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for panel in dashboard["panels"].as_array().expect("it has panels") {
            let title = panel["title"].as_str().unwrap_or_default();
            assert!(ids.insert(panel["id"].as_i64()), "{file}: {title}");
            let says = panel["description"]
                .as_str()
                .is_some_and(|it| !it.is_empty());
            let kind = panel["type"].as_str().unwrap_or_default();
            assert!(says || ["row", "text"].contains(&kind), "{file}: {title}");
            let at = |key: &str| panel["gridPos"][key].as_u64().expect("it has a place");
            assert!(at("x") + at("w") <= 24, "{file}: {title}");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{file}: {title} lies on another");
                }
            }
        }
    }
}

#[test]
fn each_alert_has_a_severity_words_and_a_row_in_its_page() {
    let page = read("docs/alerts.md");
    let mut rows = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| <a id=")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let name = cells[0].split('`').nth(1).expect("it names the alert");
        assert!(
            cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()),
            "{row}"
        );
        rows.insert(name.to_owned(), cells.join(" | "));
    }
    let alerts = alerts();
    // A person who is on call knows them all.
    assert!(alerts.len() <= 17, "{}", alerts.len());
    let (told, known): (Vec<_>, Vec<_>) = (rows.keys().collect(), alerts.keys().collect());
    assert_eq!(told, known);
    for (name, alert) in &alerts {
        let text = |part: &str, key: &str| alert[part][key].as_str().unwrap_or_default().to_owned();
        let severity = text("labels", "severity");
        assert!(["critical", "warning"].contains(&&*severity), "{name}");
        assert!(rows[name].contains(&format!(" | {severity} | ")), "{name}");
        for key in ["summary", "description"] {
            assert!(!text("annotations", key).is_empty(), "{name}: {key}");
        }
        let anchor = name.to_lowercase();
        let runbook = text("annotations", "runbook_url");
        let link = format!("https://operating-system-manager.example/docs/alerts.md#{anchor}");
        assert_eq!(runbook, link);
        assert!(page.contains(&format!("<a id=\"{anchor}\"></a>")), "{name}");
    }
}
