//! Machine deployments are told to replace machines that were made from another document.

use std::io::Write as _;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use osm::api::change::Class;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{MACHINES_MADE_FROM, REVISION};
use osm::api::profile::OperatingSystemProfile;
use osm::plan::machine_rollout::replaced_for;
use serde_json::json;
use tempfile::NamedTempFile;

use crate::administrator::{get, list, merge};
use crate::audit::{Request, told};
use crate::commands::Admin;
use crate::fixtures::{self, PROFILE_NAME, a_little_machine_deployment};
use crate::process::{Manager, plan};
use crate::rotation::install;
use crate::server::ok;
use crate::stage::{Made, Stage, Tenant, WORKER, message};
use crate::wait;
use crate::world::World;

pub async fn outdated_machines_are_replaced_one_machine_deployment_at_a_time(
    world: &'static World,
) {
    let stage = Stage::open(world, "machines");
    let tenant = stage.tenant().await;
    let begun = Timestamp::now();
    let ask = json!({ "rollout": { "machines": { "replace": "WhenOutdated" } } });
    tenant.configure(ask).await;
    let manager = Manager::start(&stage, &[]).await;
    tenant.register().await;
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    for name in ["a", "b"] {
        let made = tenant.serve(&a_little_machine_deployment(name)).await;
        let said = made.kubelet_kubeconfig.annotations();
        assert!(said[MACHINES_MADE_FROM].starts_with("1 "), "{said:?}");
        at_rest(&tenant, name).await;
    }
    tenant
        .says("MachinesCurrent", "True", "MachinesCurrent")
        .await;

    let after = a_profile("v2.0.0", "second");
    let file = file_of(&after);
    let path = file.path().to_str().expect("our path is text");
    let (code, text) = plan(&stage, &["--profile-file", path]).await;
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.contains("outdated machines would be replaced"),
        "{text}"
    );

    let next = json!({ "spec": serde_json::to_value(&after.spec).expect("plain values") });
    merge(&tenant.profiles(), PROFILE_NAME, next).await;
    let first = told_beside(&tenant, &[]).await;
    let wrong = ("MachinesCurrent", "False", "MachinesOutdated");
    let own = wait_for_message(&tenant, "waiting: kube-system/").await;
    assert!(message(&own, wrong.0).contains(&format!("replacing: kube-system/{first}")));
    let made = replace_machines(&tenant, &first, "2").await;
    assert!(made.provisioning_text().contains("second"));
    let second = told_beside(&tenant, &[&first]).await;
    replace_machines(&tenant, &second, "2").await;
    tenant
        .says("MachinesCurrent", "True", "MachinesCurrent")
        .await;
    let (code, text) = plan(&stage, &[]).await;
    assert_eq!(code, Some(0), "{text}");
    manager.stop().await;

    // One patch makes each ours, and one replaces its machines.
    tenant.worker.settle_audit().await;
    let writes = tenant.writes(begun).into_iter();
    let patches: Vec<Request> = writes
        .filter(|it| it.resource == "machinedeployments" && it.code == 200)
        .collect();
    assert_eq!(patches.len(), 4, "{}", told(&patches));
    let events = list(&tenant.worker_events()).await;
    let replacing = events.iter();
    let replacing = replacing.filter(|it| it.reason.as_deref() == Some("ReplacingMachines"));
    assert_eq!(replacing.count(), 2);
}

/// A change within the limit replaces machines. One above it replaces none until it is permitted,
/// and nothing is held up for new machines; the next change needs another permission.
pub async fn a_change_above_the_limit_replaces_no_machines_until_it_is_permitted(
    world: &'static World,
) {
    let stage = Stage::open(world, "limit");
    let tenant = stage.tenant().await;
    let machines = json!({ "replace": "WhenOutdated", "maxClass": "Reload" });
    tenant
        .configure(json!({ "rollout": { "machines": machines } }))
        .await;
    let manager = Manager::start(&stage, &[]).await;
    tenant.register().await;
    let change = async |profile: OperatingSystemProfile| {
        let spec = serde_json::to_value(&profile.spec).expect("plain values");
        merge(&tenant.profiles(), PROFILE_NAME, json!({ "spec": spec })).await;
    };
    install(&tenant, &a_profile_with_crictl("v1.0.0", "first", "a")).await;
    tenant.serve(&a_little_machine_deployment("a")).await;
    at_rest(&tenant, "a").await;
    change(a_profile_with_crictl("v2.0.0", "first", "b")).await;
    let told = told_beside(&tenant, &[]).await;
    replace_machines(&tenant, &told, "2").await;
    let current = ("MachinesCurrent", "True", "MachinesCurrent");
    tenant.says(current.0, current.1, current.2).await;

    for (version, text, revision) in [("v3.0.0", "second", "3"), ("v4.0.0", "third", "4")] {
        let before = get(&tenant.machine_deployments(), "a").await;
        change(a_profile_with_crictl(version, text, "b")).await;
        let own = tenant
            .says("MachinesCurrent", "False", "ChangeAboveLimit")
            .await;
        let entry = tenant.entry("kube-system/a", ("Served", "Current")).await;
        let behind = entry.behind.expect("it is behind");
        let parts = format!("profile {version} changes /etc/text");
        assert_eq!((behind.class, &behind.parts), (Class::NewMachine, &parts));
        let said = message(&own, "MachinesCurrent");
        let told = format!(
            "takes more than maxClass permits: kube-system/a (NewMachine: {parts}; machines: up to \
             1; document {})",
            behind.document
        );
        assert_eq!(said, told);
        // New machines get the new document.
        let made = tenant.serve(&a_little_machine_deployment("new")).await;
        assert!(made.provisioning_text().contains(text));
        tenant.delete("new").await;
        wait::for_absence(&tenant.machine_deployments(), "new").await;
        let (code, text) = plan(&stage, &[]).await;
        let stays = "outdated machines would stay: the change takes more than maxClass permits";
        assert!(code == Some(0) && text.contains(stays), "{text}");
        let after = get(&tenant.machine_deployments(), "a").await;
        assert_eq!(replaced_for(&before), replaced_for(&after));

        let permit = ["tenant", "permit", WORKER, "-n", &tenant.namespace];
        let permitted = Admin::of(&tenant).osm(&permit).await;
        assert_eq!(permitted.code, Some(0), "{permitted:?}");
        let told = format!("kube-system/a: document {} permitted", behind.document);
        assert!(permitted.out.contains(&told), "{permitted:?}");
        wait::for_object(&tenant.machine_deployments(), "a", "it is told", |found| {
            replaced_for(found) == Some(&behind.document)
        })
        .await;
        replace_machines(&tenant, "a", revision).await;
        tenant.says(current.0, current.1, current.2).await;
    }
    manager.stop().await;
}

