//! `osm plan` against live clusters: it tells what would be written, and writes nothing.

use std::io::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::Role;
use kube::{Api, ResourceExt as _, api::DeleteParams};
use osm::api::names::{CLOUD_INIT_SETTINGS, FETCHER, PROFILE, REVISION};
use osm::api::profile::OperatingSystemProfile;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::administrator::{get, list, merge};
use crate::audit::{Request, told};
use crate::credentials::opted_in;
use crate::fixtures::{self, a_little_machine_deployment, a_machine_deployment, a_profile};
use crate::operators::explain;
use crate::process::{Manager, plan};
use crate::rotation::install;
use crate::stage::{Stage, Tenant, WORKER};
use crate::wait;
use crate::world::{IN_WORKER, MANAGER, World};

pub async fn a_plan_says_what_would_be_written_and_writes_nothing(world: &'static World) {
    let stage = Stage::open(world, "plan");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    install(&tenant, &a_profile("v1.0.0", "before")).await;
    let before = tenant.serve(&a_little_machine_deployment("workers")).await;
    tenant.says("Ready", "True", "Ready").await;
    let (code, text) = plan(&stage, &[]).await;
    assert_eq!(code, Some(0), "while the manager runs: {text}");
    manager.stop().await;

    let since = Timestamp::now();
    let (code, text) = plan(&stage, &["-n", &tenant.namespace]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("kube-system/workers: unchanged"), "{text}");

    // Machines could not fetch with it, whatever else is current.
    let roles: Api<Role> = Api::namespaced(tenant.admin.clone(), CLOUD_INIT_SETTINGS);
    let role = get(&roles, FETCHER).await;
    merge(&roles, FETCHER, json!({ "rules": [] })).await;
    let (code, text) = plan(&stage, &[]).await;
    assert_eq!(code, Some(3), "{text}");
    let corrected = format!("would be written, without a rotation\n  correct Role {FETCHER}");
    assert!(text.contains(&corrected), "{text}");
    merge(&roles, FETCHER, json!({ "rules": role.rules })).await;

    let after = a_profile("v2.0.0", "after");
    let mut file = NamedTempFile::new().expect("there is room for a file");
    let yaml = serde_saphyr::to_string(&after).expect("a profile is plain values");
    file.write_all(yaml.as_bytes()).expect("the file is ours");
    let path = file.path().to_str().expect("our path is text");
    let (code, text) = plan(&stage, &["--profile-file", path]).await;
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("would be rotated"), "{text}");
    let (code, text) = plan(&stage, &["--profile-file", path, "--summary"]).await;
    let tenant_line = format!("{}: 1 would be rotated\n", tenant.namespace);
    let total = "tenants: 1, 0 unchanged; machine deployments: 1, 1 would be rotated\n\
                 on running machines: NewMachine: machine deployments: 1, machines: up to 1\n";
    assert_eq!((code, text.as_str()), (Some(3), &*(tenant_line + total)));
    has_a_limit(&stage, path).await;
    a_folder_is_taken_for_applied((&stage, &tenant), &after).await;

    assert_eq!(writes((&stage, &tenant), since).await, Vec::<String>::new());
    let next = json!({ "spec": serde_json::to_value(&after.spec).expect("plain values") });
    merge(&tenant.profiles(), fixtures::PROFILE_NAME, next).await;
    let since = Timestamp::now();
    let (code, text) = plan(&stage, &["--format", "json"]).await;
    assert_eq!(code, Some(3), "{text}");
    let answers: Value = serde_json::from_str(&text).expect("it is JSON");
    let answer = answers.get(0).expect("there is one answer");
    assert_eq!(answer["machineDeployment"], "kube-system/workers");
    assert_eq!(answer["verdict"], "Rotated", "{text}");
    assert_eq!(answer["inputs"], json!(["profile version"]));
    let class = answer.pointer("/running/class");
    assert_eq!(class, Some(&json!("NewMachine")));
    let diff = answer["diff"].as_str().unwrap_or_default();
    assert!(
        diff.contains("-before") && diff.contains("+after"),
        "{diff}"
    );
    assert_eq!(writes((&stage, &tenant), since).await, Vec::<String>::new());
    assert_eq!(tenant.made("workers", "1").await.uids(), before.uids());

    // What was foretold comes to pass, in the order in which it was told.
    let since = Timestamp::now();
    let manager = Manager::start(&stage, &[]).await;
    tenant.says("Ready", "True", "Ready").await;
    let name = before.provisioning.name_any();
    wait::for_object(&tenant.secrets(), &name, "it is rotated", |found| {
        found.uid() != before.provisioning.uid()
    })
    .await;
    // What runs may finish.
    manager.stop().await;
    assert_ne!(writes((&stage, &tenant), since).await, Vec::<String>::new());
    let (code, text) = plan(&stage, &[]).await;
    assert_eq!(code, Some(0), "{text}");
    knows_nothing_of_a_lost_document((&stage, &tenant), &name).await;
}

