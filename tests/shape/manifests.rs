//! Holds the manifests to the program: what is generated must be what is committed.
//!
//! `UPDATE_MANIFESTS=1 cargo test --test shape manifests` writes the generated ones.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::{api::rbac::v1::PolicyRule, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::CustomResourceExt as _;
use osm::{api::worker_cluster::WorkerCluster, cli::crds, settings::NOT_DEFAULTS};
use serde_json::{Value, json};

/// Set to rewrite what is generated, in place of comparing it.
const UPDATE: &str = "UPDATE_MANIFESTS";

#[test]
fn the_committed_crds_are_the_generated_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/crds");
    let mut files = Vec::new();
    for crd in crds::crds() {
        let file = folder.join(format!("{}.yaml", crd.spec.names.plural));
        let generated = crds::crd_yaml(&crd).unwrap();
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&file, &generated).unwrap();
        }
        let committed = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            committed == generated,
            "{} is stale; set {UPDATE}=1",
            file.display()
        );
        files.push(file);
    }
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert!(
            files.contains(&path) || path.ends_with("kustomization.yaml"),
            "{} belongs to no kind",
            path.display()
        );
    }
}

/// What of the chart is generated: the values that are maps with defaults, and the fields of
/// `tenantDefaults`.
#[test]
fn the_chart_knows_its_maps_and_the_fields_of_tenants() {
    let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/helm/osm");
    let values = fs::read_to_string(chart.join("values.yaml")).expect("it is there");
    let values: Value = serde_saphyr::from_str(&values).expect("it is YAML");
    let maps = maps(&values, "").concat();
    let define = "{{- define \"osm.maps\" -}}\n";
    replace(
        &chart.join("templates/_values.tpl"),
        (define, "{{- end }}"),
        &maps,
    );

    let spec = WorkerCluster::crd();
    let spec = serde_json::to_value(&spec.spec.versions[0].schema).expect("it is JSON");
    let fields = spec.pointer("/openAPIV3Schema/properties/spec/properties");
    let fields = fields.and_then(Value::as_object).expect("it has fields");
    let fields = fields
        .keys()
        .filter(|it| !NOT_DEFAULTS.contains(&it.as_str()));
    let fields: Vec<String> = fields.map(|it| format!("\"{it}\"")).collect();
    let rows: Vec<String> = fields.chunks(4).map(|row| row.join(", ")).collect();
    let rows = format!("\n        {}\n      ", rows.join(",\n        "));
    let start = r#""tenantDefaults": {"type": "object", "propertyNames": {"enum": ["#;
    replace(&chart.join("values.schema.json"), (start, "]}},\n"), &rows);
}

/// Returns the paths of all maps that are not empty, as lines of a YAML list. Pods may have none of
/// the default resources.
fn maps(value: &Value, path: &str) -> Vec<String> {
    let inner = value.as_object().into_iter().flatten();
    let inner = inner.filter(|(key, _)| *key != "resources");
    let inner: Vec<(&String, &Value)> = inner.collect();
    let own = (!path.is_empty() && !inner.is_empty()).then(|| format!("- {path}\n"));
    let below = inner.into_iter().flat_map(|(key, value)| {
        let path = format!("{path}.{key}");
        maps(value, path.trim_start_matches('.'))
    });
    own.into_iter().chain(below).collect()
}

/// Holds what is between two texts of a file to what is generated.
fn replace(file: &Path, (start, end): (&str, &str), generated: &str) {
    let committed = fs::read_to_string(file).expect("it is text");
    let (before, rest) = committed.split_once(start).expect("it has the place");
    let (_, after) = rest.split_once(end).expect("the place ends");
    let wanted = format!("{before}{start}{generated}{end}{after}");
    if std::env::var_os(UPDATE).is_some() {
        fs::write(file, &wanted).expect("it is writable");
    }
    assert!(
        committed == wanted,
        "{} is stale; set {UPDATE}=1",
        file.display()
    );
}

fn rbac_files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/rbac");
    let files = fs::read_dir(&folder).expect("the folder exists");
    let webhook = folder.join("../kustomize/components/webhook/rbac.yaml");
    files
        .map(|entry| entry.expect("the entry is readable").path())
        .filter(|path| path.is_file() && !path.ends_with("kustomization.yaml"))
        .chain([folder.join("kkp-seed/management.yaml"), webhook])
        .map(|path| {
            let text = fs::read_to_string(&path).expect("the file is text");
            (path, text)
        })
        .collect()
}

/// The parts of a role that are checked here.
#[derive(serde::Deserialize)]
struct Role {
    kind: String,
    metadata: ObjectMeta,
    #[serde(default)]
    rules: Vec<PolicyRule>,
}

/// The rules of a file's roles, each with its role's kind and name.
fn rules(text: &str) -> Vec<(String, PolicyRule)> {
    let roles: Vec<Role> = serde_saphyr::from_multiple(text).expect("the file holds objects");
    let named = |role: Role| {
        let name = format!("{} {}", role.kind, role.metadata.name.unwrap_or_default());
        role.rules.into_iter().map(move |rule| (name.clone(), rule))
    };
    roles.into_iter().flat_map(named).collect()
}

