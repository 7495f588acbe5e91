//! What machines were made from, and who is told to replace them.

use serde_json::{Value, json};

use super::*;
use crate::api::{
    names::{CONTENT, MACHINES_MADE_FROM, MADE_FOR_REVISION, REPLACED_FOR},
    worker_cluster::{MachineReplacement, MachineRollout},
};
use crate::plan::{
    machine_rollout::{Machines, MadeFrom, Standing, machines, standing, turns},
    validate::validate,
};

/// Everything in order, where machines are replaced.
fn a_found_that_replaces() -> Found {
    let mut found = a_found();
    let mut settings = TenantSettings::clone(found.settings.as_ref().unwrap());
    settings.machine_rollout = MachineRollout {
        replace: MachineReplacement::WhenOutdated,
        max_concurrent: 1,
    };
    found.settings = Ok(Arc::new(settings));
    found
}

fn judged(found: &Found) -> Machines {
    machines(&wanted(found), &found.observed).unwrap()
}

fn served(found: Found) -> Found {
    let changes = changes(wanted(&found), &found.observed);
    written(changes, found)
}

#[test]
fn what_stood_there_first_for_a_revision_is_what_its_machines_were_made_from() {
    let found = served(a_found_that_replaces());
    let first = judged(&found);
    assert!(!first.are_outdated());
    assert_eq!(changes(wanted(&found), &found.observed), []);

    let another = Found {
        profile: a_profile("another"),
        ..found.clone()
    };
    let another = served(another);
    let outdated = judged(&another);
    assert!(outdated.are_outdated());
    assert_eq!(outdated.made_from, first.made_from, "kept over a rotation");
    assert_eq!(changes(wanted(&another), &another.observed), []);

    let mut raised = another.clone();
    set_annotation(&mut raised, REVISION, "2");
    let raised = served(raised);
    let current = judged(&raised);
    assert!(
        !current.are_outdated(),
        "its machines are made from the new document"
    );
    assert_eq!(current.content, outdated.content);
    let kubeconfig = raised.observed.kubelet_kubeconfig.as_ref().unwrap();
    let said = kubeconfig.annotation(MACHINES_MADE_FROM).unwrap();
    assert_eq!(MadeFrom::parse(said), Some(current.made_from), "written");
}

#[test]
fn tampered_bytes_are_not_what_machines_were_made_from() {
    let mut found = served(a_found_that_replaces());
    let before = judged(&found);
    let provisioning = found.observed.provisioning.as_mut().unwrap();
    provisioning.content = Digest::from_annotation("foreign");
    assert_eq!(judged(&found), before);
}

#[test]
fn what_is_not_known_of_before_is_current_unless_it_changes_at_the_same_time() {
    // It was made while nobody asked.
    let found = a_served_found();
    let asked = Found {
        settings: a_found_that_replaces().settings,
        ..found
    };
    assert!(!judged(&asked).are_outdated());
    let and_another = Found {
        profile: a_profile("another"),
        ..asked
    };
    assert!(judged(&and_another).are_outdated());
}

#[test]
fn digests_by_another_key_are_compared_by_what_was_written() {
    let was_current = served(a_found_that_replaces());
    let rekeyed = |found: &Found| {
        let mut found = found.clone();
        let facts = ClusterFacts {
            fetch_token: SecretText::new("another"),
            ..ClusterFacts::clone(&found.facts)
        };
        found.facts = Arc::new(facts);
        let deployment = validate(&found, &POLICY).unwrap();
        let provisioning = found.observed.provisioning.as_mut().unwrap();
        // The bytes that stand there, by the new key.
        let (_, content) = desired(&deployment, Some(fit(rendered(&deployment)).unwrap()))
            .documents
            .unwrap()
            .provisioning;
        provisioning.content = content;
        found
    };
    let before = judged(&was_current);
    let after = judged(&rekeyed(&was_current));
    assert_ne!(before.content, after.content);
    assert!(!after.are_outdated());
    let outdated = served(Found {
        profile: a_profile("another"),
        ..was_current
    });
    assert!(judged(&rekeyed(&outdated)).are_outdated(), "still");
}

#[test]
fn nothing_is_said_of_machines_that_are_not_ours_to_replace() {
    let not_asked = a_found();
    assert_eq!(machines(&wanted(&not_asked), &not_asked.observed), None);
    let mut at_the_edge = a_found_that_replaces();
    set_provider(
        &mut at_the_edge,
        json!({"operatingSystem": "ubuntu", "cloudProvider": "edge"}),
    );
    assert_eq!(machines(&wanted(&at_the_edge), &at_the_edge.observed), None);
    // It changes with each token.
    let with_token = Found {
        profile: a_profile("{{ BootstrapKubeconfig }}"),
        ..a_found_that_replaces()
    };
    assert_eq!(machines(&wanted(&with_token), &with_token.observed), None);
}

#[test]
fn our_word_in_the_template_is_no_input_and_what_was_said_is_read_back() {
    let found = a_found_that_replaces();
    let mut told = found.clone();
    let machine_deployment = Arc::make_mut(&mut told.machine_deployment);
    let mut json = serde_json::to_value(&*machine_deployment).unwrap();
    json["spec"]["template"]["metadata"] = json!({"annotations": {REPLACED_FOR: "d"}});
    *machine_deployment = serde_json::from_value(json).unwrap();
    let stamp = |found: &Found| validate(found, &POLICY).unwrap().stamp;
    assert_eq!(stamp(&found), stamp(&told));

    for revision in ["", "1", "a b"] {
        let made_from = MadeFrom {
            revision: revision.to_owned(),
            content: "c".to_owned(),
            key: "k".to_owned(),
        };
        assert_eq!(MadeFrom::parse(&made_from.to_string()), Some(made_from));
    }
    assert_eq!(MadeFrom::parse("one word"), None);
}

