//! `osm tenants`, `osm explain`, `osm machine` and `osm doctor` against live clusters: they tell
//! how it stands, and write nothing.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, Patch, PatchParams};
use osm::api::names::{KUBE_SYSTEM, PROFILE};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::administrator::{create, delete, find, list, merge};
use crate::commands::{Admin, Said, a_file, completed, path, run};
use crate::fixtures::{
    PROFILE_NAME, a_little_machine_deployment, a_machine_deployment, a_profile, with_annotation,
};
use crate::process::Manager;
use crate::rotation::install;
use crate::server::{Account, ok};
use crate::stage::{Stage, Tenant, WORKER};
use crate::world::World;

/// Somebody without any right in the worker cluster.
const NOBODY: Account = Account {
    namespace: "default",
    name: "nobody",
};

pub async fn a_shell_completes_the_names_of_tenants(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "completion")).await;
    install(&tenant, &a_profile("v1.0.0", "text")).await;
    tenant.serve(&a_little_machine_deployment("workers")).await;
    tenant
        .entry("kube-system/workers", ("Served", "Current"))
        .await;
    let admin = a_file(&tenant.management_admin());
    let (namespace, begun) = (tenant.namespace.as_str(), &tenant.namespace[..6]);
    for (line, expected) in [
        (&["osm", "tenants", "-n", begun][..], namespace),
        (&["osm", "plan", "--namespace", begun], namespace),
        (&["osm", "tenant", "remove", "-n", namespace, ""], WORKER),
        (
            &["osm", "explain", "-n", namespace, "kube"],
            "kube-system/workers",
        ),
        (&["osm", "render", "osp-ub"], "osp-ubuntu"),
        (&["osm", "profiles", "show", "osp-ub"], "osp-ubuntu"),
        (&["osm", "tenan"], "tenants"),
    ] {
        let found = completed(&admin, line).await;
        assert!(found.iter().any(|it| it == expected), "{line:?}: {found:?}");
    }
    let nowhere = a_file("");
    let found = completed(&nowhere, &["osm", "tenants", "-n", ""]).await;
    assert_eq!(found.concat(), "", "no answer is no name, and no error");
    manager.stop().await;
}

pub async fn the_fleet_is_reported_in_a_table_as_json_and_as_it_changes(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "tenants")).await;
    install(&tenant, &a_profile("v1.0.0", "text")).await;
    tenant.serve(&a_little_machine_deployment("workers")).await;
    let lost = with_annotation(a_machine_deployment("lost"), (PROFILE, "no-such-profile"));
    drop(tenant.create(&lost).await);
    tenant.says("Ready", "False", "SomeNotServed").await;
    let admin = a_file(&tenant.management_admin());
    let words = [
        "tenants",
        "--kubeconfig",
        path(&admin),
        "-n",
        &tenant.namespace,
    ];

    let table = run(&words).await;
    assert_eq!(table.code, Some(0), "{table:?}");
    let row = table.out.lines().nth(1).unwrap_or_default();
    let mut cells = row.split_whitespace();
    let first: Vec<&str> = cells.by_ref().take(3).collect();
    let expected = ["tenants-tenant", "worker", "SomeNotServed"];
    assert_eq!(first, expected, "{table:?}");
    let counts: Vec<&str> = cells.skip(2).take(5).collect();
    assert_eq!(counts, ["2", "1", "0", "0", "1"], "{table:?}");
    assert!(!table.out.contains(" not served"), "{table:?}");
    let wide = run(&[&words[..], &["-o", "wide"]].concat()).await;
    let lost = "1 not served: kube-system/lost: ";
    assert!(wide.out.contains(lost), "{wide:?}");
    let listed = run(&[&words[..], &["-o", "json"]].concat()).await;
    let rows: Value = ok(serde_json::from_str(&listed.out), "it is JSON");
    let row = rows.get(0).expect("it has one tenant");
    assert_eq!(row["state"], "SomeNotServed");
    assert_eq!((&row["served"], &row["failing"]), (&json!(1), &json!(1)));

    select_and_print(&tenant, &words).await;

    let mut watch = watching(&[&words[..], &["--watch"]].concat());
    let (heading, row) = (watch.next().await, watch.next().await);
    assert_eq!(heading.find("STATE"), row.find("SomeNotServed"), "{row}");
    drop(watch);
    let mut watch = watching(&[&words[..], &["-o", "json", "--watch"]].concat());
    assert_eq!(watch.next_state().await, "SomeNotServed");
    let known = json!({ "metadata": { "annotations": { PROFILE: PROFILE_NAME } } });
    merge(&tenant.machine_deployments(), "lost", known).await;
    while watch.next_state().await != "Ready" {}
    manager.stop().await;
}

