use serde_json::{Value, json};

use super::*;
use osm_api::names::PROFILE;

const UID: &str = "0c9a8d74";
const PREFIX: &str = "operatingSystemProfile validation request 0c9a8d74 ";

fn asked<'a>(operation: Operation, object: &'a Value, old_object: &'a Value) -> Asked<'a> {
    Asked {
        uid: UID,
        operation,
        object,
        old_object,
    }
}

fn a_profile() -> Value {
    let file = json!({"path": "/etc/hello", "content": {"inline": {"data": "hello"}}});
    json!({
        "metadata": {"name": "osp-mine", "namespace": "tenant-berlin"},
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.2.3",
            "supportedCloudProviders": [{"name": "aws"}],
            "bootstrapConfig": {"files": [file]},
            "provisioningConfig": {"files": [file]},
        },
    })
}

/// An object with one value put in place, by JSON pointer.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

fn message(answer: Answer) -> (u16, String) {
    match answer {
        Answer::Allowed { message, patch } => {
            assert_eq!(patch, [] as [Value; 0]);
            (200, message.unwrap_or_default())
        }
        Answer::Refused { code, message } => (code, message),
    }
}

#[test]
fn a_profile_is_evaluated_in_the_words_that_users_know() {
    let (plain, none) = (a_profile(), Value::Null);
    let units = with(
        plain.clone(),
        "/spec/bootstrapConfig/units",
        json!([{"name": "a.service"}]),
    );
    let changed = with(plain.clone(), "/spec/osVersion", json!("26.04"));
    let bumped = with(changed.clone(), "/spec/version", json!("v1.0.0"));
    let unreadable = with(plain.clone(), "/spec/osVersion", json!(5));
    let labelled = with(unreadable.clone(), "/metadata/labels", json!({"a": "b"}));
    let ok = format!("{PREFIX}allowed");
    let same = format!(
        "{PREFIX}denied: OperatingSystemProfile is immutable. For updates .spec.version needs to \
         be updated"
    );
    let no_units =
        format!("{PREFIX}denied: OperatingSystemProfile for ubuntu does not support units");
    for (operation, object, old, code, expected) in [
        (Operation::Create, &plain, &none, 200, ok.as_str()),
        (Operation::Delete, &none, &units, 200, &ok),
        (
            Operation::Connect,
            &none,
            &none,
            400,
            "CONNECT not supported on osp resources",
        ),
        (Operation::Create, &units, &none, 403, &no_units),
        (Operation::Update, &plain, &plain, 200, &ok),
        (Operation::Update, &changed, &plain, 403, &same),
        (Operation::Update, &bumped, &plain, 200, &ok),
        // What stands there is not checked again.
        (Operation::Update, &units, &units, 200, &ok),
        // Nor is what nobody can read, where only its metadata changes.
        (Operation::Update, &labelled, &unreadable, 200, &ok),
        // What nobody can read may be corrected, but not under its old version.
        (Operation::Update, &plain, &unreadable, 403, &same),
        (Operation::Update, &bumped, &unreadable, 200, &ok),
        (
            Operation::Create,
            &none,
            &none,
            400,
            "error occurred while decoding osp: ",
        ),
        (
            Operation::Create,
            &unreadable,
            &none,
            400,
            "error occurred while decoding osp: ",
        ),
    ] {
        let (found, text) = message(review_profile(&asked(operation, object, old)));
        assert_eq!(found, code, "{operation:?} {object}: {text}");
        let fits = text == expected || (code == 400 && text.starts_with(expected));
        assert!(fits, "{text}");
    }
}

#[test]
fn lists_that_are_empty_and_those_that_are_not_there_are_the_same() {
    let plain = a_profile();
    let empty = with(plain.clone(), "/spec/bootstrapConfig/units", json!([]));
    let answer = review_profile(&asked(Operation::Update, &empty, &plain));
    assert_eq!(message(answer).0, 200);
}

#[test]
fn a_profile_whose_templates_do_not_compile_is_refused_with_every_place() {
    let mut profile = a_profile();
    let file = |path: &str| json!({"path": path, "content": {"inline": {"data": "{{ if }}"}}});
    let files: Vec<Value> = (0..7)
        .map(|number| file(&format!("/etc/{number}")))
        .collect();
    profile["spec"]["provisioningConfig"]["files"] = json!(files);
    let (code, text) = message(review_profile(&asked(
        Operation::Create,
        &profile,
        &Value::Null,
    )));
    assert_eq!(code, 403);
    for path in ["/etc/0", "/etc/4", "and 2 more"] {
        assert!(text.contains(path), "{text}");
    }
    assert!(!text.contains("/etc/5"), "{text}");
    profile["spec"]["extends"] = json!("osp-ubuntu");
    let overlay = review_profile(&asked(Operation::Create, &profile, &Value::Null));
    assert_eq!(message(overlay).0, 200, "its base is not at hand");
}

