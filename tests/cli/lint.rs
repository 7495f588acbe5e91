//! `osm lint`: exit codes, and findings for people and for programs.

use serde_json::{Value, json};

use crate::folder::Folder;

#[test]
fn the_linter_ends_with_three_for_errors_and_for_denied_warnings() {
    let folder = Folder::new();
    folder.change(
        ("my-profile.yaml", "good.yaml"),
        "permissions: 644",
        "permissions: 600",
    );
    folder.change(("my-profile.yaml", "bad.yaml"), "{{ Token }}", "{{ Token }");
    folder.change(("good.yaml", "tokn.yaml"), "{{ Token }}", "{{ Tokn }}");
    for (line, code, findings) in [
        ("lint good.yaml", 0, 0),
        ("lint osp-ubuntu", 0, 0),
        // It cannot be rendered, either.
        ("lint tokn.yaml", 3, 2),
        ("lint my-profile.yaml", 0, 1),
        ("lint good.yaml my-profile.yaml --deny-warnings", 3, 1),
        ("lint bad.yaml", 3, 1),
    ] {
        let ran = folder.osm(line);
        assert_eq!(
            (ran.code, ran.stdout.lines().count()),
            (code, findings),
            "{line}: {ran:?}"
        );
    }
    let ran = folder.osm("lint tokn.yaml");
    let said = "tokn.yaml:20:13: error[unknown-variable]: \
                spec.bootstrapConfig.files[0].content.inline.data: there is no variable `Tokn`; \
                did you mean `Token`?";
    assert!(ran.stdout.contains(said), "{ran:?}");
    let ran = folder.osm("lint bad.yaml");
    assert!(
        ran.stdout
            .starts_with("bad.yaml:20:13: error[template-syntax]: "),
        "{ran:?}"
    );
    let profile = folder.read("bad.yaml");
    folder.write("line.sh", &format!("osm lint - <<'END'\n{profile}\nEND\n"));
    let ran = folder.run("bash", &["line.sh"]);
    assert!(
        ran.code == 3 && ran.stdout.starts_with("-:20:13: error"),
        "{ran:?}"
    );
}

#[test]
fn findings_are_json_and_sarif_for_programs() {
    let folder = Folder::new();
    folder.change(("my-profile.yaml", "my profile.yaml"), "+jinja", "");
    let lint = |format| {
        let arguments = ["lint", "my profile.yaml", "--format", format];
        let ran = folder.run(env!("CARGO_BIN_EXE_osm"), &arguments);
        serde_json::from_str::<Value>(&ran.stdout).expect("the output is JSON")
    };
    let found = lint("json");
    assert_eq!(found[0]["rule"], "language-not-in-version");
    assert_eq!(
        (&found[0]["line"], &found[0]["column"]),
        (&json!(9), &json!(3))
    );
    assert_eq!(found[0]["severity"], "warning");
    assert!(found[0]["fix"].as_str().unwrap().contains("`+jinja`"));

    // What the specification requires, and what code scanners show.
    let sarif = lint("sarif");
    assert_eq!(sarif["version"], "2.1.0");
    let run = &sarif["runs"][0];
    assert_eq!(run["tool"]["driver"]["name"], "osm");
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(["error", "warning"].contains(&result["level"].as_str().unwrap()));
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "my%20profile.yaml");
        assert!(place["region"]["startLine"].as_u64().unwrap() > 1);
        assert!(place["region"]["startColumn"].as_u64().unwrap() >= 1);
    }
}
