//! The kubelet's configuration, decoded by Kubernetes' own types.

use std::{collections::BTreeSet, fs, path::Path, process::Output};

use osm::render::default_profiles::default_profiles;
use serde_json::{Value, json};

use crate::{
    cases::{Case, Profile, distinct, every_case, every_profile},
    programs::{command, consumer, run, text},
};

const PATH: &str = "/etc/kubernetes/kubelet.conf";
const CREDENTIAL_PROVIDERS: &str = "/etc/kubernetes/image-credential-providers.json";
const DROP_INS: &str = "/etc/kubernetes/kubelet.conf.d/";

/// The newest minor of the kubelets that the decoder knows.
const NEWEST: &str = "1.37";

/// A small configuration that the kubelet accepts.
const SOUND: &str = "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 110
containerLogMaxSize: 50Mi
evictionHard: {memory.available: 5%}
featureGates: {UserNamespacesSupport: false}
kubeReserved: {cpu: 200m}
";

#[test]
fn the_kubelet_reads_every_configuration_of_every_profile() {
    let configurations = every_case().iter().flat_map(|case| {
        let name = case.name.replace('/', "-");
        let drop_ins = case.texts_below(DROP_INS).into_iter();
        let drop_ins = drop_ins.map(move |(path, text)| (path.replace('/', "-"), text));
        drop_ins.chain([(name, case.text(PATH).to_owned())])
    });
    let configurations = distinct(configurations);
    assert!(
        configurations.len() > 6,
        "the machines differ, and some have drop-ins"
    );
    let output = check(&configurations);
    assert!(output.status.success(), "{}", text(&output));
    let accepted = String::from_utf8_lossy(&output.stdout).lines().count();
    assert_eq!(accepted, configurations.len(), "each was read");
}

#[test]
fn the_oldest_kubelet_and_the_newest_read_every_credential_provider() {
    let cases = every_case().iter();
    let configurations = cases.flat_map(|case| case.texts_below(CREDENTIAL_PROVIDERS));
    let [(_, sound)] = &distinct(configurations)[..] else {
        panic!("all cases with a program have the same");
    };
    for minor in ["1.34", NEWEST] {
        for (right, wrong) in [("", ""), ("args", "arg"), ("1h30m", "1.5"), ("true", "1")] {
            let text = sound.replacen(right, wrong, 1);
            let output = check_for(minor, &[("providers".to_owned(), text)]);
            let is_read = output.status.success();
            assert_eq!(is_read, right == wrong, "{minor}, {wrong}: {output:?}");
        }
    }
}

/// Tenants keep newer default profiles when a fleet goes back to the release before.
#[test]
fn a_release_without_the_newest_variables_renders_the_same_of_the_default_profiles() {
    for shipped in default_profiles() {
        let mut before = shipped.yaml.to_owned();
        for variable in ["image_credential_providers", "kubelet_drop_ins"] {
            assert!(before.contains(variable), "{variable}");
            before = before.replace(variable, "not_known_yet");
        }
        let [now, before] = [shipped.yaml, &before].map(|yaml| {
            let profile = Profile::parse(yaml);
            let rendered = profile.machine().render(&profile.compiled);
            rendered.expect("it renders").config
        });
        assert_eq!(before, now);
    }
}

/// A value for each type of a field, and some for none.
fn values() -> Vec<Value> {
    vec![
        json!(7),
        json!(-7),
        json!(1_i64 << 40),
        json!(2.5),
        json!("text"),
        json!("10s"),
        json!("100Mi"),
        json!(true),
        json!(["a"]),
        json!([1]),
        json!({}),
        json!({"a": "b"}),
        json!({"a": true}),
        json!({"format": "json"}),
        json!({"flushFrequency": "5s"}),
        json!({"swapBehavior": "LimitedSwap"}),
        json!({"swapBehavior": 1}),
        json!([{"numaNode": 0, "limits": {"memory": "1Gi"}}]),
        json!([{"numaNode": "0", "limits": {"memory": "1Gi"}}]),
        json!([{"priority": 1, "shutdownGracePeriodSeconds": 2}]),
    ]
}

/// Drawn fields with drawn values: what the decoder of the kubelet's minor takes, and nothing else,
/// becomes a document.
#[test]
fn the_kubelet_reads_a_drop_in_exactly_if_we_write_it() {
    for (minor, kubelet) in [("1.34", "1.34.0"), (NEWEST, "1.37.0")] {
        let drawn = drop_ins(kubelet);
        let configurations = drawn.iter().enumerate();
        let configurations =
            configurations.map(|(index, (text, _))| (index.to_string(), text.clone()));
        let output = check_for(minor, &configurations.collect::<Vec<_>>());
        let accepted = String::from_utf8_lossy(&output.stdout);
        let accepted: BTreeSet<&str> = accepted
            .lines()
            .filter_map(|line| line.strip_suffix(" ok")?.rsplit('/').next())
            .collect();
        let mut outcomes = [0; 2];
        for (index, (text, refused)) in drawn.iter().enumerate() {
            let is_read = accepted.contains(&*index.to_string());
            assert_eq!(is_read, refused.is_none(), "{minor}: {text}: {refused:?}");
            outcomes[usize::from(is_read)] += 1;
        }
        assert!(outcomes.iter().all(|count| *count > 50), "{outcomes:?}");
    }
}

