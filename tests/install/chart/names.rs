//! The names that the chart gives: none is left that a second installation would also have.

use super::*;

/// The values of an installation whose names all differ from the defaults.
fn renamed() -> Value {
    json!({
        "fullnameOverride": "osm-canary",
        "image": {"repository": "registry.example/osm"},
        "namespaces": ["tenant-berlin"],
        "tenantDefaults": {"pauseImage": "a"},
        "serviceAccount": {"name": "account-one"},
        "serviceMonitor": {"enabled": true},
        "webhook": {"enabled": true, "serviceAccount": {"name": "account-two"}},
    })
}

#[test]
fn nothing_but_a_label_has_a_default_name_or_another_namespace() {
    let with_cert_manager = json!({"webhook": {"certManager": {"enabled": true}}});
    for values in [renamed(), merged(&[&renamed(), &with_cert_manager])] {
        for mut object in objects(&template(&values)) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            assert!(
                name.starts_with("osm-canary") || name.starts_with("account-"),
                "{name}"
            );
            let namespace = object["metadata"]["namespace"].as_str();
            assert!(
                [None, Some(NAMESPACE), Some(TENANT)].contains(&namespace),
                "{object:#}"
            );
            for place in ["/metadata/labels", "/spec/template/metadata/labels"] {
                if let Some(labels) = object.pointer_mut(place) {
                    labels["app.kubernetes.io/part-of"].take();
                }
            }
            assert!(!object.to_string().contains(MANAGER), "{object:#}");
        }
    }
}

#[test]
fn bindings_are_for_the_accounts_of_the_pods() {
    let objects = objects(&template(&renamed()));
    let of_kind = |kind: &'static str| objects.iter().filter(move |it| it["kind"] == kind);
    let mut bound = BTreeSet::new();
    for binding in of_kind("RoleBinding").chain(of_kind("ClusterRoleBinding")) {
        for subject in binding["subjects"].as_array().expect("it has subjects") {
            assert_eq!(subject["namespace"], NAMESPACE, "{binding:#}");
            bound.insert(subject["name"].to_string());
        }
        let role = of_kind("Role").chain(of_kind("ClusterRole"));
        let mut names = role.map(|it| (&it["kind"], &it["metadata"]["name"]));
        let wanted = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        assert!(names.any(|it| it == wanted), "{binding:#}");
    }
    let pods = of_kind("Deployment").map(|it| &it["spec"]["template"]["spec"]);
    let used: BTreeSet<_> = pods
        .map(|it| it["serviceAccountName"].to_string())
        .collect();
    assert_eq!(bound, used);
}
