//! containerd, really started with the configuration of each default profile: what it made of the
//! configuration, and which registries it asks. The daemons run in namespaces of their own, see
//! `containerd.sh`; only our registry is reachable there.
//!
//! A configuration of version 2 is for containerd 1.7, and containerd 2 must take it, too: some
//! distributions ship the one today and the other tomorrow.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use osm::{render::input::RegistryCredential, tenant::secret_text::SecretText};
use tempfile::TempDir;
use toml::{Table, Value};

use crate::{
    cases::{Change, Profile, every_profile},
    machine::Machine,
    programs::{consumer, in_namespaces, run, text},
};

/// The files of a configuration, by their path below `/etc`.
type Files = BTreeMap<String, String>;

/// What one setting does: the values that it changes in what containerd made of its configuration,
/// an image, the requests that it leads to, and what our registry receives.
struct Case {
    name: &'static str,
    change: Change,
    facts: &'static [(&'static str, &'static str)],
    image: &'static str,
    requests: &'static [&'static str],
    told: &'static [&'static str],
    deprecations: &'static [&'static str],
}

/// What every profile says, whatever the settings are.
const FACTS: &[(&str, &str)] = &[
    ("CNI configuration", "/etc/cni/net.d"),
    ("CNI programs", "/opt/cni/bin"),
    ("device ownership", "false"),
    ("discarded layers", "false"),
    ("hosts", "/etc/containerd/certs.d"),
    ("metrics", "127.0.0.1:1338"),
    ("systemd cgroups", "true"),
];

/// What containerd says of a key that it does not know; it starts all the same.
const IGNORED: &str = "Ignoring unknown key";

/// Where containerd says so: in version 3, and in version 2.
const PLACES: &[(&str, &str, &str)] = &[
    (
        "CNI configuration",
        "plugins/io.containerd.cri.v1.runtime/cni/conf_dir",
        "plugins/io.containerd.grpc.v1.cri/cni/conf_dir",
    ),
    (
        "CNI programs",
        "plugins/io.containerd.cri.v1.runtime/cni/bin_dirs",
        "plugins/io.containerd.grpc.v1.cri/cni/bin_dir",
    ),
    (
        "device ownership",
        "plugins/io.containerd.cri.v1.runtime/device_ownership_from_security_context",
        "plugins/io.containerd.grpc.v1.cri/device_ownership_from_security_context",
    ),
    (
        "discarded layers",
        "plugins/io.containerd.cri.v1.images/discard_unpacked_layers",
        "plugins/io.containerd.grpc.v1.cri/containerd/discard_unpacked_layers",
    ),
    (
        "hosts",
        "plugins/io.containerd.cri.v1.images/registry/config_path",
        "plugins/io.containerd.grpc.v1.cri/registry/config_path",
    ),
    ("metrics", "metrics/address", "metrics/address"),
    (
        "sandbox image",
        "plugins/io.containerd.cri.v1.images/pinned_images/sandbox",
        "plugins/io.containerd.grpc.v1.cri/sandbox_image",
    ),
    (
        "systemd cgroups",
        "plugins/io.containerd.cri.v1.runtime/containerd/runtimes/runc/options/SystemdCgroup",
        "plugins/io.containerd.grpc.v1.cri/containerd/runtimes/runc/options/SystemdCgroup",
    ),
];

const PLAIN: Case = Case {
    name: "plain",
    change: |_| {},
    facts: &[],
    image: "docker.io/library/x:1",
    requests: &[
        "https://registry-1.docker.io/v2/library/x/manifests/1",
        "https://registry-1.docker.io/v2/library/x/manifests/1",
    ],
    told: &[],
    deprecations: &[],
};

