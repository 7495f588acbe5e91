//! What is written, and in which order, for each difference of the observed and desired state.

use super::*;
use crate::desired::is_current;

const KUBELET: &str = "kube-system-workers-kubelet-bootstrap-config";

/// The changes as short texts.
fn lines(found: &Found) -> Vec<String> {
    super::super::changes::changes(wanted(found), &found.observed)
        .iter()
        .map(line)
        .collect()
}

fn line(change: &Change) -> String {
    let short = |name: &str| {
        let short = match name {
            KUBELET => "kubeconfig",
            "edge-provider-script-workers-kube-system" => "script",
            name if name.ends_with("-provisioning-config") => "provisioning",
            _ => "bootstrap",
        };
        short.to_owned()
    };
    match change {
        Change::CreateToken(_) => "create token".to_owned(),
        Change::ExtendToken(_) => "extend token".to_owned(),
        Change::CreateSecret(wanted) => format!("create {}", short(&wanted.name)),
        Change::ReplaceSecret(wanted, _) => format!("replace {}", short(&wanted.name)),
        Change::KeepSecret(kept, _) => format!("keep {}", short(&kept.name)),
        Change::RecreateSecret(wanted, _) => format!("recreate {}", short(&wanted.name)),
        Change::DeleteSecret(name, _) => format!("delete {}", short(name)),
        Change::CreateConfig(_) => "create config".to_owned(),
        Change::StampConfig(..) => "annotate config".to_owned(),
        Change::RecreateConfig(..) => "recreate config".to_owned(),
    }
}

/// Applies `happen` to a served machine deployment and compares the changes. Once they are written,
/// there must be no further changes.
fn check(happen: impl FnOnce(&mut Found), expected: &[&str]) {
    let mut found = a_served_found();
    happen(&mut found);
    assert_eq!(lines(&found), expected);
    let changes = super::super::changes::changes(wanted(&found), &found.observed);
    let found = written(changes, found);
    assert_eq!(lines(&found), [""; 0], "after {expected:?}");
    let deployment = super::super::validate::validate(&found, &POLICY).unwrap();
    assert!(is_current(&deployment, &found.observed), "{expected:?}");
}

#[test]
fn nothing_is_written_if_nothing_differs() {
    check(|_| {}, &[]);
}

#[test]
fn all_objects_are_created_in_the_safe_order() {
    assert_eq!(
        lines(&a_found()),
        [
            "create token",
            "create kubeconfig",
            "create config",
            "create provisioning",
            "create bootstrap"
        ]
    );
}

#[test]
fn a_new_revision_with_the_same_bytes_only_changes_annotations() {
    check(
        |found| set_annotation(found, REVISION, "2"),
        &[
            "annotate config",
            "replace provisioning",
            "replace bootstrap",
        ],
    );
}

#[test]
fn objects_with_different_bytes_are_recreated() {
    check(
        |found| found.profile = Ok(a_profile("other")),
        &[
            // What it takes on machines that run.
            "replace kubeconfig",
            "recreate config",
            "recreate provisioning",
            "replace bootstrap",
        ],
    );
}

#[test]
fn a_new_revision_with_other_bytes_deletes_the_bootstrap_document_first() {
    check(
        |found| {
            found.profile = Ok(a_profile("other"));
            set_annotation(found, REVISION, "2");
        },
        &[
            "delete bootstrap",
            "recreate config",
            "recreate provisioning",
            "create bootstrap",
        ],
    );
}

#[test]
fn a_changed_api_server_updates_the_kubeconfig_in_place() {
    check(
        |found| {
            Arc::make_mut(&mut found.cluster_info).api_server = "https://10.0.0.2:6443".to_owned();
        },
        &[
            "replace kubeconfig",
            "delete bootstrap",
            "recreate config",
            "replace provisioning",
            "create bootstrap",
        ],
    );
}

#[test]
fn only_the_missing_object_is_created_again() {
    check(|found| found.observed.config = None, &["create config"]);
    check(
        |found| found.observed.provisioning = None,
        &["create provisioning"],
    );
    check(
        |found| found.observed.bootstrap = None,
        &["create bootstrap"],
    );
    check(
        |found| found.observed.kubelet_kubeconfig = None,
        &["create kubeconfig"],
    );
}

#[test]
fn only_the_object_with_tampered_bytes_is_written_again() {
    let tamper = |seen: &mut Option<Seen>| {
        seen.as_mut().unwrap().content = Digest::from_annotation("foreign");
    };
    check(
        |found| tamper(&mut found.observed.config),
        &["recreate config"],
    );
    check(
        |found| tamper(&mut found.observed.provisioning),
        &["recreate provisioning"],
    );
    check(
        |found| tamper(&mut found.observed.bootstrap),
        &["delete bootstrap", "create bootstrap"],
    );
    check(
        |found| tamper(&mut found.observed.kubelet_kubeconfig),
        &["replace kubeconfig"],
    );
}

