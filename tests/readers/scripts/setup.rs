//! The setup scripts, with programs that note what they are asked for in place of those that would
//! change a machine.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::{
    cases::{Case, case, case_of, cloud_init_cases, every_case, every_profile, profile_names},
    machine::{CREDENTIAL_PROVIDER, a_credential_provider},
    programs::{run, text},
    root::{NOTE, Root},
};

/// In place of curl: notes the URL, and answers with a content or with the checksum of that
/// content.
const DOWNLOAD: &str = "#!/bin/bash
echo \"${!#}\" >> \"${0%/bin/*}/fetched\"
echo curl >> \"${0%/bin/*}/calls\"
case \"${!#}\" in
  *.sha256) printf content | sha256sum ;;
  *) printf content ;;
esac
";

/// In place of what starts the services: notes which.
const START: &str = "#!/bin/bash
echo \"${0##*/} $*\" >> \"${0%/opt/bin/*}/calls\"
";

/// A machine by its `/etc/os-release`, and how its list of repositories ends.
#[derive(Clone, Copy)]
struct Distribution {
    profile: &'static str,
    release: &'static str,
    repository: &'static str,
}

const DISTRIBUTIONS: [Distribution; 12] = [
    Distribution {
        profile: "osp-amzn2",
        release: "ID=\"amzn\"\nVERSION_ID=\"2\"\n",
        repository: "",
    },
    Distribution {
        profile: "osp-amzn2023",
        release: "ID=\"amzn\"\nVERSION_ID=\"2023\"\n",
        repository: "",
    },
    Distribution {
        profile: "osp-centos-stream",
        release: "ID=\"centos\"\nVERSION_ID=\"10\"\n",
        repository: "baseurl=https://download.docker.com/linux/centos/10/$basearch/stable",
    },
    Distribution {
        profile: "osp-debian",
        release: "ID=debian\nVERSION_ID=\"13\"\nVERSION_CODENAME=trixie\n",
        repository: "https://download.docker.com/linux/debian trixie stable",
    },
    Distribution {
        profile: "osp-flatcar",
        release: "ID=flatcar\n",
        repository: "",
    },
    Distribution {
        profile: "osp-flatcar-cloud-init",
        release: "ID=flatcar\n",
        repository: "",
    },
    Distribution {
        profile: "osp-rhel",
        release: "ID=\"rhel\"\nVERSION_ID=\"9.5\"\n",
        repository: "baseurl=https://download.docker.com/linux/rhel/9/$basearch/stable",
    },
    Distribution {
        profile: "osp-rockylinux",
        release: "ID=\"rocky\"\nVERSION_ID=\"9.6\"\n",
        repository: "baseurl=https://download.docker.com/linux/centos/9/$basearch/stable",
    },
    Distribution {
        profile: "osp-rockylinux",
        release: "ID=\"rocky\"\nVERSION_ID=\"10.0\"\n",
        repository: "baseurl=https://download.docker.com/linux/centos/10/$basearch/stable",
    },
    Distribution {
        profile: "osp-ubuntu",
        release: "ID=ubuntu\nVERSION_ID=\"22.04\"\nVERSION_CODENAME=jammy\n",
        repository: "https://download.docker.com/linux/ubuntu jammy stable",
    },
    Distribution {
        profile: "osp-ubuntu",
        release: "ID=ubuntu\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n",
        repository: "https://download.docker.com/linux/ubuntu noble stable",
    },
    Distribution {
        profile: "osp-ubuntu",
        release: "ID=ubuntu\nVERSION_ID=\"26.04\"\nVERSION_CODENAME=resolute\n",
        repository: "https://download.docker.com/linux/ubuntu resolute stable",
    },
];

/// A machine that runs its setup.
struct Setup {
    root: Root,
}

impl Setup {
    fn run(case: &Case, distribution: Distribution, processor: &str) -> Self {
        let setup = Self::prepare(distribution, processor);
        setup.execute(case);
        setup
    }

