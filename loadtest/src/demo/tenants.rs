//! The tenants of `tenants-example/`: read, registered as an operator would, and waited for.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use serde_json::Value;

use super::cluster::DemoCluster;
use super::install::read;

/// The ServiceAccount of `manifests/rbac/worker.yaml`.
const ACCOUNT: (&str, &str) = ("kube-system", "operating-system-manager");
/// The folders of tenants, and their namespaces, begin with this.
const PREFIX: &str = "tenant-";

/// One tenant, as its files say. Its worker cluster is named as the tenant, and so are the
/// registration and the `WorkerCluster`.
#[derive(Debug)]
pub struct Tenant {
    namespace: String,
    management: String,
    registration: String,
    worker: String,
}

impl Tenant {
    /// The tenant's namespace in the management cluster.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the tenant's worker cluster.
    pub fn name(&self) -> &str {
        let namespace = &self.namespace;
        namespace.strip_prefix(PREFIX).unwrap_or(namespace)
    }

    /// Changes its `WorkerCluster` and its machine deployment, each by a JSON merge patch.
    pub(crate) fn change(&mut self, cluster: &Value, deployment: &Value) -> anyhow::Result<()> {
        self.management = merged(&self.management, "WorkerCluster", cluster)?;
        self.worker = merged(&self.worker, "MachineDeployment", deployment)?;
        Ok(())
    }

    /// What the tenant applies in its worker cluster.
    pub(crate) fn worker(&self) -> &str {
        &self.worker
    }

    fn read(folder: &Path, namespace: String) -> anyhow::Result<Self> {
        let file = |name: &str| read(&folder.join(&namespace).join(name));
        Ok(Self {
            management: file("management.yaml")?,
            registration: file("kubeconfig-secret.yaml")?,
            worker: file("worker.yaml")?,
            namespace,
        })
    }
}

/// A `WorkerCluster`, with the status that was waited for.
#[derive(Clone, Debug)]
pub struct Served {
    /// The tenant's namespace in the management cluster.
    pub namespace: String,
    /// The name of the tenant's worker cluster.
    pub name: String,
    /// The status.
    pub status: Value,
}

impl Served {
    /// A text of the status, or a dash.
    pub fn text(&self, pointer: &str) -> String {
        text(&self.status, pointer).unwrap_or("-").to_owned()
    }

    /// The condition that sums up the others.
    pub fn ready(&self) -> (String, String) {
        let ready = conditions(&self.status).find(|one| text(one, "/type") == Some("Ready"));
        let field = |pointer: &str| ready.and_then(|ready| text(ready, pointer));
        (
            field("/status").unwrap_or("-").to_owned(),
            field("/reason").unwrap_or("-").to_owned(),
        )
    }
}

/// Reads every tenant, in the order of their names.
pub fn read_all(folder: &Path) -> anyhow::Result<Vec<Tenant>> {
    let mut names = Vec::new();
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) {
            names.push(name);
        }
    }
    names.sort();
    let read = names.into_iter().map(|name| Tenant::read(folder, name));
    read.collect()
}

/// Does what an operator does for a tenant, and what the tenant does afterwards.
pub async fn register(
    tenant: &Tenant,
    management: &DemoCluster,
    worker: &DemoCluster,
) -> anyhow::Result<()> {
    let (namespace, name) = ACCOUNT;
    let kubeconfig = worker.service_account_kubeconfig(namespace, name).await?;
    management.apply(&tenant.management).await?;
    let registration = filled(&tenant.registration, &kubeconfig)?;
    management.apply(&registration).await?;
    worker.apply(&tenant.worker).await
}

/// The registration with its three placeholders filled in.
fn filled(template: &str, kubeconfig: &str) -> anyhow::Result<String> {
    let kubeconfig: Value =
        serde_saphyr::from_str(kubeconfig).context("reading the worker's kubeconfig")?;
    let mut filled = template.to_owned();
    for (placeholder, pointer) in [
        ("${SERVER}", "/clusters/0/cluster/server"),
        (
            "${CERTIFICATE_AUTHORITY_DATA}",
            "/clusters/0/cluster/certificate-authority-data",
        ),
        ("${TOKEN}", "/users/0/user/token"),
    ] {
        let value = text(&kubeconfig, pointer)
            .with_context(|| format!("the worker's kubeconfig has no {pointer}"))?;
        filled = filled.replace(placeholder, value);
    }
    Ok(filled)
}

