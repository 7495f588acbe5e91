//! What machines were created from, and which machine deployments replace them.

use serde_json::{Value, json};

use super::*;
use crate::{
    machine_rollout::{
        Machines, ReplacementPolicy, ReplacementState, machines, next_to_replace, replacement_state,
    },
    records::{Behind, MadeFrom},
    validate::validate,
};
use osm_api::{
    change::Class,
    names::{CONTENT, MACHINES_MADE_FROM, MADE_FOR_REVISION, PERMITTED, REPLACED_FOR},
    worker_cluster::{MachineReplacement, MachineRollout, WorkerCluster},
};

/// Like [`a_found`], for a tenant whose machines are replaced when they are outdated.
fn a_found_that_replaces() -> Found {
    let mut found = a_found();
    let mut settings = TenantSettings::clone(found.settings.as_ref().unwrap());
    settings.machine_rollout = MachineRollout {
        replace: MachineReplacement::WhenOutdated,
        ..MachineRollout::default()
    };
    found.settings = Ok(Arc::new(settings));
    found
}

fn machines_of(found: &Found) -> Machines {
    machines(&wanted(found), &found.observed).unwrap()
}

fn served(found: Found) -> Found {
    let changes = changes(wanted(&found), &found.observed);
    written(changes, found)
}

#[test]
fn machines_were_created_from_the_document_that_was_stored_first_for_their_revision() {
    let found = served(a_found_that_replaces());
    let first = machines_of(&found);
    assert!(first.class() == Class::None);
    assert_eq!(changes(wanted(&found), &found.observed), []);

    let another = Found {
        profile: Ok(a_profile("another")),
        ..found.clone()
    };
    let another = served(another);
    let outdated = machines_of(&another);
    assert!(outdated.class() == Class::NewMachine);
    assert_eq!(
        outdated.made_from, first.made_from,
        "unchanged by a rotation"
    );
    assert_eq!(changes(wanted(&another), &another.observed), []);

    let mut long = another.clone();
    set_annotation(&mut long, REVISION, &"1".repeat(21));
    assert_eq!(machines(&wanted(&long), &long.observed), None);

    let mut raised = another.clone();
    set_annotation(&mut raised, REVISION, "2");
    let raised = served(raised);
    let current = machines_of(&raised);
    assert!(
        current.class() == Class::None,
        "the new machines are created from the new document"
    );
    assert_eq!(current.content, outdated.content);
    let kubeconfig = raised.observed.kubelet_kubeconfig.as_ref().unwrap();
    let stored = kubeconfig.annotation(MACHINES_MADE_FROM).unwrap();
    assert_eq!(MadeFrom::parse(stored), Some(current.made_from), "stored");
}

#[test]
fn tampered_bytes_do_not_change_what_machines_were_created_from() {
    let mut found = served(a_found_that_replaces());
    let before = machines_of(&found);
    let provisioning = found.observed.provisioning.as_mut().unwrap();
    provisioning.content = Digest::from_annotation("foreign");
    assert_eq!(machines_of(&found), before);
}

#[test]
fn unrecorded_machines_are_current_unless_the_document_changes_at_the_same_time() {
    // It was created while machines were not replaced.
    let found = a_served_found();
    let enabled = Found {
        settings: a_found_that_replaces().settings,
        ..found
    };
    assert_eq!(machines_of(&enabled).class(), Class::None);
    let changed = Found {
        profile: Ok(a_profile("another")),
        ..enabled
    };
    assert_eq!(machines_of(&changed).class(), Class::NewMachine);
}

#[test]
fn after_a_key_change_machines_are_compared_by_the_digest_that_was_written() {
    let was_current = served(a_found_that_replaces());
    let rekeyed = |found: &Found| {
        let mut found = found.clone();
        let cluster_info = ClusterInfo {
            fetch_token: SecretText::new("another"),
            ..ClusterInfo::clone(&found.cluster_info)
        };
        found.cluster_info = Arc::new(cluster_info);
        let deployment = validate(&found, &POLICY).unwrap();
        let provisioning = found.observed.provisioning.as_mut().unwrap();
        // The digest of the stored bytes with the new key.
        let (_, content) = desired(&deployment, Some(fit(rendered(&deployment)).unwrap()))
            .documents
            .unwrap()
            .provisioning;
        provisioning.content = content;
        found
    };
    let before = machines_of(&was_current);
    let after = machines_of(&rekeyed(&was_current));
    assert_ne!(before.content, after.content);
    assert_eq!(after.class(), Class::None);
    let outdated = served(Found {
        profile: Ok(a_profile("another")),
        ..was_current
    });
    assert!(
        machines_of(&rekeyed(&outdated)).class() > Class::None,
        "still outdated"
    );
}

