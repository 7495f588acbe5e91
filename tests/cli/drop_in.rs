//! The binary under the names of the programs that it stands in for: what it prints, and its exit
//! codes, where it does not come to serve anything.

use std::{
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

/// Runs the binary under a name: the exit code, and what it printed to stderr.
fn run(name: &str, words: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let program = folder.path().join(name);
    symlink(env!("CARGO_BIN_EXE_osm"), &program).expect("the folder is ours");
    #[expect(clippy::disallowed_methods, reason = "a test runs the binary")]
    let output = Command::new(&program)
        .args(words)
        .env_clear()
        .env("KUBECONFIG", "/nowhere")
        .stdin(Stdio::null())
        .output()
        .expect("the binary was built with this test");
    assert!(output.stdout.is_empty(), "logs and errors go to stderr");
    let told = String::from_utf8(output.stderr).expect("it prints text");
    let told = told.replace(&*program.to_string_lossy(), name);
    (output.status.code(), told)
}

#[test]
fn help_and_wrong_flags_end_as_programs_in_go_do() {
    for (words, code, begins) in [
        (
            &["-h"][..],
            0,
            "Usage of osm-controller:\n  -bootstrap-token-",
        ),
        (&["-namespace=a", "--help"], 0, "Usage of osm-controller:\n"),
        (
            &["-nothing"],
            2,
            "flag provided but not defined: -nothing\nUsage of osm-controller:\n",
        ),
        (
            &["-worker-count", "ten"],
            2,
            "invalid value \"ten\" for flag -worker-count: parse error\nUsage of osm-controller:\n",
        ),
        (
            &["-leader-elect=maybe"],
            2,
            "invalid boolean value \"maybe\" for -leader-elect: parse error\nUsage of",
        ),
        (&[], 1, "error: -namespace is required\n"),
        (
            // The switch takes no word, so the flags end there.
            &["-log-debug", "false", "-namespace=kube-system"],
            1,
            "error: -namespace is required\n",
        ),
        (
            &["-namespace=a", "-container-runtime=docker"],
            1,
            "error: docker not supported; containerd is the only supported container runtimes\n",
        ),
    ] {
        let (found, told) = run("osm-controller", words);
        assert_eq!(found, Some(code), "{words:?}: {told}");
        assert!(told.starts_with(begins), "{words:?}: {told}");
    }
}

#[test]
fn words_that_have_no_effect_are_reported() {
    let line = [
        "-namespace=kube-system",
        "-health-probe-address=127.0.0.1:0",
        "-metrics-address=0",
        "-log-debug",
        "true",
        "-cluster-dns=10.0.0.1",
    ];
    let (code, told) = run("osm-controller", &line);
    assert_eq!(code, Some(1), "there is no cluster: {told}");
    assert!(told.contains("words behind the last flag have no effect"));
    assert!(told.contains("-cluster-dns=10.0.0.1"), "{told}");
}

#[test]
fn the_webhook_reads_its_own_flags() {
    let (code, told) = run("webhook", &["-help"]);
    assert_eq!(code, Some(0));
    assert!(
        told.starts_with("Usage of webhook:\n  -cert-dir string\n"),
        "{told}"
    );
    let (code, told) = run("webhook", &["-worker-count=1"]);
    assert_eq!(code, Some(2));
    assert!(told.starts_with("flag provided but not defined: -worker-count\n"));
    let (code, told) = run("webhook", &["-log-format", "json"]);
    assert_eq!(
        (code, told.as_str()),
        (Some(1), "error: -namespace is required\n")
    );
}

#[test]
fn under_any_other_name_it_is_osm() {
    let (code, told) = run("osm-controllers", &["-namespace=kube-system"]);
    assert_eq!(code, Some(2));
    assert!(told.starts_with("error: unexpected argument"), "{told}");
}
