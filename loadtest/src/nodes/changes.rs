//! A change takes on a running machine what its class says, and no more: the new files are put in
//! place by hand, the units that `osm plan` names are restarted, and the change is in effect. Pods
//! go on.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};

use super::site::Site;
use super::trial::{Trial, boot_id};
use super::{Params, Seen};
use crate::machine::{Image, JOIN_TIMEOUT, SETTINGS};

const TENANT: &str = "tenant-virtual";
pub(super) const REGISTRY: &str = "10.0.2.2:8444";
const CREDENTIALS: &str = "
apiVersion: v1
kind: Secret
metadata: {name: registries, namespace: tenant-virtual}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: |
    {\"auths\": {\"10.0.2.2:8444\": {\"username\": \"mirror\", \"password\": \"mirror-password\"}}}
";
const DOCUMENT: &str = "virtual-workers-kube-system-provisioning-config";
/// A terminal takes 4,096 bytes as one line.
const PIECE_BYTES: usize = 2_000;
const POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.register(&json!({}), &json!({})).await?;
    let mut trial = Trial::power_on(site, params, Image::Trixie.into()).await?;
    trial.joins().await?;
    create_pod(&trial).await?;
    let before = state(&trial).await?;

    let change = of_settings(&json!({ "insecureRegistries": [REGISTRY] }));
    let units = put(&trial, change, "Reload").await?;
    ensure!(units.is_empty(), "nothing is restarted");
    trial
        .runs("reloaded", &format!("{REGISTRY}/hello:1"))
        .await?;

    let change = of_profile(&trial).await?;
    let units = put(&trial, change, "RestartUnit").await?;
    restart(&trial, &units).await?;
    let is = trial
        .shell()
        .await?
        .run("sysctl -n vm.max_map_count")
        .await?;
    ensure!(is.trim() == "262145", "vm.max_map_count is {is}");

    let change = of_settings(&json!({ "kubeletConfiguration": { "eventBurst": 7 } }));
    let units = put(&trial, change, "RestartKubelet").await?;
    ensure!(
        event_burst(&trial).await? != 7,
        "it takes less than is said"
    );
    trial.note("the kubelet goes by the old files until it is restarted");
    restart(&trial, &units).await?;
    let is = event_burst(&trial).await?;
    ensure!(is == 7, "eventBurst is {is}");

    trial.site.management.apply(CREDENTIALS).await?;
    let reference = json!({ "registryCredentialsSecretRef": { "name": "registries" } });
    let units = put(&trial, of_settings(&reference), "RestartContainerd").await?;
    restart(&trial, &units).await?;
    let private = format!("{REGISTRY}/private/hello:1");
    trial.runs("private", &private).await?;

    let after = state(&trial).await?;
    ensure!(after == before, "there was {before:?}, and is {after:?}");
    trial.note("the pod of before runs on, and the machine has not rebooted");
    Seen::of(trial).await
}

/// An object of the tenant in the management cluster, and a merge patch.
pub(super) type Change = (&'static str, &'static str, Value);

pub(super) fn of_settings(spec: &Value) -> Change {
    ("WorkerCluster", "virtual", json!({ "spec": spec }))
}

/// One more file, in the next version of the profile.
async fn of_profile(trial: &Trial) -> anyhow::Result<Change> {
    let (kind, name) = ("OperatingSystemProfile", "debian-bridge");
    let found = objects(trial, kind).await?.get(name).await;
    let found = found.context("reading the profile")?;
    let files = found.data.pointer("/spec/provisioningConfig/files");
    let mut files = files.and_then(Value::as_array).cloned().unwrap_or_default();
    files.push(json!({
        "path": "/etc/sysctl.d/99-case.conf", "permissions": 644,
        "content": { "inline": { "data": "vm.max_map_count = 262145\n" } },
    }));
    let spec = json!({ "version": "v1.0.1", "provisioningConfig": { "files": files } });
    Ok((kind, name, json!({ "spec": spec })))
}

async fn objects(trial: &Trial, kind: &str) -> anyhow::Result<Api<DynamicObject>> {
    let kind = GroupVersionKind::gvk("operatingsystemmanager.k8c.io", "v1alpha1", kind);
    let client = trial.site.management.client().await?;
    let resource = ApiResource::from_gvk(&kind);
    Ok(Api::namespaced_with(client, TENANT, &resource))
}

pub(super) async fn patch(trial: &Trial, (kind, name, patch): Change) -> anyhow::Result<()> {
    let api = objects(trial, kind).await?;
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = api.patch(name, &params, &patch).await;
    patched.with_context(|| format!("changing {kind} {name}"))?;
    Ok(())
}

