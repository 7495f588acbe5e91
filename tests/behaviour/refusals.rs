//! Every reason for a refusal, given by a reconcile, by `osm plan`, by `osm explain` and, as far as
//! it does not depend on a cluster, by `osm render`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{PROFILE, PROFILE_NAMESPACE};
use osm::api::profile::OperatingSystemProfile;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::administrator::delete;
use crate::commands::{Admin, Said, a_file, path, run};
use crate::fixtures::{self, PROFILE_NAME, a_machine_deployment, a_profile};
use crate::overlays::an_overlay;
use crate::process::{Manager, plan};
use crate::registration::event_says;
use crate::rotation::install;
use crate::server::ok;
use crate::stage::{Stage, Tenant, WORKER};
use crate::wait;
use crate::world::World;

/// The page with every reason and its state.
const PAGE: &str = include_str!("../../docs/reasons.md");
/// The tenant has one machine deployment more.
const MACHINE_DEPLOYMENTS_MAX: usize = 27;
/// As many of [`heavy`] have room in a tenant's memory, and one more has not.
const HEAVY_MAX: usize = 3;
/// The tenant has one profile more.
const PROFILES_MAX: &str = "--tenant-profiles=13";

/// A machine deployment that is refused.
struct Case {
    reason: &'static str,
    machine_deployment: Value,
    /// True if files alone are enough to refuse it.
    is_rendered: bool,
}

fn case(reason: &'static str, patch: &Value) -> Case {
    let name = reason.to_lowercase();
    let mut found = serde_json::to_value(a_machine_deployment(&name)).expect("plain values");
    let annotations = json!({ PROFILE: PROFILE_NAME });
    let named = json!({ "metadata": { "annotations": annotations } });
    json_patch::merge(&mut found, &named);
    json_patch::merge(&mut found, patch);
    Case {
        reason,
        machine_deployment: found,
        is_rendered: true,
    }
}

fn of_profile(reason: &'static str, profile: &str) -> Case {
    let annotations = json!({ PROFILE: profile });
    case(
        reason,
        &json!({ "metadata": { "annotations": annotations } }),
    )
}

fn with_provider(reason: &'static str, value: &Value) -> Case {
    let spec = json!({ "providerSpec": { "value": value } });
    case(reason, &json!({ "spec": { "template": { "spec": spec } } }))
}

impl Case {
    fn only_in_clusters(self) -> Self {
        Self {
            is_rendered: false,
            ..self
        }
    }

    fn name(&self) -> String {
        let text = |path| {
            self.machine_deployment
                .pointer(path)
                .and_then(Value::as_str)
        };
        let namespace = text("/metadata/namespace").unwrap_or_default();
        format!("{namespace}/{}", text("/metadata/name").unwrap_or_default())
    }
}

/// The machine deployments that are refused, whatever their age.
fn refused() -> Vec<Case> {
    let annotated =
        |key: &str, value: &Value| json!({ "metadata": { "annotations": { key: value } } });
    let at = |namespace: &str, name: &str| json!({ "metadata": { "namespace": namespace, "name": name } });
    let kubelet = json!({ "versions": { "kubelet": 1.35 } });
    let nothing = json!({ PROFILE: null });
    let mut no_default = with_provider("NoDefaultProfile", &json!({ "operatingSystem": "minix" }));
    json_patch::merge(
        &mut no_default.machine_deployment,
        &json!({ "metadata": { "annotations": nothing } }),
    );
    let mut too_large = with_provider("UserDataTooLarge", &json!({ "cloudProvider": "openstack" }));
    let large = json!({ "metadata": { "annotations": { PROFILE: "large" } } });
    json_patch::merge(&mut too_large.machine_deployment, &large);
    vec![
        case(
            "Unreadable",
            &json!({ "spec": { "template": { "spec": kubelet } } }),
        ),
        with_provider("TooLarge", &heavy()).only_in_clusters(),
        case("NameTooLong", &at("kube-system", &"x".repeat(64))),
        case("NamesCollide", &at("kubelet", &"x".repeat(55))),
        of_profile("ProfileNotFound", "no-such-profile").only_in_clusters(),
        of_profile("ProfileUnreadable", "unreadable").only_in_clusters(),
        of_profile("ProfileQuotaExceeded", "youngest").only_in_clusters(),
        case(
            "ProfileForbidden",
            &annotated(PROFILE_NAMESPACE, &json!("default")),
        )
        .only_in_clusters(),
        of_profile("ProfileBaseNotFound", "orphan"),
        of_profile("ProfileContentUnknown", "thin"),
        of_profile("OverlayCycle", "circle"),
        of_profile("OverlayTooDeep", "overlay-5"),
        of_profile("OverlayMismatch", "mismatch"),
        of_profile("ProfileUnusable", "unclosed"),
        with_provider(
            "OperatingSystemProfileError",
            &json!({ "operatingSystem": "rhel" }),
        ),
        no_default.only_in_clusters(),
        with_provider("ProviderSpecRefused", &json!({ "network": "text" })),
        of_profile("RenderFailed", "failing"),
        too_large,
    ]
}

