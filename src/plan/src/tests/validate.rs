//! One test for each reason not to serve a machine deployment.

use super::*;
use osm_render::RenderError;
use osm_tenant::settings::SettingsError;

fn refused(change: impl FnOnce(&mut Found)) -> Invalid {
    let mut found = a_found();
    change(&mut found);
    match super::super::validate::validate(&found, &POLICY) {
        Err(NotServed::Invalid(invalid)) => invalid,
        other => panic!("{other:?}"),
    }
}

fn a_name_conflict(created: i64, uid: &str) -> NameConflict {
    NameConflict {
        created: Timestamp::from_second(now().as_second() + created).unwrap(),
        uid: uid.to_owned(),
        name: "system/kube-workers".to_owned(),
    }
}

#[test]
fn a_valid_machine_deployment_is_accepted() {
    let deployment = super::super::validate::validate(&a_found(), &POLICY).unwrap();
    assert_eq!(deployment.provenance.revision, "1");
    assert_eq!(deployment.provenance.made_for, "kube-system/workers");
}

#[test]
fn a_missing_profile_is_refused() {
    let invalid = refused(|found| {
        let missing = Invalid::ProfileMissing {
            namespace: "tenant".to_owned(),
            name: "own".to_owned(),
        };
        found.profile = Err(missing.into());
    });
    assert!(matches!(invalid, Invalid::ProfileMissing { .. }));
    assert_eq!(invalid.reason(), "ProfileNotFound");
}

#[test]
fn a_profile_outside_the_tenants_namespaces_is_refused() {
    let invalid = refused(|found| {
        let namespace = "other".to_owned();
        found.profile = Err(Invalid::ProfileForbidden { namespace }.into());
    });
    assert!(matches!(&invalid, Invalid::ProfileForbidden { namespace } if namespace == "other"));
    assert_eq!(invalid.reason(), "ProfileForbidden");
}

#[test]
fn a_profile_that_does_not_compile_is_refused() {
    let error = CompiledProfile::compile(&a_profile_spec("{{ unclosed")).unwrap_err();
    let invalid = refused(|found| {
        let named = ProfileName {
            namespace: "tenant".to_owned(),
            name: "own".to_owned(),
        };
        found.profile = Err(Invalid::unusable(&named, Arc::new(error)).into());
    });
    assert!(matches!(invalid, Invalid::ProfileUnusable { .. }));
    assert!(invalid.to_string().contains("tenant/own"));
}

#[test]
fn an_operating_system_or_cloud_that_the_profile_does_not_support_is_refused() {
    for provider in [
        json!({"operatingSystem": "flatcar", "cloudProvider": "openstack"}),
        json!({"operatingSystem": "ubuntu", "cloudProvider": "aws"}),
    ] {
        let invalid = refused(|found| set_provider(found, provider.clone()));
        assert!(matches!(invalid, Invalid::Unsupported(_)), "{provider}");
        assert_eq!(invalid.reason(), "OperatingSystemProfileError");
    }
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let invalid = refused(|found| {
        found.settings = Err(SettingsError::ClusterDns("nonsense".to_owned()));
    });
    assert!(matches!(invalid, Invalid::Settings(_)));
    assert!(invalid.to_string().contains("nonsense"));
}

#[test]
fn a_provider_spec_that_cannot_be_decoded_is_refused() {
    for provider in [json!(null), json!("text"), json!({"operatingSystem": 5})] {
        let invalid = refused(|found| set_provider(found, provider.clone()));
        assert!(
            matches!(invalid, Invalid::ProviderSpec(_)),
            "{provider}: {invalid}"
        );
    }
    let _: fn(Arc<RenderError>) -> Invalid = Invalid::ProviderSpec;
}

#[test]
fn a_name_belongs_to_the_older_machine_deployment() {
    for (created, uid, is_taken) in [
        (-1, "z", true),
        (0, "a", true),
        (0, "z", false),
        (0, "b", false),
        (1, "a", false),
    ] {
        let mut found = a_found();
        found.name_conflicts = vec![a_name_conflict(5, "c"), a_name_conflict(created, uid)];
        let result = super::super::validate::validate(&found, &POLICY);
        assert_eq!(
            matches!(result, Err(NotServed::Invalid(Invalid::NameTaken { .. }))),
            is_taken,
            "{created} {uid}"
        );
    }
}

#[test]
fn the_message_for_an_unreadable_machine_deployment_names_the_field() {
    assert_eq!(Invalid::Unreadable.reason(), "Unreadable");
    assert!(Invalid::Unreadable.to_string().contains("kubelet"));
}

#[test]
fn each_reason_has_its_metrics_category() {
    let name = || "own".to_owned();
    for (invalid, category) in [
        (Invalid::Unreadable, "machine_deployment_unreadable"),
        (Invalid::TooLarge, "machine_deployment_too_large"),
        (Invalid::TooMany { max: 1 }, "too_many_machine_deployments"),
        (Invalid::NameTooLong { bytes: 64 }, "name_too_long"),
        (Invalid::NameTaken { owner: name() }, "name_taken"),
        (Invalid::NamesCollide { secret: name() }, "names_collide"),
        (
            Invalid::ProfileForbidden { namespace: name() },
            "profile_forbidden",
        ),
    ] {
        assert_eq!(invalid.category(), category);
    }
}

#[test]
fn a_machine_deployment_beyond_the_quota_is_refused() {
    let mut found = a_found();
    found.quota = Quota::Within;
    assert!(super::super::validate::validate(&found, &POLICY).is_ok());
    let invalid = refused(|found| found.quota = Quota::Exceeded);
    assert!(matches!(invalid, Invalid::TooMany { max: 10 }));
}

#[test]
fn a_name_that_is_too_long_for_a_label_is_refused() {
    let invalid = refused(|found| {
        let machine_deployment = Arc::make_mut(&mut found.machine_deployment);
        machine_deployment.metadata.name = Some("x".repeat(64));
    });
    assert!(matches!(invalid, Invalid::NameTooLong { bytes: 64 }));
    assert!(invalid.to_string().starts_with("metadata.name"));
    let mut found = a_found();
    let machine_deployment = Arc::make_mut(&mut found.machine_deployment);
    machine_deployment.metadata.name = Some("x".repeat(63));
    assert!(super::super::validate::validate(&found, &POLICY).is_ok());
}

#[test]
fn a_machine_deployment_whose_own_secrets_would_share_a_name_is_refused() {
    let invalid = refused(|found| {
        let machine_deployment = Arc::make_mut(&mut found.machine_deployment);
        machine_deployment.metadata.namespace = Some("kubelet".to_owned());
        machine_deployment.metadata.name = Some("x".repeat(56));
    });
    let expected = format!("{}-kubelet-bootstrap-config", "x".repeat(56));
    assert!(matches!(&invalid, Invalid::NamesCollide { secret } if *secret == expected));
    assert!(invalid.to_string().starts_with("metadata.name"));
}