#[test]
fn machines_that_are_not_replaced_have_no_record() {
    let disabled = a_found();
    assert_eq!(machines(&wanted(&disabled), &disabled.observed), None);
    let mut at_the_edge = a_found_that_replaces();
    set_provider(
        &mut at_the_edge,
        json!({"operatingSystem": "ubuntu", "cloudProvider": "edge"}),
    );
    assert_eq!(machines(&wanted(&at_the_edge), &at_the_edge.observed), None);
    // The document changes with each token.
    let with_token = Found {
        profile: Ok(a_profile("{{ BootstrapKubeconfig }}")),
        ..a_found_that_replaces()
    };
    assert_eq!(machines(&wanted(&with_token), &with_token.observed), None);
}

#[test]
fn our_template_annotation_is_not_an_input_and_the_record_is_parsed_back() {
    let found = a_found_that_replaces();
    let mut annotated = found.clone();
    let machine_deployment = Arc::make_mut(&mut annotated.machine_deployment);
    let mut json = serde_json::to_value(&*machine_deployment).unwrap();
    json["spec"]["template"]["metadata"] = json!({"annotations": {REPLACED_FOR: "d"}});
    *machine_deployment = serde_json::from_value(json).unwrap();
    let provenance = |found: &Found| validate(found, &POLICY).unwrap().provenance;
    assert_eq!(provenance(&found), provenance(&annotated));

    for revision in ["", "1", "a b"] {
        let made_from = MadeFrom {
            revision: revision.to_owned(),
            content: "c".to_owned(),
            key: "k".to_owned(),
        };
        assert_eq!(MadeFrom::parse(&made_from.to_string()), Some(made_from));
    }
    for not_ours in [
        "one word",
        "1 a-digest-of-seventeen k",
        &format!("{:021} c k", 1),
    ] {
        assert_eq!(MadeFrom::parse(not_ours), None, "{not_ours}");
    }
}

/// A machine deployment at rest, with the given fields merged into it.
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

fn requested(content: &str) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {REPLACED_FOR: content}}}}})
}

fn both(first: &Value, second: &Value) -> Value {
    let mut both = first.clone();
    json_patch::merge(&mut both, second);
    both
}

/// Checks the state of each case: its machines of revision 1 were created from the document
/// `old`, and new ones get the given document. `None` means that nothing is known of them.
fn check_states(cases: &[(&str, Value, Option<&str>, ReplacementState)]) {
    for (what, over, content, expected) in cases {
        let machines = content.map(|content| Machines {
            made_from: MadeFrom::parse("1 old k").unwrap(),
            content: content.to_owned(),
            behind: None,
        });
        let found = a_deployment(over);
        let policy = ReplacementPolicy::new(None, MachineRollout::default());
        assert_eq!(
            replacement_state(&found, machines.as_ref(), &policy),
            *expected,
            "{what}"
        );
    }
}

fn updating() -> Value {
    json!({"status": {"updatedReplicas": 1}})
}

fn broken() -> Value {
    json!({"status": {"availableReplicas": 1}})
}

fn deleting() -> Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

fn paused() -> Value {
    json!({"spec": {"paused": true}})
}

fn unobserved() -> Value {
    json!({"metadata": {"generation": 3}})
}

#[test]
fn a_machine_deployment_has_the_state_of_its_spec_and_status() {
    use ReplacementState::{Apart, Current, HeldBack, Outdated};
    let (old, new) = (Some("old"), Some("new"));
    let empty = json!({"spec": {"replicas": 0}, "status": {
        "replicas": null, "updatedReplicas": null, "availableReplicas": null,
    }});
    let surplus = json!({"status": {"replicas": 3}});
    let without_status = json!({"status": null});
    let raised = json!({"metadata": {"annotations": {REVISION: "2"}}});
    check_states(&[
        ("current", json!({}), old, Current),
        ("current, and not at rest", updating(), old, Current),
        ("outdated", json!({}), new, Outdated),
        ("outdated, without machines", empty, new, Outdated),
        ("not served", json!({}), None, Apart),
        ("being deleted", deleting(), new, Apart),
        ("of another revision", raised, new, Apart),
        ("paused", paused(), new, HeldBack),
        ("not at rest", updating(), new, HeldBack),
        ("not observed yet", unobserved(), new, HeldBack),
        ("with a broken machine", broken(), new, HeldBack),
        ("with one machine too many", surplus, new, HeldBack),
        ("without a status", without_status, new, HeldBack),
    ]);
}

#[test]
fn a_requested_replacement_lasts_until_every_machine_is_updated_and_available() {
    use ReplacementState::{Apart, Current, Outdated, Replacing};
    let (old, new) = (Some("old"), Some("new"));
    let requested_and = |content: &str, over: Value| both(&requested(content), &over);
    let updating_and_paused = both(&updating(), &paused());
    let updating_and_deleted = both(&updating(), &deleting());
    check_states(&[
        (
            "requested",
            requested_and("new", unobserved()),
            new,
            Replacing,
        ),
        ("without a new revision", requested("new"), new, Replacing),
        ("updating", requested_and("new", updating()), old, Replacing),
        (
            "updating, and paused",
            requested_and("new", updating_and_paused),
            old,
            Replacing,
        ),
        (
            "updating, and being deleted",
            requested_and("new", updating_and_deleted),
            new,
            Apart,
        ),
        (
            "updating, and not served",
            requested_and("new", broken()),
            None,
            Replacing,
        ),
        (
            "outdated again",
            requested_and("other", updating()),
            new,
            Replacing,
        ),
        ("done", requested("old"), old, Current),
        ("done, and outdated again", requested("old"), new, Outdated),
    ]);
}