/// A provider spec that takes a little less memory than one object may.
fn heavy() -> Value {
    json!({ "cloudProviderSpec": { "tags": vec![json!({}); 3_000] } })
}

/// The profiles, oldest first.
fn profiles() -> Vec<OperatingSystemProfile> {
    let named = |name: &str, text: &str| {
        let mut profile = a_profile("v1.0.0+jinja", text);
        profile.metadata.name = Some(name.to_owned());
        profile
    };
    let mut large = named("large", "text");
    let files = &mut large.spec.bootstrap_config.files;
    let inline = files
        .first_mut()
        .and_then(|file| file.content.inline.as_mut());
    let inline = inline.expect("the fixture has one");
    inline.data = format!(
        "{{% for i in range(900) %}}{}{{% endfor %}}",
        "x".repeat(80)
    );
    let mut mismatch = an_overlay("mismatch", (PROFILE_NAME, json!({})));
    mismatch.spec.os_name = "flatcar".into();
    let overlay = |name: &str, base: &str| an_overlay(name, (base, json!({})));
    vec![
        named(PROFILE_NAME, "text"),
        named("unclosed", "{{ unclosed"),
        named("failing", "{{ no_such_function() }}"),
        large,
        mismatch,
        overlay("orphan", "no-such-base"),
        overlay("thin", "osp-ubuntu@v0.0.1"),
        overlay("circle", "circle"),
        overlay("overlay-1", PROFILE_NAME),
        overlay("overlay-2", "overlay-1"),
        overlay("overlay-3", "overlay-2"),
        overlay("overlay-4", "overlay-3"),
        overlay("overlay-5", "overlay-4"),
        // Of the same second, its name is the last.
        named("youngest", "text"),
    ]
}

pub async fn each_is_given_by_the_reconcile_and_by_the_commands(world: &'static World) {
    let stage = Stage::open(world, "refusals");
    let [tenant, unset] = stage.tenants(["refusals-a", "refusals-b"]).await;
    let machine_deployments = format!("--tenant-machine-deployments={MACHINE_DEPLOYMENTS_MAX}");
    let flags = [machine_deployments.as_str(), PROFILES_MAX];
    let manager = Manager::start(&stage, &flags).await;
    tenant.register().await;
    for profile in profiles() {
        install(&tenant, &profile).await;
    }
    put_unreadable(world, &tenant);
    let cases = create_all(world, &tenant).await;
    let settings = create_with_settings(world, &unset).await;
    let all = || {
        let of_tenant = cases.iter().map(|case| (&tenant, case));
        of_tenant.chain(settings.iter().map(|case| (&unset, case)))
    };
    for (tenant, case) in all() {
        tenant.entry(&case.name(), ("Refused", case.reason)).await;
        check_explain(&stage, tenant, (&flags, case)).await;
        if case.is_rendered {
            check_render(case).await;
        }
    }
    let answers = planned(&stage, &flags).await;
    for (_, case) in all() {
        let answer = answer_of(&answers, &case.name());
        let found = (&answer["verdict"], &answer["reason"]);
        assert_eq!(found, (&json!("Refused"), &json!(case.reason)), "{answer}");
    }
    let is_refused = |it: &&Value| it["verdict"] == "Refused";
    let refused = answers.iter().filter(is_refused).count();
    assert_eq!(
        refused,
        all().count(),
        "nothing else is refused: {answers:#?}"
    );
    if world.management.real().is_none() {
        let given = all().map(|(_, case)| case.reason).collect();
        assert_eq!(reasons_on_the_page(), given);
    }
    manager.stop().await;
    // It is missing until the manager installs it again.
    let profiles = tenant.profiles();
    delete(&profiles, "osp-ubuntu").await;
    let answers = planned(&stage, &flags).await;
    let answer = answer_of(&answers, "kube-system/defaulted");
    assert_eq!(answer["verdict"], "Waiting", "{answer}");
    assert_eq!(answer["reason"], "AwaitingProfile", "{answer}");
}

