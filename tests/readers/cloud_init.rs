//! Our own profiles for cloud-init, rendered and given to the programs that read the result:
//! cloud-init's schema, bash, shellcheck and systemd. Each distinct document, script and unit is
//! read once. Values and encodings that our profiles do not use are in a module of their own.
//!
//! `.ci/consumers` installs those that a machine does not bring.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    process::Output,
};

use crate::{
    cases::{self, Case, RenderedFile, cloud_init_cases, files_of},
    programs::{
        check_scripts, check_units, command, consumers, distinct, distinct_scripts, run, text,
        verify,
    },
};

mod encodings;
mod kubelet;

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
    for case in cloud_init_cases() {
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
    check_scripts();
}

#[test]
fn systemd_accepts_every_unit() {
    check_units();
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
    for case in cloud_init_cases() {
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
    for case in cloud_init_cases() {
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
    for case in cloud_init_cases() {
        assert!(!case.stored.contains(cases::TOKEN), "{}", case.name);
    }
}

#[test]
fn containerd_gets_its_configuration_and_the_hosts_of_its_registries() {
    for name in cases::profile_names(cloud_init_cases()) {
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
    for profile in cases::profile_names(cloud_init_cases()) {
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

/// What cloud-init says of documents.
fn schema(documents: &[PathBuf]) -> Output {
    consumer_python(SCHEMA, documents)
}

/// Runs a program of Python's that uses cloud-init's modules.
fn consumer_python(program: &str, arguments: &[PathBuf]) -> Output {
    let consumers = consumers();
    let modules = consumers.join("cloud-init/usr/lib/python3/dist-packages");
    let mut check = command(consumers.join("venv/bin/python"));
    check
        .env("PYTHONPATH", modules)
        .args(["-c", program])
        .args(arguments);
    run(&mut check)
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
    distinct(cloud_init_cases().flat_map(of_case))
}