#[test]
fn what_is_being_deleted_is_not_evaluated() {
    let at = json!("2026-01-01T00:00:00Z");
    let deleted = |object: Value| with(object, "/metadata/deletionTimestamp", at.clone());
    let old = a_profile();
    let worse = with(old.clone(), "/spec/osVersion", json!("26.04"));
    let answer = review_profile(&asked(Operation::Update, &deleted(worse), &old));
    assert_eq!(message(answer).0, 200);
    let bad = with(
        a_machine_deployment(),
        "/spec/template/spec/providerSpec",
        json!({}),
    );
    let answer = review_machine_deployment(&asked(Operation::Update, &deleted(bad.clone()), &bad));
    assert_eq!(message(answer).0, 200);
    let config = json!({"metadata": {}, "spec": {"osVersion": "1"}});
    let changed = deleted(json!({"metadata": {}, "spec": {"osVersion": "2"}}));
    let answer = review_config(&asked(Operation::Update, &changed, &config));
    assert_eq!(message(answer).0, 200);
}

#[test]
fn remarks_are_what_the_linter_says_and_refuse_nothing() {
    let path = "/spec/provisioningConfig/files/0/path";
    let profile = with(a_profile(), path, json!("etc/hello"));
    let write = asked(Operation::Create, &profile, &Value::Null);
    assert_eq!(message(review_profile(&write)).0, 200);
    let remarks = remarks_on_profile(&write);
    let expected = "spec.provisioningConfig.files[0].path: the path is not absolute; begin the \
                    path with a slash";
    assert_eq!(remarks, [expected]);
    let unchanged = asked(Operation::Update, &profile, &profile);
    assert_eq!(remarks_on_profile(&unchanged), [""; 0]);
    let large = with(
        a_profile(),
        "/spec/bootstrapConfig/files/0/content/inline/data",
        {
            let numbers = (0..4_000_u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let numbers: Vec<String> = numbers.map(|number| format!("{number:x}")).collect();
            json!(numbers.concat())
        },
    );
    let write = asked(Operation::Create, &large, &Value::Null);
    assert_eq!(message(review_profile(&write)).0, 200);
    let remarks = remarks_on_profile(&write).concat();
    assert!(
        remarks.contains("more than the 16384 that aws takes"),
        "{remarks}"
    );
}

#[test]
fn a_changed_profile_is_told_what_the_change_takes_on_running_machines() {
    let newer = |path: &str, value: Value| {
        let profile = with(a_profile(), "/spec/version", json!("v9.0.0"));
        with(profile, path, value)
    };
    let old = a_profile();
    let told = |new: &Value| {
        let write = asked(Operation::Update, new, &old);
        assert_eq!(message(review_profile(&write)).0, 200);
        let remarks = remarks_on_profile(&write);
        remarks.first().cloned().unwrap_or_default()
    };
    let file = "/spec/provisioningConfig/files/0/content/inline/data";
    let remark = told(&newer(file, json!("another")));
    let expected =
        "on running machines, the change would take NewMachine: /etc/hello; see `osm plan`";
    assert!(remark.starts_with(expected), "{remark}");
    let same = told(&newer("/metadata/name", json!("renamed")));
    assert!(!same.contains("running machines"), "{same}");
}

#[test]
fn a_config_never_changes_but_for_its_metadata() {
    let config = json!({"metadata": {}, "spec": {
        "osName": "ubuntu", "osVersion": "24.04", "cloudProvider": {"name": "aws"},
        "bootstrapConfig": {}, "provisioningConfig": {},
    }});
    let labelled = with(config.clone(), "/metadata/labels", json!({"a": "b"}));
    let emptied = with(config.clone(), "/spec/bootstrapConfig/files", json!([]));
    let changed = with(config.clone(), "/spec/osVersion", json!("26.04"));
    let prefix = "operatingSystemConfig validation request 0c9a8d74 ";
    let ok = format!("{prefix}allowed");
    let denied =
        format!("{prefix}denied: OperatingSystemConfig is immutable and updates are not allowed");
    for (operation, object, code, expected) in [
        (Operation::Create, &config, 200, ok.as_str()),
        (Operation::Update, &config, 200, &ok),
        (Operation::Update, &labelled, 200, &ok),
        (Operation::Update, &emptied, 200, &ok),
        (Operation::Update, &changed, 403, &denied),
        (Operation::Delete, &Value::Null, 200, &ok),
        (
            Operation::Connect,
            &Value::Null,
            400,
            "CONNECT not supported on osc resources",
        ),
    ] {
        let answer = message(review_config(&asked(operation, object, &config)));
        assert_eq!(
            answer,
            (code, expected.to_owned()),
            "{operation:?} {object}"
        );
    }
}

fn a_machine_deployment() -> Value {
    let provider = json!({"operatingSystem": "ubuntu", "cloudProvider": "aws"});
    json!({
        "metadata": {"name": "workers", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"providerSpec": {"value": provider}}}},
    })
}

