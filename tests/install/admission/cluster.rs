//! A real cluster whose CRDs validate nothing, like those of the previous manager. Everything that
//! is refused there is refused by the webhooks.

use std::{path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use loadtest::control_plane::{ControlPlane, Params};
use osm::cli::crds;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, process::Command};

pub const NAMESPACE: &str = "operating-system-manager";
pub const NO_UNITS: &str = "OperatingSystemProfile for ubuntu does not support units";
pub const SAME_VERSION: &str =
    "OperatingSystemProfile is immutable. For updates .spec.version needs to be updated";
/// API servers read changed configurations within a second; nothing takes longer unless it never
/// ends.
const DEADLINE: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(100);
/// The configurations as they are shipped. But a webhook of this test has no Service, and must
/// answer.
const CONFIGURATIONS: &str =
    include_str!("../../../manifests/kustomize/components/webhook/configurations.yaml");
const PATHS: [&str; 4] = [
    "/mutate-v1alpha1-machinedeployment",
    "/operatingsystemprofile",
    "/operatingsystemconfig",
    "/workercluster",
];

pub struct Cluster {
    plane: ControlPlane,
}

pub fn a_profile(name: &str) -> Value {
    let file = json!({"path": "/etc/hello", "content": {"inline": {"data": "hello"}}});
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.2.3",
            "supportedCloudProviders": [{"name": "aws"}],
            "bootstrapConfig": {"files": [file]},
            "provisioningConfig": {"files": [file]},
        },
    })
}

/// An object with one value put in place, by JSON pointer.
pub fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("it has a slash");
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.insert(key.to_owned(), value)),
        Some(Value::Array(items)) => {
            let index: usize = key.parse().expect("a list has numbers");
            *items.get_mut(index).expect("the entry is there") = value;
        }
        _ => unreachable!("{parent} is there"),
    }
    object
}

/// A text of an object, by JSON pointer.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.expect("the text is there")
}

impl Cluster {
    pub async fn start() -> Self {
        let params = Params {
            name: "webhooks".to_owned(),
            ..Params::default()
        };
        let plane = ControlPlane::start(params).await.expect("it starts");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for crd in crds::crds() {
            let mut crd = serde_json::to_value(crd).expect("a definition is JSON");
            let schema = "/spec/versions/0/schema/openAPIV3Schema";
            let schema = crd.pointer_mut(schema).and_then(Value::as_object_mut);
            schema
                .expect("it has a schema")
                .remove("x-kubernetes-validations");
            plane
                .apply_yaml(&crd.to_string())
                .await
                .expect("it is taken");
        }
        let machines = root.join("tenants-example/worker-crds/machinedeployments.yaml");
        plane.apply_file(&machines).await.expect("they are taken");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": NAMESPACE,
        }});
        let namespace = namespace.to_string();
        plane.apply_yaml(&namespace).await.expect("it is taken");
        let rights = root.join("manifests/kustomize/components/webhook/rbac.yaml");
        plane.apply_file(&rights).await.expect("they are taken");
        Self { plane }
    }

    /// Registers webhooks on a port of this machine.
    pub async fn configure(&self, port: u16, authority: Option<&str>) {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(CONFIGURATIONS).expect("they are YAML");
        for document in documents {
            let webhooks = document.get("webhooks").and_then(Value::as_array);
            let webhooks = webhooks.expect("it lists webhooks").iter();
            let webhooks: Vec<Value> = webhooks
                .map(|webhook| {
                    let path = text(webhook, "/clientConfig/service/path");
                    assert!(PATHS.contains(&path), "{path}");
                    let to = json!({
                        "url": format!("https://127.0.0.1:{port}{path}"),
                        "caBundle": authority.map(|pem| STANDARD.encode(pem)),
                    });
                    let webhook = with(webhook.clone(), "/clientConfig", to);
                    with(webhook, "/failurePolicy", json!("Fail"))
                })
                .collect();
            let (kind, name) = (text(&document, "/kind"), text(&document, "/metadata/name"));
            let _ = self.kubectl(&["delete", kind, name], None).await;
            let document = with(document.clone(), "/webhooks", json!(webhooks));
            let created = self.kubectl(&["create", "-f", "-"], Some(&document)).await;
            created.expect("it is taken");
        }
    }

    /// Waits until the API server has read the configurations, and reaches the webhooks.
    pub async fn until_asked(&self) {
        let units = json!({"units": [{"name": "a.service"}]});
        let probe = with(a_profile("osp-probe"), "/spec/bootstrapConfig", units);
        let asked = async {
            let dry = ["create", "--dry-run=server", "-f", "-"];
            loop {
                match self.kubectl(&dry, Some(&probe)).await {
                    Err(refused) if refused.contains(NO_UNITS) => break,
                    _ => tokio::time::sleep(LOOK).await,
                }
            }
        };
        let asked = tokio::time::timeout(DEADLINE, asked).await;
        asked.expect("the API server asks the webhooks");
    }

    /// The rights of the process, as the manifests grant them.
    pub async fn webhooks_own_kubeconfig(&self) -> String {
        let account = "operating-system-manager-webhook";
        let made = self
            .plane
            .kubeconfig_for_service_account(NAMESPACE, account);
        made.await.expect("it was applied")
    }

    /// Applies an object as a user does, and hands out what was told beside, or the refusal.
    pub async fn apply(&self, object: &Value) -> Result<String, String> {
        self.kubectl(&["apply", "--server-side", "-f", "-"], Some(object))
            .await
            .map(|(_, told)| told)
    }

    pub async fn get(&self, kind: &str, name: &str) -> Value {
        let arguments = ["get", kind, name, "-n", NAMESPACE, "-o", "json"];
        let (printed, _) = self.kubectl(&arguments, None).await.expect("it is there");
        serde_json::from_str(&printed).expect("kubectl prints JSON")
    }

    pub async fn delete(&self, kind: &str, name: &str) {
        let arguments = ["delete", kind, name, "-n", NAMESPACE];
        let deleted = self.kubectl(&arguments, None).await;
        deleted.expect("it may be deleted");
    }

    /// What kubectl printed, and what it told beside.
    async fn kubectl(
        &self,
        arguments: &[&str],
        input: Option<&Value>,
    ) -> Result<(String, String), String> {
        let kubeconfig = self.plane.folder().join("administrator.kubeconfig");
        std::fs::write(&kubeconfig, self.plane.admin_kubeconfig()).expect("the folder is ours");
        let mut child = Command::new(self.plane.kubectl())
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("it has an input");
        if let Some(input) = input {
            let input = input.to_string();
            stdin.write_all(input.as_bytes()).await.expect("it reads");
        }
        drop(stdin);
        let output = child.wait_with_output().await.expect("it ends");
        let [printed, told] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.success() {
            Ok((printed, told))
        } else {
            Err(told)
        }
    }
}
