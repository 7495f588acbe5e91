//! The admission policies of a worker cluster, beside a manager that serves it.

use osm::{
    api::names::{MADE_FOR, REVISION},
    rules::machine_deployment::default_profile,
};

use super::*;

/// Releases before 1.36 serve it with these alone.
const FLAGS: [&str; 2] = [
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
];
const DOCUMENTS: &str = "cloud-init-settings";

async fn a_worker_cluster() -> ControlPlane {
    let params = Params {
        name: "worker".to_owned(),
        api_server_flags: FLAGS.map(str::to_owned).to_vec(),
        ..Params::default()
    };
    ControlPlane::start(params).await.expect("it starts")
}

/// Applies both, and returns once a write by the administrator is refused.
async fn apply_policies(worker: &ControlPlane, document: &str) {
    let group = "--api-group=admissionregistration.k8s.io";
    let served = kubectl(worker, &["api-resources", group, "-o", "wide"]).await;
    let mut mutating = served
        .lines()
        .filter(|it| it.contains("mutatingadmissionpolicies"));
    let is_v1 = mutating.any(|it| it.contains("admissionregistration.k8s.io/v1 "));
    for name in ["writers", "documents", "profiles"] {
        let path = manifests(&format!("policies/{name}.yaml"));
        let text = std::fs::read_to_string(path).expect("it is there");
        let text = if is_v1 || name != "profiles" {
            text
        } else {
            text.replace("k8s.io/v1\n", "k8s.io/v1beta1\n")
        };
        let applied = worker.apply_yaml(&text).await;
        applied.expect("it is taken");
    }
    let begun = Instant::now();
    while spoil(worker, document).await.is_ok() {
        assert!(begun.elapsed() < DEADLINE, "the policy is not in use");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Takes the manager's mark off a document, as the administrator. Its bytes are immutable anyway.
async fn spoil(worker: &ControlPlane, document: &str) -> Result<String, String> {
    let mark = format!("{MADE_FOR}-");
    let annotate = ["annotate", "secret", document, "-n", DOCUMENTS, &mark];
    try_kubectl(worker, &[&annotate[..], &["--dry-run=server"]].concat()).await
}

async fn documents(worker: &ControlPlane) -> Vec<String> {
    let get = ["get", "secrets", "-n", DOCUMENTS, "-o", "name"];
    let names = kubectl(worker, &get).await;
    let names = names.lines().filter_map(|it| it.strip_prefix("secret/"));
    names
        .filter(|it| it.starts_with("berlin-workers"))
        .map(str::to_owned)
        .collect()
}

async fn until_there_are(worker: &ControlPlane, count: usize) {
    let begun = Instant::now();
    while documents(worker).await.len() != count {
        assert!(begun.elapsed() < DEADLINE, "{:?}", documents(worker).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_protect_documents_from_all_but_the_manager_and_name_profiles() {
    let (management, worker) = tokio::join!(a_cluster("management"), a_worker_cluster());
    make_the_tenants_namespaces(&management).await;
    install(&management, "base").await;
    let process = start(&management, &[]).await;
    serves_a_tenant(&management, &worker, "berlin").await;
    let made = documents(&worker).await;
    let document = made.iter().find(|it| it.ends_with("provisioning-config"));
    let document = document.expect("it is served").as_str();
    apply_policies(&worker, document).await;

    let refused = spoil(&worker, document).await.expect_err("it is protected");
    let why = format!("the operating system manager keeps Secret {document}");
    assert!(refused.contains(&why), "{refused}");
    let delete = ["delete", "secret", document, "-n", DOCUMENTS];
    let refused = try_kubectl(&worker, &delete).await;
    assert!(refused.expect_err("it is protected").contains(&why));
    kubectl(
        &worker,
        &["label", "secret", document, "-n", DOCUMENTS, "a=b"],
    )
    .await;

    nothing_else_is_changed(&worker, document, &why).await;
    profiles_are_named(&worker).await;

    // The manager goes on: another revision, then removal.
    let deployment = example("tenant-berlin/worker.yaml");
    let image = "/spec/template/spec/providerSpec/value/sshPublicKeys";
    let change = format!(r#"[{{"op": "replace", "path": "{image}", "value": []}}]"#);
    kubectl(
        &worker,
        &["patch", "-f", &deployment, "--type=json", "-p", &change],
    )
    .await;
    kubectl(
        &worker,
        &[
            "annotate",
            "-f",
            &deployment,
            "--overwrite",
            &format!("{REVISION}=2"),
        ],
    )
    .await;
    let revision = r"--for=jsonpath={.metadata.annotations.k8c\.io/machine-deployment-revision}=2";
    let wait = [
        "wait",
        "secret",
        document,
        "-n",
        DOCUMENTS,
        revision,
        "--timeout=60s",
    ];
    kubectl(&worker, &wait).await;
    let purge = r#"{"spec": {"onRemoval": "Purge"}}"#;
    let own = ["workercluster", "berlin", "-n", TENANT];
    let patch = [&["patch", "--type=merge", "-p", purge], &own[..]].concat();
    kubectl(&management, &patch).await;
    let before = documents(&worker).await.len();
    assert!(before > 0);
    let secret = ["delete", "secret", "berlin", "-n", TENANT];
    kubectl(&management, &secret).await;
    until_there_are(&worker, 0).await;
    drop(process);
}

async fn nothing_else_is_changed(worker: &ControlPlane, document: &str, why: &str) {
    // The garbage collector would delete it for a stranger, or the manager could not.
    for metadata in [
        r#"{"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}"#,
        r#"{"finalizers": ["example.com/hold"]}"#,
        r#"{"annotations": {"operatingsystemmanager.k8c.io/kept-as-found": "true"}}"#,
    ] {
        let patch = format!(r#"{{"metadata": {metadata}}}"#);
        let patch = ["patch", "secret", document, "-n", DOCUMENTS, "-p", &patch];
        let refused = try_kubectl(worker, &patch).await;
        assert!(refused.expect_err(metadata).contains(why), "{metadata}");
    }
}

/// Deletes the namespace with a document of the manager in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_protected_documents_can_be_deleted() {
    let worker = a_worker_cluster().await;
    kubectl(&worker, &["create", "namespace", DOCUMENTS]).await;
    let document = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {
            "name": "berlin-workers", "namespace": DOCUMENTS,
            "annotations": {"operatingsystemmanager.k8c.io/machine-deployment": "kube-system/w"},
        },
    });
    let made = worker.apply_yaml(&document.to_string()).await;
    made.expect("anybody may create one");
    kubectl(&worker, &["apply", "-f", &example("worker-crds")]).await;
    apply_policies(&worker, "berlin-workers").await;
    let delete = ["delete", "namespace", DOCUMENTS, "--timeout=60s"];
    kubectl(&worker, &delete).await;
}

/// The policy and the manager choose the same profile.
async fn profiles_are_named(worker: &ControlPlane) {
    let begun = Instant::now();
    while named(worker, ["ubuntu", "aws", ""]).await.is_none() {
        assert!(begun.elapsed() < DEADLINE, "the policy is not in use");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for asked in [
        ["ubuntu", "aws", ""],
        ["flatcar", "aws", "cloud-init"],
        ["flatcar", "anexia", "cloud-init"],
        ["flatcar", "anexia", "ignition"],
        ["amzn2", "aws", ""],
        ["rhel", "aws", ""],
        ["rockylinux", "aws", ""],
        ["windows", "aws", ""],
    ] {
        let [system, cloud, utility] = asked;
        let expected = default_profile(system, cloud, utility).ok();
        assert_eq!(named(worker, asked).await.as_deref(), expected, "{asked:?}");
    }
}

/// Returns the profile that a new machine deployment gets.
async fn named(worker: &ControlPlane, [system, cloud, utility]: [&str; 3]) -> Option<String> {
    let machine_deployment = json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "named", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"versions": {"kubelet": "1.36.1"}, "providerSpec": {"value": {
                    "operatingSystem": system, "cloudProvider": cloud,
                    "operatingSystemSpec": {"provisioningUtility": utility},
                }}},
            },
        },
    });
    let path = worker.folder().join("named.json");
    std::fs::write(&path, machine_deployment.to_string()).expect("the folder is ours");
    let path = path.to_str().expect("it is text");
    let create = ["create", "-f", path, "--dry-run=server", "-o", "json"];
    let created = kubectl(worker, &create).await;
    let created: Value = serde_json::from_str(&created).expect("kubectl prints JSON");
    let named = created["metadata"]["annotations"]["k8c.io/operating-system-profile"].as_str();
    named.map(str::to_owned)
}
