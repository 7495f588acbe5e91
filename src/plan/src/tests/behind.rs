//! How far machines are behind, after one change of their document and the next.

use super::*;
use crate::{
    behind::{behind, left_to_others, replaced},
    digest::Digest,
    input_digests,
    records::{Behind, MadeFrom},
};
use osm_api::{
    change::Class,
    names::{
        CONTENT, INPUT_DIGESTS, MACHINE_UPDATES, MACHINES_BEHIND, MACHINES_MADE_FROM,
        MADE_FOR_ANNOTATIONS, MADE_FOR_PROFILE_VERSION, REVISION,
    },
    worker_cluster::{MachineReplacement, WorkerClusterSpec},
};
use osm_render::input::RegistryCredential;
use osm_rules::effect::Effect;

fn effect(class: Class, part: &str) -> Effect {
    Effect {
        class,
        ..Effect::new_machine(part)
    }
}

/// The state after the profile's text has changed, which takes what is given, unless it cannot be
/// compared.
fn changed(found: &Found, text: &str, effects: Option<&[Effect]>) -> Found {
    let found = Found {
        profile: Ok(a_profile(text)),
        ..found.clone()
    };
    let found = written(planned(&found, effects), found);
    assert_eq!(changes_of(&found), [], "nothing more is written");
    found
}

/// The changes, where this is what the changed document takes.
fn planned(found: &Found, effects: Option<&[Effect]>) -> Vec<Change> {
    let mut desired = wanted(found);
    let compared = replaced(&desired, &found.observed);
    let effects = compared.and(effects.map(<[Effect]>::to_vec));
    desired.behind = behind(&desired, &found.observed, effects);
    changes(desired, &found.observed)
}

fn changes_of(found: &Found) -> Vec<Change> {
    changes(wanted(found), &found.observed)
}

/// Returns the class and the parts that are recorded, and that status and replacement go by.
fn recorded(found: &Found) -> (Class, String) {
    let stored = found.observed.kubelet_kubeconfig.as_ref();
    let stored = stored.and_then(|it| it.annotation(MACHINES_BEHIND));
    let stored = stored.map(|text| Behind::parse(text).unwrap());
    let known = wanted(found).behind;
    assert_eq!(stored, known);
    let Behind { class, parts, .. } = known.unwrap();
    (class, parts)
}

/// A class that another text takes under the profile's version of before.
fn is(class: Class, parts: &str) -> (Class, String) {
    (class, format!("the profile's content changes {parts}"))
}

#[test]
fn the_greatest_of_all_changes_counts_until_the_revision_is_another() {
    let first = a_served_found();
    assert_eq!(wanted(&first).behind, None);
    let reload = [effect(Class::Reload, "a"), effect(Class::None, "b")];
    let second = changed(&first, "second", Some(&reload));
    assert_eq!(recorded(&second), is(Class::Reload, "a"));
    let drain = [effect(Class::Drain, "c"), effect(Class::Reload, "d")];
    let third = changed(&second, "third", Some(&drain));
    assert_eq!(recorded(&third), is(Class::Drain, "c"));
    let fourth = changed(&third, "fourth", Some(&reload));
    assert_eq!(
        recorded(&fourth),
        is(Class::Drain, "c"),
        "it is still to come"
    );
    // Machines may have been created in between.
    let back = changed(&fourth, "text", Some(&reload));
    assert_eq!(recorded(&back), is(Class::Drain, "c"));

    let mut raised = fourth;
    set_annotation(&mut raised, REVISION, "2");
    let raised = written(changes_of(&raised), raised);
    assert_eq!(wanted(&raised).behind, None);
}

