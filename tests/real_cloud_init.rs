//! Our own profiles for cloud-init, rendered and given to the programs that read the result:
//! cloud-init's schema, bash, shellcheck and systemd. Each distinct document, script and unit is
//! read once.
//!
//! `.ci/consumers` installs those that a machine does not bring.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::cases::{Case, RenderedFile, every_case, files_of};

#[path = "real_cloud_init/cases.rs"]
mod cases;
#[path = "real_cloud_init/kubelet.rs"]
mod kubelet;
#[path = "real_cloud_init/setup.rs"]
mod setup;

/// What `cloud-init schema` does to a document, for one after the other: it starts slowly, and the
/// command around it would write into this machine's `/run`.
const SCHEMA: &str = "\
import sys
from cloudinit.config import schema
for document in sys.argv[1:]:
    if not schema.validate_cloudconfig_file(document, schema.get_schema()):
        sys.exit(document + ' was not read')
    print('Valid schema', document)
";

#[test]
fn cloud_init_accepts_every_document() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut paths = Vec::new();
    for (index, (name, document)) in distinct_documents().into_iter().enumerate() {
        let path = folder.path().join(format!("{index}-{name}.yaml"));
        fs::write(&path, document).expect("a document can be written");
        paths.push(path);
    }
    assert!(paths.len() > 10, "the cases differ");
    let output = schema(&paths);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for path in &paths {
        assert!(
            said.contains(&format!("Valid schema {}\n", path.display())),
            "{said}"
        );
    }
}

#[test]
fn cloud_init_refuses_a_key_that_it_does_not_know() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("document.yaml");
    fs::write(&path, "#cloud-config\nwrite_file: []\n").expect("a document can be written");
    let output = schema(&[path]);
    assert!(!output.status.success(), "the check is without teeth");
    assert!(text(&output).contains("write_file"), "{}", text(&output));
}

#[test]
fn no_document_repeats_a_key() {
    let parse = |text: &str| serde_saphyr::from_str::<serde_json::Value>(text);
    parse("a: 1\na: 2\n").expect_err("the parser refuses a repeated key");
    for (name, document) in distinct_documents() {
        let text = String::from_utf8(document).expect("a document is text");
        let value = parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(value.get("write_files").is_some(), "{name}");
    }
}

#[test]
fn every_file_has_a_path_of_its_own_a_mode_and_the_content_of_the_config() {
    for case in every_case() {
        for half in [&case.bootstrap, &case.provisioning] {
            let written = files_of(&half.document);
            let paths: BTreeSet<_> = written.iter().map(|file| &file.path).collect();
            assert_eq!(
                paths.len(),
                written.len(),
                "{}: a path is written twice",
                case.name
            );
            for RenderedFile {
                path,
                mode,
                content,
            } in &written
            {
                assert!(path.starts_with('/') && !path.contains(".."), "{path}");
                assert!(
                    mode.len() == 4
                        && mode.starts_with('0')
                        && u32::from_str_radix(mode, 8).is_ok(),
                    "{path}: mode {mode}"
                );
                if let Some(expected) = half.texts.get(path) {
                    assert_eq!(content.trim_end(), expected.trim_end(), "{path}");
                }
            }
            for path in half.texts.keys() {
                assert!(
                    paths.contains(path),
                    "{}: {path} is not in the document",
                    case.name
                );
            }
        }
    }
}