const CASES: &[Case] = &[
    PLAIN,
    Case {
        name: "sandbox image",
        change: |machine| {
            let image = &mut machine.settings.pause_image;
            image.push_str("registry.test/pause:3.10");
        },
        facts: &[("sandbox image", "registry.test/pause:3.10")],
        image: "registry.test/pause:3.10",
        requests: &["https://registry.test/v2/pause/manifests/3.10"],
        ..PLAIN
    },
    Case {
        name: "device ownership",
        change: |machine| machine.settings.device_ownership_from_security_context = true,
        facts: &[("device ownership", "true")],
        image: "quay.io/x:1",
        requests: &["https://quay.io/v2/x/manifests/1"],
        ..PLAIN
    },
    Case {
        name: "mirrors in their order",
        change: |machine| {
            mirror(
                machine,
                "docker.io",
                &[
                    "https://z.test/v2/proxy?kubermatic=override_path%3Dtrue",
                    "http://a.test",
                ],
            );
        },
        requests: &[
            "https://z.test/v2/proxy/library/x/manifests/1?ns=docker.io",
            "http://a.test/v2/library/x/manifests/1?ns=docker.io",
            "https://registry-1.docker.io/v2/library/x/manifests/1",
        ],
        ..PLAIN
    },
    Case {
        name: "any registry",
        change: |machine| mirror(machine, "*", &["https://mirror.test"]),
        image: "quay.io/x:1",
        requests: &[
            "https://mirror.test/v2/x/manifests/1?ns=quay.io",
            "https://quay.io/v2/x/manifests/1",
        ],
        ..PLAIN
    },
    Case {
        name: "a registry that nobody vouches for",
        image: "own.test:5000/x:1",
        requests: &["https://own.test:5000/v2/x/manifests/1"],
        ..PLAIN
    },
    Case {
        name: "insecure registry",
        change: |machine| distrust(machine, "own.test:5000"),
        image: "own.test:5000/x:1",
        // The entry for the registry as a mirror of itself, and then the registry, verified.
        requests: &[
            "https://own.test:5000/v2/x/manifests/1",
            "https://own.test:5000/v2/x/manifests/1",
        ],
        told: &["None"],
        ..PLAIN
    },
    Case {
        name: "insecure registry with a mirror",
        change: |machine| {
            distrust(machine, "own.test:5000");
            let mirror = vec!["https://mirror.test".to_owned()];
            let mirrors = &mut machine.settings.registry_mirrors;
            mirrors.insert("own.test:5000".to_owned(), mirror);
        },
        image: "own.test:5000/x:1",
        requests: &[
            "https://mirror.test/v2/x/manifests/1?ns=own.test%3A5000",
            "https://own.test:5000/v2/x/manifests/1",
        ],
        told: &["None"],
        ..PLAIN
    },
    Case {
        name: "a registry of this host, without TLS",
        image: "localhost:5001/x:1",
        requests: &["https://localhost:5001/v2/x/manifests/1"],
        told: &["None"],
        ..PLAIN
    },
    Case {
        name: "the same with a mirror",
        change: |machine| mirror(machine, "localhost:5001", &["https://mirror.test"]),
        image: "localhost:5001/x:1",
        requests: &[
            "https://mirror.test/v2/x/manifests/1?ns=localhost%3A5001",
            "https://localhost:5001/v2/x/manifests/1",
        ],
        ..PLAIN
    },
    Case {
        name: "the same as an insecure registry",
        change: |machine| distrust(machine, "localhost:5001"),
        image: "localhost:5001/x:1",
        requests: &[
            "https://localhost:5001/v2/x/manifests/1",
            "https://localhost:5001/v2/x/manifests/1",
        ],
        ..PLAIN
    },
    Case {
        name: "the same as a mirror of its own",
        change: |machine| {
            let urls = ["https://mirror.test", "http://localhost:5001"];
            mirror(machine, "localhost:5001", &urls);
        },
        image: "localhost:5001/x:1",
        requests: &[
            "https://mirror.test/v2/x/manifests/1?ns=localhost%3A5001",
            "http://localhost:5001/v2/x/manifests/1",
            "https://localhost:5001/v2/x/manifests/1",
        ],
        told: &["None"],
        ..PLAIN
    },
    Case {
        name: "credentials",
        change: |machine| {
            distrust(machine, "own.test:5000");
            let credential = RegistryCredential {
                username: SecretText::new("user"),
                password: SecretText::new("pass"),
                ..RegistryCredential::default()
            };
            let registry = "https://own.test:5000".to_owned();
            machine.credentials.insert(registry, credential);
        },
        image: "own.test:5000/x:1",
        // Without and with them, and then the registry, verified.
        requests: &[
            "https://own.test:5000/v2/x/manifests/1",
            "https://own.test:5000/v2/x/manifests/1",
            "https://own.test:5000/v2/x/manifests/1",
        ],
        told: &["None", "Basic dXNlcjpwYXNz"],
        deprecations: &["cri-registry-configs"],
        ..PLAIN
    },
];

