use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use super::*;

/// The two kinds of documents, each with one file.
fn documents(path: &str, text: &str) -> [String; 2] {
    let encoded = STANDARD.encode(text);
    let cloud_config = json!({
        "ssh_pwauth": false,
        "write_files": [{"path": path, "permissions": "0600", "encoding": "b64", "content": encoded}],
    });
    let ignition = json!({
        "ignition": {"version": "3.3.0"},
        "storage": {"files": [{
            "path": path, "mode": 0o600, "overwrite": true,
            "contents": {"source": format!("data:;base64,{encoded}")},
        }]},
    });
    [
        format!("#cloud-config\n{cloud_config}"),
        ignition.to_string(),
    ]
}

fn between(old: &str, new: &str) -> Vec<Effect> {
    let side = |provisioning: &'static [u8]| Documents {
        bootstrap: b"",
        provisioning,
    };
    let leaked = |text: &str| side(text.to_owned().leak().as_bytes());
    effects(leaked(old), leaked(new), &[])
}

const CONF: &str = "/etc/kubernetes/kubelet.conf";
const UNIT: &str = "/etc/systemd/system/kubelet.service";
const CONTAINERD: &str = "/etc/containerd/config.toml";
const HOSTS: &str = "/etc/containerd/certs.d/docker.io/hosts.toml";
const SYSCTL: &str = "/etc/sysctl.d/k8s.conf";
const RESTART_KUBELET: Class = Class::RestartKubelet;

/// A path, what it holds before and after, and what that takes.
const CHANGES: &[(&str, &str, &str, Class)] = &[
    (CONF, "a: 1\nb: 2\n", "# why\nb: 2\na: 1\n", Class::None),
    (CONF, "logging: 1\n", "logging: 2\n", RESTART_KUBELET),
    (CONF, "", "cpuManagerPolicy: static\n", Class::Drain),
    (CONF, "evictionHard: {}\n", "", Class::Drain),
    (
        CONF,
        "a: 1\n",
        "a: 1\nregisterWithTaints: []\n",
        Class::NewMachine,
    ),
    (CONF, "a: 1\n", "a: [\n", Class::NewMachine),
    (CONF, "a: 1\n", "text\n", Class::NewMachine),
    (
        UNIT,
        "[Service]\nRestart=no\n",
        "[Service]\n\n; why\nRestart=no\n",
        Class::None,
    ),
    (
        UNIT,
        "[Service]\nRestartSec=5\n",
        "[Service]\nRestartSec=10\n",
        RESTART_KUBELET,
    ),
    (
        UNIT,
        "[Service]\nAfter=a\n",
        "[Unit]\nAfter=a\n",
        RESTART_KUBELET,
    ),
    (
        UNIT,
        "",
        "[Install]\nWantedBy=a.target\n",
        Class::NewMachine,
    ),
    (
        UNIT,
        "[Service]\nA=1\nB=1\n",
        "[Service]\nB=1\nA=1\n",
        Class::NewMachine,
    ),
    (
        UNIT,
        "[Service]\nExecStart=a \\\n --v=2\n",
        "[Service]\nExecStart=a --v=3\n",
        RESTART_KUBELET,
    ),
    (
        UNIT,
        "[Service]\nExecStart=a --v=2\n",
        "[Service]\nExecStart=a \"--register-with-taints=a=b:NoExecute\" --v=2\n",
        Class::NewMachine,
    ),
    (
        UNIT,
        "[Service]\nDescription=a\\\\\nAfter=b\n",
        "[Service]\nDescription=a\\\\\n\nAfter=b\n",
        Class::None,
    ),
    // systemd ends the command at the empty line.
    (
        UNIT,
        "[Service]\nExecStart=a \\\n --v=2\n",
        "[Service]\nExecStart=a \\\n\n --v=2\n",
        Class::NewMachine,
    ),
    (
        UNIT,
        "",
        "[Service]\nEnvironment=A=--node-ip=::1\n",
        Class::NewMachine,
    ),
    (
        CONTAINERD,
        "a = 1\n[b]\nc = 2\n",
        "b.c = 2\na = 1 # why\n",
        Class::None,
    ),
    (
        CONTAINERD,
        "[p]\nsandbox = 'a'\n",
        "[p]\nsandbox = 'b'\n",
        Class::RestartContainerd,
    ),
    (
        CONTAINERD,
        "[p.o]\nSystemdCgroup = true\n",
        "[p.o]\n",
        Class::Drain,
    ),
    (
        CONTAINERD,
        "[p]\nroot = 'a'\n",
        "[p]\nroot = 'b'\n",
        Class::NewMachine,
    ),
    (CONTAINERD, "[p]\n", "", Class::NewMachine),
    // containerd asks mirrors in the order of the file.
    (
        HOSTS,
        "[host.a]\n[host.b]\n",
        "[host.b]\n[host.a]\n",
        Class::Reload,
    ),
    (SYSCTL, "a = 1\n", "# why\na=1\n", Class::None),
    (SYSCTL, "a = 1\n", "a = 2\nb = 1\n", Class::RestartUnit),
    (SYSCTL, "a = 1\nb = 1\n", "-a = 1\n", Class::Reboot),
    (
        SYSCTL,
        "",
        "net.ipv6.conf.default.accept_ra = 2\n",
        Class::Reboot,
    ),
    ("/opt/bin/health-monitor.sh", "a", "b", Class::RestartUnit),
    (
        "/etc/systemd/network/a.network",
        "[Network]\n",
        "[Link]\n",
        Class::Reboot,
    ),
    ("/opt/bin/setup", "a", "b", Class::NewMachine),
    ("/etc/profile.d/a/b", "a", "b", Class::NewMachine),
];