#[test]
fn bash_and_shellcheck_accept_every_script() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut paths = Vec::new();
    for (index, (name, script)) in distinct_scripts().into_iter().enumerate() {
        let path = folder.path().join(format!("{index}-{name}"));
        fs::write(&path, script).expect("a script can be written");
        let output = run(command("bash").arg("-n").arg(&path));
        assert!(
            output.status.success(),
            "{}: {}",
            path.display(),
            text(&output)
        );
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
fn systemd_accepts_every_unit() {
    for (name, units) in distinct_unit_sets() {
        let output = verify(&units);
        assert!(output.status.success(), "{name}: {}", text(&output));
    }
}

#[test]
fn systemd_refuses_a_value_that_it_does_not_know() {
    let broken = "[Service]\nExecStart=/opt/bin/setup\nRestart=alwayz\n".to_owned();
    let output = verify(&BTreeMap::from([("setup.service".to_owned(), broken)]));
    assert!(!output.status.success(), "the check is without teeth");
}

/// The least that a provider takes is 16,384 bytes (AWS; machine-controller compresses there).
/// Hetzner takes 32 KiB, the others more. What a proxy and a bundle of the largest size that
/// travels cost is in the second figure.
#[test]
fn a_bootstrap_document_stays_below_every_providers_limit() {
    for case in every_case() {
        let bytes = case.bootstrap.document.len();
        let bytes_max = match case.name.rsplit('/').next() {
            Some("large") => 16_384,
            Some("proxy" | "hostile") => 12 * 1024,
            _ => 9 * 1024,
        };
        assert!(bytes <= bytes_max, "{}: {bytes} bytes", case.name);
    }
}

/// The API server takes 1 MiB; the figure is there to be seen when it grows.
#[test]
fn a_provisioning_document_is_small() {
    for case in every_case() {
        let bytes = case.provisioning.document.len();
        assert!(bytes <= 40 * 1024, "{}: {bytes} bytes", case.name);
    }
}

#[test]
fn no_request_skips_the_certificate_and_no_script_traces_itself() {
    for (name, script) in distinct_scripts() {
        let script = String::from_utf8(script).expect("a script is text");
        for forbidden in [
            " -k ",
            "--insecure",
            "set -x",
            "xtrace",
            "Bearer",
            cases::TOKEN,
        ] {
            assert!(!script.contains(forbidden), "{name} has `{forbidden}`");
        }
    }
}

#[test]
fn a_stored_config_holds_no_token() {
    for case in every_case() {
        assert!(!case.stored.contains(cases::TOKEN), "{}", case.name);
    }
}

#[test]
fn containerd_gets_its_configuration_and_the_hosts_of_its_registries() {
    for name in cases::profile_names() {
        let case = cases::case(&format!("{name}/aws/1.34.1"));
        let text = |path: &str| &case.provisioning.texts[path];
        // Amazon Linux 2 has containerd 1.7, which reads nothing newer.
        let version = if name == "osp-amzn2" { 2 } else { 3 };
        let start = format!("version = {version}\n");
        let config = text("/etc/containerd/config.toml");
        assert!(config.starts_with(&start), "{name}: {config}");
        let hosts = text("/etc/containerd/certs.d/docker.io/hosts.toml");
        assert!(hosts.contains("registry-1.docker.io"), "{name}: {hosts}");
    }
}

#[test]
fn red_hats_machines_register_with_a_subscription_if_there_is_one() {
    for (special, expected) in [("1.34.1", false), ("registered", true)] {
        let case = cases::case(&format!("osp-rhel/aws/{special}"));
        for half in [&case.bootstrap, &case.provisioning] {
            let document = String::from_utf8_lossy(&half.document);
            let subscription = "\nrh_subscription:\n    auto-attach: true\n    \
                                password: word\n    username: user\n";
            assert_eq!(document.contains(subscription), expected, "{special}");
            assert_eq!(document.contains("rh_subscription"), expected, "{special}");
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
    for profile in cases::profile_names() {
        let case = cases::case(&format!("{profile}/aws/hostile"));
        let setup = &case.provisioning.texts["/opt/bin/setup"];
        for name in names {
            let Some(start) = setup.find(&format!("\n{name}='")) else {
                continue;
            };
            let (_, rest) = setup.split_at(start + 1);
            let value: Vec<_> = rest.lines().take(cases::HOSTILE.lines().count()).collect();
            let script = format!("{}\nprintf %s \"${name}\"", value.join("\n"));
            let output = run(command("bash").arg("-c").arg(script));
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(printed, cases::HOSTILE, "{profile}: {name}");
            found.insert(name);
        }
    }
    assert_eq!(found.len(), names.len(), "each is a variable of a script");
}

#[test]
fn supervise_waits_longer_each_time_and_keeps_a_bounded_log() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let at = |name: &str| folder.path().join(name);
    let case = cases::case("osp-ubuntu/aws/1.34.1");
    let supervise = case
        .bootstrap
        .texts
        .get("/opt/bin/supervise.sh")
        .expect("the script is there");
    fs::write(at("supervise.sh"), supervise).expect("a script can be written");
    write_program(
        &at("sleep"),
        "#!/bin/bash\necho \"$1\" >> \"$(dirname \"$0\")/delays\"\n",
    );
    write_program(
        &at("attempt"),
        "#!/bin/bash\nseq -f 'line %g' 100000\n\
         [ \"$(wc -l < \"$(dirname \"$0\")/delays\")\" -ge 10 ]\n",
    );
    fs::write(at("delays"), "").expect("a list can be written");
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let output = run(command("bash")
        .env("PATH", path)
        .arg(at("supervise.sh"))
        .arg(at("attempt")));
    assert!(output.status.success(), "{}", text(&output));
    let delays = fs::read_to_string(at("delays")).expect("the delays were noted");
    let delays: Vec<_> = delays.lines().collect();
    assert_eq!(
        delays,
        ["2", "4", "8", "16", "32", "64", "128", "256", "300", "300"]
    );
    let log = String::from_utf8(output.stdout).expect("the log is text");
    assert_eq!(log.lines().count(), 11 * 250 + 10);
    assert!(log.contains("line 200\n") && log.contains("line 100000\n"));
    assert!(!log.contains("line 201\n"));
}

fn write_program(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, script).expect("a program can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
}

/// The documents of all cases, each once, by the name of its first case.
fn distinct_documents() -> Vec<(String, Vec<u8>)> {
    let of_case = |case: &Case| {
        [
            ("bootstrap", &case.bootstrap),
            ("provisioning", &case.provisioning),
        ]
        .map(|(half, document)| {
            (
                format!("{}-{half}", case.name.replace('/', "-")),
                document.document.clone(),
            )
        })
    };
    distinct(every_case().iter().flat_map(of_case))
}

/// The scripts of all cases, each once.
fn distinct_scripts() -> Vec<(String, Vec<u8>)> {
    let of_case = |case: &Case| {
        let texts = case.bootstrap.texts.iter().chain(&case.provisioning.texts);
        texts
            .filter(|(path, text)| text.starts_with("#!") || path.starts_with("/etc/profile.d/"))
            .map(|(path, text)| (file_name(path), text.clone().into_bytes()))
            .collect::<Vec<_>>()
    };
    distinct(every_case().iter().flat_map(of_case))
}

/// The units of all cases, each distinct set once: a unit is read together with those it needs.
fn distinct_unit_sets() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut seen = BTreeSet::new();
    let mut sets = BTreeMap::new();
    for case in every_case() {
        let texts = case.bootstrap.texts.iter().chain(&case.provisioning.texts);
        let units: BTreeMap<_, _> = texts
            .filter_map(|(path, text)| {
                let name = path.strip_prefix("/etc/systemd/system/")?;
                Some((name.to_owned(), text.clone()))
            })
            .collect();
        if seen.insert(units.clone()) {
            sets.insert(case.name.clone(), units);
        }
    }
    sets
}

/// What systemd says of units, in a folder of their own and with programs that exist in place of
/// ours, which only a node has.
fn verify(units: &BTreeMap<String, String>) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let containerd = BTreeMap::from([(
        "containerd.service".to_owned(),
        "[Service]\nExecStart=/usr/bin/containerd\n".to_owned(),
    )]);
    let mut paths = Vec::new();
    for (name, text) in units.iter().chain(&containerd) {
        let path = folder.path().join(name);
        let parent = path.parent().expect("a unit is in a folder");
        fs::create_dir_all(parent).expect("a folder can be made");
        let lines: Vec<_> = text.lines().map(with_a_program_that_exists).collect();
        fs::write(&path, lines.join("\n") + "\n").expect("a unit can be written");
        if name.ends_with(".service") {
            paths.push(path);
        }
    }
    let mut verify = command("systemd-analyze");
    // Without the second flag an unknown key is printed, and forgiven.
    verify
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(paths);
    run(&mut verify)
}