/// Makes a change whose class this is, and puts the files that differ onto the machine. Returns the
/// units to restart.
async fn put(trial: &Trial, change: Change, class: &str) -> anyhow::Result<Vec<String>> {
    let secrets: Api<Secret> = Api::namespaced(trial.site.worker().await?, SETTINGS);
    let old = document(&secrets).await?;
    // So that it can be asked beforehand.
    patch(trial, of_settings(&json!({ "paused": true }))).await?;
    patch(trial, change).await?;
    let running = planned(trial)?;
    let is = running.get("class").and_then(Value::as_str);
    ensure!(is == Some(class), "it takes {running}, and not {class}");
    patch(trial, of_settings(&json!({ "paused": false }))).await?;
    let is_new = |secret: Option<&Secret>| {
        let new = secret.and_then(text);
        new.is_some_and(|new| new != old)
    };
    let written = await_condition(secrets.clone(), DOCUMENT, is_new);
    let written = tokio::time::timeout(JOIN_TIMEOUT, written).await;
    written.context("waiting for the document")??;
    let (before, now) = (files(&old)?, files(&document(&secrets).await?)?);
    let mut shell = trial.shell().await?;
    for (path, (mode, content)) in &now {
        if before.get(path) == Some(&(mode.clone(), content.clone())) {
            continue;
        }
        shell.run("rm -f /run/piece").await?;
        let encoded = STANDARD.encode(content);
        for piece in encoded.as_bytes().chunks(PIECE_BYTES) {
            let piece = String::from_utf8_lossy(piece);
            shell
                .run(&format!("printf %s {piece} >> /run/piece"))
                .await?;
        }
        let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
        shell
            .run(&format!(
                "mkdir -p {folder} && base64 -d /run/piece > {path} && chmod {mode} {path}"
            ))
            .await?;
    }
    shell.run("systemctl daemon-reload").await?;
    trial.note(&format!("osm plan says {class}, and the files are there"));
    let effects = running.get("effects").and_then(Value::as_array);
    let effects = effects.into_iter().flatten();
    let units = effects.filter_map(|it| it.get("units")?.as_array());
    let units = units.flatten().filter_map(Value::as_str);
    let mut units: Vec<String> = units.map(str::to_owned).collect();
    units.dedup();
    Ok(units)
}

/// What `osm plan` says of running machines.
#[expect(
    clippy::disallowed_methods,
    reason = "running the program is what this is for"
)]
fn planned(trial: &Trial) -> anyhow::Result<Value> {
    let management = &trial.site.management;
    let kubeconfig = trial.site.folder.kubeconfig(management);
    std::fs::write(&kubeconfig, management.admin_kubeconfig()).context("writing a kubeconfig")?;
    let output = Command::new(trial.site.osm())
        .args(["plan", "-n", TENANT, "-o", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .context("running osm plan")?;
    let answers: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        format!("osm plan said {said}")
    })?;
    let mut all = answers.as_array().into_iter().flatten();
    let running = all.find_map(|it| it.get("running").cloned());
    running.with_context(|| format!("osm plan says nothing of running machines: {answers}"))
}

async fn document(secrets: &Api<Secret>) -> anyhow::Result<String> {
    let secret = secrets
        .get(DOCUMENT)
        .await
        .context("reading the document")?;
    text(&secret).context("the Secret has a document")
}

fn text(secret: &Secret) -> Option<String> {
    let document = secret.data.as_ref()?.get("cloud-config")?;
    Some(String::from_utf8_lossy(&document.0).into_owned())
}

/// The files of a cloud-config: mode and content, by path.
fn files(document: &str) -> anyhow::Result<BTreeMap<String, (String, Vec<u8>)>> {
    let document: Value = serde_saphyr::from_str(document).context("reading a document")?;
    let files = document.get("write_files").and_then(Value::as_array);
    let mut found = BTreeMap::new();
    for file in files.into_iter().flatten() {
        let of = |key: &str| file.get(key).and_then(Value::as_str).unwrap_or_default();
        let content = match of("encoding") {
            "" => of("content").as_bytes().to_vec(),
            _ => STANDARD
                .decode(of("content").trim())
                .context("decoding a file")?,
        };
        found.insert(
            of("path").to_owned(),
            (of("permissions").to_owned(), content),
        );
    }
    Ok(found)
}

async fn restart(trial: &Trial, units: &[String]) -> anyhow::Result<()> {
    ensure!(!units.is_empty(), "no unit is named");
    let units = units.join(" ");
    trial
        .shell()
        .await?
        .run(&format!("systemctl restart {units}"))
        .await?;
    trial.note(&format!("restarted {units}"));
    let deadline = tokio::time::Instant::now() + JOIN_TIMEOUT;
    while trial.kubelet_configuration().await.is_err() {
        if tokio::time::Instant::now() > deadline {
            bail!("the kubelet does not answer after a restart of {units}");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

async fn event_burst(trial: &Trial) -> anyhow::Result<i64> {
    let configuration = trial.kubelet_configuration().await?;
    let burst = configuration.get("eventBurst");
    burst
        .and_then(Value::as_i64)
        .context("the kubelet has eventBurst")
}

const POD: &str = "stays";

/// Creates a pod that does nothing until it is deleted.
pub(super) async fn create_pod(trial: &Trial) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(trial.site.worker().await?, "default");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": POD },
        "spec": {
            "nodeName": trial.machine.name(), "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": POD, "image": "registry.k8s.io/pause:3.10.1" }],
        },
    });
    let pod: Pod = serde_json::from_value(pod).context("a pod")?;
    let created = pods.create(&PostParams::default(), &pod).await;
    created.context("creating a pod")?;
    let runs = await_condition(pods, POD, |pod: Option<&Pod>| {
        pod.and_then(container)
            .is_some_and(|(id, _)| !id.is_empty())
    });
    let running = tokio::time::timeout(JOIN_TIMEOUT, runs).await;
    running.context("waiting for a pod that stays")??;
    Ok(())
}

/// The id of the running container, and how often it was restarted.
fn container(pod: &Pod) -> Option<(String, i32)> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    status.state.as_ref()?.running.as_ref()?;
    Some((status.container_id.clone()?, status.restart_count))
}

/// What no change may touch: the boot, the node, and the container that was there.
pub(super) async fn state(
    trial: &Trial,
) -> anyhow::Result<(Option<String>, Option<String>, (String, i32))> {
    let node = trial.node().await?;
    let pods: Api<Pod> = Api::namespaced(trial.site.worker().await?, "default");
    let pod = pods.get(POD).await.context("reading the pod")?;
    let container = container(&pod).context("the pod runs")?;
    Ok((boot_id(&node), node.metadata.uid, container))
}