#[test]
fn replacements_are_granted_in_order_up_to_the_maximum() {
    use ReplacementState::{Apart, Current, HeldBack, Outdated, Replacing};
    let cases: &[(&[ReplacementState], usize, &[usize])] = &[
        (&[Current, Apart, HeldBack], 5, &[]),
        (&[Outdated, Outdated, Outdated], 1, &[0]),
        (&[Outdated, Current, Outdated, Outdated], 2, &[0, 2]),
        (&[Outdated, Replacing, Outdated], 1, &[]),
        (&[Outdated, Replacing, Outdated], 2, &[0]),
        (&[Replacing, Replacing, Outdated], 1, &[]),
        (&[HeldBack, Outdated], 1, &[1]),
        (&[Outdated], 0, &[]),
    ];
    for (states, max, expected) in cases {
        let states: Vec<_> = states.iter().copied().enumerate().collect();
        assert_eq!(
            next_to_replace(&states, *max),
            *expected,
            "{states:?} {max}"
        );
    }
}

#[test]
fn machines_are_created_from_the_kept_bytes_of_another_program() {
    let mut found = served(a_found_that_replaces());
    let provisioning = found.observed.provisioning.as_mut().unwrap();
    provisioning.content = Digest::from_annotation("0123456789abcdef of another program");
    let annotations = provisioning.metadata.annotations.as_mut().unwrap();
    annotations.retain(|key, _| key.starts_with("k8c.io/"));
    assert!(annotations.contains_key(MADE_FOR_REVISION) && !annotations.contains_key(CONTENT));
    let kubeconfig = found.observed.kubelet_kubeconfig.as_mut().unwrap();
    let annotations = kubeconfig.metadata.annotations.as_mut().unwrap();
    annotations.remove(MACHINES_MADE_FROM);
    let kept = machines_of(&found);
    assert_eq!(kept.content, "0123456789abcdef");
    assert!(kept.class() == Class::None);
}

#[test]
fn machines_are_replaced_by_changes_from_the_least_class_to_the_greatest_or_when_permitted() {
    use Class::{Drain, NewMachine, None as Nothing, Reload, RestartKubelet};
    use ReplacementState::{AboveLimit, BelowLimit, Current, Outdated, Replacing};
    let limits = |min: Option<Class>, max: Option<Class>| MachineRollout {
        min_class: min,
        max_class: max,
        ..MachineRollout::default()
    };
    let state = |class: Class, over: &Value, policy: &ReplacementPolicy| {
        let behind = Behind::parse(&format!("1 {class} old new /etc/file")).unwrap();
        let machines = Machines {
            made_from: MadeFrom::parse("1 old k").unwrap(),
            content: "new".to_owned(),
            behind: Some(behind),
        };
        replacement_state(&a_deployment(over), Some(&machines), policy)
    };
    for (min, max, class, expected) in [
        (None, None, Nothing, Current),
        (None, None, Reload, Outdated),
        (None, None, NewMachine, Outdated),
        (Some(RestartKubelet), None, Reload, BelowLimit),
        (Some(RestartKubelet), None, RestartKubelet, Outdated),
        (None, Some(RestartKubelet), RestartKubelet, Outdated),
        (None, Some(RestartKubelet), Drain, AboveLimit),
        (None, Some(Nothing), Nothing, Current),
        (None, Some(Nothing), Reload, AboveLimit),
    ] {
        let policy = ReplacementPolicy::new(None, limits(min, max));
        let what = format!("{class} of {min:?} to {max:?}");
        assert_eq!(state(class, &json!({}), &policy), expected, "{what}");
    }
    let lowest = limits(None, Some(Nothing));
    let policy = ReplacementPolicy::new(None, lowest);
    assert_eq!(state(Drain, &requested("new"), &policy), Replacing);

    let mut own = WorkerCluster::new(
        "a",
        serde_json::from_value(json!({"kubeconfigSecretRef": {"name": "a"}})).unwrap(),
    );
    for (permitted, expected) in [
        ("/workers=new", Outdated),
        ("/others=new /workers=new", Outdated),
        ("/others=new /workers=other", AboveLimit),
    ] {
        let annotations = [(PERMITTED.to_owned(), permitted.to_owned())];
        own.metadata.annotations = Some(annotations.into());
        let policy = ReplacementPolicy::new(Some(&own), lowest);
        assert_eq!(state(Drain, &json!({}), &policy), expected, "{permitted}");
    }
    let machines = json!({"machines": {"replace": "WhenOutdated"}});
    own.spec.rollout = Some(serde_json::from_value(machines).unwrap());
    let policy = ReplacementPolicy::new(Some(&own), lowest);
    assert_eq!(
        state(Drain, &json!({}), &policy),
        AboveLimit,
        "the fleet's limit stays"
    );
}