fn with_a_program_that_exists(line: &str) -> String {
    match line.split_once('=') {
        Some((key, program)) if key.starts_with("Exec") => {
            let (_, arguments) = program.split_once(' ').unwrap_or((program, ""));
            format!("{key}=/bin/true {arguments}")
        }
        _ => line.to_owned(),
    }
}

fn distinct(contents: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut seen = BTreeSet::new();
    contents
        .filter(|(_, content)| seen.insert(content.clone()))
        .collect()
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// What cloud-init says of documents.
fn schema(documents: &[PathBuf]) -> Output {
    let consumers = consumers();
    let modules = consumers.join("cloud-init/usr/lib/python3/dist-packages");
    let mut check = command(consumers.join("venv/bin/python"));
    check
        .env("PYTHONPATH", modules)
        .args(["-c", SCHEMA])
        .args(documents);
    run(&mut check)
}

/// Where the programs are.
fn consumers() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/consumers");
    assert!(
        folder.join("installed").is_file(),
        "{} is missing or incomplete: run .ci/consumers",
        folder.display()
    );
    folder
}

#[expect(
    clippy::disallowed_methods,
    reason = "the programs that read what we render are run"
)]
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

fn run(command: &mut Command) -> Output {
    command
        .output()
        .expect("bash, systemd-analyze and the consumers of .ci/consumers can be run")
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}