const VALUE: &str = "/spec/template/spec/providerSpec/value";

#[test]
fn a_machine_deployment_that_names_no_profile_gets_the_default_and_nothing_else() {
    let plain = a_machine_deployment();
    let path = format!("/metadata/annotations/{}", PROFILE.replace('/', "~1"));
    let add = json!({"op": "add", "path": path, "value": "osp-ubuntu"});
    let make = json!({"op": "add", "path": "/metadata/annotations", "value": {}});
    let annotated = |value: Value| {
        with(
            plain.clone(),
            "/metadata/annotations",
            json!({PROFILE: value}),
        )
    };
    let others = with(plain.clone(), "/metadata/annotations", json!({"a": "b"}));
    for (object, expected) in [
        (plain.clone(), vec![make, add.clone()]),
        (others, vec![add.clone()]),
        (annotated(json!("")), vec![add]),
        (annotated(json!("osp-mine")), vec![]),
    ] {
        for operation in [Operation::Create, Operation::Update] {
            let answer = review_machine_deployment(&asked(operation, &object, &object));
            let allowed = Answer::Allowed {
                message: None,
                patch: expected.clone(),
            };
            assert_eq!(answer, allowed, "{operation:?} {object}");
        }
    }
}

#[test]
fn a_machine_deployment_is_evaluated_in_the_words_that_users_know() {
    let value = |value: Value| with(a_machine_deployment(), VALUE, value);
    let mutating = "error occurred while mutating machinedeployment: ";
    let unread =
        format!("{mutating}failed to read MachineDeployment.Spec.Template.Spec.ProviderSpec: ");
    let secret = json!({"operatingSystem": "ubuntu", "cloudProvider": ["c4n4ry"]});
    for (object, expected) in [
        (
            value(Value::Null),
            format!("{unread}machine.spec.providerSpec.value is nil"),
        ),
        (
            value(json!({"operatingSystem": "ubuntu", "colour": "c4n4ry"})),
            format!("{unread}json: unknown field \"colour\""),
        ),
        (
            value(secret),
            format!("{unread}json: cannot unmarshal array into cloudProvider, which is a string"),
        ),
        (
            value(json!({"operatingSystem": "windows", "cloudProvider": "aws"})),
            format!(
                "{mutating}failed to populate OSP annotation for machinedeployment with \
                 unsupported Operating System windows"
            ),
        ),
    ] {
        let answer = review_machine_deployment(&asked(Operation::Create, &object, &Value::Null));
        assert_eq!(message(answer), (422, expected));
    }
    let plain = a_machine_deployment();
    let deleted = review_machine_deployment(&asked(Operation::Delete, &Value::Null, &plain));
    let expected = "machinedeployment mutation request 0c9a8d74 allowed; mutation is not required \
                    for delete request";
    assert_eq!(message(deleted), (200, expected.to_owned()));
    let connected = review_machine_deployment(&asked(Operation::Connect, &plain, &plain));
    let expected = "CONNECT not supported on machinedeployment resources";
    assert_eq!(message(connected), (400, expected.to_owned()));
    let odd = with(plain, "/metadata/annotations", json!("a=b"));
    let odd = review_machine_deployment(&asked(Operation::Create, &odd, &Value::Null));
    let expected = "error occurred while decoding reqquest: metadata.annotations is no map";
    assert_eq!(message(odd), (400, expected.to_owned()));
}

