//! The chart as an archive, and which namespaces it binds.

use super::*;

#[test]
fn the_packaged_chart_renders_the_same() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().to_str().expect("our paths are text");
    let package = ["package", "osm", "--destination", path];
    run_program(program(), &package, "").expect("it is packaged");
    let archive = format!("{path}/osm-{}.tgz", env!("CARGO_PKG_VERSION"));
    let [packaged, folder] = [archive.as_str(), "osm"].map(|chart| {
        let arguments = ["template", "osm", chart, "--namespace", NAMESPACE];
        helm_alone(&arguments, &everything()).expect("it is rendered")
    });
    assert_eq!(packaged, folder);
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
    values["inventories"] = json!(["label", "kkp"]);
    assert_eq!(bound(&values), ["a", "b", "default", "shared"]);
}

#[test]
fn in_a_kkp_seed_alone_the_role_that_reads_all_secrets_is_bound_nowhere() {
    let bindings = |inventories: &[&str]| {
        let all = objects(&template(&json!({"inventories": inventories})));
        let of_roles = all.iter().filter(|it| it["kind"] == "ClusterRoleBinding");
        let roles = of_roles.filter_map(|it| it["roleRef"]["name"].as_str().map(str::to_owned));
        roles.collect::<Vec<_>>()
    };
    let is_bound = |to: &[String], part: &str| to.iter().any(|it| it.ends_with(part));
    let (label, kkp, both) = (
        bindings(&["label"]),
        bindings(&["kkp"]),
        bindings(&["label", "kkp"]),
    );
    assert!(
        is_bound(&label, "-tenants") && !is_bound(&label, "-kkp"),
        "{label:?}"
    );
    assert!(
        !is_bound(&kkp, "-tenants") && is_bound(&kkp, "-kkp"),
        "{kkp:?}"
    );
    assert!(
        is_bound(&both, "-tenants") && is_bound(&both, "-kkp"),
        "{both:?}"
    );
}