/// The flags that select tenants and formats.
async fn select_and_print(tenant: &Tenant, words: &[&str]) {
    let label = json!({ "metadata": { "labels": { "tier": "gold" } } });
    merge(&tenant.worker_clusters(), WORKER, label).await;
    let named = run(&[words, &["-l", "tier=gold", "-o", "name"]].concat()).await;
    let name = "workercluster.operatingsystemmanager.k8c.io/worker\n";
    assert_eq!(named.out, name, "{named:?}");
    let yaml = run(&[words, &["-o", "yaml"]].concat()).await;
    assert!(yaml.out.contains("state: SomeNotServed\n"), "{yaml:?}");
    let bare = run(&[words, &["--no-headers"]].concat()).await;
    assert_eq!(bare.out.lines().count(), 1, "{bare:?}");
    let other = ["-l", "tier=silver"];
    let none = run(&[words, &other, &["--no-headers"]].concat()).await;
    assert_eq!((none.code, none.out.as_str()), (Some(0), ""), "{none:?}");
    let kubeconfig = words.get(1..3).unwrap_or_default();
    let version = run(&[&["version"], kubeconfig].concat()).await;
    let manager = format!("manager {} (", env!("CARGO_PKG_VERSION"));
    assert!(version.out.contains(&manager), "{version:?}");
    let both = run(&[words, &["-A"]].concat()).await;
    assert_eq!(both.code, Some(2), "{both:?}");
    let all = run(&[&["tenants", "-A"], kubeconfig].concat()).await;
    assert!(all.out.contains(&tenant.namespace), "{all:?}");
    // This machine's own address is one that a tenant's kubeconfig may not name, unless the
    // manager's flags say so.
    for command in [&["plan"][..], &["explain", "workers"]] {
        let words = [command, words.get(1..).unwrap_or_default()].concat();
        let said = run(&[&words[..], &["--without-manager"]].concat()).await;
        let flag = "--allow-loopback-servers";
        assert!(said.all().contains(flag), "{said:?}");
    }
    for (command, code) in [("plan", 1), ("doctor", 0)] {
        // There are managers of other scenarios.
        let more = [&other[..], &["--fleet", "tenants"]].concat();
        let words = [&[command][..], words.get(1..).unwrap_or_default(), &more].concat();
        let said = run(&words).await;
        let none = [&said.out, &said.err].map(|it| it.contains("elected") || it.contains("labels"));
        assert!(none.contains(&true), "{said:?}");
        assert_eq!(said.code, Some(code), "{said:?}");
    }
}

/// A command that goes on, line by line.
struct Watching {
    _child: tokio::process::Child,
    lines: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
}

fn watching(words: &[&str]) -> Watching {
    use tokio::io::AsyncBufReadExt as _;
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(words)
        .env_clear()
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary was built with this test");
    let out = child.stdout.take().expect("it is piped");
    Watching {
        _child: child,
        lines: tokio::io::BufReader::new(out).lines(),
    }
}

impl Watching {
    async fn next(&mut self) -> String {
        let line = tokio::time::timeout(crate::wait::DEADLINE, self.lines.next_line());
        let line = ok(ok(line.await, "a line comes in time"), "it is read");
        line.expect("it goes on")
    }

    async fn next_state(&mut self) -> String {
        let line = self.next().await;
        let line: Value = ok(serde_json::from_str(&line), "each line is JSON");
        let state = line.get("state").and_then(Value::as_str);
        state.unwrap_or_default().to_owned()
    }
}

