//! The chart with each of its values. What is here runs Helm alone; the modules below also ask an
//! API server, and start what the chart describes.

#[path = "chart/kustomize.rs"]
mod kustomize;
#[path = "chart/names.rs"]
mod names;
#[path = "chart/notes.rs"]
mod notes;
#[path = "chart/package.rs"]
mod package;
#[path = "chart/server.rs"]
mod server;
#[path = "chart/switching.rs"]
mod switching;
#[path = "chart/together.rs"]
mod together;
#[path = "chart/upgrade.rs"]
mod upgrade;

use std::{collections::BTreeSet, io::Write as _};

use super::*;

/// A namespace that no file has, so that one which was not replaced is found.
const NAMESPACE: &str = "osm-test";

pub(super) fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/consumers/go/helm")
}

/// Runs a program beside the charts with a text as its input, and returns what it printed.
#[expect(
    clippy::disallowed_methods,
    reason = "Helm and kubectl, on our own files"
)]
fn run_program(program: PathBuf, arguments: &[&str], input: &str) -> Result<String, String> {
    let home = tempfile::tempdir().expect("there is room");
    let mut process = std::process::Command::new(program)
        .env("HOME", home.path())
        .args(arguments)
        .current_dir(manifests("helm"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect(".ci/consumers has built helm");
    let mut pipe = process.stdin.take().expect("it is piped");
    pipe.write_all(input.as_bytes())
        .expect("the program reads its input");
    drop(pipe);
    let output = process.wait_with_output().expect("the program ends");
    let [printed, errors] = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8(bytes).expect("it writes text"));
    if output.status.success() {
        Ok(printed)
    } else {
        Err(errors)
    }
}

/// Runs Helm without a cluster, with values.
fn helm_alone(arguments: &[&str], values: &Value) -> Result<String, String> {
    let arguments = [arguments, &["--values", "-"]].concat();
    run_program(program(), &arguments, &values.to_string())
}

fn template(values: &Value) -> String {
    template_in(NAMESPACE, values)
}

/// Renders the chart of a release `osm`.
fn template_in(namespace: &str, values: &Value) -> String {
    // The pod of `helm test` has its own test.
    let arguments = [
        "template",
        "osm",
        "osm",
        "--namespace",
        namespace,
        "--skip-tests",
    ];
    match helm_alone(&arguments, values) {
        Ok(printed) => printed,
        Err(errors) => panic!("{values}: {errors}"),
    }
}

/// The objects of a rendered chart.
fn objects(printed: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(printed).expect("Helm prints YAML");
    all.into_iter().filter(|it| !it.is_null()).collect()
}

/// A value of the chart, and how its effect is recognized.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The value, below the keys that lead to it.
    set: Value,
    /// What it needs beside it.
    #[serde(default = "nothing")]
    with: Value,
    /// A text that is rendered with the value only.
    shows: Option<String>,
    /// A text that is rendered without the value only.
    hides: Option<String>,
}

fn nothing() -> Value {
    json!({})
}

fn entries() -> Vec<Entry> {
    let file = manifests("../tests/install/chart/each.yaml");
    let text = std::fs::read_to_string(file).expect("the file is there");
    serde_saphyr::from_str(&text).expect("it lists values")
}

