//! Tests of what the store shares, and of which profiles a change affects.

use std::sync::Weak;

use serde_json::{Value, json};

use super::*;
use crate::api::names::INSTALLED_CONTENT;
use crate::client::memory::{GUARANTEED_BYTES, Reservation};
use crate::plan::invalid::Shortage;
use crate::render::thin::{content_name, thin};
use crate::render_worker::{Pool, Renderer};
use crate::tenant::policy::ProfileQuota;

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

/// Returns a content whose age is always the same, so that names decide.
fn aged(store: &ProfileStore, spec: OperatingSystemProfileSpec) -> Aged {
    Aged {
        created: Timestamp::UNIX_EPOCH,
        shared: store.intern(spec),
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_change_concerns_what_lies_on_it_and_nothing_else() {
    let store = ProfileStore::new(0, Quotas::default());
    let put = |name: &str, spec| store.insert(&key("a", name), aged(&store, spec));
    store.insert(&key("b", "site"), aged(&store, on("base")));
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
    let store = ProfileStore::new(0, Quotas::default());
    let says = |os_version: &str| {
        let templates = json!({ "templates": { "version": os_version } });
        spec(json!({ "osVersion": os_version, "provisioningConfig": templates }))
    };
    let template = || {
        let resolved = store.resolved("a", "team").unwrap();
        resolved.map(|shared| shared.spec().provisioning_config.templates["version"].clone())
    };
    store.insert(&key("a", "team"), aged(&store, on("site")));
    store.insert(&key("a", "site"), aged(&store, on("base")));
    assert_eq!(template().unwrap_err().category(), "overlay-base-missing");
    store.insert(&key("a", "base"), aged(&store, says("1")));
    assert_eq!(template().unwrap(), "1");
    store.insert(&key("a", "base"), aged(&store, says("2")));
    assert_eq!(template().unwrap(), "2");
    store.remove(&key("a", "base"));
    assert!(template().is_err());
}

#[test]
fn tenants_with_equal_overlays_and_bases_share_one_content() {
    let store = ProfileStore::new(0, Quotas::default());
    let resolved = |namespace: &str| store.resolved(namespace, "site").unwrap().unwrap();
    for namespace in ["a", "b", "c"] {
        let version = if namespace == "c" { "v2.0.0" } else { "v1.0.0" };
        store.insert(&key(namespace, "site"), aged(&store, on("base")));
        let text = json!({ "templates": { "version": version } });
        let base = spec(json!({ "provisioningConfig": text }));
        store.insert(&key(namespace, "base"), aged(&store, base));
    }
    assert!(Arc::ptr_eq(&resolved("a"), &resolved("b")));
    assert!(!Arc::ptr_eq(&resolved("a"), &resolved("c")));
    for (namespace, name) in store.keys() {
        store.remove(&(namespace, name));
    }
    let inner = store.inner.read();
    let left = (
        inner.contents.len(),
        inner.overlays.len(),
        inner.resolved.len(),
    );
    assert_eq!(left, (0, 0, 0), "nothing is kept for nobody");
}

#[test]
fn fifty_tenants_with_one_profile_hold_and_compile_it_once() {
    let store = ProfileStore::new(0, Quotas::default());
    let namespaces: Vec<String> = (0..50).map(|number| format!("tenant-{number}")).collect();
    for namespace in &namespaces {
        store.insert(&key(namespace, "osp"), aged(&store, spec(json!({}))));
    }
    let renderer = Renderer::Workers(Arc::new(Pool::of_this_program()));
    let of = |namespace: &String| store.resolved(namespace, "osp").unwrap().unwrap();
    let first = of(&namespaces[0]);
    let compiled = first.compile(&renderer).unwrap();
    for namespace in &namespaces {
        assert!(Arc::ptr_eq(&first, &of(namespace)));
        let again = of(namespace).compile(&renderer).unwrap();
        assert!(Arc::ptr_eq(&compiled, &again));
    }
    let compiled = format!("{compiled:?}");
    assert!(
        compiled.contains("has_templates: false"),
        "a worker has its own: {compiled}"
    );
    assert_eq!(store.inner.read().contents.len(), 1);
}

/// One merged content per overlay of a large base would take gigabytes.
#[test]
fn of_overlays_of_a_large_base_the_newest_are_kept() {
    let store = ProfileStore::new(0, Quotas::default());
    let base = json!({ "templates": { "text": "x".repeat(1 << 20) } });
    let base = spec(json!({ "provisioningConfig": base }));
    store.insert(&key("a", "base"), aged(&store, base));
    let mut all = Vec::new();
    for number in 0..50 {
        let (name, version) = (format!("overlay-{number}"), format!("v1.0.{number}"));
        let overlay = spec(json!({ "extends": "base", "version": version }));
        store.insert(&key("a", &name), aged(&store, overlay));
        let resolved = store.resolved("a", &name).unwrap().unwrap();
        all.push(Arc::downgrade(&resolved));
    }
    let kept = all.iter().filter(|it| it.strong_count() > 0);
    assert_eq!(kept.count(), 7);
    let oldest = store.resolved("a", "overlay-0").unwrap().unwrap();
    assert_eq!(oldest.spec().version, "v1.0.0", "it is made again");
    store.remove(&key("a", "base"));
    for number in 0..50 {
        store.remove(&key("a", &format!("overlay-{number}")));
    }
    let inner = store.inner.read();
    assert_eq!(inner.resolved.len(), 0, "nothing is kept for nobody");
}

#[test]
fn without_memory_only_the_newest_overlay_is_kept() {
    let memory = Arc::new(Memory::within(16 << 20, 0));
    let quotas = Quotas {
        memory: Arc::clone(&memory),
        ..Quotas::default()
    };
    let store = ProfileStore::new(0, quotas);
    store.insert(&key("a", "base"), aged(&store, spec(json!({}))));
    let resolved = ["one", "two", "three"].map(|name| {
        let overlay = spec(json!({ "extends": "base", "version": name }));
        store.insert(&key("a", name), aged(&store, overlay));
        Arc::downgrade(&store.resolved("a", name).unwrap().unwrap())
    });
    assert_eq!(resolved.each_ref().map(Weak::strong_count), [0, 0, 1]);
    for name in ["base", "one", "two", "three"] {
        store.remove(&key("a", name));
    }
    assert_eq!(memory.reserved(), 0);
}

#[test]
fn of_a_workers_namespaces_only_the_home_is_guaranteed_memory() {
    let memory = Arc::new(Memory::within(0, 0));
    let quotas = Quotas {
        defaults: names(["osp-ubuntu"]),
        memory: Arc::clone(&memory),
        home: Some("kube-system".into()),
        ..Quotas::default()
    };
    let store = ProfileStore::new(0, quotas);
    for name in ["own", "osp-ubuntu"] {
        for (namespace, shortage) in [("kube-system", None), ("other", Some(Shortage::Memory))] {
            store.insert(&key(namespace, name), aged(&store, spec(json!({}))));
            assert_eq!(
                store.shortage(namespace, name),
                shortage,
                "{namespace}/{name}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_without_memory_is_fetched_when_others_release_theirs() {
    let memory = Arc::new(Memory::within(64 << 20, 0));
    let quotas = Quotas {
        memory: Arc::clone(&memory),
        ..Quotas::default()
    };
    let store = ProfileStore::new(0, quotas);
    let mut others = Reservation::guaranteed(&memory);
    others.force_resize(8 << 20);
    let large = || {
        let templates = json!({ "templates": { "text": "x".repeat(GUARANTEED_BYTES) } });
        aged(&store, spec(json!({ "provisioningConfig": templates })))
    };
    store.insert(&key("a", "large"), large());
    assert_eq!(store.shortage("a", "large"), Some(Shortage::Memory));
    let wanted = async || tokio::time::timeout(room::MEMORY_RETRY * 10, store.wanted()).await;
    assert!(wanted().await.is_err(), "there is no memory");
    drop(others);
    let wanted = wanted().await.expect("memory is left");
    assert_eq!(wanted, BTreeSet::from([key("a", "large")]));
    assert_eq!(
        store.insert_wanted(&key("a", "large"), large),
        names(["large"])
    );
    assert_eq!(store.shortage("a", "large"), None);
}

/// Returns a store whose namespace has room for two profiles, and for any default profile.
fn a_store_for_two() -> ProfileStore {
    let quotas = Quotas {
        defaults: names(["osp-ubuntu"]),
        ..Quotas::default()
    };
    let store = ProfileStore::new(0, quotas);
    store.resize("a", quota(2));
    store
}

fn quota(count_max: usize) -> ProfileQuota {
    ProfileQuota {
        count_max,
        bytes_max: usize::MAX,
    }
}

#[test]
fn what_exceeds_the_quota_is_not_kept_and_default_profiles_always_fit() {
    let store = a_store_for_two();
    let put = |name: &str| {
        store.insert(
            &key("a", name),
            aged(&store, spec(json!({ "osVersion": name }))),
        )
    };
    assert_eq!(put("c"), names(["c"]));
    assert_eq!(put("d"), names(["d"]));
    assert_eq!(put("e"), names(["e"]));
    assert!(store.shortage("a", "e") == Some(Shortage::Quota) && store.get("a", "e").is_none());
    assert_eq!(put("b"), names(["b", "d"]), "the youngest makes room");
    assert_eq!(put("osp-ubuntu"), names(["osp-ubuntu"]));
    assert!(store.get("a", "osp-ubuntu").is_some());
    assert!(store.shortage("a", "f").is_none(), "it is not there");
    let inner = store.inner.read();
    assert_eq!(inner.contents.len(), 3, "of the others nothing is kept");
}

#[tokio::test]
async fn a_profile_that_has_room_again_is_fetched_once_and_only_while_it_is_there() {
    let store = a_store_for_two();
    let content = || aged(&store, spec(json!({})));
    for name in ["c", "d", "e", "f"] {
        store.insert(&key("a", name), content());
    }
    store.remove(&key("a", "c"));
    assert_eq!(store.wanted().await, BTreeSet::from([key("a", "e")]));
    assert_eq!(store.insert_wanted(&key("a", "e"), content), names(["e"]));
    assert_eq!(
        store.insert_wanted(&key("a", "e"), || aged(&store, on("d"))),
        names([])
    );
    assert_eq!(store.insert_wanted(&key("a", "f"), content), names([]));
    assert_eq!(store.resize("a", quota(3)), names([]));
    assert_eq!(store.wanted().await, BTreeSet::from([key("a", "f")]));
    store.remove(&key("a", "f"));
    assert_eq!(
        store.insert_wanted(&key("a", "f"), content),
        names([]),
        "it is gone"
    );
    assert_eq!(store.resize("a", quota(1)), names(["e"]));
    assert_eq!(store.keys(), BTreeSet::from([key("a", "d"), key("a", "e")]));
}

#[test]
fn namespaces_that_come_and_go_leave_nothing_behind() {
    let store = ProfileStore::new(0, Quotas::default());
    for round in 0..1000 {
        let namespace = format!("n{round}");
        let key = key(&namespace, "site");
        let _follower = store.changes(&namespace);
        let version = json!({ "version": format!("v1.0.{round}") });
        store.insert(&key, aged(&store, spec(version)));
        let held_by_a_reconcile = store.get(&namespace, "site");
        store.remove(&key);
        drop(held_by_a_reconcile);
    }
    let inner = store.inner.read();
    let left = [
        inner.profiles.len(),
        inner.contents.len(),
        inner.senders.len(),
        inner.ledgers.len(),
    ];
    assert!(left.iter().all(|count| *count < 8), "{left:?}");
}

fn object(
    name: &str,
    spec: &OperatingSystemProfileSpec,
    installed: &str,
) -> OperatingSystemProfile {
    let mut profile = OperatingSystemProfile::new(name, spec.clone());
    profile.metadata.namespace = Some("a".to_owned());
    let installed = (INSTALLED_CONTENT.to_owned(), installed.to_owned());
    profile.annotations_mut().extend([installed]);
    profile
}

#[test]
fn a_thin_profile_counts_as_its_content_as_soon_as_that_is_known() {
    let store = ProfileStore::new(0, Quotas::default());
    let whole = spec(json!({ "provisioningConfig": { "templates": { "a": "b" } } }));
    let name = content_name("osp", &whole);
    let (thin, digest) = (thin(name.clone(), &whole), content_digest(&whole));
    let resolved = |name: &str| store.resolved("a", name).unwrap();
    let states = |name: &str| {
        let content = store.get("a", name).unwrap().content();
        (
            content,
            store.installed_content("a", name),
            store.is_thin("a", name),
        )
    };
    let thin_digest = content_digest(&thin);
    store.put(object("osp", &thin, &thin_digest));
    let unknown = resolved("osp").unwrap_err();
    assert_eq!(unknown.category(), "overlay-content-unknown");
    assert!(store.lookup.borrow().is_first_due());
    let root = store.root("a", "osp").unwrap().0;
    assert_eq!(root, "osp", "it is the default profile that machines use");
    // As a release sees it that knows no thin profiles: newer, and not edited.
    assert_eq!(
        states("osp"),
        (thin_digest.clone(), Some(thin_digest.clone()), false)
    );

    store.put(object("site", &on("osp"), ""));
    let [(_, changed)] = &store.hold(name, whole.clone())[..] else {
        panic!("one has waited");
    };
    assert_eq!(*changed, names(["osp", "site"]));
    let known = (digest.clone(), Some(digest.clone()), true);
    assert_eq!(states("osp"), known);
    assert_eq!(*resolved("osp").unwrap().spec(), whole);
    assert!(resolved("site").is_ok());
    store.put(object("osp", &thin, &thin_digest));
    assert_eq!(states("osp"), known, "it is seen again");
    assert_eq!(store.digest(&thin), digest);
    assert_eq!(store.installed_digest(&thin_digest), digest);

    // Somebody wrote the whole text, and then changed a thin one.
    store.put(object("osp", &whole, &thin_digest));
    assert_eq!(states("osp"), (digest.clone(), Some(digest), false));
    let edited = OperatingSystemProfileSpec {
        provisioning_config: whole.provisioning_config,
        ..thin
    };
    store.put(object("osp", &edited, &thin_digest));
    let refused = resolved("osp").unwrap_err();
    assert_eq!(refused.category(), "overlay-content-edited");
}
