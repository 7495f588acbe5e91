//! The chart as an archive, and which namespaces it binds.

use super::*;

#[test]
fn the_packaged_chart_renders_the_same() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().to_str().expect("our paths are text");
    let package = ["package", "osm", "--destination", path];
    run_program(program(), &package, "").expect("it is packaged");
    let archive = format!("{path}/osm-{}.tgz", env!("CARGO_PKG_VERSION"));
    let arguments = ["template", "osm", &archive, "--namespace", NAMESPACE];
    let printed = helm_alone(&arguments, &everything());
    assert_eq!(printed, Ok(template(&everything())));
}

/// The namespaces in which tenants' objects can be read.
fn bound(values: &Value) -> Vec<String> {
    let objects = objects(&template(values));
    let bindings = objects
        .iter()
        .filter(|it| it["kind"] == "RoleBinding" && it["roleRef"]["kind"] == "ClusterRole");
    let namespaces = bindings.filter_map(|it| it["metadata"]["namespace"].as_str());
    namespaces.map(str::to_owned).collect()
}

#[test]
fn the_role_is_bound_where_tenants_and_their_profiles_are() {
    let rule = json!({"match": {"namespaces": ["b"]}, "profileNamespaces": ["shared", "a"]});
    let mut values = json!({"profileNamespaces": ["default"], "tenantPolicies": [rule]});
    assert_eq!(bound(&values), [""; 0], "it is bound everywhere");
    values["namespaces"] = json!(["a", "b"]);
    assert_eq!(bound(&values), ["a", "b", "default", "shared"]);
}
