//! What the store shares, and whom a change concerns.

use serde_json::{Value, json};

use super::*;

fn spec(says: Value) -> OperatingSystemProfileSpec {
    let mut profile = json!({ "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0" });
    if let Value::Object(says) = says {
        profile.as_object_mut().unwrap().extend(says);
    }
    serde_json::from_value(profile).unwrap()
}

fn on(base: &str) -> OperatingSystemProfileSpec {
    spec(json!({ "extends": base }))
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_change_concerns_what_lies_on_it_and_nothing_else() {
    let store = ProfileStore::new(0);
    let put = |name: &str, spec| store.insert(&key("a", name), spec);
    store.insert(&key("b", "site"), on("base"));
    assert_eq!(put("site", on("base")), names(["site"]));
    assert_eq!(put("team", on("site")), names(["team"]));
    assert_eq!(put("other", spec(json!({}))), names(["other"]));
    let base = spec(json!({ "version": "v1.0.1" }));
    assert_eq!(put("base", base.clone()), names(["base", "site", "team"]));
    assert_eq!(put("base", base), names([]), "nothing changed");
    assert_eq!(put("site", on("other")), names(["site", "team"]));
    assert_eq!(store.remove(&key("a", "base")), names(["base"]));
    assert_eq!(
        store.remove(&key("a", "other")),
        names(["other", "site", "team"])
    );
    assert_eq!(put("site", on("team")), names(["site", "team"]), "a circle");
}

#[test]
fn an_overlay_is_resolved_again_when_what_it_lies_on_changes() {
    let store = ProfileStore::new(0);
    let says = |os_version: &str| {
        let templates = json!({ "templates": { "version": os_version } });
        spec(json!({ "osVersion": os_version, "provisioningConfig": templates }))
    };
    let template = || {
        let resolved = store.resolved("a", "team").unwrap();
        resolved.map(|shared| shared.spec().provisioning_config.templates["version"].clone())
    };
    store.insert(&key("a", "team"), on("site"));
    store.insert(&key("a", "site"), on("base"));
    assert_eq!(template().unwrap_err().category(), "overlay-base-missing");
    store.insert(&key("a", "base"), says("1"));
    assert_eq!(template().unwrap(), "1");
    store.insert(&key("a", "base"), says("2"));
    assert_eq!(template().unwrap(), "2");
    store.remove(&key("a", "base"));
    assert!(template().is_err());
}

#[test]
fn tenants_with_equal_overlays_and_bases_share_one_content() {
    let store = ProfileStore::new(0);
    let resolved = |namespace: &str| store.resolved(namespace, "site").unwrap().unwrap();
    for namespace in ["a", "b", "c"] {
        let version = if namespace == "c" { "v2.0.0" } else { "v1.0.0" };
        store.insert(&key(namespace, "site"), on("base"));
        let text = json!({ "templates": { "version": version } });
        let base = spec(json!({ "provisioningConfig": text }));
        store.insert(&key(namespace, "base"), base);
    }
    assert!(Arc::ptr_eq(&resolved("a"), &resolved("b")));
    assert!(!Arc::ptr_eq(&resolved("a"), &resolved("c")));
    for (namespace, name) in store.keys() {
        store.remove(&(namespace, name));
    }
    let inner = store.inner.read().unwrap();
    let left = (
        inner.contents.len(),
        inner.overlays.len(),
        inner.resolved.len(),
    );
    assert_eq!(left, (0, 0, 0), "nothing is kept for nobody");
}