pub async fn a_machine_deployment_is_explained_with_what_blocks_it(world: &'static World) {
    let stage = Stage::open(world, "explain");
    let (tenant, manager) = Manager::with_tenant(&stage).await;
    tenant
        .configure(json!({
            "pauseImage": "mirror.example/pause:3.10",
            "httpProxy": "http://robot:hunter2@proxy.example:3128",
            "variables": { "site": "c4n4ry-site" },
        }))
        .await;
    tenant.register().await;
    install(&tenant, &a_profile("v1.0.0", "text")).await;
    let misspelt = "v1.kubelet-config.machine-controller.kubermatic.io/maxPods";
    let workers = with_annotation(a_little_machine_deployment("workers"), (misspelt, "50"));
    tenant.serve(&workers).await;
    tenant.says("Ready", "True", "Ready").await;

    let said = explain(&stage, &tenant, "workers").await;
    assert_eq!(said.code, Some(0), "{said:?}");
    for line in [
        "kube-system/workers of explain-tenant: current".to_owned(),
        format!("Profile {}/{PROFILE_NAME} v1.0.0", tenant.namespace),
        format!("chosen by  annotation {PROFILE}"),
        "made for revision 1, profile v1.0.0".to_owned(),
        "mirror.example/pause:3.10  (the WorkerCluster)".to_owned(),
        "[\"10.10.10.10\"]  (built in)".to_owned(),
        "1.35.2  (the machine deployment)".to_owned(),
        "http://…@proxy.example:3128".to_owned(),
        "What blocks it\n  nothing".to_owned(),
        format!("What to correct\n  metadata.annotations.{misspelt}: no kubelet setting"),
    ] {
        assert!(said.out.contains(&line), "{line}: {said:?}");
    }
    hold_nothing(&tenant, &said).await;

    let paused = json!({ "spec": { "paused": true } });
    merge(&tenant.worker_clusters(), "worker", paused).await;
    tenant.says("Registered", "False", "Paused").await;
    manager.stop().await;
    let next = a_profile("v2.0.0", "after").spec;
    let next = json!({ "spec": serde_json::to_value(&next).expect("plain values") });
    merge(&tenant.profiles(), PROFILE_NAME, next).await;
    let said = explain(&stage, &tenant, "kube-system/workers").await;
    assert_eq!(said.code, Some(3), "{said:?}");
    for line in [
        "differs since: profile version",
        "on running machines (up to 1): NewMachine\n",
        "Paused: the WorkerCluster is paused",
        "fix (operator): set spec.paused",
    ] {
        assert!(said.out.contains(line), "{line}: {said:?}");
    }

    let lost = with_annotation(a_machine_deployment("lost"), (PROFILE, "no-such-profile"));
    drop(tenant.create(&lost).await);
    let said = explain(&stage, &tenant, "lost").await;
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.out.contains("no-such-profile (missing)"), "{said:?}");
    let said = explain(&stage, &tenant, "nobody").await;
    assert_eq!(said.code, Some(1), "{said:?}");
    let nobody = "no tenant has a machine deployment nobody";
    assert!(said.err.contains(nobody), "{said:?}");
}

pub async fn explain(stage: &Stage, tenant: &Tenant, name: &str) -> Said {
    let admin = Admin::of(tenant);
    admin.osm_about((stage, tenant), &["explain", name]).await
}

/// No token, password or variable.
async fn hold_nothing(tenant: &Tenant, said: &Said) {
    let secrets = list(&tenant.secrets()).await;
    let bootstrap = list(&tenant.tokens()).await;
    let mut secret: Vec<String> = vec!["hunter2".to_owned(), "c4n4ry".to_owned()];
    for found in secrets.iter().chain(&bootstrap) {
        for key in ["token", "token-secret"] {
            let text = crate::fixtures::text(found, key);
            secret.extend((!text.is_empty()).then_some(text));
        }
    }
    assert!(secret.len() > 3, "tokens are known");
    for secret in secret {
        assert!(!said.all().contains(&secret), "no secret is told: {said:?}");
    }
}