#[test]
fn each_change_of_a_file_has_one_class_in_both_kinds_of_documents() {
    for (path, old, new, class) in CHANGES {
        let (old, new) = (documents(path, old), documents(path, new));
        for (old, new) in old.iter().zip(&new) {
            let found = between(old, new);
            assert_eq!(super::class(&found), *class, "{path}: {old} {new}");
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].part, *path);
        }
    }
}

#[test]
fn a_file_that_comes_or_goes_has_a_class_too() {
    for (path, [comes, goes]) in [
        ("/etc/crictl.yaml", [Class::Reload; 2]),
        (
            "/etc/sysctl.d/k8s.conf",
            [Class::RestartUnit, Class::Reboot],
        ),
        ("/etc/hosts", [Class::NewMachine; 2]),
    ] {
        let [one, _] = documents(path, "a = 1\n");
        let none = "#cloud-config\nssh_pwauth: false\n";
        assert_eq!(super::class(&between(none, &one)), comes, "{path}");
        assert_eq!(super::class(&between(&one, none)), goes, "{path}");
    }
}

#[test]
fn units_are_named_once_each_and_only_where_they_are_restarted() {
    let [old, _] = documents("/opt/bin/health-monitor.sh", "a");
    let [new, _] = documents("/opt/bin/health-monitor.sh", "b");
    let units = [
        "containerd-healthcheck.service",
        "kubelet-healthcheck.service",
    ];
    assert_eq!(between(&old, &new)[0].units, units);
    let [old, _] = documents("/etc/kubernetes/kubelet.conf", "registerNode: true\n");
    let [new, _] = documents("/etc/kubernetes/kubelet.conf", "registerNode: false\n");
    assert!(between(&old, &new)[0].units.is_empty());
}

#[test]
fn a_unit_of_ignition_is_the_file_that_it_is_on_a_machine() {
    let with = |drop_in: &str| {
        let unit = json!({"name": "kubelet.service", "enabled": true, "contents": "[Service]\n",
            "dropins": [{"name": "a.conf", "contents": drop_in}]});
        json!({"ignition": {"version": "3.3.0"}, "systemd": {"units": [unit]}}).to_string()
    };
    let found = between(&with("[Unit]\nWants=a\n"), &with("[Unit]\nWants=b\n"));
    assert_eq!(
        found[0].part,
        "/etc/systemd/system/kubelet.service.d/a.conf"
    );
    assert_eq!(super::class(&found), Class::RestartKubelet);
}

