//! The admission webhooks, as their manifests say.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};

use super::*;

const WEBHOOK: &str = "operating-system-manager-webhook";
const VARIANT: &str = "../../tests/install/webhooks";

/// Starts the process that the Deployment describes, but where its machine differs from a pod's.
async fn start_webhooks(cluster: &ControlPlane) -> Child {
    start_webhooks_of(cluster, (MANAGER, WEBHOOK)).await
}

/// The same of a Deployment with another namespace and name.
pub(super) async fn start_webhooks_of(
    cluster: &ControlPlane,
    (namespace, name): (&str, &str),
) -> Child {
    let get = ["get", "deployment", name, "-n", namespace, "-o", "json"];
    let printed = kubectl(cluster, &get).await;
    let deployment: Deployment = serde_json::from_str(&printed).expect("kubectl prints JSON");
    let pod = deployment.spec.and_then(|it| it.template.spec);
    let pod = pod.expect("it describes a pod");
    let account = pod.service_account_name.expect("it has an identity");
    let kubeconfig = cluster.kubeconfig_for_service_account(namespace, &account);
    let path = cluster
        .folder()
        .join(format!("webhook-{namespace}.kubeconfig"));
    std::fs::write(&path, kubeconfig.await.expect("it was applied")).expect("the folder is ours");
    let container = pod.containers.into_iter().next();
    let arguments = container.and_then(|it| it.args).expect("it has arguments");
    let on_free_ports = arguments.iter().map(|argument| {
        let (flag, port) = argument.split_once("0.0.0.0:").unwrap_or((argument, ""));
        let address = if port.is_empty() { "" } else { "127.0.0.1:0" };
        format!("{flag}{address}")
    });
    Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(on_free_ports)
        .arg("--kubeconfig")
        .arg(&path)
        .env("POD_NAMESPACE", namespace)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary was built with this test")
}

fn is_trusting(webhook: &WebhookClientConfig) -> bool {
    let service = webhook.service.as_ref();
    let is_ours = service.is_some_and(|it| it.name == WEBHOOK && it.namespace == MANAGER);
    let bundle = webhook.ca_bundle.as_ref();
    is_ours && bundle.is_some_and(|bundle| bundle.0.starts_with(b"-----BEGIN CERTIFICATE-----"))
}

/// Waits until both configurations trust what the process has made.
async fn until_trusted(cluster: &ControlPlane) {
    let client = cluster.client().await.expect("a client");
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let mutating = await_condition(
        mutating,
        MANAGER,
        |found: Option<&MutatingWebhookConfiguration>| {
            let webhooks = found.and_then(|found| found.webhooks.as_ref());
            webhooks.is_some_and(|all| all.iter().all(|it| is_trusting(&it.client_config)))
        },
    );
    let validating = await_condition(
        validating,
        MANAGER,
        |found: Option<&ValidatingWebhookConfiguration>| {
            let webhooks = found.and_then(|found| found.webhooks.as_ref());
            webhooks.is_some_and(|all| all.iter().all(|it| is_trusting(&it.client_config)))
        },
    );
    let (mutating, validating) = tokio::join!(
        tokio::time::timeout(DEADLINE, mutating),
        tokio::time::timeout(DEADLINE, validating),
    );
    for waited in [mutating.is_ok(), validating.is_ok()] {
        assert!(waited, "the configurations trust the process");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhooks_make_their_certificates_with_the_rights_that_they_are_given() {
    let cluster = a_cluster("management").await;
    install(&cluster, VARIANT).await;
    let process = start_webhooks(&cluster).await;
    until_trusted(&cluster).await;
    install(&cluster, VARIANT).await;
    until_trusted(&cluster).await;
    drop(process);
    let account = format!("--as=system:serviceaccount:{MANAGER}:{WEBHOOK}");
    for (verb, what, expected) in [
        ("get", "secret/operating-system-manager-webhook", "yes"),
        ("get", "secret/another", "no"),
        ("create", "secrets", "no"),
        ("list", "secrets", "no"),
    ] {
        let answer = may_do(&cluster, &[verb, what, "-n", MANAGER, &account]).await;
        assert_eq!(answer, expected, "{verb} {what}");
    }
}

/// What `kubectl auth can-i` says; its exit code says the same.
async fn may_do(cluster: &ControlPlane, arguments: &[&str]) -> String {
    let kubeconfig = cluster.folder().join("administrator.kubeconfig");
    let output = Command::new(cluster.kubectl())
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(["auth", "can-i"])
        .args(arguments)
        .output()
        .await
        .expect("kubectl runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhooks_pod_passes_the_restricted_standard() {
    let cluster = a_cluster("management").await;
    install(&cluster, VARIANT).await;
    let get = ["get", "deployment", WEBHOOK, "-n", MANAGER, "-o", "json"];
    let printed = kubectl(&cluster, &get).await;
    let deployment: Deployment = serde_json::from_str(&printed).expect("kubectl prints JSON");
    let template = deployment.spec.map(|it| it.template);
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some("as-deployed".to_owned()),
            ..ObjectMeta::default()
        },
        spec: template.expect("it has a template").spec,
        status: None,
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client().await.expect("a client"), MANAGER);
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let created = pods.create(&dry_run, &pod).await;
    created.expect("it is accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_has_the_same_webhooks() {
    let cluster = a_cluster("management").await;
    let install = ["install", "osm-crds", "osm-crds"];
    helm(&cluster, &install).await.expect("they are installed");
    let values = "webhook.enabled=true,webhook.replicas=3,image.repository=here/osm,image.tag=t";
    let install = [
        "install",
        "osm",
        "osm",
        "--namespace",
        MANAGER,
        "--create-namespace",
        "--set",
        values,
    ];
    helm(&cluster, &install).await.expect("it is installed");
    let process = start_webhooks(&cluster).await;
    until_trusted(&cluster).await;
    drop(process);
    let get = ["get", "deployment", WEBHOOK, "-n", MANAGER, "-o", "json"];
    let printed = kubectl(&cluster, &get).await;
    let deployment: Value = serde_json::from_str(&printed).expect("kubectl prints JSON");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "here/osm:t");
    assert_eq!(deployment["spec"]["replicas"], 3);
}

/// The kinds that cert-manager brings, as far as they matter here.
pub(super) const CERT_MANAGER: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: issuers.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: Issuer, plural: issuers}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: certificates.cert-manager.io}
spec:
  group: cert-manager.io
  names: {kind: Certificate, plural: certificates}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test(flavor = "multi_thread")]