/// Adds values to others, as Helm does.
fn merge(into: &mut Value, more: &Value) {
    match (into.as_object_mut(), more.as_object()) {
        (Some(into), Some(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        _ => *into = more.clone(),
    }
}

fn merged(values: &[&Value]) -> Value {
    values.iter().fold(nothing(), |mut all, more| {
        merge(&mut all, more);
        all
    })
}

/// Whether something is switched off.
fn is_off(value: &Value) -> bool {
    let mut inner = value.as_object().into_iter().flat_map(|it| it.values());
    *value == json!(false) || inner.any(is_off)
}

/// All values of the entries together, except those that switch something off.
fn everything() -> Value {
    let entries = entries();
    let on = entries.iter().filter(|it| !is_off(&it.set));
    merged(&on.map(|it| &it.set).collect::<Vec<_>>())
}

/// The keys of the chart's values: those of the schema that have no keys of their own in it.
fn keys(schema: &Value, definitions: &Value, path: &str, found: &mut BTreeSet<String>) {
    let reference = schema["$ref"].as_str().unwrap_or_default();
    let name = reference.strip_prefix("#/$defs/").unwrap_or_default();
    // A value of these kinds is one of Kubernetes' own.
    let is_own = ["account", "budget"].contains(&name);
    let schema = if is_own { &definitions[name] } else { schema };
    match schema["properties"].as_object() {
        Some(properties) if !path.ends_with("issuerRef") => {
            for (name, inner) in properties {
                let path = format!("{path}.{name}");
                keys(inner, definitions, path.trim_start_matches('.'), found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// Those of the keys that values have.
fn keys_in(values: &Value, known: &BTreeSet<String>, path: &str) -> Vec<String> {
    if known.contains(path) {
        return vec![path.to_owned()];
    }
    let inner = values.as_object().into_iter().flatten();
    let inner = inner.flat_map(|(name, value)| {
        let path = format!("{path}.{name}");
        keys_in(value, known, path.trim_start_matches('.'))
    });
    inner.collect()
}

#[test]
fn each_value_of_the_schema_changes_what_is_rendered() {
    let schema = std::fs::read_to_string(manifests("helm/osm/values.schema.json"));
    let schema: Value = serde_json::from_str(&schema.expect("it is there")).expect("it is JSON");
    let mut known = BTreeSet::new();
    keys(&schema, &schema["$defs"], "", &mut known);
    let mut left = known.clone();
    let mut without: BTreeMap<String, String> = BTreeMap::new();
    for entry in entries() {
        let Entry { set, with, .. } = &entry;
        for key in keys_in(set, &known, "") {
            left.remove(&key);
        }
        let before = without
            .entry(with.to_string())
            .or_insert_with(|| template(with));
        let after = template(&merged(&[with, set]));
        assert_ne!(*before, after, "{set} changes nothing");
        if let Some(text) = &entry.shows {
            assert!(!before.contains(text), "{text} is there without {set}");
            assert!(after.contains(text), "{text} is not there with {set}");
        }
        if let Some(text) = &entry.hides {
            assert!(before.contains(text), "{text} is not there without {set}");
            assert!(!after.contains(text), "{text} is there with {set}");
        }
    }
    assert!(
        left.is_empty(),
        "add to tests/install/chart/each.yaml: {left:?}"
    );
}

#[test]
fn the_charts_pass_the_linter() {
    for chart in ["osm", "osm-crds"] {
        let printed = helm_alone(&["lint", "--strict", chart], &nothing());
        printed.expect("nothing is to be warned of");
    }
    let everything = helm_alone(&["lint", "--strict", "osm"], &everything());
    everything.expect("nothing is to be warned of");
}

/// The pod specs of the manager and of the webhook.
fn pods(values: &Value) -> [Value; 2] {
    let objects = objects(&template(values));
    let of = |name: &str| {
        let mut deployments = objects.iter().filter(|it| it["kind"] == "Deployment");
        let found = deployments.find(|it| it["metadata"]["name"] == *name);
        found.expect("it is rendered")["spec"].clone()
    };
    [MANAGER, "operating-system-manager-webhook"].map(of)
}

/// Values that both Deployments take, and where they are in a Deployment's spec.
fn shared() -> [(&'static str, Value, &'static str); 10] {
    [
        (
            "podLabels",
            json!({"a": "b"}),
            "/template/metadata/labels/a",
        ),
        (
            "podAnnotations",
            json!({"a": "b"}),
            "/template/metadata/annotations/a",
        ),
        (
            "nodeSelector",
            json!({"a": "b"}),
            "/template/spec/nodeSelector/a",
        ),
        (
            "tolerations",
            json!([{"operator": "Exists"}]),
            "/template/spec/tolerations",
        ),
        (
            "affinity",
            json!({"podAffinity": {}}),
            "/template/spec/affinity",
        ),
        (
            "priorityClassName",
            json!("high"),
            "/template/spec/priorityClassName",
        ),
        ("hostUsers", json!(true), "/template/spec/hostUsers"),
        ("strategy", json!({"type": "Recreate"}), "/strategy"),
        ("revisionHistoryLimit", json!(4), "/revisionHistoryLimit"),
        (
            "terminationGracePeriodSeconds",
            json!(50),
            "/template/spec/terminationGracePeriodSeconds",
        ),
    ]
}

#[test]
fn the_webhook_takes_the_values_of_the_manager_unless_it_has_its_own() {
    let mut values = json!({
        "global": {"imageRegistry": "registry.example", "imagePullSecrets": ["of-the-site"]},
        "image": {"digest": format!("sha256:{}", "0".repeat(64)), "pullPolicy": "Always"},
        "webhook": {"enabled": true},
    });
    for (name, value, _) in shared() {
        values[name] = value;
    }
    for spec in pods(&values) {
        for (name, value, place) in shared() {
            let expected = value.get("a").unwrap_or(&value);
            assert_eq!(spec.pointer(place), Some(expected), "{name}");
        }
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "of-the-site"}]));
        let container = &pod["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Always");
        let image = format!(
            "registry.example/operating-system-manager@sha256:{}",
            "0".repeat(64)
        );
        assert_eq!(container["image"], image);
    }
    values["webhook"] = json!({"enabled": true, "podLabels": {}, "podAnnotations": {},
        "nodeSelector": {}, "tolerations": [], "affinity": {}, "priorityClassName": "", "hostUsers": false,
        "strategy": {}, "revisionHistoryLimit": 0, "terminationGracePeriodSeconds": 1});
    let [manager, webhook] = pods(&values);
    for (name, value, place) in shared() {
        let expected = value.get("a").unwrap_or(&value);
        assert_eq!(manager.pointer(place), Some(expected), "{name}");
        assert_ne!(webhook.pointer(place), Some(expected), "{name}");
    }
}

#[test]
fn a_constraint_counts_the_pods_of_its_own_deployment_or_those_that_it_names() {
    let named = json!({"matchLabels": {"a": "b"}});
    let values = json!({"webhook": {"enabled": true}, "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
        {"maxSkew": 1, "topologyKey": "row", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": named},
    ]});
    for spec in pods(&values) {
        let constraints = &spec["template"]["spec"]["topologySpreadConstraints"];
        assert_eq!(constraints[0]["labelSelector"], spec["selector"]);
        assert_eq!(constraints[1]["labelSelector"], named);
    }
}

#[test]
fn every_object_has_the_labels_and_the_selectors_are_the_old_ones() {
    let names = [
        "name",
        "instance",
        "component",
        "part-of",
        "version",
        "managed-by",
    ];
    let names = names.map(|it| format!("app.kubernetes.io/{it}"));
    let mut values = everything();
    merge(
        &mut values,
        &json!({"extraObjects": [], "fullnameOverride": "", "nameOverride": ""}),
    );
    let objects = objects(&template(&values));
    assert!(objects.len() > 25, "{}", objects.len());
    for object in &objects {
        let labels = &object["metadata"]["labels"];
        let own = ["helm.sh/chart".to_owned(), "example.com/team".to_owned()];
        for name in names.iter().chain(&own) {
            let value = labels[name].as_str().unwrap_or_default();
            assert!(!value.is_empty(), "{name} is missing: {object:#}");
        }
    }
    for (index, spec) in pods(&values).iter().enumerate() {
        let name = [MANAGER, "operating-system-manager-webhook"][index];
        let selector = json!({"app.kubernetes.io/name": name});
        assert_eq!(spec["selector"]["matchLabels"], selector);
    }
}

#[test]
fn labels_of_the_operator_win_except_over_the_one_that_selects() {
    let values = json!({"commonLabels": {
        "app.kubernetes.io/name": "mine", "app.kubernetes.io/part-of": "platform"}});
    for object in objects(&template(&values)) {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/name"], MANAGER, "{object:#}");
        assert_eq!(
            labels["app.kubernetes.io/part-of"], "platform",
            "{object:#}"
        );
    }
}

#[test]
fn a_registry_replaces_that_of_the_repository_and_nothing_else() {
    for (repository, expected) in [
        (
            "localhost/operating-system-manager",
            "r.example/operating-system-manager",
        ),
        ("localhost:5000/osm", "r.example/osm"),
        ("registry.example/team/osm", "r.example/team/osm"),
        ("team/osm", "r.example/team/osm"),
        ("osm", "r.example/osm"),
    ] {
        let values = json!({"global": {"imageRegistry": "r.example"},
            "image": {"repository": repository, "tag": "t"}});
        let expected = format!("image: \"{expected}:t\"");
        assert!(template(&values).contains(&expected), "{repository}");
    }
}

#[test]
fn what_cannot_work_is_refused_by_its_name() {
    for (values, expected) in [
        (json!({"image": {"digest": "sha256:12"}}), "digest"),
        (
            json!({"serviceAccount": {"create": false}}),
            "serviceAccount",
        ),
        (json!({"podDisruptionBudget": {"maximum": 1}}), "maximum"),
        (
            json!({"webhook": {"failurePolicy": "Never"}}),
            "failurePolicy",
        ),
        (json!({"webhook": {"timeoutSeconds": 31}}), "timeoutSeconds"),
        (json!({"webhook": {"image": {}}}), "image"),
        (json!({"fleet": "Canary"}), "fleet"),
        (
            json!({"fullnameOverride": "osm.canary"}),
            "fullnameOverride",
        ),
        (json!({"tenantPolicies": [{"reconciles": 8}]}), "match"),
        (
            json!({"tenantPolicies": [{"match": {}, "requests": 8}]}),
            "requests",
        ),
        (json!({"serviceMonitor": {"interval": "often"}}), "interval"),
        (json!({"env": [{"value": "x"}]}), "name"),
        (json!({"replicas": "several"}), "replicas"),
        (json!({"namespaces": ["Berlin"]}), "namespaces"),
        (json!({"tenantDefaults": {"clusterDns": []}}), "clusterDns"),
        (json!({"egressProxy": null}), "--reset-then-reuse-values"),
        (
            json!({"replicas": 5, "replicaCount": 4}),
            "replicas and replicaCount",
        ),
        (
            json!({"webhook": {"serviceAccount": null}}),
            "no webhook.serviceAccount",
        ),
        (json!({"arguments": ["otlp"]}), "arguments"),
        (json!({"replica": 2}), "replica"),
        (json!({"networkPolicy": {"scrapers": "all"}}), "scrapers"),
        (
            json!({"prometheusRule": {"pages": "docs/alerts.md"}}),
            "pages",
        ),
    ] {
        let refused = helm_alone(&["template", "osm", "osm"], &values);
        let refused = refused.expect_err(expected);
        assert!(refused.contains(expected), "{values}: {refused}");
    }
}

#[test]
fn other_settings_of_tenants_restart_the_pods() {
    let annotations = |values: Value| {
        let [manager, _] = pods(&merged(&[&values, &json!({"webhook": {"enabled": true}})]));
        manager["template"]["metadata"]["annotations"].clone()
    };
    let rule = |count: u32| {
        let tenants = json!({"namespaces": ["tenant-berlin"]});
        json!({"tenantPolicies": [{"match": tenants, "profiles": count}]})
    };
    let settings = [
        json!({}),
        rule(1),
        rule(2),
        json!({"tenantDefaults": {"pauseImage": "a"}}),
        json!({"tenantDefaults": {"pauseImage": "b"}}),
    ];
    let all: Vec<Value> = settings.map(annotations).to_vec();
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "{one}");
    }
}

#[test]
fn the_definitions_stay_when_their_chart_goes_and_have_the_labels() {
    let printed = helm_alone(&["template", "osm-crds", "osm-crds"], &nothing());
    let objects = objects(&printed.expect("it is rendered"));
    assert_eq!(objects.len(), 3);
    for object in objects {
        let metadata = &object["metadata"];
        assert_eq!(metadata["annotations"]["helm.sh/resource-policy"], "keep");
        assert_eq!(metadata["labels"]["app.kubernetes.io/instance"], "osm-crds");
        assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], "Helm");
    }
}