    fn prepare(distribution: Distribution, processor: &str) -> Self {
        let root = Root::new();
        root.install("curl", DOWNLOAD);
        root.install("modinfo", "#!/bin/bash\nexit 1\n");
        let uname = format!(
            "#!/bin/bash\nif [ \"${{1:-}}\" = -r ]; then echo 6.12; else echo {processor}; fi\n"
        );
        root.install("uname", &uname);
        for script in [
            "../opt/disable-swap.sh",
            "../opt/load-kernel-modules.sh",
            "../opt/bin/setup_net_env.sh",
            "../opt/bin/fetch-kubelet-kubeconfig",
        ] {
            root.install(script, "#!/bin/bash\n");
        }
        root.install("../opt/bin/health-monitor.sh", START);
        root.write("etc/os-release", distribution.release);
        root.write("fetched", "");
        Self { root }
    }

    fn execute(&self, case: &Case) {
        let output = self.root.run(case, "/opt/bin/setup");
        assert!(output.status.success(), "{}: {}", case.name, text(&output));
        let calls = self.root.calls();
        for call in [
            "health-monitor.sh containerd start",
            "health-monitor.sh kubelet start",
            "systemctl disable setup.service",
        ] {
            let is_called = calls.iter().any(|found| found == call);
            assert!(is_called, "{} without {call}: {calls:?}", case.name);
        }
        assert!(self.root.at("etc/setup-complete").is_file());
    }

    fn fetched(&self) -> BTreeSet<String> {
        let fetched = self.root.read("fetched");
        fetched.lines().map(str::to_owned).collect()
    }

    /// The packages that were asked for.
    fn packages(&self) -> BTreeSet<String> {
        let calls = self.root.calls();
        calls
            .iter()
            .filter_map(|call| call.split_once(" install "))
            .flat_map(|(_, words)| words.split_whitespace())
            .filter(|word| !word.starts_with('-') && !word.contains("::"))
            .map(|word| word.trim_end_matches("-6.12").to_owned())
            .collect()
    }
}

#[test]
fn a_machine_fetches_what_its_profile_lists_and_nothing_else() {
    for profile in profile_names(every_case().iter()) {
        let distribution = of_profile(profile);
        for special in ["1.36.0", "mirrored"] {
            let case = case_of(profile, special);
            let amd64 = Setup::run(case, distribution, "x86_64");
            let arm64 = Setup::run(case, distribution, "aarch64");
            let fetched = &amd64.fetched() | &arm64.fetched();
            let expected = &case.listed("file") | &case.listed("checksum");
            assert_eq!(fetched, expected, "{}", case.name);
            for (setup, other) in [(&amd64, "arm64"), (&arm64, "amd64")] {
                let is_other = |url: &String| url.contains(other);
                assert!(!setup.fetched().iter().any(is_other), "{}", case.name);
            }
            assert_eq!(amd64.packages(), case.listed("package"), "{}", case.name);
            assert_eq!(arm64.packages(), amd64.packages(), "{}", case.name);
            if special == "mirrored" {
                let is_mirrored = |url: &String| url.starts_with("https://mirror.example.com/");
                assert!(fetched.iter().all(is_mirrored), "{fetched:?}");
            }
            if profile.starts_with("osp-flatcar") {
                let [bootstrap, _] = case.artefacts();
                assert_eq!(bootstrap.trim(), "", "the image has all that is needed");
            }
        }
    }
}

#[test]
fn a_machine_takes_containerd_from_the_repository_of_its_distribution() {
    for distribution in DISTRIBUTIONS {
        let case = case_of(distribution.profile, "1.34.1");
        let setup = Setup::run(case, distribution, "x86_64");
        let lists = [
            "etc/apt/sources.list.d/containerd.list",
            "etc/yum.repos.d/containerd.repo",
        ];
        let list: String = lists
            .map(|path| fs::read_to_string(setup.root.at(path)).unwrap_or_default())
            .concat();
        let ends_so = |line: &str| line.ends_with(distribution.repository);
        if distribution.repository.is_empty() {
            assert_eq!(list, "", "{}", case.name);
        } else {
            assert!(list.lines().any(ends_so), "{}: {list}", case.name);
        }
    }
}