#[test]
fn a_provider_spec_that_was_bad_before_holds_up_no_other_change() {
    let named = json!({PROFILE: "osp-mine"});
    let named = with(a_machine_deployment(), "/metadata/annotations", named);
    let bad = with(named.clone(), VALUE, json!({"colour": "red"}));
    let scaled = with(bad.clone(), "/spec/replicas", json!(3));
    let kept = review_machine_deployment(&asked(Operation::Update, &scaled, &bad));
    assert_eq!(message(kept), (200, String::new()));
    let made_bad = review_machine_deployment(&asked(Operation::Update, &bad, &named));
    assert_eq!(message(made_bad).0, 422);
}

#[test]
fn what_go_writes_for_an_empty_list_is_a_profile_without_one() {
    let mut profile = a_profile();
    for pointer in [
        "/spec/supportedCloudProviders",
        "/spec/provisioningUtility",
        "/spec/bootstrapConfig/units",
        "/spec/bootstrapConfig/templates",
        "/spec/bootstrapConfig/modules",
        "/spec/bootstrapConfig/supportedContainerRuntimes",
        "/spec/bootstrapConfig/files/0/permissions",
        "/spec/provisioningConfig",
    ] {
        profile = with(profile, pointer, Value::Null);
    }
    let answer = profile::review(&asked(Operation::Create, &profile, &Value::Null));
    assert_eq!(message(answer).0, 200);
    let machine_deployment: osm_api::machine_deployment::MachineDeployment =
        serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {"replicas": null, "template": {
                "metadata": null,
                "spec": {"providerSpec": null, "versions": {"kubelet": null}},
            }},
        }))
        .unwrap();
    let unset = osm_api::machine_deployment::MachineDeploymentSpec::default();
    assert_eq!(machine_deployment.spec, unset);
}

#[test]
fn annotations_of_machine_deployments_are_remarked_on_where_they_change() {
    let key = "v1.kubelet-config.machine-controller.kubermatic.io/maxPods";
    let none = Value::Null;
    let plain = json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "workers", "annotations": {"a": "b"}}, "spec": {},
    });
    let typo = with(plain.clone(), "/metadata/annotations", json!({key: "5"}));
    let labelled = with(typo.clone(), "/metadata/labels", json!({"a": "b"}));
    let deleting = with(
        typo.clone(),
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    for (operation, object, old, expected) in [
        (Operation::Create, &plain, &none, 0),
        (Operation::Create, &typo, &none, 1),
        (Operation::Update, &typo, &plain, 1),
        (Operation::Update, &labelled, &typo, 0),
        (Operation::Update, &deleting, &plain, 0),
        (Operation::Delete, &none, &typo, 0),
    ] {
        let remarks = remarks_on_machine_deployment(&asked(operation, object, old));
        assert_eq!(
            remarks.len(),
            expected,
            "{operation:?} {object}: {remarks:?}"
        );
    }
}

#[test]
fn a_changed_setting_is_told_with_what_it_takes() {
    let plain = json!({"spec": {"kubeconfigSecretRef": {"name": "a"}}});
    let set = |name: &str, value: Value| with(plain.clone(), &format!("/spec/{name}"), value);
    let mirrored = set(
        "registryMirrors",
        json!({"docker.io": ["https://mirror.example"]}),
    );
    let deleting = with(
        with(mirrored.clone(), "/metadata", json!({})),
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    let moved = set("apiServerOverride", json!("https://b.example:6443"));
    let invalid = set("clusterDNS", json!(["dns"]));
    for (old, new, expected) in [
        (
            &plain,
            &mirrored,
            "on running machines, spec.registryMirrors would take Reload: \
             /etc/containerd/certs.d/docker.io/hosts.toml; see `osm plan`",
        ),
        (
            &mirrored,
            &moved,
            "on running machines, spec.apiServerOverride, spec.registryMirrors would take \
             NewMachine: the API server's address; see `osm plan`",
        ),
        (&plain, &set("paused", json!(true)), ""),
        (&mirrored, &mirrored, ""),
        (&plain, &deleting, ""),
        (&Value::Null, &mirrored, ""),
        (
            &plain,
            &invalid,
            "spec.clusterDNS: `dns` is not an IP address",
        ),
        (
            &Value::Null,
            &invalid,
            "spec.clusterDNS: `dns` is not an IP address",
        ),
        // What was not accepted was not in effect.
        (&invalid, &mirrored, ""),
    ] {
        let asked = asked(Operation::Update, new, old);
        assert_eq!(review_worker_cluster(&asked), Answer::allowed(None));
        assert_eq!(remarks_on_worker_cluster(&asked).join("\n"), expected);
    }
}
