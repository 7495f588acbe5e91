//! What Prometheus' own promtool says of rules and panels. `.ci/go-programs monitoring` builds it.

use std::{fs, path::PathBuf, process::Command};

use serde_json::{Value, json};

use super::{expressions, read, root, rule, rules};

/// Runs promtool in a folder with these files, and hands out what it said.
#[expect(
    clippy::disallowed_methods,
    reason = "our own program on our own files"
)]
fn promtool(arguments: &[&str], files: &[(&str, String)]) -> Result<String, String> {
    let program: PathBuf = root().join("target/monitoring/promtool");
    let folder = tempfile::tempdir().expect("there is room for a folder");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("the folder is ours");
    }
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder.path())
        .output()
        .expect(".ci/go-programs monitoring has built promtool");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).expect("it writes text");
    if output.status.success() {
        Ok(said)
    } else {
        Err(said)
    }
}

#[test]
fn reads_every_rule_and_every_panel() {
    let spec = rule()["spec"].to_string();
    let said = promtool(
        &["check", "rules", "--lint-fatal", "rules.yaml"],
        &[("rules.yaml", spec)],
    );
    let said = said.expect("it reads them");
    let found = format!("{} rules found", rules().len());
    assert!(said.contains(&found), "{said}");
    // A panel's expression is read where a rule's is.
    let record = |asked: &str| {
        let rules: Vec<Value> = expressions()
            .iter()
            .map(|(_, asked)| asked.clone())
            .chain([asked.to_owned()])
            .enumerate()
            .map(|(number, asked)| json!({"record": format!("panel:{number}"), "expr": asked}))
            .collect();
        let rules = json!({"groups": [{"name": "panels", "rules": rules}]});
        promtool(
            &["check", "rules", "rules.yaml"],
            &[("rules.yaml", rules.to_string())],
        )
    };
    record("osm_tasks").expect("it reads all of them");
    let refused = record("sum(osm_tasks").expect_err("it reads no such thing");
    assert!(refused.contains("unclosed left parenthesis"), "{refused}");
}

/// The rules without what people read, which is no matter of when.
fn bare_rules() -> Value {
    let mut spec = rule()["spec"].take();
    each_rule(&mut spec, |rule| {
        let rule = rule.as_object_mut().expect("it is a map");
        rule.shift_remove("annotations");
    });
    spec
}

fn each_rule(spec: &mut Value, mut change: impl FnMut(&mut Value)) {
    for group in spec["groups"].as_array_mut().expect("it has groups") {
        for rule in group["rules"].as_array_mut().expect("it has rules") {
            change(rule);
        }
    }
}

/// The unit tests of all alerts, and those of the objectives.
const TESTS: [&str; 2] = ["alerts.yaml", "objectives.yaml"];

/// Runs a file of unit tests on the rules, after `change` has changed some of them.
fn run_tests(file: &str, change: impl FnMut(&mut Value)) -> Result<String, String> {
    let mut spec = bare_rules();
    each_rule(&mut spec, change);
    let tests = read(&format!("tests/shape/monitoring/{file}"));
    let files = [("rules.yaml", spec.to_string()), (file, tests)];
    promtool(&["test", "rules", file], &files)
}

/// The metric that a rule of an objective measures.
fn objective(rule: &Value) -> Option<&'static str> {
    let asked = rule["expr"].as_str().expect("it asks");
    let metrics = ["osm_time_to_engaged", "osm_time_to_served"];
    metrics.into_iter().find(|metric| asked.contains(metric))
}

/// Asserts that unit tests fail with another expression in the rules that `is_changed` finds.
fn assert_noticed(file: &str, is_changed: impl Fn(&Value) -> bool, other: impl Fn(&str) -> String) {
    let mut changes = Vec::new();
    let passed = run_tests(file, |rule| {
        if is_changed(rule) {
            let asked = rule["expr"].as_str().expect("it asks");
            let other = other(asked);
            assert_ne!(asked, other);
            changes.push(other.clone());
            rule["expr"] = json!(other);
        }
    });
    assert!(!changes.is_empty());
    passed.expect_err(&format!("nothing in {file} fails with {changes:?}"));
}

#[test]
fn fires_each_alert_when_its_thing_happens_and_not_otherwise() {
    for file in TESTS {
        run_tests(file, |_| {}).expect("each fires as it should");
    }
    // Each has a test without which it could be broken.
    for known in rules() {
        let file = TESTS[usize::from(objective(&known).is_some())];
        let is_it = |rule: &Value| rule["expr"] == known["expr"];
        for broken in ["vector(1)", "vector(1) > 2"] {
            assert_noticed(file, is_it, |_| broken.to_owned());
        }
    }
}

#[test]
fn fires_alerts_of_objectives_at_their_thresholds() {
    let is_alert = |rule: &Value| rule["alert"].is_string() && objective(rule).is_some();
    let alerts: Vec<Value> = rules().into_iter().filter(is_alert).collect();
    assert_eq!(alerts.len(), 4);
    for alert in &alerts {
        let is_it = |rule: &Value| rule["alert"] == alert["alert"];
        let asked = alert["expr"].as_str().expect("it asks");
        // A long window, a short one, and more than one late event.
        let parts: Vec<&str> = asked.split(" and ").collect();
        assert_eq!(parts.len(), 3, "{asked}");
        for part in &parts {
            let others = parts.iter().copied().filter(|other| other != part);
            let others = others.collect::<Vec<_>>().join(" and ");
            assert_noticed(TESTS[1], is_it, |_| others.clone());
        }
        let factors = [
            ("14.4", "6"),
            ("14.4", "30"),
            ("> 6", "> 1"),
            ("> 6", "> 14.4"),
        ];
        let factors = factors.into_iter().filter(|(from, _)| asked.contains(from));
        for (from, to) in factors.chain([("> 1.5", "> 0.5"), ("> 1.5", "> 2.5")]) {
            assert_noticed(TESTS[1], is_it, |asked| asked.replace(from, to));
        }
    }
    for (metric, from, to) in [
        ("osm_time_to_engaged", "30.0", "5.0"),
        ("osm_time_to_served", "5.0", "1.0"),
        ("osm_time_to_served", "5.0", "30.0"),
    ] {
        let is_of_it = |rule: &Value| objective(rule) == Some(metric);
        assert_noticed(TESTS[1], is_of_it, |asked| {
            asked.replace(&format!("\"{from}\""), &format!("\"{to}\""))
        });
    }
}

/// The unit tests change the boundary of an objective in all of its rules, so it must be the same.
#[test]
fn the_rules_of_an_objective_have_one_boundary() {
    for (metric, boundary) in [
        ("osm_time_to_engaged", "30.0"),
        ("osm_time_to_served", "5.0"),
    ] {
        let of_it: Vec<Value> = rules()
            .into_iter()
            .filter(|rule| objective(rule) == Some(metric))
            .collect();
        assert_eq!(of_it.len(), 6, "{metric}");
        for rule in of_it {
            let asked = rule["expr"].as_str().expect("it asks");
            let matcher = format!("{metric}_seconds_bucket{{le=\"{boundary}\"}}");
            assert_eq!(asked.matches(&matcher).count(), 1, "{asked}");
            assert_eq!(asked.matches("le=").count(), 1, "{asked}");
        }
    }
}
