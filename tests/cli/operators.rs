//! The commands for live clusters where there are none, and the program as a plugin of kubectl.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::folder::Folder;

#[test]
fn under_kubectls_name_the_help_is_about_kubectl() {
    let folder = Folder::new();
    let plugin = folder.path("kubectl-osm");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_osm"), &plugin).expect("the folder is ours");
    let plugin = plugin.to_str().expect("our path is text");
    let ran = folder.run(plugin, &["--help"]);
    assert_eq!(ran.code, 0);
    assert!(
        ran.stdout.contains("Usage: kubectl osm <COMMAND>"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("\n  kubectl osm run "),
        "{}",
        ran.stdout
    );
    let ran = folder.run(plugin, &["tenant", "add", "--help"]);
    assert!(
        ran.stdout.contains("Usage: kubectl osm tenant add"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("\n  kubectl osm tenant add berlin"),
        "{}",
        ran.stdout
    );
    assert!(!ran.stdout.contains("\n  osm "), "{}", ran.stdout);
    let ran = folder.run(plugin, &["tenant", "add"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("Usage: kubectl osm tenant add"),
        "{}",
        ran.stderr
    );
    let ran = folder.run(plugin, &["profiles", "list"]);
    assert_eq!(ran.code, 0);
    let ran = folder.osm("--help");
    assert!(
        ran.stdout.contains("Usage: osm <COMMAND>"),
        "{}",
        ran.stdout
    );
}

/// A management cluster that nobody has, and a worker cluster that nobody has.
const NOWHERE: &str = r"
apiVersion: v1
kind: Config
current-context: nowhere
clusters:
- name: nowhere
  cluster: {server: 'https://127.0.0.1:1'}
users:
- name: somebody
  user: {token: t0ken-of-somebody}
contexts:
- name: nowhere
  context: {cluster: nowhere, user: somebody}
";

/// A worker cluster's kubeconfig whose command leaves a file behind.
fn with_exec((command, argument): (&str, &str), certificate_authority: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
current-context: there
clusters:
- name: there
  cluster: {{server: 'https://127.0.0.1:1', certificate-authority-data: {certificate_authority}}}
users:
- name: somebody
  user:
    exec: {{apiVersion: client.authentication.k8s.io/v1, command: {command}, args: [{argument}]}}
contexts:
- name: there
  context: {{cluster: there, user: somebody}}
"
    )
}

#[test]
fn no_command_of_a_worker_clusters_kubeconfig_is_run_unless_its_reader_trusts_it() {
    let folder = Folder::new();
    folder.write("nowhere.yaml", NOWHERE);
    let authority = STANDARD.encode(fake_cluster::Cluster::default().ca_pem());
    folder.write("exec.yaml", &with_exec(("touch", "it-ran"), &authority));
    let commands = [
        "tenant add berlin",
        "tenant add berlin --dry-run",
        "tenant remove berlin --yes",
        "tenant release berlin",
        "tenant release berlin --dry-run",
    ];
    let both = "--kubeconfig nowhere.yaml --worker-kubeconfig exec.yaml";
    for command in commands {
        let ran = folder.osm(&format!("{command} {both}"));
        assert_ne!(ran.code, 0, "{command}");
        for expected in [
            "--worker-kubeconfig exec.yaml",
            "users[0].user.exec: no command",
            "--allow-exec",
        ] {
            assert!(ran.stderr.contains(expected), "{command}: {}", ran.stderr);
        }
        assert!(
            !folder.path("it-ran").exists(),
            "{command} ran a command of the kubeconfig"
        );
    }
    let ran = folder.osm(&format!("tenant add berlin --dry-run {both} --allow-exec"));
    assert!(folder.path("it-ran").exists(), "{}", ran.stderr);
    let missing = with_exec(("ls", "no-such-file"), &authority);
    folder.write("exec.yaml", &missing);
    let ran = folder.osm("tenants --kubeconfig exec.yaml");
    let failed = "the command in the kubeconfig failed (exit status: 2)";
    assert!(ran.stderr.contains(failed), "{}", ran.stderr);
    assert!(!ran.stderr.contains("Output"), "{}", ran.stderr);
}

#[test]
fn a_message_that_a_file_brings_forges_no_line_of_the_terminal() {
    let folder = Folder::new();
    let name = "nowhere\nerror: forged\u{1b}[31m";
    let ran = folder.run(
        env!("CARGO_BIN_EXE_osm"),
        &["tenants", "--kubeconfig", name],
    );
    let shown = "error: cannot use --kubeconfig: cannot read nowhere\n  error: forged\\u{1b}[31m: ";
    assert!(ran.stderr.starts_with(shown), "{:?}", ran.stderr);
}

#[test]
fn no_command_quotes_a_kubeconfig_that_it_cannot_read() {
    let folder = Folder::new();
    let text = "apiVersion: v1\nkind: Config\nusers: [{name: admin, user: {token: hunter2}]\n";
    folder.write("torn.yaml", text);
    for command in [
        "run",
        "webhook",
        "tenants",
        "doctor",
        "plan",
        "explain workers",
        "tenant remove berlin",
        "tenant add berlin --worker-kubeconfig torn.yaml --allow-exec",
    ] {
        let ran = folder.osm(&format!("{command} --kubeconfig torn.yaml"));
        assert_eq!(ran.code, 1, "{command}: {}", ran.stderr);
        let place = "not the YAML that was expected, from line 3, column ";
        assert!(ran.stderr.contains(place), "{command}: {}", ran.stderr);
        assert!(!ran.stderr.contains("hunter2"), "{command}: {}", ran.stderr);
    }
}

#[test]
fn what_cannot_be_reached_is_reported_with_the_address_and_without_the_token() {
    let folder = Folder::new();
    folder.write("nowhere.yaml", NOWHERE);
    for line in [
        "tenants --kubeconfig nowhere.yaml",
        "doctor --kubeconfig nowhere.yaml",
        "explain workers --kubeconfig nowhere.yaml",
        "tenant add berlin --kubeconfig nowhere.yaml --worker-kubeconfig nowhere.yaml",
        "tenant remove berlin --yes --kubeconfig nowhere.yaml",
        "plan --kubeconfig nowhere.yaml",
        "tenant release berlin --kubeconfig nowhere.yaml --worker-kubeconfig nowhere.yaml",
        "tenants --kubeconfig nowhere.yaml --context no-such-context",
        "plan --kubeconfig nowhere.yaml --context no-such-context",
        "explain workers --kubeconfig nowhere.yaml --context no-such-context",
        "tenants --kubeconfig no-such-file.yaml",
    ] {
        let ran = folder.osm(line);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (1, ""),
            "{line}: {}",
            ran.stderr
        );
        assert!(ran.stderr.starts_with("error: "), "{line}: {}", ran.stderr);
        assert!(!ran.stderr.contains("t0ken"), "{line}: {}", ran.stderr);
    }
    let ran = folder.osm("tenant add berlin --label nothing --worker-kubeconfig nowhere.yaml");
    assert!(
        ran.code == 2 && ran.stderr.contains("KEY=VALUE"),
        "{}",
        ran.stderr
    );
}