#[test]
fn an_object_with_tampered_bytes_is_not_current_whatever_its_annotations() {
    assert!(is_current_as_it_is(&a_served_found()));
    let objects: [fn(&mut Observed) -> &mut Option<Seen>; 3] = [
        |observed| &mut observed.config,
        |observed| &mut observed.provisioning,
        |observed| &mut observed.bootstrap,
    ];
    for object in objects {
        let mut found = a_served_found();
        let seen = object(&mut found.observed).as_mut().unwrap();
        seen.content = Digest::from_annotation("foreign");
        assert!(!is_current_as_it_is(&found));
    }
}

#[test]
fn stale_secrets_beside_an_updated_config_are_updated() {
    check(
        |found| {
            let before = found.observed.clone();
            set_annotation(found, REVISION, "2");
            let changes = super::super::changes::changes(wanted(found), &found.observed);
            let config = vec![changes.into_iter().next().unwrap()];
            *found = written(config, found.clone());
            assert_ne!(found.observed.config, before.config);
        },
        &["replace provisioning", "replace bootstrap"],
    );
}

#[test]
fn a_token_past_half_of_its_lifetime_is_extended_and_nothing_else_changes() {
    check(
        |found| {
            let mut token: Token = found.token.clone().unwrap();
            token.expires = Timestamp::from_second(now().as_second() + 1_700).unwrap();
            found.token = Some(token);
        },
        &["extend token"],
    );
}

#[test]
fn a_lost_token_is_created_again_and_the_kubeconfig_is_updated() {
    check(
        |found| {
            found.token = None;
            found.random = Randomness([9; 64]);
        },
        &["create token", "replace kubeconfig"],
    );
}

/// The objects as another program wrote them: with three annotations, and without ours.
fn taken_over() -> Found {
    let mut found = a_served_found();
    let observed = &mut found.observed;
    for seen in [
        &mut observed.config,
        &mut observed.provisioning,
        &mut observed.bootstrap,
    ] {
        let seen = seen.as_mut().unwrap();
        let annotations = seen.metadata.annotations.as_mut().unwrap();
        annotations.retain(|key, _| key.starts_with("k8c.io/"));
        assert_eq!(annotations.len(), 3);
    }
    found
}

fn with_foreign_bytes(mut found: Found) -> Found {
    let observed = &mut found.observed;
    for seen in [&mut observed.provisioning, &mut observed.bootstrap] {
        seen.as_mut().unwrap().content = Digest::from_annotation("rendered by another program");
    }
    found
}

#[test]
fn secrets_of_another_program_with_our_bytes_only_get_our_annotations() {
    let found = taken_over();
    assert!(
        !is_current_as_it_is(&found),
        "the documents are compared once"
    );
    let annotates = [
        "annotate config",
        "replace provisioning",
        "replace bootstrap",
    ];
    assert_eq!(lines(&found), annotates);
    let found = written(changes(wanted(&found), &found.observed), found);
    assert!(is_current_as_it_is(&found));
    let mut elsewhere = taken_over();
    elsewhere.observed.config = None;
    let creates = ["create config", "replace provisioning", "replace bootstrap"];
    assert_eq!(lines(&elsewhere), creates);
}

#[test]
fn secrets_of_another_program_keep_their_bytes_until_an_input_changes() {
    let found = with_foreign_bytes(taken_over());
    let keeps = ["annotate config", "keep provisioning", "keep bootstrap"];
    assert_eq!(lines(&found), keeps);
    let changes = changes(wanted(&found), &found.observed);
    assert!(kept_as_found(&changes, &found.observed).is_some());
    let mut found = written(changes, found);
    assert!(is_current_as_it_is(&found));
    assert!(kept_as_found(&[], &found.observed).is_some());
    assert_eq!(lines(&found), [""; 0], "they are kept after another render");
    found.observed.config = None;
    assert_eq!(lines(&found), ["create config"]);

    set_annotation(&mut found, REVISION, "2");
    let rotation = [
        "delete bootstrap",
        "create config",
        "recreate provisioning",
        "create bootstrap",
    ];
    assert_eq!(lines(&found), rotation);
    let changes = super::super::changes::changes(wanted(&found), &found.observed);
    assert_eq!(kept_as_found(&changes, &found.observed), None);
    let found = written(changes, found);
    let bootstrap = found.observed.bootstrap.as_ref().unwrap();
    assert_eq!(bootstrap.annotation(KEPT), None);
}

#[test]
fn a_crash_between_annotating_two_secrets_keeps_the_bytes_of_the_second() {
    let found = with_foreign_bytes(taken_over());
    let all = changes(wanted(&found), &found.observed);
    let found = written(all.into_iter().take(2).collect(), found);
    assert_eq!(lines(&found), ["keep bootstrap"]);
}

#[test]
fn secrets_of_another_program_for_another_revision_are_replaced() {
    let mut raised = with_foreign_bytes(taken_over());
    set_annotation(&mut raised, REVISION, "2");
    let rotation = [
        "delete bootstrap",
        "annotate config",
        "recreate provisioning",
        "create bootstrap",
    ];
    assert_eq!(lines(&raised), rotation);
}

#[test]
fn secrets_of_another_program_for_other_annotations_are_replaced() {
    let mut changed = with_foreign_bytes(taken_over());
    set_annotation(&mut changed, "mine", "x");
    assert!(!lines(&changed).iter().any(|line| line.starts_with("keep ")));
}