#[test]
fn machines_that_take_a_file_by_themselves_are_not_behind_by_that() {
    let hosts = effect(RELOAD, "/etc/containerd/certs.d/docker.io/hosts.toml");
    let others = [
        effect(RELOAD, "/etc/osm/machine/header"),
        effect(Class::Drain, "/etc/crictl.yaml"),
        effect(Class::RestartKubelet, "/etc/kubernetes/kubelet.conf"),
    ];
    for (annotation, is_taken) in [("Report", false), ("Reload", true)] {
        let mut found = a_found();
        set_annotation(&mut found, MACHINE_UPDATES, annotation);
        let deployment = crate::validate::validate(&found, &POLICY).unwrap();
        let all = [std::slice::from_ref(&hosts), &others].concat();
        let left = left_to_others(&deployment, all.clone());
        assert_eq!(left, if is_taken { others.to_vec() } else { all });
    }
    // Nothing is left.
    let behind = changed(&a_served_found(), "second", Some(&[]));
    let behind = wanted(&behind).behind.unwrap();
    assert_eq!((behind.class, &*behind.parts), (Class::None, ""));
    assert_eq!(behind.entry(), None);
}

#[test]
fn a_change_names_what_asked_for_it() {
    let first = a_served_found();
    for (key, expected) in [
        (MADE_FOR_PROFILE_VERSION, "profile v1.0.0 changes a"),
        (MADE_FOR_ANNOTATIONS, "annotations change a"),
    ] {
        let mut found = first.clone();
        let provisioning = found.observed.provisioning.as_mut().unwrap();
        let annotations = provisioning.metadata.annotations.as_mut().unwrap();
        annotations.insert(key.to_owned(), "another".to_owned());
        let found = changed(&found, "second", Some(&[effect(RELOAD, "a")]));
        assert_eq!(recorded(&found), (RELOAD, expected.to_owned()));
    }
}

/// Changes settings of a found state, each by its field of a WorkerCluster's spec.
fn set(found: &mut Found, mut settings: Value) {
    settings["kubeconfigSecretRef"] = json!({"name": "a"});
    let spec: WorkerClusterSpec = serde_json::from_value(settings).unwrap();
    let changed = TenantSettings::default().with(&spec).unwrap();
    found.settings = Ok(Arc::new(changed));
}

#[test]
fn a_change_names_the_settings_that_asked_for_it() {
    let mut first = a_found();
    first.profile = Ok(a_profile("{{ PauseImage }}"));
    let first = written(changes_of(&first), first);
    let another_image = json!({"pauseImage": "a/b:1"});
    for (more, expected) in [
        (json!({}), "pauseImage changes"),
        (
            json!({"registryMirrors": {"docker.io": ["https://a.example"]}}),
            "pauseImage and registryMirrors change",
        ),
        (
            json!({"noProxy": ".a", "httpProxy": "http://a.example:1", "clusterDNS": ["1.1.1.1"]}),
            "clusterDNS, httpProxy and 2 more change",
        ),
    ] {
        let mut found = first.clone();
        let mut spec = another_image.clone();
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        set(&mut found, spec);
        let found = written(planned(&found, Some(&[effect(RELOAD, "a")])), found);
        assert_eq!(recorded(&found), (RELOAD, format!("{expected} a")));
        // Back to what is built in.
        let mut back = found.clone();
        back.settings = first.settings.clone();
        let back = written(planned(&back, Some(&[effect(Class::Drain, "b")])), back);
        assert_eq!(recorded(&back), (Class::Drain, format!("{expected} b")));
    }
    // What a setting overrides is not named beside it, nor is what somebody wrote there.
    let mut overridden = first.clone();
    set(
        &mut overridden,
        json!({"apiServerOverride": "https://a.example:6443"}),
    );
    let digests = |found: &Found| wanted(found).input_digests;
    let tampered = format!("{} foreign=1;x", digests(&first));
    let names = input_digests::changed(&tampered, &digests(&overridden));
    assert_eq!(names, ["apiServerOverride"]);
    // As an older release wrote it.
    let mut unknown = first.clone();
    let provisioning = unknown.observed.provisioning.as_mut().unwrap();
    let annotations = provisioning.metadata.annotations.as_mut().unwrap();
    assert!(annotations.remove(INPUT_DIGESTS).is_some());
    set(&mut unknown, another_image);
    let unknown = written(planned(&unknown, Some(&[effect(RELOAD, "a")])), unknown);
    assert_eq!(recorded(&unknown), (RELOAD, "settings change a".to_owned()));
}

