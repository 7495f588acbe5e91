//! Decodes dashboards strictly into Grafana's own types. `.ci/consumers` builds the program that
//! does.

use std::{fs, path::PathBuf, process::Command};

use serde_json::{Value, json};

use super::{dashboards, root};

/// Decodes a dashboard, and returns what is wrong with it.
#[expect(
    clippy::disallowed_methods,
    reason = "our own program on our own files"
)]
fn decode(file: &str) -> Result<(), String> {
    let program: PathBuf = root().join("target/consumers/go/grafana-dashboards");
    let output = Command::new(program)
        .arg(file)
        .output()
        .expect(".ci/consumers has built grafana-dashboards");
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8(output.stderr).expect("it writes text"))
}

#[test]
fn knows_every_field_of_every_dashboard() {
    let dashboards = dashboards();
    assert!(dashboards.len() >= 2, "{}", dashboards.len());
    for (file, _) in dashboards {
        decode(&file).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    }
}

#[test]
fn refuses_a_dashboard_with_a_mistake_and_names_the_file_and_the_field() {
    let (_, dashboard) = dashboards().swap_remove(0);
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("broken.json");
    let check = |pointer: &str, field: &str, value: Value, expected: &str| {
        let mut dashboard = dashboard.clone();
        let place = dashboard.pointer_mut(pointer).expect("the place exists");
        place[field] = value;
        fs::write(&path, dashboard.to_string()).expect("the folder is ours");
        let file = path.to_str().expect("it is text");
        let mistakes = decode(file).expect_err(expected);
        let line = format!("{file}: {expected}");
        assert!(mistakes.lines().any(|it| it == line), "{line}: {mistakes}");
    };
    let word = || json!("x");
    let panel = "/panels/1";
    check("", "titel", word(), "Dashboard: unexpected field 'titel'");
    check(
        panel,
        "descripton",
        word(),
        "panels[1].Panel: unexpected field 'descripton'",
    );
    check(
        &format!("{panel}/targets/0"),
        "exprr",
        word(),
        "panels[1].targets[0].Dataquery: unexpected field 'exprr'",
    );
    // The package does not decode these strictly by itself.
    check(
        &format!("{panel}/fieldConfig/defaults"),
        "unitt",
        word(),
        "panels[1].fieldConfig.defaults.FieldConfig: unexpected field 'unitt'",
    );
    check(
        panel,
        "type",
        json!("timesries"),
        "panels[1].type: unknown panel 'timesries'",
    );
    check(
        &format!("{panel}/gridPos"),
        "w",
        json!(25),
        "panels[1].Panel.gridPos.w: must be <= 24",
    );
}
