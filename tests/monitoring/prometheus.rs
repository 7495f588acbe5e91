//! What Prometheus' own promtool says of rules and panels. `.ci/go-programs monitoring` builds it.

use std::{fs, path::PathBuf, process::Command};

use serde_json::{Value, json};

use super::{alerts, expressions, read, root, rule};

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
    let rules = rule()["spec"].to_string();
    let said = promtool(
        &["check", "rules", "--lint-fatal", "rules.yaml"],
        &[("rules.yaml", rules)],
    );
    let said = said.expect("it reads them");
    assert!(said.contains("12 rules found"), "{said}");
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

#[test]
fn fires_each_alert_when_its_thing_happens_and_not_otherwise() {
    let mut rules = rule()["spec"].take();
    for group in rules["groups"].as_array_mut().expect("it has groups") {
        // What people read is compared to the letter there, and is no matter of when.
        for alert in group["rules"].as_array_mut().expect("it has rules") {
            alert
                .as_object_mut()
                .expect("it is a map")
                .shift_remove("annotations");
        }
    }
    let tests = read("tests/monitoring/alerts.yaml");
    let run = |rules: &Value| {
        let files = [
            ("rules.yaml", rules.to_string()),
            ("tests.yaml", tests.clone()),
        ];
        promtool(&["test", "rules", "tests.yaml"], &files)
    };
    run(&rules).expect("each fires as it should");
    // Each has a test without which it could be broken.
    for (name, _) in alerts() {
        for broken in ["vector(1)", "vector(1) > 2"] {
            let mut rules = rules.clone();
            let alerts = rules["groups"][0]["rules"]
                .as_array_mut()
                .expect("it has rules");
            let alert = alerts.iter_mut().find(|alert| alert["alert"] == *name);
            alert.expect("it is there")["expr"] = json!(broken);
            run(&rules).expect_err(&format!("{name} is tried with {broken}"));
        }
    }
}
