//! What Helm prints after an installation.

use super::*;

/// The notes of a release `osm` in the namespace of the pages.
fn notes(values: &Value) -> String {
    let arguments = [
        "install",
        "osm",
        "osm",
        "--dry-run=client",
        "--namespace",
        MANAGER,
    ];
    let printed = helm_alone(&arguments, values).expect("it can be installed");
    let notes = printed.split_once("NOTES:\n").expect("there are notes").1;
    notes.to_owned()
}

#[test]
fn the_notes_say_what_was_installed_and_what_is_next() {
    let values = json!({"image": {"repository": "registry.example/osm", "tag": "t"},
        "namespaces": ["tenant-berlin"], "fullnameOverride": "osm-canary",
        "webhook": {"enabled": true}});
    let notes = notes(&values);
    for expected in [
        "deployment/osm-canary, replicas: 3",
        "deployment/osm-canary-webhook, replicas: 2",
        "image: registry.example/osm:t",
        "tenants in: tenant-berlin",
        "--namespace operating-system-manager rollout status deployment/osm-canary",
        "osm doctor --manager-namespace operating-system-manager --service-account osm-canary\n",
        "osm tenant remove --all",
        "osm tenant add",
        "must exist",
    ] {
        assert!(notes.contains(expected), "{expected}: {notes}");
    }
    assert!(!notes.contains("WARNING"), "{notes}");
}

#[test]
fn the_notes_warn_of_the_image_that_no_registry_has() {
    let by_default = notes(&nothing());
    assert!(by_default.contains("WARNING: No registry has the image localhost/"));
    assert!(
        by_default.contains("tenants in: all namespaces"),
        "{by_default}"
    );
    let values = json!({"global": {"imageRegistry": "registry.example"}});
    assert!(!notes(&values).contains("WARNING"));
}