#[test]
fn what_of_the_cluster_has_changed_is_named() {
    let first = a_found();
    let digests = |found: &Found| wanted(found).input_digests;
    let credential = RegistryCredential {
        password: SecretText::new("secret"),
        ..RegistryCredential::default()
    };
    let credentials = BTreeMap::from([("docker.io".to_owned(), credential)]);
    let info = ClusterInfo::clone(&first.cluster_info);
    let with = |info: ClusterInfo| Found {
        cluster_info: Arc::new(info),
        ..first.clone()
    };
    for (found, expected) in [
        (
            with(ClusterInfo {
                fetch_token: SecretText::new("another"),
                ..info.clone()
            }),
            "the token of machines",
        ),
        (
            with(ClusterInfo {
                api_server: "https://10.0.0.2:6443".to_owned(),
                ..info
            }),
            "the API server's address",
        ),
        (
            Found {
                kubeconfig_ca: Arc::from(*b"CB"),
                ..first.clone()
            },
            "the certificate authority",
        ),
        (
            Found {
                registry_credentials: Arc::new(credentials),
                ..first.clone()
            },
            "a credential of a registry",
        ),
    ] {
        let names = input_digests::changed(&digests(&first), &digests(&found));
        assert_eq!(names, [expected]);
    }
    assert_eq!(
        input_digests::changed(&digests(&first), &digests(&first)),
        [""; 0]
    );
}

const RELOAD: Class = Class::Reload;
const UNKNOWN: &str = "a document that cannot be read";

/// A machine deployment whose document was changed once, which took `Reload`.
fn behind_by_reload() -> Found {
    changed(&a_served_found(), "second", Some(&[effect(RELOAD, "a")]))
}

#[test]
fn what_is_not_known_takes_a_new_machine() {
    let before = behind_by_reload();
    let unread = changed(&before, "third", None);
    assert_eq!(recorded(&unread), is(Class::NewMachine, UNKNOWN));

    // An older release has written another document.
    let mut other = before.clone();
    let digest = Digest::from_annotation("0123456789abcdef of an older release");
    let provisioning = other.observed.provisioning.as_mut().unwrap();
    let annotations = provisioning.metadata.annotations.as_mut().unwrap();
    annotations.insert(CONTENT.to_owned(), digest.as_str().to_owned());
    provisioning.content = digest;
    let other = changed(&other, "third", Some(&[effect(RELOAD, "a")]));
    let unknown = (Class::NewMachine, "an unknown document".to_owned());
    assert_eq!(recorded(&other), unknown);

    let mut deleted = before;
    deleted.observed.provisioning = None;
    deleted.observed.bootstrap = None;
    let deleted = changed(&deleted, "third", None);
    assert_eq!(recorded(&deleted), unknown);

    let mut worded = a_served_found();
    set_annotation(&mut worded, REVISION, "a b");
    let worded = written(changes_of(&worded), worded);
    let worded = changed(&worded, "other", Some(&[effect(RELOAD, "a")]));
    assert_eq!(wanted(&worded).behind, None, "it could not be read again");
}

#[test]
fn a_record_that_cannot_be_read_is_not_one_of_nothing() {
    let mut before = behind_by_reload();
    let kubeconfig = before.observed.kubelet_kubeconfig.as_mut().unwrap();
    let annotations = kubeconfig.metadata.annotations.as_mut().unwrap();
    let record = "1 Sometimes a b of a newer release".to_owned();
    annotations.insert(MACHINES_BEHIND.to_owned(), record);
    let unknown = (Class::NewMachine, "an unknown document".to_owned());
    let next = changed(&before, "third", Some(&[effect(RELOAD, "a")]));
    assert_eq!(recorded(&next), unknown);
}