pub async fn a_doctor_finds_what_is_missing_and_says_how_to_mend_it(world: &'static World) {
    let stage = Stage::open(world, "doctor");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    tenant.says("Ready", "True", "Ready").await;
    let (code, checks) = doctor(&stage, &tenant).await;
    let wrong: Vec<&Value> = checks.iter().filter(|it| it["state"] == "Fail").collect();
    assert_eq!((code, wrong), (Some(0), vec![]), "{checks:?}");
    let has = |place: &str, what: &str, state: &str| {
        let mut all = checks.iter();
        all.any(|it| it["place"] == place && it["what"] == what && it["state"] == state)
    };
    for what in ["definitions", "rights", "replicas", "connection"] {
        assert!(has("management", what, "Ok"), "{what}: {checks:?}");
    }
    for what in [
        "state",
        "kubeconfig",
        "connection and clock",
        "identity",
        "rights",
        "facts",
        "machine deployments",
    ] {
        assert!(has(&tenant.namespace, what, "Ok"), "{what}: {checks:?}");
    }

    let bindings: Api<RoleBinding> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let role = "operating-system-manager-worker";
    delete(&bindings, role).await;
    let found = crate::wait::until("the doctor sees it", async || {
        let (code, checks) = doctor(&stage, &tenant).await;
        let mut all = checks.into_iter();
        let rights = all.find(|it| it["place"] == tenant.namespace && it["what"] == "rights")?;
        let is_wrong = rights.get("state").is_some_and(|it| it == "Fail");
        (code == Some(3) && is_wrong).then_some(rights)
    })
    .await;
    let found = &found;
    let message = found["message"].as_str().unwrap_or_default();
    assert!(message.contains("create secrets in kube-system"), "{found}");
    assert!(!message.contains("cloud-init-settings"), "{found}");
    let fix = found["fix"].as_str().unwrap_or_default();
    assert!(fix.contains("osm tenant add"), "{found}");
    let roles: Api<Role> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    assert!(find(&roles, role).await.is_some());
    tenant.worker.apply_file("manifests/rbac/worker.yaml").await;
    tenant.set_kubeconfig("not a kubeconfig").await;
    let (code, checks) = doctor(&stage, &tenant).await;
    assert_eq!(code, Some(3), "{checks:?}");
    let mut all = checks.iter().filter(|it| it["place"] == tenant.namespace);
    assert!(
        all.any(|it| it["what"] == "kubeconfig" && it["state"] == "Fail"),
        "{checks:?}"
    );
    manager.stop().await;
}

/// As an administrator, of this scenario alone.
async fn doctor(stage: &Stage, tenant: &Tenant) -> (Option<i32>, Vec<Value>) {
    let admin = Admin::of(tenant);
    let words = ["doctor", "-o", "json"];
    let said = admin.osm_about((stage, tenant), &words).await;
    let checks = serde_json::from_str(&said.out);
    let what = format!("it is JSON: {said:?}");
    (said.code, ok(checks, &what))
}

pub async fn what_is_not_there_is_named_by_every_command(world: &'static World) {
    let stage = Stage::open(world, "nothing");
    let tenant = stage.tenant().await;
    let admin = a_file(&tenant.management_admin());
    // There are managers of other scenarios.
    let alone = "--without-manager";
    let plan = ["plan", alone, "--registration-selector", "scenario=none"];
    for words in [
        &plan[..],
        &["plan", alone],
        &["explain", alone, "a"],
        &["tenants"],
        &["doctor"],
    ] {
        let scope: &[&str] = match words {
            ["plan", _, _, _] => &[],
            _ => &["-n", "nope"],
        };
        let said = run(&[words, scope, &["--kubeconfig", path(&admin)]].concat()).await;
        assert_ne!(said.code, Some(0), "{words:?} {said:?}");
        let expected = if scope.is_empty() {
            "nothing is registered: no Secret has the label scenario=none"
        } else {
            "there is no namespace nope in the management cluster"
        };
        assert!(said.err.contains(expected), "{words:?} {said:?}");
    }
    // A cluster without our definitions, and a caller without rights.
    let bare = a_file(&tenant.worker.admin_in("default"));
    let stranger = tenant.worker.kubeconfig(STRANGER).await;
    let stranger = a_file(&stranger);
    for (kubeconfig, expected) in [(&bare, "osm crds"), (&stranger, "is forbidden")] {
        for words in [&["tenants"][..], &["plan"], &["explain", "a"], &["doctor"]] {
            let said = run(&[words, &["--kubeconfig", path(kubeconfig)]].concat()).await;
            assert_ne!(said.code, Some(0), "{words:?} {said:?}");
            assert!(said.all().contains(expected), "{words:?} {said:?}");
            for debug in ["Status {", "ListMeta", "ApiError", "Failed to parse"] {
                assert!(!said.all().contains(debug), "{words:?} {said:?}");
            }
        }
    }
}

/// A ServiceAccount that every cluster has, and that may do nothing.
const STRANGER: Account = Account {
    namespace: "default",
    name: "default",
};