/// Creates the machine deployment of a tenant whose settings cannot be used, if the API server
/// stores them: a real one does only if its definition of WorkerClusters is older.
async fn create_with_settings(world: &World, unset: &Tenant) -> Option<Case> {
    if world.management.real().is_some() {
        return None;
    }
    let spec = json!({ "kubeconfigSecretRef": { "name": WORKER }, "clusterDNS": ["nonsense"] });
    world.management.store_unchecked(json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": { "name": WORKER, "namespace": unset.namespace }, "spec": spec,
    }));
    unset.register().await;
    let case = case(
        "SettingsRefused",
        &json!({ "metadata": { "name": "unset" } }),
    );
    create(unset, &case).await;
    // It is the operator's mistake, who does not look into the worker cluster.
    event_says(
        unset,
        (
            "SettingsRefused",
            "the WorkerCluster's settings: spec.clusterDNS",
        ),
    )
    .await;
    Some(case)
}

/// Creates the machine deployments of one tenant; returns those that are refused.
async fn create_all(world: &World, tenant: &Tenant) -> Vec<Case> {
    let unnamed = |namespace: &str, name: &str| {
        let annotations = json!({ PROFILE: null });
        let metadata = json!({ "namespace": namespace, "name": name, "annotations": annotations });
        case("Served", &json!({ "metadata": metadata }))
    };
    for served in [unnamed("c", "a-b"), unnamed("kube-system", "defaulted")] {
        create(tenant, &served).await;
        tenant.entry(&served.name(), ("Served", "Current")).await;
    }
    for number in 0..HEAVY_MAX {
        let mut served = with_provider("Served", &heavy());
        let name = json!({ "metadata": { "name": format!("heavy-{number}") } });
        json_patch::merge(&mut served.machine_deployment, &name);
        create(tenant, &served).await;
    }
    let mut cases = refused();
    // A real API server does not store what no version can read.
    let is_fake = world.management.real().is_none();
    cases.retain(|it| is_fake || it.reason != "ProfileUnreadable");
    for case in &cases {
        create(tenant, case).await;
    }
    for number in cases.len() + 2 + HEAVY_MAX..MACHINE_DEPLOYMENTS_MAX - 1 {
        let name = json!({ "metadata": { "name": format!("served-{number}") } });
        create(tenant, &case("Served", &name)).await;
    }
    let taken = json!({ "metadata": { "namespace": "b-c", "name": "a" } });
    for (reason, patch) in [
        ("NameTaken", taken),
        ("TooManyMachineDeployments", json!({})),
    ] {
        another_second().await;
        let case = case(reason, &patch).only_in_clusters();
        create(tenant, &case).await;
        cases.push(case);
    }
    cases
}

/// The reasons with which an entry is `Refused`.
fn reasons_on_the_page() -> BTreeSet<&'static str> {
    let rows = PAGE.lines().filter(|line| line.contains("| Refused |"));
    rows.filter_map(|row| row.split('`').nth(1)).collect()
}

