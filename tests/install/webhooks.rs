//! The admission webhooks, as their manifests say.

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
    let pod = deployment.spec.template.spec.expect("it describes a pod");
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

/// Waits until both configurations have the authority that the process made.
pub(super) async fn until_trusted(cluster: &ControlPlane, name: &str) {
    for kind in ["mutating", "validating"] {
        let configuration = format!("{kind}webhookconfiguration/{name}");
        let is_trusted = "--for=jsonpath={.webhooks[0].clientConfig.caBundle}";
        let wait = ["wait", &configuration, is_trusted, "--timeout=60s"];
        kubectl(cluster, &wait).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhooks_make_their_certificates_with_the_rights_that_they_are_given() {
    let cluster = a_cluster("management").await;
    install(&cluster, VARIANT).await;
    let process = start_webhooks(&cluster).await;
    until_trusted(&cluster, MANAGER).await;
    install(&cluster, VARIANT).await;
    until_trusted(&cluster, MANAGER).await;
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