/// Machines may have had another document than the one that would be created.
async fn knows_nothing_of_a_lost_document((stage, tenant): (&Stage, &Tenant), name: &str) {
    let deleted = tenant
        .secrets()
        .delete(name, &DeleteParams::default())
        .await;
    drop(deleted.expect("it exists"));
    let (code, text) = plan(stage, &["--max-class", "Reboot"]).await;
    let lost = "provisioning document: NewMachine";
    assert!(code == Some(4) && text.contains(lost), "{code:?} {text}");
}

/// A rotation that only new machines have.
async fn has_a_limit(stage: &Stage, path: &str) {
    for (class, expected) in [("Reboot", Some(4)), ("NewMachine", Some(3))] {
        let (code, text) = plan(stage, &["--profile-file", path, "--max-class", class]).await;
        assert_eq!(code, expected, "{class}: {text}");
    }
}

pub async fn a_plan_knows_of_own_credentials_and_of_a_pause(world: &'static World) {
    let stage = Stage::open(world, "plan-knows");
    let (tenant, manager) = opted_in(&stage).await;
    drop(tenant.serve(&a_little_machine_deployment("workers")).await);
    tenant
        .says("NodeCredentials", "True", "PerMachineDeployment")
        .await;
    tenant.says("Ready", "True", "Ready").await;
    let (code, text) = plan(&stage, &[]).await;
    assert_eq!(code, Some(0), "the documents hold that token: {text}");
    let settings = json!({ "paused": true, "nodeCredentials": "PerMachineDeployment" });
    tenant.configure(settings).await;
    tenant.says("Registered", "False", "Paused").await;
    manager.stop().await;

    let template = json!({ "spec": { "versions": { "kubelet": "1.35.9" } } });
    let template = json!({ "spec": { "template": template } });
    merge(&tenant.machine_deployments(), "workers", template).await;
    let (code, text) = plan(&stage, &[]).await;
    let both = "which is 1; the WorkerCluster is paused";
    assert!(text.contains(both) && code == Some(1), "{text}");

    let next = json!({ "spec": { "version": "v2.0.0" } });
    merge(&tenant.profiles(), fixtures::PROFILE_NAME, next).await;
    drop(tenant.create(&a_little_machine_deployment("others")).await);
    let (code, text) = plan(&stage, &[]).await;
    assert_eq!(code, Some(3), "{text}");
    let paused = "kube-system/workers: would be written, without a rotation\n  \
                  the WorkerCluster is paused";
    assert!(text.contains(paused), "{text}");
    assert!(
        text.contains("create credentials kube-system-others-"),
        "{text}"
    );

    let settings = json!({ "profileAnnotation": "RequireAnnotation" });
    tenant.configure(settings).await;
    let mut unnamed = a_little_machine_deployment("unnamed");
    unnamed.annotations_mut().remove(PROFILE);
    drop(tenant.create(&unnamed).await);
    let (_, text) = plan(&stage, &[]).await;
    let ignored = "kube-system/unnamed: ignored\n  it names no profile, and \
                   spec.profileAnnotation of its WorkerCluster is RequireAnnotation";
    assert!(text.contains(ignored), "{text}");
}

