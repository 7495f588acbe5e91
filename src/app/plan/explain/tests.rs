//! What an explanation shows, and what it names as a blocker.

use super::*;

#[test]
fn what_may_be_secret_is_not_shown() {
    let proxy = json!("http://user:hunter2@proxy.example:3128");
    assert_eq!(
        shown("httpProxy", &proxy),
        json!("http://…@proxy.example:3128")
    );
    let bare = json!("user:hunter2@proxy.example");
    assert_eq!(shown("httpProxy", &bare), json!("…@proxy.example"));
    let mirrors = json!({ "docker.io": ["https://robot:key@mirror.example/a@b"] });
    let told = json!({ "docker.io": ["https://…@mirror.example/a@b"] });
    assert_eq!(shown("registryMirrors", &mirrors), told);
    assert_eq!(shown("variables", &json!({ "site": "x" })), json!(["site"]));
    assert_eq!(shown("hostCABundle", &json!("PEM")), json!("3 bytes"));
}

#[test]
fn a_turn_that_has_not_come_blocks_who_waits_for_it() {
    let own = |next: Value| -> WorkerCluster {
        let time = "2026-01-01T00:00:00Z";
        serde_json::from_value(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "name": "berlin" },
            "spec": { "kubeconfigSecretRef": { "name": "berlin" } },
            "status": {
                "conditions": [{
                    "type": "ProfilesInstalled", "status": "True", "reason": "AwaitingTurn",
                    "message": "wave 2 has not begun", "lastTransitionTime": time,
                }],
                "machineDeployments": [{
                    "name": "kube-system/workers", "state": "Served", "reason": "Current",
                    "since": time,
                    "profile": { "name": "osp-ubuntu", "version": "v1.0.0", "next": next },
                }],
            },
        }))
        .unwrap()
    };
    let answer = Answer::new("tenant-berlin", None, Verdict::Unchanged);
    let waits = blockers(Some(&own(json!("v2.0.0"))), "kube-system/workers", &answer);
    let [waits] = waits.as_slice() else {
        panic!("{waits:?}")
    };
    assert_eq!(waits.reason, "AwaitingTurn");
    assert!(waits.message.contains("v2.0.0") && waits.message.contains("wave 2"));
    assert!(waits.fix.is_some());
    let current = blockers(Some(&own(Value::Null)), "kube-system/workers", &answer);
    assert!(current.is_empty(), "{current:?}");
}

#[test]
fn every_setting_of_a_tenant_has_its_name_in_the_spec() {
    let settings = serde_json::to_value(TenantSettings::default()).unwrap();
    let known: Vec<&str> = SETTINGS.iter().map(|(_, key)| *key).collect();
    for key in settings.as_object().unwrap().keys() {
        // No WorkerCluster can choose the order.
        assert!(
            known.contains(&key.as_str()) || key == "mirror_order",
            "{key}"
        );
    }
    for key in known {
        assert!(settings.get(key).is_some(), "{key}");
    }
}