/// The schema of a kind's spec, as JSON.
fn spec_schema(plural: &str) -> Value {
    let crd = crds::crds()
        .into_iter()
        .find(|crd| crd.spec.names.plural == plural);
    let version = crd.and_then(|crd| crd.spec.versions.into_iter().next());
    let schema = version.and_then(|version| version.schema?.open_api_v3_schema);
    let spec = schema.and_then(|schema| schema.properties?.remove("spec"));
    serde_json::to_value(spec.expect("the kind has a spec")).expect("a schema is JSON")
}

/// Names of operating systems and cloud providers are any string: stored objects have names that no
/// list knows.
fn any_name() -> Value {
    json!("string")
}

const UTILITIES: [&str; 2] = ["cloud-init", "ignition"];

/// Expects values in the schema of a kind's spec, by JSON pointer; null means none.
fn keeps(plural: &str, expected: &[(&str, Value)]) {
    let schema = spec_schema(plural);
    for (pointer, value) in expected {
        let found = schema.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, value, "{plural}{pointer}");
    }
}

#[test]
fn what_profiles_and_configs_share_stays_as_users_know_it() {
    let file = "/properties/provisioningConfig/properties/files/items";
    let unit = "/properties/bootstrapConfig/properties/units/items";
    let expected = [
        ("/properties/osName/type".to_owned(), any_name()),
        ("/properties/osName/enum".to_owned(), Value::Null),
        (
            "/properties/provisioningUtility/enum".to_owned(),
            json!(UTILITIES),
        ),
        (
            "/properties/provisioningUtility/default".to_owned(),
            json!("cloud-init"),
        ),
        (format!("{file}/required"), json!(["content", "path"])),
        (format!("{file}/properties/permissions/default"), json!(644)),
        (
            format!("{file}/properties/permissions/format"),
            json!("int32"),
        ),
        (
            format!("{file}/properties/content/properties/inline/required"),
            json!(["data"]),
        ),
        (format!("{unit}/required"), json!(["name"])),
        (
            format!("{unit}/properties/dropIns/items/required"),
            json!(["content", "name"]),
        ),
    ];
    let expected = expected
        .each_ref()
        .map(|(pointer, value)| (pointer.as_str(), value.clone()));
    keeps("operatingsystemprofiles", &expected);
    keeps("operatingsystemconfigs", &expected);
}

#[test]
fn a_profiles_own_fields_stay_as_users_know_them() {
    // What else was required a rule asks for, of profiles that extend none.
    let required = json!(["osName", "osVersion", "version"]);
    let provider = "/properties/supportedCloudProviders/items/properties/name";
    let runtime = "/properties/bootstrapConfig/properties/supportedContainerRuntimes/items";
    keeps(
        "operatingsystemprofiles",
        &[
            ("/required", required),
            (&format!("{provider}/type"), any_name()),
            (&format!("{provider}/enum"), Value::Null),
            (&format!("{runtime}/required"), json!(["files", "name"])),
            (
                &format!("{runtime}/properties/name/enum"),
                json!(["docker", "containerd"]),
            ),
        ],
    );
}

#[test]
fn a_configs_own_fields_stay_as_users_know_them() {
    let required = json!([
        "bootstrapConfig",
        "cloudProvider",
        "osName",
        "osVersion",
        "provisioningConfig"
    ]);
    let provider = "/properties/cloudProvider";
    let preserved = "properties/spec/x-kubernetes-preserve-unknown-fields";
    keeps(
        "operatingsystemconfigs",
        &[
            ("/required", required),
            (&format!("{provider}/required"), json!(["name"])),
            (&format!("{provider}/properties/name/type"), any_name()),
            (&format!("{provider}/properties/name/enum"), Value::Null),
            (&format!("{provider}/{preserved}"), json!(true)),
        ],
    );
}

#[test]
fn every_rule_has_its_reason_above_it() {
    for (path, text) in rbac_files() {
        let lines: Vec<&str> = text.lines().collect();
        for (index, pair) in lines.windows(2).enumerate() {
            if pair[1].starts_with("- apiGroups:") {
                let place = format!("{}:{}", path.display(), index + 2);
                assert!(pair[0].starts_with("# "), "{place}: the rule has no reason");
            }
        }
    }
}

#[test]
fn no_rule_grants_everything_or_lets_anybody_grow() {
    for (path, text) in rbac_files() {
        for (role, rule) in rules(&text) {
            let words = [
                &rule.verbs,
                &rule.resources.unwrap_or_default(),
                &rule.api_groups.unwrap_or_default(),
            ]
            .map(Clone::clone)
            .concat();
            for word in ["*", "escalate", "bind", "impersonate", "deletecollection"] {
                let found = words.iter().any(|granted| granted == word);
                assert!(!found, "{}: {role} grants `{word}`", path.display());
            }
        }
    }
}

#[test]
fn no_rule_patches_a_secret_and_tenants_write_no_worker_cluster() {
    let writes = |verb: &String| !["get", "list", "watch"].contains(&verb.as_str());
    for (path, text) in rbac_files() {
        for (role, rule) in rules(&text) {
            let resources = rule.resources.unwrap_or_default();
            let has = |name: &str| resources.iter().any(|resource| resource == name);
            let patches = rule.verbs.iter().any(|verb| verb == "patch");
            assert!(!(has("secrets") && patches), "{}: {role}", path.display());
            if path.ends_with("tenants.yaml") && has("workerclusters") {
                assert!(!rule.verbs.iter().any(writes), "{}: {role}", path.display());
            }
        }
    }
}