#[test]
fn what_is_not_known_needs_a_new_machine() {
    let [one, _] = documents("/etc/crictl.yaml", "a: 1\n");
    let another = one.replace("\"ssh_pwauth\":false", "\"ssh_pwauth\":true");
    assert_eq!(between(&one, &another), [Effect::new_machine("ssh_pwauth")]);
    let script = "#!/bin/sh\n";
    let whole = [Effect::new_machine("provisioning document")];
    assert_eq!(between(script, &one), whole);
    assert_eq!(between(script, script), []);
    let side = |bootstrap| Documents {
        bootstrap,
        provisioning: one.as_bytes(),
    };
    let found = effects(side(b"a"), side(b"b"), &[]);
    assert_eq!(found, [Effect::new_machine("bootstrap document")]);
    // The mode counts as the content does.
    let readable = one.replace("\"0600\"", "\"0644\"");
    assert_eq!(super::class(&between(&one, &readable)), Class::Reload);
}

#[test]
fn what_the_author_of_a_profile_says_of_a_file_comes_first() {
    let declared = |class, units: &[&str]| DeclaredEffect {
        path: CONF.to_owned(),
        class,
        units: units.iter().map(|it| (*it).to_owned()).collect(),
    };
    for (declared, class, units) in [
        (declared(Class::Reload, &[]), Class::Reload, vec![]),
        (
            declared(Class::RestartUnit, &["a.service", "b.timer"]),
            Class::RestartUnit,
            vec!["a.service", "b.timer"],
        ),
        (declared(Class::RestartUnit, &[]), Class::NewMachine, vec![]),
        (
            declared(Class::RestartKubelet, &[]),
            Class::RestartKubelet,
            vec!["kubelet.service"],
        ),
        (
            declared(Class::RestartContainerd, &[]),
            Class::RestartContainerd,
            vec!["containerd.service"],
        ),
    ] {
        let other = "maxPods: 1\n";
        for (old, new) in documents(CONF, "").iter().zip(&documents(CONF, other)) {
            let sides = (old.as_bytes(), new.as_bytes());
            let found = of_provisioning(sides, std::slice::from_ref(&declared));
            let [effect] = found.as_slice() else {
                panic!("{found:?}");
            };
            assert_eq!((effect.class, &*effect.part), (class, CONF));
            assert_eq!(effect.units, units);
            assert_eq!(of_provisioning((sides.0, sides.0), &[]), []);
        }
    }
}

/// Anything else might change what a machine gets.
#[test]
fn a_document_that_is_not_understood_is_compared_as_a_whole() {
    let whole = [Effect::new_machine("provisioning document")];
    let [cloud_config, ignition] = documents(CONF, "logging: 1\n");
    let file =
        |more: &str| cloud_config.replace("\"permissions\"", &format!("{more}\"permissions\""));
    let path = |path: &str| cloud_config.replace(CONF, path);
    for changed in [
        file("\"append\":true,"),
        file("\"owner\":\"a\","),
        path("/etc/profile.d/../shadow"),
        cloud_config.replace("\"write_files\":[", "\"write_files\":[1,"),
        cloud_config.replace("}]}", "},{\"path\":\"/etc/kubernetes/kubelet.conf\"}]}"),
    ] {
        assert_ne!(changed, cloud_config);
        assert_eq!(between(&cloud_config, &changed), whole, "{changed}");
    }
    for (from, to) in [
        ("\"overwrite\"", "\"user\":{\"id\":1},\"overwrite\""),
        ("\"source\"", "\"httpHeaders\":[1],\"source\""),
        ("\"files\":[", "\"files\":{},\"other\":["),
    ] {
        let changed = ignition.replace(from, to);
        assert_ne!(changed, ignition);
        assert_eq!(between(&ignition, &changed), whole, "{changed}");
    }
    let merged = ignition.replace("\"version\"", "\"config\":{\"merge\":[1]},\"version\"");
    assert_eq!(
        between(&ignition, &merged),
        [Effect::new_machine("ignition")]
    );
    let older = ignition.replace("3.3.0", "2.3.0");
    assert_eq!(between(&ignition, &older), []);
}