/// A third of all pairs of a field of the newest minor and a value, and each value for some field
/// of each type: as whole configurations, with why we refuse them for this kubelet.
fn drop_ins(kubelet: &'static str) -> Vec<(String, Option<String>)> {
    let facts = include_str!("../../../src/render/src/kubelet/known/1.37.txt");
    let fields = facts.lines().filter_map(|line| {
        let (path, _) = line.strip_prefix("field ")?.split_once(' ')?;
        (!path.contains(['.', '[', '{'])).then_some(path)
    });
    let values = values();
    let profile = every_profile().iter().find(|it| it.name == "osp-ubuntu");
    let profile = profile.expect("it is a default profile");
    let mut drawn = Vec::new();
    for (index, field) in fields.enumerate() {
        for value in values.iter().skip(index % 3).step_by(3) {
            let mut machine = profile.machine();
            machine.kubelet = kubelet;
            let set = [(field.to_owned(), value.clone())];
            machine.settings.kubelet.fields = set.into_iter().collect();
            let refused = machine.render(&profile.compiled).err();
            if refused.as_ref().is_some_and(|why| why.contains("sets it")) {
                continue;
            }
            let whole = json!({
                "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                field: value,
            });
            drawn.push((whole.to_string(), refused));
        }
    }
    drawn
}

#[test]
fn the_kubelet_refuses_what_it_would_ignore_or_not_understand() {
    let sound = check(&[("sound".to_owned(), SOUND.to_owned())]);
    assert!(sound.status.success(), "{}", text(&sound));
    for (right, wrong, told) in [
        ("maxPods", "maxpods", "unknown field \"maxpods\""),
        ("maxPods: 110", "maxPods: many", "cannot unmarshal string"),
        ("maxPods: 110", "maxPods: 1\nmaxPods: 2", "already set"),
        ("Support: false", "Support: maybe", "of type bool"),
        ("kind: Kubelet", "kind: Node", "no kind"),
        ("50Mi", "50 MB", "containerLogMaxSize"),
        ("5%", "5 %", "evictionHard memory.available"),
        ("200m", "20%", "kubeReserved cpu"),
    ] {
        assert!(SOUND.contains(right), "{right}");
        let output = check(&[("wrong".to_owned(), SOUND.replace(right, wrong))]);
        let said = text(&output);
        assert!(
            !output.status.success() && said.contains(told),
            "{wrong}: {said}"
        );
    }
}

#[test]
fn the_pins_are_those_of_our_nodes_and_of_our_profiles() {
    let pinned = |module: &str| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(root.join(module).join("go.mod"));
        text.expect("a module's pins are readable")
    };
    let consumers = pinned("tests/consumers");
    let nodes = pinned("loadtest/nodes/kubelet-1.37");
    let version = |text: &str, module: &str| {
        let mut pins = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(module))
            .filter(|version| version.starts_with('v'));
        let version = pins
            .next()
            .unwrap_or_else(|| panic!("{module} is not pinned"));
        version.replace(" // indirect", "").trim().to_owned()
    };
    assert_eq!(
        version(&consumers, "k8s.io/kubelet "),
        version(&nodes, "k8s.io/kubelet "),
        "tests/consumers follows loadtest/nodes/kubelet-1.37"
    );
    let containerd = version(&consumers, "github.com/containerd/containerd/v2 ");
    let installed: BTreeSet<_> = every_case()
        .iter()
        .flat_map(Case::texts)
        .filter_map(|(_, script)| script.split_once("\ncontainerd_version='"))
        .filter_map(|(_, rest)| rest.split(['*', '\'']).next())
        .filter(|version| version.starts_with("2."))
        .collect();
    assert!(
        !installed.is_empty(),
        "a script says which containerd it installs"
    );
    for line in installed {
        assert!(
            containerd.starts_with(&format!("v{line}.")),
            "{containerd} is not of {line}"
        );
    }
}

/// Reads configurations, each with its name, as the newest kubelet.
fn check(configurations: &[(String, String)]) -> Output {
    check_for(NEWEST, configurations)
}

fn check_for(minor: &str, configurations: &[(String, String)]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let paths = configurations.iter().map(|(name, text)| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a configuration can be written");
        path
    });
    let mut command = command(consumer("go/kubelet-config"));
    run(command.arg(minor).args(paths))
}