#[test]
fn only_documents_that_are_not_replaced_are_reported_as_kept() {
    let found = with_foreign_bytes(taken_over());
    let found = written(changes(wanted(&found), &found.observed), found);
    let seen = |seen: &Option<Seen>| seen.clone().unwrap();
    let name = |seen: &Option<Seen>| seen.as_ref().unwrap().metadata.name.clone().unwrap();
    let (provisioning, bootstrap) = (
        name(&found.observed.provisioning),
        name(&found.observed.bootstrap),
    );
    let sentence = |changes: &[Change]| kept_as_found(changes, &found.observed).unwrap();
    assert!(sentence(&[]).contains(&provisioning) && sentence(&[]).contains(&bootstrap));
    let deleted = [Change::DeleteSecret(
        bootstrap.clone(),
        seen(&found.observed.bootstrap),
    )];
    assert!(sentence(&deleted).contains(&provisioning));
    assert!(!sentence(&deleted).contains(&bootstrap));
    let of_another = [Change::DeleteSecret(
        "another".to_owned(),
        seen(&found.observed.bootstrap),
    )];
    assert_eq!(sentence(&of_another), sentence(&[]));

    let mut rotated = found.clone();
    set_annotation(&mut rotated, REVISION, "2");
    let all = changes(wanted(&rotated), &rotated.observed);
    let of = |wanted: &str| {
        all.iter()
            .filter(|it| line(it) == wanted)
            .cloned()
            .collect()
    };
    for (change, kept, written) in [
        ("recreate provisioning", &bootstrap, &provisioning),
        ("create bootstrap", &provisioning, &bootstrap),
    ] {
        let of_one: Vec<Change> = of(change);
        assert_eq!(of_one.len(), 1, "{change}");
        assert!(sentence(&of_one).contains(kept.as_str()), "{change}");
        assert!(!sentence(&of_one).contains(written.as_str()), "{change}");
    }
}

#[test]
fn the_debug_output_of_secret_bytes_is_redacted() {
    let data = osm_tenant::secret_text::SecretBytes::new(b"t0ken".to_vec());
    assert_eq!(format!("{data:?}"), "[redacted, 5 bytes]");
}

#[test]
fn the_size_warning_is_stored_in_an_annotation_and_read_back_without_a_render() {
    let found = a_found();
    let deployment = super::super::validate::validate(&found, &POLICY).unwrap();
    let mut documents = fit(rendered(&deployment)).unwrap();
    assert_eq!(documents.near_limit, None);
    documents.near_limit = Some("close".to_owned());
    let desired = desired(&deployment, Some(documents));
    let (_, content) = &desired.documents.as_ref().unwrap().bootstrap;
    let annotations = desired.provenance.annotations(content);
    assert_eq!(annotations[NEAR_LIMIT], "close");
    let bootstrap = seen("bootstrap", content, annotations);
    let observed = Observed {
        bootstrap: Some(bootstrap),
        ..Observed::default()
    };
    assert_eq!(known_near_limit(&observed).as_deref(), Some("close"));
    assert_eq!(known_near_limit(&Observed::default()), None);
    let plain = wanted(&found).provenance.annotations(content);
    assert!(!plain.contains_key(NEAR_LIMIT));
}

fn on_edge(found: &mut Found) {
    let edge = json!({"operatingSystem": "ubuntu", "cloudProvider": "edge"});
    set_provider(found, edge);
    set_annotation(found, REVISION, "2");
}

/// Like [`a_served_found`], with the provider `edge`.
fn a_served_edge() -> Found {
    let mut found = a_found();
    on_edge(&mut found);
    let changes = super::super::changes::changes(wanted(&found), &found.observed);
    written(changes, found)
}

#[test]
fn the_edge_script_is_created_before_the_documents() {
    let mut found = a_found();
    on_edge(&mut found);
    assert_eq!(
        lines(&found),
        [
            "create token",
            "create kubeconfig",
            "create script",
            "create config",
            "create provisioning",
            "create bootstrap"
        ]
    );
    assert_eq!(lines(&a_served_edge()), [""; 0]);
}

#[test]
fn the_edge_script_is_recreated_updated_in_place_and_deleted_with_its_provider() {
    let mut found = a_served_edge();
    found.observed.edge_script = None;
    assert_eq!(lines(&found), ["create script"]);

    let mut found = a_served_edge();
    let tampered = found.observed.edge_script.as_mut().unwrap();
    tampered.content = Digest::from_annotation("foreign");
    assert_eq!(lines(&found), ["replace script"]);

    let mut found = a_served_edge();
    Arc::make_mut(&mut found.cluster_info).api_server = "https://10.0.0.2:6443".to_owned();
    assert_eq!(lines(&found)[..2], ["replace kubeconfig", "replace script"]);

    let mut found = a_served_edge();
    let elsewhere = json!({"operatingSystem": "ubuntu", "cloudProvider": "openstack"});
    set_provider(&mut found, elsewhere);
    set_annotation(&mut found, REVISION, "3");
    assert_eq!(lines(&found)[0], "delete script");
}