/// As [`fixtures::a_profile`], without what changes with each token.
fn a_profile(version: &str, text: &str) -> OperatingSystemProfile {
    let mut profile = fixtures::a_profile(version, text);
    let files = &mut profile.spec.provisioning_config.files;
    files.retain(|file| file.path != "/etc/kubeconfig");
    profile
}

/// With a file that is read again each time.
fn a_profile_with_crictl(version: &str, text: &str, crictl: &str) -> OperatingSystemProfile {
    let mut profile = a_profile(version, text);
    let file = json!({
        "path": "/etc/crictl.yaml", "content": { "inline": { "data": crictl } },
    });
    let file = serde_json::from_value(file).expect("it is a file");
    profile.spec.provisioning_config.files.push(file);
    profile
}

fn file_of(profile: &OperatingSystemProfile) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("there is room for a file");
    let yaml = serde_saphyr::to_string(profile).expect("a profile is plain values");
    file.write_all(yaml.as_bytes()).expect("the file is ours");
    file
}

/// machine-controller has made every machine from the template as it stands.
async fn at_rest(tenant: &Tenant, name: &str) {
    let found = get(&tenant.machine_deployments(), name).await;
    set_status(tenant, &found, 1).await;
}

async fn set_status(tenant: &Tenant, found: &MachineDeployment, updated: u32) {
    let status = json!({ "status": {
        "observedGeneration": found.metadata.generation, "replicas": 1,
        "updatedReplicas": updated, "availableReplicas": 1,
    }});
    let api = tenant.machine_deployments();
    let patched = api
        .patch_status(
            &found.name_any(),
            &PatchParams::default(),
            &Patch::Merge(status),
        )
        .await;
    drop(ok(patched, "machine-controller may write it"));
}

/// Replaces the machines as machine-controller does: another revision, documents for it, machines.
async fn replace_machines(tenant: &Tenant, name: &str, revision: &str) -> Made {
    tenant.annotate(name, (REVISION, revision)).await;
    let found = get(&tenant.machine_deployments(), name).await;
    set_status(tenant, &found, 0).await;
    let made = tenant.made(name, revision).await;
    let told = replaced_for(&found).expect("it was told");
    let said = format!("{revision} {told} ");
    let secret = made.kubelet_kubeconfig.name_any();
    wait::for_object(&tenant.secrets(), &secret, "it is noted", |secret| {
        secret.annotations()[MACHINES_MADE_FROM].starts_with(&said)
    })
    .await;
    at_rest(tenant, name).await;
    made
}

/// Waits until one more than these was told to replace its machines; never more at a time.
async fn told_beside(tenant: &Tenant, before: &[&str]) -> String {
    let api = tenant.machine_deployments();
    let found = wait::for_objects(&api, "one more is told", |all| {
        let told = all.values().filter(|it| replaced_for(it).is_some()).count();
        assert!(
            told <= before.len() + 1,
            "more than one at a time: {all:#?}"
        );
        told > before.len()
    })
    .await;
    let mut told = found.values().filter(|it| replaced_for(it).is_some());
    let told = told.find(|it| !before.contains(&it.name_any().as_str()));
    told.expect("it was just seen").name_any()
}

async fn wait_for_message(tenant: &Tenant, part: &str) -> osm::api::worker_cluster::WorkerCluster {
    let name = crate::stage::WORKER;
    wait::for_object(&tenant.worker_clusters(), name, part, |found| {
        message(found, "MachinesCurrent").contains(part)
    })
    .await
}