#[test]
fn an_image_with_containerd_needs_no_repository() {
    for profile in ["osp-debian", "osp-ubuntu"] {
        for (installed, is_right) in [
            ("installed 2.2.9-1~debian.13~trixie", true),
            ("installed 1.7.27-1", false),
            ("config-files 2.2.9-1", false),
        ] {
            let setup = Setup::prepare(of_profile(profile), "x86_64");
            let query = format!("#!/bin/bash\nprintf %s '{installed}'\n");
            setup.root.install("dpkg-query", &query);
            setup.execute(case_of(profile, "1.34.1"));
            let has_key = setup.fetched().iter().any(|url| url.ends_with("/gpg"));
            assert_eq!(has_key, !is_right, "{profile} {installed}");
            let calls = setup.root.read("calls");
            assert!(calls.contains("apt-mark hold containerd.io\n"), "{calls}");
            let installs = setup
                .packages()
                .iter()
                .any(|name| name.contains("containerd.io"));
            assert_eq!(installs, !is_right, "{profile} {installed}");
        }
    }
}

#[test]
fn a_program_for_credentials_is_fetched_once_and_runs_only_with_its_checksum() {
    let at = format!("opt/image-credential-providers/{CREDENTIAL_PROVIDER}");
    for profile in ["osp-debian", "osp-flatcar"] {
        let case = case_of(profile, "mirrored");
        let setup = Setup::prepare(of_profile(profile), "x86_64");
        let state = || {
            let fetched = setup.root.read("fetched");
            let times = fetched
                .lines()
                .filter(|url| url.ends_with(CREDENTIAL_PROVIDER));
            let program = fs::metadata(setup.root.at(&at)).expect("it is there");
            (
                setup.root.read(&at),
                program.permissions().mode() & 0o777,
                times.count(),
            )
        };
        let with = |times| ("content".to_owned(), 0o755, times);
        setup.execute(case);
        setup.execute(case);
        assert_eq!(state(), with(1));
        // The setup was interrupted while it installed the program.
        fs::set_permissions(setup.root.at(&at), fs::Permissions::from_mode(0o600)).expect("ours");
        setup.execute(case);
        assert_eq!(state(), with(2));
        setup.root.write(&at, "changed");
        setup.execute(case);
        assert_eq!(state(), with(3));
        setup.root.write(&at, "changed");
        let wrong = DOWNLOAD.replace("*.sha256)", "*login) printf x ;;\n  *.sha256)");
        setup.root.install("curl", &wrong);
        let output = setup.root.run(case, "/opt/bin/setup");
        assert!(!output.status.success() && text(&output).contains("not have the checksum that"));
        assert_eq!(setup.root.read(&at), "changed");
    }
}

#[test]
fn a_program_for_credentials_that_a_processor_has_none_of_stops_the_setup() {
    let profile = &every_profile()[0];
    let mut machine = profile.machine();
    let mut program = a_credential_provider();
    program.binaries.arm64 = None;
    machine.settings.image_credential_providers = vec![program];
    let case = profile.render("of-amd64", machine);
    Setup::run(&case, of_profile(&profile.name), "x86_64");
    let setup = Setup::prepare(of_profile(&profile.name), "aarch64");
    let output = setup.root.run(&case, "/opt/bin/setup");
    assert!(!output.status.success() && text(&output).contains("for this processor"));
}

#[test]
fn what_is_trusted_already_is_not_added_again() {
    for (profile, command) in [
        ("osp-debian", "update-ca-certificates"),
        ("osp-rhel", "update-ca-trust"),
    ] {
        let setup = Setup::prepare(of_profile(profile), "x86_64");
        for _ in 0..2 {
            setup.execute(case_of(profile, "large"));
        }
        let calls = setup.root.read("calls");
        let times = calls.lines().filter(|call| call.starts_with(command));
        assert_eq!(times.count(), 1, "{calls}");
    }
}