fn distrust(machine: &mut Machine, registry: &str) {
    let insecure = &mut machine.settings.insecure_registries;
    insecure.push(registry.to_owned());
}

fn mirror(machine: &mut Machine, registry: &str, urls: &[&str]) {
    let urls = urls.iter().map(|&url| url.to_owned()).collect();
    let mirrors = &mut machine.settings.registry_mirrors;
    mirrors.insert(registry.to_owned(), urls);
}

#[test]
fn containerd_starts_and_asks_the_registries_that_the_settings_name() {
    for case in CASES {
        for (files, containerds) in distinct_files(case) {
            for containerd in containerds {
                let name = format!("{}, {}", case.name, containerd.display());
                let started = start(&containerd, &files, case.image);
                let expected: BTreeMap<_, _> = FACTS.iter().chain(case.facts).copied().collect();
                let found = facts(&started.dump, expected.keys());
                assert_eq!(found, expected.iter().map(owned).collect(), "{name}");
                assert_eq!(started.requests(), case.requests, "{name}");
                assert_eq!(started.lines("authorizations"), case.told, "{name}");
                assert_eq!(started.deprecations(), case.deprecations, "{name}");
                started.assert_healthy(&name);
            }
        }
    }
}

#[test]
fn containerd_1_refuses_a_configuration_of_version_3() {
    let folder = scratch();
    let output = attempt(
        &containerd_1(),
        &of_config("version = 3\n"),
        folder.path(),
        "x",
    );
    assert!(!output.status.success(), "the check is without teeth");
    let said = text(&output);
    assert!(said.contains("the max version is `2`"), "{said}");
}

#[test]
fn a_value_under_the_name_of_another_version_shows() {
    let config = "version = 3\n[metrics]\naddress = \"127.0.0.1:1338\"\n\
        [plugins.\"io.containerd.cri.v1.images\"]\nsandbox_image = \"registry.test/pause:1\"\n";
    let started = start(&containerd_2(), &of_config(config), "quay.io/x:1");
    let found = facts(&started.dump, std::iter::once(&"sandbox image"));
    assert_ne!(
        found.values().next().map(String::as_str),
        Some("registry.test/pause:1")
    );
    let dump = started.file("dump.log");
    assert!(dump.contains(IGNORED), "{dump}");
}

/// What a containerd left behind.
struct Started {
    folder: TempDir,
    dump: Table,
}

impl Started {
    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    fn lines(&self, name: &str) -> Vec<String> {
        self.file(name).lines().map(str::to_owned).collect()
    }

    /// The URLs that containerd asked, in order.
    fn requests(&self) -> Vec<String> {
        let log = self.file("containerd.log");
        let requests = log
            .lines()
            .filter(|line| line.contains("msg=\"do request\""));
        requests
            .filter_map(|line| Some(line.split_once("url=\"")?.1.split_once('"')?.0.to_owned()))
            .collect()
    }

    /// What containerd says will not work with later versions, for all that concerns us: on this
    /// machine's control groups we have no influence.
    fn deprecations(&self) -> Vec<String> {
        let list = self.file("deprecations.json");
        // The old one writes nothing where there is nothing to list.
        let list: Vec<BTreeMap<String, String>> = match list.as_str() {
            "" => Vec::new(),
            list => serde_json::from_str(list).expect("a list of deprecations is JSON"),
        };
        let names = list.into_iter().filter_map(|mut entry| entry.remove("id"));
        names
            .map(|name| name.replace("io.containerd.deprecation/", ""))
            .filter(|name| name != "cgroup-v1")
            .collect()
    }

