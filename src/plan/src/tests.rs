//! Tests of validation, desired state, changes and status, from values alone.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube_core::ObjectMeta;
use serde_json::{Value, json};

use super::{
    bootstrap::{Randomness, Token},
    changes::{Change, changes, kept_as_found},
    desired::{Desired, desired, known_near_limit},
    digest::Digest,
    found::{NotServed, ProfileName},
    invalid::Invalid,
    observed::{Observed, Seen},
    validate::{Deployment, Found, NameConflict, Policy, Profile, Quota},
};
use osm_api::{
    machine_deployment::MachineDeployment,
    names::{KEPT, NEAR_LIMIT, PROFILE, REVISION},
    profile::OperatingSystemProfileSpec,
};
use osm_render::{Limits, Rendered, render, template::CompiledProfile};
use osm_rules::user_data::fit;
use osm_tenant::{cluster_info::ClusterInfo, secret_text::SecretText, settings::TenantSettings};

mod behind;
mod changes;
mod inputs;
mod machine_rollout;
mod status;
mod validate;

const POLICY: Policy = Policy {
    token_lifetime: Duration::from_hours(1),
    machine_deployments_max: 10,
};

fn a_profile_spec(text: &str) -> OperatingSystemProfileSpec {
    let file = |path: &str, data: &str| json!({"path": path, "permissions": 644, "content": {"inline": {"data": data}}});
    serde_json::from_value(json!({
        "osName": "ubuntu",
        "osVersion": "24.04",
        "version": "v1.0.0",
        "templateLanguage": "Jinja",
        "supportedCloudProviders": [{"name": "openstack"}, {"name": "edge"}],
        "bootstrapConfig": {"files": [file("/b", "{{ ServerURL }}")]},
        "provisioningConfig": {"files": [file("/p", text)]},
    }))
    .unwrap()
}

fn a_profile(text: &str) -> Profile {
    Profile {
        name: "own".to_owned(),
        compiled: Arc::new(CompiledProfile::compile(&a_profile_spec(text)).unwrap()),
    }
}

fn a_machine_deployment(revision: &str) -> MachineDeployment {
    serde_json::from_value(json!({
        "apiVersion": "cluster.k8s.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {
            "name": "workers",
            "namespace": "kube-system",
            "uid": "b",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {PROFILE: "own", REVISION: revision},
        },
        "spec": {"template": {"spec": {
            "providerSpec": {"value": {
                "operatingSystem": "ubuntu",
                "cloudProvider": "openstack",
                "cloudProviderSpec": {},
            }},
            "versions": {"kubelet": "1.35.2"},
        }}},
    }))
    .unwrap()
}

/// A valid machine deployment for which nothing exists yet.
fn a_found() -> Found {
    Found {
        machine_deployment: Arc::new(a_machine_deployment("1")),
        name_conflicts: Vec::new(),
        quota: Quota::Within,
        profile: Ok(a_profile("text")),
        settings: Ok(Arc::new(TenantSettings::default())),
        cluster_info: Arc::new(ClusterInfo {
            api_server: "https://10.0.0.1:6443".to_owned(),
            certificate_authority_data: "Q0E=".to_owned(),
            fetch_token: SecretText::new("fetch"),
        }),
        kubeconfig_ca: Arc::from(*b"CA"),
        registry_credentials: Arc::default(),
        token: None,
        token_attempt: 0,
        random: Randomness([7; 64]),
        observed: Observed::default(),
        now: now(),
    }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap()
}

fn rendered(deployment: &Deployment) -> Rendered {
    render(&deployment.render_input(), &Limits::default()).unwrap()
}

/// The desired state, with all documents rendered.
fn wanted(found: &Found) -> Desired {
    let deployment = super::validate::validate(found, &POLICY).unwrap();
    let rendered = rendered(&deployment);
    let desired = desired(&deployment, Some(fit(rendered).unwrap()));
    let behind = super::behind::behind(&desired, &found.observed, None);
    Desired { behind, ..desired }
}

fn seen(name: &str, content: &Digest, annotations: BTreeMap<String, String>) -> Seen {
    Seen {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            uid: Some(format!("uid of {name}")),
            resource_version: Some("1".to_owned()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        content: content.clone(),
    }
}

/// The state after the changes were written.
fn written(changes: Vec<Change>, mut found: Found) -> Found {
    for change in changes {
        let observed = &mut found.observed;
        match change {
            Change::CreateToken(token) | Change::ExtendToken(token) => found.token = Some(token),
            Change::CreateSecret(wanted)
            | Change::ReplaceSecret(wanted, _)
            | Change::RecreateSecret(wanted, _) => {
                let provenance = wanted.provenance.as_ref();
                let annotations =
                    provenance.map(|provenance| provenance.annotations(&wanted.content));
                let mut annotations = annotations.unwrap_or_default();
                annotations.extend(wanted.more_annotations);
                let current = seen(&wanted.name, &wanted.content, annotations);
                *secret(observed, &wanted.name) = Some(current);
            }
            Change::KeepSecret(kept, before) => {
                let content = before.content;
                let current = seen(&kept.name, &content, kept.annotations);
                *secret(observed, &kept.name) = Some(current);
            }
            Change::DeleteSecret(name, _) => *secret(observed, &name) = None,
            Change::CreateConfig(wanted)
            | Change::StampConfig(wanted, _)
            | Change::RecreateConfig(wanted, _) => {
                let annotations = wanted.provenance.annotations(&wanted.content);
                observed.config = Some(seen(&wanted.name, &wanted.content, annotations));
            }
        }
    }
    found
}

fn secret<'a>(observed: &'a mut Observed, name: &str) -> &'a mut Option<Seen> {
    if name.ends_with("-provisioning-config") {
        &mut observed.provisioning
    } else if name.ends_with("-kubelet-bootstrap-config") {
        &mut observed.kubelet_kubeconfig
    } else if name.starts_with("edge-provider-script-") {
        &mut observed.edge_script
    } else {
        &mut observed.bootstrap
    }
}

/// A valid machine deployment for which everything exists.
fn a_served_found() -> Found {
    let found = a_found();
    let changes = changes(wanted(&found), &found.observed);
    written(changes, found)
}

fn is_current_as_it_is(found: &Found) -> bool {
    let deployment = super::validate::validate(found, &POLICY).unwrap();
    super::desired::is_current(&deployment, &found.observed)
}

fn set_annotation(found: &mut Found, key: &str, value: &str) {
    let machine_deployment = Arc::make_mut(&mut found.machine_deployment);
    let annotations = machine_deployment
        .metadata
        .annotations
        .get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
}

fn set_provider(found: &mut Found, value: Value) {
    let machine_deployment = Arc::make_mut(&mut found.machine_deployment);
    machine_deployment.spec.template.spec.provider_spec.value = Some(value.into());
}