#[test]
fn amazon_linux_takes_containerd_from_amazon_and_keeps_it() {
    for (profile, calls, settings) in [
        (
            "osp-amzn2",
            "amazon-linux-extras enable docker\n\
             yum --assumeyes --quiet --disableexcludes=main install containerd-1.7*\n",
            "etc/yum.conf",
        ),
        (
            "osp-amzn2023",
            "dnf --assumeyes --quiet --disableexcludes=main --releasever=latest \
             install containerd-2*\n",
            "etc/dnf/dnf.conf",
        ),
    ] {
        let setup = Setup::run(case_of(profile, "1.34.1"), of_profile(profile), "x86_64");
        let found = setup.root.read("calls");
        assert!(found.contains(calls), "{found}");
        assert_eq!(setup.root.read(settings), "exclude=containerd\n");
    }
}

#[test]
fn a_mirror_replaces_the_archive_in_both_forms_of_apts_lists() {
    let lists = [
        (
            "etc/apt/sources.list",
            "# deb http://x y\ndeb [arch=amd64] http://ports.ubuntu.com/ jammy main\n",
        ),
        (
            "etc/apt/sources.list.d/ubuntu.sources",
            "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu/\nSuites: noble\n",
        ),
        (
            "etc/apt/sources.list.d/debian.sources",
            "URIs: mirror+file:///etc/apt/mirrors/debian.list\n\n\
             URIs: https://deb.debian.org/debian-security\n",
        ),
    ];
    let mirror = "https://mirror.example.com";
    for (name, expected) in [
        (
            "osp-ubuntu",
            [
                format!(
                    "# deb http://x y\ndeb [arch=amd64] {mirror}/ubuntuArchiveURL jammy main\n"
                ),
                format!("Types: deb\nURIs: {mirror}/ubuntuArchiveURL\nSuites: noble\n"),
            ],
        ),
        (
            "osp-debian",
            [
                format!(
                    "# deb http://x y\ndeb [arch=amd64] {mirror}/debianArchiveURL jammy main\n"
                ),
                format!(
                    "URIs: {mirror}/debianArchiveURL\n\nURIs: {mirror}/debianSecurityArchiveURL\n"
                ),
            ],
        ),
    ] {
        let setup = Setup::prepare(of_profile(name), "x86_64");
        for (path, text) in lists {
            setup.root.write(path, text);
        }
        setup.execute(case_of(name, "mirrored"));
        let list = format!("etc/apt/sources.list.d/{}.sources", &name[4..]);
        assert_eq!(
            [
                setup.root.read("etc/apt/sources.list"),
                setup.root.read(&list)
            ],
            expected
        );
    }
}

#[test]
fn a_mirror_replaces_the_repositories_that_an_rpm_image_names() {
    for (profile, folder) in [
        ("osp-rockylinux", "rockylinuxArchiveURL/9"),
        ("osp-centos-stream", "centosStreamArchiveURL/10-stream"),
    ] {
        let setup = Setup::prepare(of_profile(profile), "x86_64");
        let keys = setup.root.at("etc/pki/rpm-gpg");
        fs::create_dir_all(&keys).expect("a folder can be made");
        fs::write(keys.join("RPM-GPG-KEY-a"), "").expect("a key can be written");
        setup.execute(case_of(profile, "mirrored"));
        let list = setup.root.read("etc/yum.repos.d/archive.repo");
        for part in ["BaseOS", "AppStream"] {
            let expected = format!(
                "[archive-{part}]\nname={part}\n\
                 baseurl=https://mirror.example.com/{folder}/{part}/$basearch/os\n\
                 gpgcheck=1\ngpgkey=file://{}/RPM-GPG-KEY-a \n",
                keys.display()
            );
            assert!(list.contains(&expected), "{list}");
        }
        let calls = setup.root.read("calls");
        let mut installs = calls.lines().filter(|call| call.contains(" install "));
        let is_mirrored = |call: &str| call.contains("--disablerepo=* --enablerepo=archive-*");
        assert!(installs.all(is_mirrored), "{calls}");
    }
}