/// A profile with a field of another type, which an older schema may have let in.
fn put_unreadable(world: &World, tenant: &Tenant) {
    let mut profile = serde_json::to_value(a_profile("v1.0.0", "text")).expect("plain values");
    let metadata = json!({ "name": "unreadable", "namespace": tenant.namespace });
    let patch = json!({ "metadata": metadata, "spec": { "osVersion": 24.04 } });
    json_patch::merge(&mut profile, &patch);
    world.management.store_unchecked(profile);
}

async fn create(tenant: &Tenant, case: &Case) {
    let found: DynamicObject =
        serde_json::from_value(case.machine_deployment.clone()).expect("it has metadata");
    let namespace = found.metadata.namespace.clone().unwrap_or_default();
    let namespaces: Api<Namespace> = Api::all(tenant.admin.clone());
    let made = fixtures::a_namespace(&namespace);
    // A worker cluster that was used before has it.
    let _ = namespaces.create(&PostParams::default(), &made).await;
    let resource = ApiResource::erase::<MachineDeployment>(&());
    let api = Api::namespaced_with(tenant.admin.clone(), &namespace, &resource);
    let created = api.create(&PostParams::default(), &found).await;
    ok(created, case.reason);
}

/// Objects that are created after this are younger.
async fn another_second() {
    let second = Timestamp::now().as_second();
    wait::until("another second has begun", async || {
        (Timestamp::now().as_second() > second + 1).then_some(())
    })
    .await;
}

async fn planned(stage: &Stage, flags: &[&str]) -> Vec<Value> {
    let (_, text) = plan(stage, &[flags, &["--format", "json"]].concat()).await;
    ok(serde_json::from_str(&text), &text)
}

fn answer_of<'a>(answers: &'a [Value], name: &str) -> &'a Value {
    let mut answers = answers.iter();
    let found = answers.find(|it| it["machineDeployment"] == *name);
    found.expect("each machine deployment has an answer")
}

async fn check_explain(stage: &Stage, tenant: &Tenant, (flags, case): (&[&str], &Case)) {
    let admin = Admin::of(tenant);
    let name = case.name();
    let words = [&["explain", &name, "--output", "json"][..], flags].concat();
    let said = admin.osm_about((stage, tenant), &words).await;
    let found: Value = ok(serde_json::from_str(&said.out), &said.all());
    let reason = found.pointer("/0/answer/reason");
    assert_eq!(reason, Some(&json!(case.reason)), "{found}");
    let blockers = found.pointer("/0/blockers").and_then(Value::as_array);
    let mut reasons = blockers
        .into_iter()
        .flatten()
        .filter_map(|it| it.get("reason"));
    assert!(reasons.any(|it| it == case.reason), "{found}");
}

async fn check_render(case: &Case) {
    let yamls: Vec<NamedTempFile> = profiles().iter().map(|it| a_file(&yaml(it))).collect();
    let annotations = case.machine_deployment.pointer("/metadata/annotations");
    let named = annotations
        .and_then(|it| it.get(PROFILE))
        .and_then(Value::as_str);
    let is_named = |it: &OperatingSystemProfile| it.metadata.name.as_deref() == named;
    let index = profiles()
        .iter()
        .position(is_named)
        .expect("it is one of these");
    let machine_deployment = a_file(&yaml(&case.machine_deployment));
    let profile = yamls.get(index).expect("it has a file");
    let bases = yamls.iter().flat_map(|file| ["--base", path(file)]);
    let mut words = vec!["render", path(profile)];
    words.extend(["--machine-deployment", path(&machine_deployment)]);
    words.extend(bases);
    let spec = json!({ "kubeconfigSecretRef": { "name": "w" }, "clusterDNS": ["nonsense"] });
    let worker_cluster = a_file(&yaml(&json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": { "name": "w" }, "spec": spec,
    })));
    if case.reason == "SettingsRefused" {
        words.extend(["--worker-cluster", path(&worker_cluster)]);
    }
    let said: Said = run(&words).await;
    assert_eq!(said.code, Some(1), "{}: {said:?}", case.reason);
    let refused = format!("refused: {}: ", case.reason);
    assert!(said.err.contains(&refused), "{}: {said:?}", case.reason);
}

fn yaml(value: &impl serde::Serialize) -> String {
    serde_saphyr::to_string(value).expect("plain values")
}