    fn assert_healthy(&self, name: &str) {
        let plugins = self.file("plugins");
        let cri: Vec<_> = plugins
            .lines()
            .filter(|line| line.contains("cri"))
            .collect();
        assert!(!cri.is_empty(), "{name}: {plugins}");
        assert!(
            cri.iter().all(|line| line.trim_end().ends_with(" ok")),
            "{name}: {plugins}"
        );
        assert!(self.file("metrics").starts_with("HTTP/1.0 200"), "{name}");
        let dump = self.file("dump.log");
        assert!(!dump.contains(IGNORED), "{name}: {dump}");
    }
}

fn owned((name, value): (&&'static str, &&str)) -> (&'static str, String) {
    (name, (*value).to_owned())
}

/// What containerd made of its configuration.
fn facts<'a>(
    dump: &Table,
    names: impl Iterator<Item = &'a &'static str>,
) -> BTreeMap<&'static str, String> {
    let is_version_3 = dump.get("version").and_then(Value::as_integer) == Some(3);
    let value = |name: &'static str| {
        let (_, three, two) = PLACES.iter().find(|(known, ..)| *known == name)?;
        let mut steps = if is_version_3 { three } else { two }.split('/');
        let first = dump.get(steps.next()?)?;
        let found = steps.try_fold(first, |value, step| value.get(step))?;
        Some(match found {
            Value::String(text) => text.clone(),
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            Value::Boolean(flag) => flag.to_string(),
            other => format!("{other:?}"),
        })
    };
    names
        .map(|&name| (name, value(name).unwrap_or_default()))
        .collect()
}

/// The configurations of all default profiles, each once, with the containerds that have to take
/// it: Amazon Linux 2 and some releases of Flatcar have 1.7, which reads no version after the
/// second.
fn distinct_files(case: &Case) -> BTreeSet<(Files, Vec<PathBuf>)> {
    let of_profile = |profile: &'static Profile| {
        let mut machine = profile.machine();
        (case.change)(&mut machine);
        let files = profile
            .render(case.name, machine)
            .texts_below("/etc/containerd/");
        let (two, three) = ("version = 2\n", "version = 3\n");
        let (version, containerds) = match profile.name.as_str() {
            "osp-amzn2" | "osp-flatcar" | "osp-flatcar-cloud-init" => {
                (two, vec![containerd_1(), containerd_2()])
            }
            _ => (three, vec![containerd_2()]),
        };
        let config = files.get("config.toml").expect("there is a configuration");
        assert!(config.starts_with(version), "{}: {config}", profile.name);
        (files, containerds)
    };
    every_profile().iter().map(of_profile).collect()
}

fn containerd_1() -> PathBuf {
    consumer("containerd/usr/bin/containerd")
}

fn containerd_2() -> PathBuf {
    consumer("go/containerd")
}

fn of_config(config: &str) -> Files {
    Files::from([("config.toml".to_owned(), config.to_owned())])
}

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

fn start(containerd: &Path, files: &Files, image: &str) -> Started {
    let folder = scratch();
    let output = attempt(containerd, files, folder.path(), image);
    assert!(output.status.success(), "{}", text(&output));
    let dump = fs::read_to_string(folder.path().join("dump.toml")).expect("a dump was written");
    Started {
        dump: dump.parse().expect("the dump is TOML"),
        folder,
    }
}

fn attempt(containerd: &Path, files: &Files, folder: &Path, image: &str) -> Output {
    for (path, data) in files {
        let path = folder.join("etc/containerd").join(path);
        fs::create_dir_all(path.parent().expect("a file is in a folder"))
            .expect("a folder can be made");
        fs::write(path, data).expect("a file can be written");
    }
    let names = ["127.0.0.1".to_owned()];
    let own = rcgen::generate_simple_self_signed(names).expect("a certificate can be made");
    fs::write(folder.join("registry.crt"), own.cert.pem()).expect("a file can be written");
    let key = own.signing_key.serialize_pem();
    fs::write(folder.join("registry.key"), key).expect("a file can be written");
    let script =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/consumers/containerd.sh");
    let programs = consumer("go/cri-pull");
    run(in_namespaces("bash")
        .arg(script)
        .arg(folder)
        .arg(containerd.parent().expect("a program is in a folder"))
        .arg(programs.parent().expect("a program is in a folder"))
        .arg(image))
}