#[test]
fn a_compressed_file_is_not_read() {
    let compressed = |text: &str| {
        let text = text.replace("\"b64\"", "\"gz+b64\"");
        text.replace("\"source\"", "\"compression\":\"gzip\",\"source\"")
    };
    let sides = documents(CONF, "logging: 1\n")
        .into_iter()
        .zip(documents(CONF, "logging: 2\n"));
    for (one, another) in sides {
        let found = between(&compressed(&one), &compressed(&another));
        assert_eq!(found, [Effect::new_machine(CONF)]);
        assert_eq!(between(&one, &compressed(&one)), found);
    }
}

#[test]
fn names_of_parts_and_their_number_are_bounded() {
    let files = |count: usize| {
        let file = |index| json!({"path": format!("/{index}{}", "a".repeat(500))});
        let files: Vec<_> = (0..count).map(file).collect();
        format!("#cloud-config\n{}", json!({ "write_files": files }))
    };
    let found = between(&files(0), &files(300));
    assert_eq!(found.len(), EFFECTS_MAX);
    assert!(found.iter().all(|it| it.part.len() == NAME_CHARACTERS_MAX));
}

#[test]
fn every_class_has_a_name_of_its_own() {
    assert!(Class::ALL.is_sorted());
    for class in Class::ALL {
        assert_eq!(Class::named(class.name()), Some(class));
    }
    assert_eq!(Class::named("reload"), None);
}

#[test]
fn a_machine_that_reports_has_a_list_of_what_its_document_has() {
    use crate::sample::{KUBELET_VERSION, Sample};
    use osm_render::{
        Limits, default_profiles::default_profile, default_profiles::default_profiles,
        template::CompiledProfile,
    };
    use osm_tenant::settings::TenantSettings;
    use sha2::{Digest as _, Sha256};

    let settings = TenantSettings {
        machine_updates: osm_api::worker_cluster::MachineUpdates::Reload,
        ..TenantSettings::default()
    };
    for default in default_profiles() {
        let profile = default_profile(default.name).unwrap();
        let profile = CompiledProfile::compile(&profile.spec).unwrap();
        let provider = &profile.spec().supported_cloud_providers[0].name;
        let sample = Sample::new(profile.spec(), provider, KUBELET_VERSION).unwrap();
        let rendered = osm_render::render(&sample.input(&profile, &settings), &Limits::default());
        let rendered = rendered.unwrap();
        let mut parts = parts(rendered.provisioning.as_bytes()).unwrap();
        let Content::Text(list) = parts.remove("/etc/osm/machine/files").unwrap().content else {
            panic!("it is a text");
        };
        let mut lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.pop(), Some("end Reload"));
        lines.sort_unstable();
        let files = parts.iter().filter(|(name, _)| name.starts_with('/'));
        let mut expected: Vec<String> = files
            .map(|(path, part)| {
                let Content::Text(text) = &part.content else {
                    panic!("{path} is a text");
                };
                let digest = hex::encode(Sha256::digest(text));
                let is_reloaded = osm_render::machine_updates::is_taken(path, profile.spec());
                let content = format!(".{}", STANDARD.encode(text));
                let content = if is_reloaded { &content } else { "-" };
                format!("{digest} {:o} {content} {path}", part.mode.unwrap_or(0o644))
            })
            .collect();
        expected.sort_unstable();
        assert_eq!(lines, expected, "{}", default.name);
        let stored = serde_json::to_string(&rendered.stored_config).unwrap();
        assert!(stored.contains("/opt/bin/osm-machine"));
        assert!(
            !stored.contains("/etc/osm/machine/files\""),
            "it has digests of secrets"
        );
    }
}
