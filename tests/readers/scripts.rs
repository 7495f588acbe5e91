//! The scripts of our profiles, and the one for edge machines: bash and shellcheck read each, and
//! they run as far as a test can, in a folder that stands for the machine's root.

use std::{collections::BTreeSet, fs};

use crate::{
    cases::{Case, HOSTILE, TOKEN, case_of, cloud_init_cases, distinct, every_case, profile_names},
    programs::{command, consumers, run, text},
};

mod edge;
mod flatcar;
mod node_address;
mod services;
mod setup;
mod updates;

/// The scripts of all cases, each once.
fn distinct_scripts() -> Vec<(String, String)> {
    let of_cases = every_case().iter().flat_map(Case::texts);
    let of_cases = of_cases
        .filter(|(path, text)| text.starts_with("#!") || path.starts_with("/etc/profile.d/"))
        .map(|(path, text)| (path.rsplit('/').next().unwrap_or(path), text.to_owned()));
    let all = of_cases.chain([("edge", edge::script())]);
    distinct(all.map(|(name, text)| (name.to_owned(), text)))
}

#[test]
fn bash_and_shellcheck_accept_every_script() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut paths = Vec::new();
    for (index, (name, script)) in distinct_scripts().into_iter().enumerate() {
        let path = folder.path().join(format!("{index}-{name}"));
        fs::write(&path, script).expect("a script can be written");
        let output = run(command("bash").arg("-n").arg(&path));
        assert!(output.status.success(), "{name}: {}", text(&output));
        paths.push(path);
    }
    assert!(paths.len() > 8, "the cases have scripts");
    let shellcheck = consumers().join("venv/bin/shellcheck");
    let output = run(command(shellcheck)
        .args(["-S", "warning", "-s", "bash"])
        .args(&paths));
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn no_request_skips_the_certificate_and_no_script_traces_itself() {
    for (name, script) in distinct_scripts() {
        // The one for edge machines has its token from its own Secret.
        let is_edge = name == "edge";
        for forbidden in [" -k ", "--insecure", "set -x", "xtrace", "Bearer", TOKEN] {
            let is_allowed = is_edge && forbidden == "Bearer";
            let has = script.contains(forbidden);
            assert!(!has || is_allowed, "{name} has `{forbidden}`");
        }
    }
}

#[test]
fn a_hostile_value_stays_one_word_of_the_shell() {
    let names = [
        "archive",
        "cni_version",
        "containerd_version",
        "kubernetes",
        "repository",
    ];
    let mut found = BTreeSet::new();
    for profile in profile_names(cloud_init_cases()) {
        let setup = case_of(profile, "hostile").text("/opt/bin/setup");
        for name in names {
            let Some(start) = setup.find(&format!("\n{name}='")) else {
                continue;
            };
            let (_, rest) = setup.split_at(start + 1);
            let value: Vec<_> = rest.lines().take(HOSTILE.lines().count()).collect();
            let script = format!("{}\nprintf %s \"${name}\"", value.join("\n"));
            let output = run(command("bash").arg("-c").arg(script));
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(printed, HOSTILE, "{profile}: {name}");
            found.insert(name);
        }
    }
    assert_eq!(found.len(), names.len(), "each is a variable of a script");
}