/// The documents of a text, those of one kind with a patch applied.
fn merged(text: &str, kind: &str, patch: &Value) -> anyhow::Result<String> {
    let mut documents: Vec<Value> =
        serde_saphyr::from_multiple(text).context("reading the tenant's files")?;
    let of_kind = documents
        .iter_mut()
        .filter(|it| it.get("kind").and_then(Value::as_str) == Some(kind));
    of_kind.for_each(|document| json_patch::merge(document, patch));
    // JSON is YAML.
    let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
    Ok(texts.join("\n---\n"))
}

/// Watches a tenant's `WorkerCluster` until it is ready and a machine deployment is served.
pub async fn until_served(
    client: Client,
    tenant: &Tenant,
    timeout: Duration,
) -> anyhow::Result<Served> {
    let kind = resource("WorkerCluster", "workerclusters");
    let worker_clusters: Api<DynamicObject> =
        Api::namespaced_with(client, tenant.namespace(), &kind);
    let name = tenant.name();
    let served = await_condition(
        worker_clusters.clone(),
        name,
        |object: Option<&DynamicObject>| object.is_some_and(|object| is_served(status(object))),
    );
    let Ok(found) = tokio::time::timeout(timeout, served).await else {
        let last = worker_clusters.get_opt(name).await?;
        bail!(
            "not served within {} s; {}",
            timeout.as_secs(),
            describe(last.as_ref())
        );
    };
    let found = found.context("watching the WorkerCluster")?;
    Ok(Served {
        namespace: tenant.namespace().to_owned(),
        name: name.to_owned(),
        status: found
            .as_ref()
            .map(status)
            .cloned()
            .context("the WorkerCluster is gone")?,
    })
}

/// A kind of the manager.
pub fn resource(kind: &str, plural: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk("operatingsystemmanager.k8c.io", "v1alpha1", kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

fn status(object: &DynamicObject) -> &Value {
    object.data.get("status").unwrap_or(&Value::Null)
}

fn is_served(status: &Value) -> bool {
    let is_ready = conditions(status).any(|condition| {
        text(condition, "/type") == Some("Ready") && text(condition, "/status") == Some("True")
    });
    let mut entries = array(status, "/machineDeployments").peekable();
    is_ready
        && entries.peek().is_some()
        && entries.all(|entry| text(entry, "/state") == Some("Served"))
}

/// What is wrong, for a person.
fn describe(object: Option<&DynamicObject>) -> String {
    let Some(object) = object else {
        return "there is no WorkerCluster".to_owned();
    };
    let status = status(object);
    let mut lines = vec!["its conditions:".to_owned()];
    let words = |value: &Value, pointers: &[&str]| -> String {
        let words = pointers.iter().filter_map(|pointer| text(value, pointer));
        words.collect::<Vec<_>>().join("  ")
    };
    for condition in conditions(status) {
        let words = words(condition, &["/type", "/status", "/reason", "/message"]);
        lines.push(format!("  {words}"));
    }
    for entry in array(status, "/machineDeployments") {
        let words = words(entry, &["/name", "/state", "/reason", "/message"]);
        lines.push(format!("  machine deployment {words}"));
    }
    if lines.len() == 1 {
        return "it has no conditions: osm has not seen it".to_owned();
    }
    lines.join("\n")
}

fn conditions(status: &Value) -> impl Iterator<Item = &Value> {
    array(status, "/conditions")
}

fn array<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_without_machine_deployments_is_not_served_yet() {
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        assert!(!is_served(&json!({ "conditions": ready })));
        let served = json!([{ "name": "a/b", "state": "Served" }]);
        assert!(is_served(
            &json!({ "conditions": ready, "machineDeployments": served })
        ));
        let waiting = json!([{ "name": "a/b", "state": "Waiting" }]);
        assert!(!is_served(
            &json!({ "conditions": ready, "machineDeployments": waiting })
        ));
    }

    #[test]
    fn a_registration_has_no_placeholder_left() {
        let kubeconfig = "
clusters: [{cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: QQ==}}]
users: [{user: {token: secret}}]
";
        let template = "s: ${SERVER}\nc: ${CERTIFICATE_AUTHORITY_DATA}\nt: ${TOKEN}";
        assert_eq!(
            filled(template, kubeconfig).unwrap(),
            "s: https://127.0.0.1:1\nc: QQ==\nt: secret"
        );
        assert!(filled(template, "clusters: []").is_err());
    }
}