/// A machine deployment at rest, with these fields over it.
fn a_deployment(over: &Value) -> MachineDeployment {
    let mut json = json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "workers", "generation": 2, "annotations": {REVISION: "1"}},
        "spec": {"replicas": 2},
        "status": {
            "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2,
        },
    });
    json_patch::merge(&mut json, over);
    serde_json::from_value(json).unwrap()
}

fn told(content: &str) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {REPLACED_FOR: content}}}}})
}

fn both(first: &Value, second: &Value) -> Value {
    let mut both = first.clone();
    json_patch::merge(&mut both, second);
    both
}

/// What is known: nothing, or that machines of revision 1 were made from `old` and get this.
fn check_standings(cases: &[(&str, Value, Option<&str>, Standing)]) {
    for (what, over, content, expected) in cases {
        let machines = content.map(|content| Machines {
            made_from: MadeFrom::parse("1 old k").unwrap(),
            content: content.to_owned(),
        });
        let found = a_deployment(over);
        assert_eq!(standing(&found, machines.as_ref()), *expected, "{what}");
    }
}

fn at_it() -> Value {
    json!({"status": {"updatedReplicas": 1}})
}

fn broken() -> Value {
    json!({"status": {"availableReplicas": 1}})
}

fn going() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

fn paused() -> Value {
    json!({"spec": {"paused": true}})
}

fn unseen() -> Value {
    json!({"metadata": {"generation": 3}})
}

#[test]
fn where_a_machine_deployment_stands() {
    use Standing::{Apart, Current, HeldBack, Outdated};
    let (old, new) = (Some("old"), Some("new"));
    let empty = json!({"spec": {"replicas": 0}, "status": {
        "replicas": null, "updatedReplicas": null, "availableReplicas": null,
    }});
    let surplus = json!({"status": {"replicas": 3}});
    let silent = json!({"status": null});
    let raised = json!({"metadata": {"annotations": {REVISION: "2"}}});
    check_standings(&[
        ("current", json!({}), old, Current),
        ("current, and not at rest", at_it(), old, Current),
        ("outdated", json!({}), new, Outdated),
        ("outdated, without machines", empty, new, Outdated),
        ("not served", json!({}), None, Apart),
        ("going", going(), new, Apart),
        ("of another revision", raised, new, Apart),
        ("paused", paused(), new, HeldBack),
        ("not at rest", at_it(), new, HeldBack),
        ("not seen", unseen(), new, HeldBack),
        ("with a broken machine", broken(), new, HeldBack),
        ("with one too many", surplus, new, HeldBack),
        ("never looked at", silent, new, HeldBack),
    ]);
}

#[test]
fn who_was_told_is_at_it_until_every_machine_is_new_and_available() {
    use Standing::{Apart, Current, Outdated, Replacing};
    let (old, new) = (Some("old"), Some("new"));
    let told_and = |content: &str, over: Value| both(&told(content), &over);
    let at_it_and_paused = both(&at_it(), &paused());
    let at_it_and_going = both(&at_it(), &going());
    check_standings(&[
        ("told", told_and("new", unseen()), new, Replacing),
        ("of no new revision yet", told("new"), new, Replacing),
        ("at it", told_and("new", at_it()), old, Replacing),
        (
            "at it, and paused",
            told_and("new", at_it_and_paused),
            old,
            Replacing,
        ),
        (
            "at it, and going",
            told_and("new", at_it_and_going),
            new,
            Apart,
        ),
        (
            "at it, and not served",
            told_and("new", broken()),
            None,
            Replacing,
        ),
        ("outdated again", told_and("other", at_it()), new, Replacing),
        ("done", told("old"), old, Current),
        ("done, and outdated again", told("old"), new, Outdated),
    ]);
}

#[test]
fn turns_are_given_in_order_while_there_is_room() {
    use Standing::{Apart, Current, HeldBack, Outdated, Replacing};
    let cases: &[(&[Standing], usize, &[usize])] = &[
        (&[Current, Apart, HeldBack], 5, &[]),
        (&[Outdated, Outdated, Outdated], 1, &[0]),
        (&[Outdated, Current, Outdated, Outdated], 2, &[0, 2]),
        (&[Outdated, Replacing, Outdated], 1, &[]),
        (&[Outdated, Replacing, Outdated], 2, &[0]),
        (&[Replacing, Replacing, Outdated], 1, &[]),
        (&[HeldBack, Outdated], 1, &[1]),
        (&[Outdated], 0, &[]),
    ];
    for (standings, max, expected) in cases {
        let standings: Vec<_> = standings.iter().copied().enumerate().collect();
        assert_eq!(turns(&standings, *max), *expected, "{standings:?} {max}");
    }
}

#[test]
fn kept_bytes_are_what_machines_are_made_from() {
    let mut found = served(a_found_that_replaces());
    let provisioning = found.observed.provisioning.as_mut().unwrap();
    provisioning.content = Digest::from_annotation("0123456789abcdef of another program");
    let annotations = provisioning.metadata.annotations.as_mut().unwrap();
    annotations.retain(|key, _| key.starts_with("k8c.io/"));
    assert!(annotations.contains_key(MADE_FOR_REVISION) && !annotations.contains_key(CONTENT));
    let kubeconfig = found.observed.kubelet_kubeconfig.as_mut().unwrap();
    let annotations = kubeconfig.metadata.annotations.as_mut().unwrap();
    annotations.remove(MACHINES_MADE_FROM);
    let kept = judged(&found);
    assert_eq!(kept.content, "0123456789abcdef");
    assert!(!kept.are_outdated());
}