/// A certificate signing request as the kubelet of this node makes it.
fn a_request(node: &str) -> CertificateSigningRequest {
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::OrganizationName, "system:nodes");
    name.push(DnType::CommonName, format!("system:node:{node}"));
    let key = ok(KeyPair::generate(), "keys are made");
    let request = ok(params.serialize_request(&key), "a request is made");
    let pem = ok(request.pem(), "a request is PEM");
    let object = json!({
        "metadata": { "name": format!("csr-of-{node}") },
        "spec": {
            "request": STANDARD.encode(pem),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    });
    ok(serde_json::from_value(object), "it is a request")
}

/// The node `one`, with this status of the condition `Ready`.
async fn a_node(nodes: &Api<Node>, ready: &str) {
    let apply = PatchParams::apply("test").force();
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "one" } });
    let created = nodes.patch("one", &apply, &Patch::Apply(&node)).await;
    drop(ok(created, "an administrator may create a node"));
    let ready = json!({
        "type": "Ready", "status": ready, "reason": "Kubelet", "message": "no network",
    });
    let patch = json!({ "status": { "conditions": [ready] } });
    let patched = nodes
        .patch_status("one", &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    drop(ok(patched, "an administrator may say how a node is"));
}

/// Somebody without rights, and an API server that is away.
async fn what_cannot_be_read_is_unknown(tenant: &Tenant, shown: impl AsyncFn(&str, &str) -> Said) {
    let account = "{apiVersion: v1, kind: ServiceAccount, \
        metadata: {name: nobody, namespace: default}}";
    tenant.worker.apply(account).await;
    let nobody = a_file(&tenant.worker.kubeconfig(NOBODY).await);
    let unknown = shown(path(&nobody), "one").await;
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    assert!(unknown.out.contains("unknown  node "), "{unknown:?}");
    assert!(unknown.out.contains("forbidden"), "{unknown:?}");
    let text = tenant.worker.admin_in("default");
    let (before, after) = text.split_once("127.0.0.1:").expect("it is on loopback");
    let after = after.trim_start_matches(char::is_numeric);
    let gone = a_file(&format!("{before}127.0.0.1:1{after}"));
    let gone = shown(path(&gone), "one").await;
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.err.contains("does not answer"), "{gone:?}");
}

pub async fn a_machine_is_shown_with_the_step_that_it_waits_at(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "machine")).await;
    install(&tenant, &a_profile("v1.0.0", "text")).await;
    tenant.serve(&a_little_machine_deployment("workers")).await;
    let admin = a_file(&tenant.worker.admin_in("default"));
    let of = ["--machine-deployment", "workers"];
    let shown = async |kubeconfig: &str, node: &str| {
        let words = ["machine", node, "--worker-kubeconfig", kubeconfig];
        run(&[&words[..], &of[..]].concat()).await
    };
    // The real one does not serve Machines.
    if world.management.real().is_none() {
        let none = run(&["machine", "none", "--worker-kubeconfig", path(&admin)]).await;
        assert_eq!(none.code, Some(1), "{none:?}");
        let why = "there is no Machine none in kube-system";
        assert!(none.err.contains(why), "{none:?}");
    }
    let before = shown(path(&admin), "one").await;
    assert_eq!(before.code, Some(3), "{before:?}");
    let words: Vec<&str> = before.out.split_whitespace().collect();
    let words = words.join(" ");
    for text in [
        "done documents written for revision 1 of kube-system/workers",
        "waiting client certificate not requested",
        "waiting node not registered",
        "Next: ",
    ] {
        assert!(words.contains(text), "no {text:?} in {}", before.out);
    }

    let client = tenant.worker.admin().await;
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    let request = a_request("one-0");
    create(&requests, &request).await;
    let other = shown(path(&admin), "one").await;
    assert!(other.out.contains("not requested"), "{other:?}");
    let asked = shown(path(&admin), "one-0").await;
    assert!(
        asked.out.contains("yes, since a later step is done"),
        "{asked:?}"
    );
    let next = "by hand: kubectl certificate approve csr-of-one-0";
    assert!(asked.out.contains(next), "{asked:?}");

    let nodes: Api<Node> = Api::all(client);
    for (status, code) in [("False", 3), ("True", 0)] {
        a_node(&nodes, status).await;
        let joined = shown(path(&admin), "one").await;
        assert_eq!(joined.code, Some(code), "{joined:?}");
        let says_why = joined.out.contains("the kubelet reports: no network");
        assert_eq!(says_why, code == 3, "{joined:?}");
    }

    what_cannot_be_read_is_unknown(&tenant, shown).await;
    manager.stop().await;
}