#[test]
fn a_machine_trusts_the_hosts_certificates_before_it_fetches_anything() {
    for profile in profile_names(cloud_init_cases()) {
        let setup = Setup::run(case_of(profile, "proxy"), of_profile(profile), "x86_64");
        let folders = [
            "usr/local/share/ca-certificates",
            "etc/pki/ca-trust/source/anchors",
        ];
        let is_there = |folder: &&str| setup.root.at(folder).join("osm-1.crt").is_file();
        assert_eq!(
            folders.iter().filter(|folder| is_there(folder)).count(),
            1,
            "{profile}"
        );
        let calls = setup.root.read("calls");
        let trusts = |call: &str| call.starts_with("update-ca-");
        let fetches = |call: &str| {
            ["apt-get", "curl", "dnf", "yum"]
                .iter()
                .any(|name| call.starts_with(name))
        };
        let first = calls.lines().find(|call| trusts(call) || fetches(call));
        assert!(first.is_some_and(trusts), "{profile}: {calls}");
    }
}

#[test]
fn a_bootstrap_installs_only_the_tools_that_are_missing() {
    for (profile, expected) in [
        ("osp-amzn2", "yum --assumeyes --quiet install jq\n"),
        ("osp-rhel", "dnf --assumeyes --quiet install jq\n"),
        ("osp-ubuntu", "--no-install-recommends jq\n"),
    ] {
        for has_jq in [false, true] {
            let root = Setup::prepare(of_profile(profile), "x86_64").root;
            for name in [
                "awk", "bash", "cat", "grep", "mkdir", "mv", "rm", "stat", "touch",
            ] {
                let found = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(name));
                let program = found.iter().find(|path| path.exists());
                let program = program.expect("a usual program is on this machine");
                std::os::unix::fs::symlink(program, root.at("bin").join(name))
                    .expect("a link can be made");
            }
            if has_jq {
                root.install("jq", NOTE);
            }
            let script = case_of(profile, "1.34.1").text("/opt/bin/bootstrap");
            let (start, _) = script.split_once("fetch_secret() {").expect("it fetches");
            root.write("bootstrap", &root.moved(start));
            let output = run(root.bash(&["bootstrap"]).env("PATH", root.at("bin")));
            assert!(output.status.success(), "{profile}: {}", text(&output));
            let calls = root.read("calls");
            assert_eq!(calls.ends_with(expected), !has_jq, "{profile}: {calls}");
            assert_eq!(calls.is_empty(), has_jq, "{profile}: {calls}");
        }
    }
}

#[test]
fn a_virtual_machine_gets_what_its_host_wants() {
    for (case_name, package) in [
        ("osp-ubuntu/vsphere/1.34.1", "open-vm-tools"),
        ("osp-debian/vmware-cloud-director/1.34.1", "open-vm-tools"),
        ("osp-rockylinux/vsphere/1.34.1", "open-vm-tools"),
        ("osp-ubuntu/nutanix/1.34.1", "open-iscsi"),
    ] {
        let case = case(case_name);
        let (profile, _) = case_name.split_once('/').expect("a profile is named");
        let setup = Setup::run(case, of_profile(profile), "x86_64");
        assert!(setup.packages().contains(package), "{case_name}");
        assert!(case.listed("package").contains(package), "{case_name}");
        let calls = setup.root.read("calls");
        let starts_initiator = calls.contains("systemctl restart iscsid.service\n");
        assert_eq!(starts_initiator, package == "open-iscsi", "{case_name}");
    }
}

/// The first distribution that the profile is for.
fn of_profile(profile: &str) -> Distribution {
    let mut distributions = DISTRIBUTIONS.into_iter();
    let found = distributions.find(|distribution| distribution.profile == profile);
    found.expect("the profile has a distribution")
}