#[test]
fn a_document_that_somebody_else_changed_is_not_compared() {
    let mut restored = behind_by_reload();
    let provisioning = restored.observed.provisioning.as_mut().unwrap();
    provisioning.content = Digest::from_annotation("foreign");
    let changed_too = restored.clone();
    let restored = changed(&restored, "second", Some(&[effect(Class::Drain, "b")]));
    assert_eq!(
        recorded(&restored),
        is(RELOAD, "a"),
        "machines had the old one"
    );

    let changed_too = changed(&changed_too, "third", Some(&[effect(RELOAD, "a")]));
    assert_eq!(recorded(&changed_too), is(Class::NewMachine, UNKNOWN));
}

#[test]
fn what_a_change_takes_is_recorded_before_the_document_is_written() {
    for (before, first) in [
        (a_served_found(), Class::None),
        (behind_by_reload(), RELOAD),
    ] {
        let next = Found {
            profile: Ok(a_profile("next")),
            ..before.clone()
        };
        let mut writes = planned(&next, Some(&[effect(Class::Drain, "b")]));
        writes.truncate(1);
        let crashed = written(writes, next);
        assert_eq!(recorded(&crashed), is(Class::Drain, "b"));
        let again = changed(&crashed, "next", None);
        assert_eq!(recorded(&again), is(Class::Drain, "b"), "{first}");
        // It may have been there for a moment.
        let instead = changed(&crashed, "instead", Some(&[effect(RELOAD, "c")]));
        assert_eq!(recorded(&instead), is(Class::Drain, "b"), "{first}");
    }
}

#[test]
fn machines_that_an_older_release_called_outdated_have_a_document_that_is_not_known() {
    let mut replacing = a_found();
    let mut settings = TenantSettings::default();
    settings.machine_rollout.replace = MachineReplacement::WhenOutdated;
    replacing.settings = Ok(Arc::new(settings));
    let mut outdated = written(changes_of(&replacing), replacing);
    let kubeconfig = outdated.observed.kubelet_kubeconfig.as_mut().unwrap();
    let annotations = kubeconfig.metadata.annotations.as_mut().unwrap();
    let made_from = annotations.get_mut(MACHINES_MADE_FROM).unwrap();
    let mut record = MadeFrom::parse(made_from).unwrap();
    "0123456789abcdef".clone_into(&mut record.content);
    *made_from = record.to_string();
    let unknown = (Class::NewMachine, "an unknown document".to_owned());
    let known = changed(&outdated, "text", None);
    assert_eq!(recorded(&known), unknown, "so that it can be permitted");
    let reload = [effect(RELOAD, "a")];
    let next = changed(&outdated, "next", Some(&reload));
    assert_eq!(recorded(&next), unknown);
}

#[test]
fn a_record_survives_a_new_key_and_is_bounded() {
    let before = behind_by_reload();
    let mut rekeyed = before.clone();
    Arc::make_mut(&mut rekeyed.cluster_info).fetch_token = SecretText::new("another");
    let desired = wanted(&Found {
        observed: Observed::default(),
        ..rekeyed.clone()
    });
    let provisioning = rekeyed.observed.provisioning.as_mut().unwrap();
    provisioning.content = desired.documents.unwrap().provisioning.1;
    let rekeyed = changed(&rekeyed, "second", None);
    assert_eq!(recorded(&rekeyed), is(RELOAD, "a"));
    let next = changed(&rekeyed, "third", Some(&[effect(Class::None, "b")]));
    assert_eq!(recorded(&next), is(RELOAD, "a"));

    let many = vec![effect(Class::Drain, &"long/".repeat(99)); 9];
    let long = changed(&before, "third", Some(&many));
    let (_, parts) = recorded(&long);
    assert!(
        parts.ends_with(" and 6 more") && parts.len() < 300,
        "{parts}"
    );
    for not_ours in [
        "",
        "1 Reload a",
        "1 Other a b",
        "1 Reload 12345678901234567 b",
        &format!("1 Reload a b {}", "c".repeat(400)),
    ] {
        assert_eq!(Behind::parse(not_ours), None, "{not_ours}");
    }
}