/// Documents are of the template until machine-controller raises the revision.
pub async fn a_template_that_waits_for_its_revision_is_not_called_current(world: &'static World) {
    let stage = Stage::open(world, "template");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    install(&tenant, &a_profile("v1.0.0", "text")).await;
    let made = tenant.serve(&a_machine_deployment("workers")).await;
    let kubelet = |version: &str| json!({ "spec": { "template": { "spec": { "versions": { "kubelet": version } } } } });
    let machine_deployments = tenant.machine_deployments();
    merge(&machine_deployments, "workers", kubelet("1.20.0")).await;
    let waits = ("Waiting", "AwaitingRevision");
    let entry = tenant.entry("kube-system/workers", waits).await;
    let why = "waiting for machine-controller to raise the revision, which is 1";
    assert!(entry.message.is_some_and(|it| it.contains(why)));
    let (code, text) = plan(&stage, &[]).await;
    assert!(text.contains("kube-system/workers: would wait\n"), "{text}");
    assert!(text.contains(why) && code == Some(1), "{text}");
    let explained = explain(&stage, &tenant, "workers").await;
    assert!(explained.out.contains("workers of"), "{explained:?}");
    assert!(explained.out.contains(why), "{explained:?}");
    assert_eq!(explained.code, Some(3), "{explained:?}");
    // Somebody takes the change back.
    let was = a_machine_deployment("workers")
        .spec
        .template
        .spec
        .versions
        .kubelet;
    merge(&machine_deployments, "workers", kubelet(&was)).await;
    let current = ("Served", "Current");
    drop(tenant.entry("kube-system/workers", current).await);
    assert_eq!(
        tenant.made("workers", "1").await.bootstrap.uid(),
        made.bootstrap.uid()
    );
    // And makes it again, and machine-controller follows. That kubelet is too old, which is said.
    merge(&machine_deployments, "workers", kubelet("1.20.0")).await;
    drop(tenant.entry("kube-system/workers", waits).await);
    tenant.annotate("workers", (REVISION, "2")).await;
    drop(tenant.made("workers", "2").await);
    let unsupported = ("Served", "KubeletUnsupported");
    drop(tenant.entry("kube-system/workers", unsupported).await);
    let note = "kubelet 1.20.0 is not supported: documents are tested with 1.34 to 1.37";
    tenant
        .machine_deployment_event("KubeletUnsupported", note)
        .await;
    // A rotation deletes and creates Secrets, and none of that is another client's.
    let events = list(&tenant.worker_events()).await;
    let is_of = |event: &Event| event.reason.as_deref() == Some("SecretRestored");
    assert!(!events.iter().any(is_of), "{events:?}");
    manager.stop().await;
}

/// As a pipeline does it with the folder of a change in git.
async fn a_folder_is_taken_for_applied(
    (stage, tenant): (&Stage, &Tenant),
    after: &OperatingSystemProfile,
) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let write = |name: &str, object: &Value| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is ours");
        std::fs::write(path, object.to_string()).expect("the folder is ours");
    };
    let planned = async |more: &[&str]| {
        let path = folder.path().to_str().expect("our path is text");
        plan(stage, &[&["-f", path], more].concat()).await
    };
    let own = |namespace: &str| {
        json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "namespace": namespace, "name": WORKER },
            "spec": {
                "kubeconfigSecretRef": { "name": WORKER },
                "pauseImage": "mirror.example/pause:3.10",
            },
        })
    };
    write("clusters/worker.json", &own(&tenant.namespace));
    write(
        "map.yaml",
        &json!({ "apiVersion": "v1", "kind": "ConfigMap" }),
    );
    let (code, text) = planned(&["--max-class", "RestartContainerd"]).await;
    assert_eq!(code, Some(3), "{text}");
    let effect = "/etc/containerd/config.toml: RestartContainerd (containerd.service)";
    assert!(text.contains(effect), "{text}");
    let (code, text) = planned(&["--max-class", "Reload"]).await;
    assert_eq!(code, Some(4), "{text}");

    write("clusters/worker.json", &own("elsewhere"));
    let (code, text) = planned(&[]).await;
    assert_eq!(code, Some(0), "{text}");
    let mut profile = after.clone();
    profile.metadata.namespace = Some(tenant.namespace.clone());
    write("profiles/deeper/little.yml", &json!(profile));
    let (code, text) = planned(&["--max-class", "Drain"]).await;
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("/etc/text: NewMachine"), "{text}");

    // The API server would refuse it.
    "v1.0.0".clone_into(&mut profile.spec.version);
    write("profiles/deeper/little.yml", &json!(profile));
    let (code, text) = planned(&[]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("For updates .spec.version needs to be updated"),
        "{text}"
    );
    for path in ["map.yaml", "clusters/none"] {
        let path = folder.path().join(path);
        let path = path.to_str().expect("our path is text");
        let (code, text) = plan(stage, &["-f", path]).await;
        assert_eq!(code, Some(1), "{text}");
    }

    write("profiles/deeper/little.yml", &json!(after));
    let (code, text) = planned(&[]).await;
    assert_eq!(code, Some(1), "{text}");
    let told = "little.yml: OperatingSystemProfile little has no metadata.namespace; name the one";
    assert!(text.contains(told), "{text}");
}

/// What was written on behalf of the tenant, in either cluster.
async fn writes((stage, tenant): (&Stage, &Tenant), since: Timestamp) -> Vec<String> {
    let management = &stage.world.management;
    management.settle_audit().await;
    tenant.worker.settle_audit().await;
    let mut all: Vec<Request> = management.requests(MANAGER, since);
    all.retain(|request| request.namespace == tenant.namespace);
    all.extend(tenant.worker.requests(IN_WORKER, since));
    assert!(!all.is_empty(), "somebody has asked something");
    all.retain(Request::is_write);
    let lines = told(&all);
    lines.lines().map(str::to_owned).collect()
}
