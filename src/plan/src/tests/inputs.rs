//! What makes the objects of a machine deployment outdated, and what does not.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::*;
use crate::desired::is_current;

#[test]
fn a_change_of_any_input_makes_the_objects_outdated() {
    type Happen = fn(&mut Found);
    let cases: [(&str, Happen); 6] = [
        ("revision", |found| set_annotation(found, REVISION, "2")),
        ("annotation", |found| set_annotation(found, "mine", "x")),
        ("profile", |found| found.profile = Ok(a_profile("other"))),
        ("settings", |found| {
            found.settings = Ok(Arc::new(TenantSettings {
                pause_image: "mine".to_owned(),
                ..TenantSettings::default()
            }));
        }),
        ("authority", |found| {
            found.kubeconfig_ca = Arc::from(*b"other");
        }),
        ("token", |found| {
            Arc::make_mut(&mut found.cluster_info).fetch_token = SecretText::new("other");
        }),
    ];
    for (what, happen) in cases {
        let mut found = a_served_found();
        happen(&mut found);
        assert!(!is_current_as_it_is(&found), "{what}");
    }
    let mut found = a_served_found();
    let machine_deployment = Arc::make_mut(&mut found.machine_deployment);
    machine_deployment.spec.template.spec.versions.kubelet = "1.36.0".to_owned();
    assert!(
        is_current_as_it_is(&found),
        "the kubelet version is not an input: the revision follows it"
    );
}

#[test]
fn a_comment_beside_a_certificate_makes_nothing_outdated() {
    type Set = fn(&mut Found, &str);
    fn settings(found: &mut Found, change: impl FnOnce(&mut TenantSettings)) {
        change(Arc::make_mut(found.settings.as_mut().unwrap()));
    }
    let places: [(&str, Set); 4] = [
        ("kubeconfig", |found, pem| {
            found.kubeconfig_ca = pem.as_bytes().into();
        }),
        ("cluster info", |found, pem| {
            let cluster_info = Arc::make_mut(&mut found.cluster_info);
            cluster_info.certificate_authority_data = STANDARD.encode(pem);
        }),
        ("hostCABundle", |found, pem| {
            settings(found, |settings| {
                pem.clone_into(&mut settings.host_ca_bundle);
            });
        }),
        ("kubernetesCABundle", |found, pem| {
            settings(found, |settings| {
                settings.kubernetes_ca_bundle = Some(pem.to_owned());
            });
        }),
    ];
    let pem =
        |der: &str| format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n");
    for (place, set) in places {
        let mut found = a_found();
        set(&mut found, &pem("AAAA"));
        let changes_of = |found: &Found| {
            let deployment = super::super::validate::validate(found, &POLICY).unwrap();
            let is_current = is_current(&deployment, &found.observed);
            (
                is_current,
                changes(desired(&deployment, None), &found.observed),
            )
        };
        let first = changes(wanted(&found), &found.observed);
        let mut found = written(first, found);
        assert_eq!(changes_of(&found), (true, vec![]), "{place}");
        set(&mut found, &format!("# a comment\n{}", pem("AAAA")));
        assert_eq!(changes_of(&found), (true, vec![]), "{place}");
        set(&mut found, &pem("BBBB"));
        assert_ne!(changes_of(&found), (true, vec![]), "{place}");
    }
}