async fn with_cert_manager_the_webhooks_need_no_right() {
    let cluster = a_cluster("management").await;
    let applied = cluster.apply_yaml(CERT_MANAGER).await;
    applied.expect("the definitions are taken");
    for kind in ["issuers", "certificates"] {
        let name = format!("{kind}.cert-manager.io");
        let wait = ["wait", "--for=condition=Established", "crd", &name];
        kubectl(&cluster, &wait).await;
    }
    install(&cluster, "../../tests/install/cert-manager").await;
    let account = format!("--as=system:serviceaccount:{MANAGER}:{WEBHOOK}");
    for (verb, what) in [
        ("get", "secret/operating-system-manager-webhook"),
        (
            "patch",
            "validatingwebhookconfiguration/operating-system-manager",
        ),
    ] {
        let answer = may_do(&cluster, &[verb, what, "-n", MANAGER, &account]).await;
        assert_eq!(answer, "no", "{verb} {what}");
    }
    let get = |kind| ["get", kind, WEBHOOK, "-n", MANAGER, "-o", "json"];
    let deployment = kubectl(&cluster, &get("deployment")).await;
    let deployment: Value = serde_json::from_str(&deployment).expect("kubectl prints JSON");
    let certificate = kubectl(&cluster, &get("certificate")).await;
    let certificate: Value = serde_json::from_str(&certificate).expect("kubectl prints JSON");
    let pod = &deployment["spec"]["template"]["spec"];
    let mounted = &pod["volumes"][0]["secret"]["secretName"];
    assert_eq!(*mounted, certificate["spec"]["secretName"]);
    let container = &pod["containers"][0];
    let folder = container["volumeMounts"][0]["mountPath"].as_str();
    let argument = format!("--certificate-folder={}", folder.expect("it is mounted"));
    let arguments = container["args"].as_array().expect("it has arguments");
    assert!(arguments.contains(&json!(argument)), "{arguments:?}");
    for kind in [
        "mutatingwebhookconfiguration",
        "validatingwebhookconfiguration",
    ] {
        let printed = kubectl(&cluster, &["get", kind, MANAGER, "-o", "json"]).await;
        let found: Value = serde_json::from_str(&printed).expect("kubectl prints JSON");
        let from = &found["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
        assert_eq!(*from, format!("{MANAGER}/{WEBHOOK}"), "{kind}");
    }
}
