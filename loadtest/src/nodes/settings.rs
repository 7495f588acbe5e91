//! A tenant's settings and a machine deployment's annotations reach the machine, which takes all of
//! its packages from the mirror over TLS.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::site::Site;
use super::trial::Trial;
use super::{Params, Seen};
use crate::demo::node::POD_IMAGE;
use crate::machine::{CREDENTIAL_PROVIDER, CREDENTIAL_PROVIDER_PATH, Image, SETTINGS};

const MIRROR: &str = "https://10.0.2.2:8443";
const CREDENTIALS: &str = "
apiVersion: v1
kind: Secret
metadata: {name: registries, namespace: tenant-virtual}
type: kubernetes.io/dockerconfigjson
stringData:
  .dockerconfigjson: |
    {\"auths\": {\"10.0.2.2:8443\": {\"username\": \"mirror\", \"password\": \"mirror-password\"}}}
";
const OWN_TOKEN: &str = "kube-system-virtual-workers-cloud-init-getter-token";
const NODE_CREDENTIALS: &str = "manifests/rbac/worker-node-credentials.yaml";

fn settings(authority: &str) -> Value {
    let at_mirror = |path: &str| format!("{MIRROR}/{path}");
    json!({ "spec": {
        "hostCABundle": authority,
        "registryMirrors": { "registry.k8s.io": [MIRROR], "registry.example": [MIRROR] },
        "insecureRegistries": ["10.0.2.2:8444"],
        "registryCredentialsSecretRef": { "name": "registries" },
        "imageCredentialProviders": [{
            "name": "mirror-login",
            "binaries": { "amd64": {
                "url": format!("{MIRROR}{CREDENTIAL_PROVIDER_PATH}"),
                "sha256": hex::encode(Sha256::digest(CREDENTIAL_PROVIDER)),
            } },
            "matchImages": ["10.0.2.2:8443/plugin"],
            "defaultCacheDuration": "1h",
        }],
        "nodeCredentials": "PerMachineDeployment",
        "initialTaints": "example.com/first=yes:NoSchedule",
        "kubeletFeatureGates": { "CPUManagerPolicyAlphaOptions": true },
        "kubeletConfiguration": { "containerLogMaxWorkers": 2, "nodeStatusMaxImages": 33 },
        "kubeletConfigurationFromAnnotations": true,
        "httpProxy": "http://proxy.example:3128",
        "noProxy": "10.0.2.2,10.96.0.0/16,10.244.0.0/16,.svc",
        "variables": {
            "kubernetesDownloadURL": at_mirror("kubernetes"),
            "cniPluginsDownloadURL": at_mirror("cni-plugins"),
            "criToolsDownloadURL": at_mirror("cri-tools"),
            "containerdRepositoryURL": at_mirror("docker"),
            "debianArchiveURL": at_mirror("debian"),
        },
    } })
}

fn annotations() -> Value {
    let of_kubelet = "v1.kubelet-config.machine-controller.kubermatic.io";
    json!({ "metadata": { "annotations": {
        format!("{of_kubelet}/MaxPods"): "42",
        format!("{of_kubelet}/SystemReserved"): "cpu=200m,memory=100Mi",
        "operatingsystemmanager.k8c.io/kubelet-configuration": json!({ "nodeStatusMaxImages": 44 }).to_string(),
    } } })
}

pub(super) async fn run(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.worker
        .apply(&std::fs::read_to_string(
            crate::demo::install::repository().join(NODE_CREDENTIALS),
        )?)
        .await?;
    site.management
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: tenant-virtual}}")
        .await?;
    site.management.apply(CREDENTIALS).await?;
    let authority = site.provider.mirror().authority().to_owned();
    site.register(&settings(&authority), &annotations()).await?;
    let mut trial = Trial::power_on(site, params, Image::TrixieBare.into()).await?;
    trial.joins().await?;
    packages_are_from_the_mirror(&trial)?;
    own_credentials(&trial).await?;
    on_the_node(&trial).await?;
    trial.runs("mirrored", POD_IMAGE).await?;
    trial.runs("insecure", "10.0.2.2:8444/hello:1").await?;
    trial
        .runs("private", "10.0.2.2:8443/private/hello:1")
        .await?;
    trial.runs("plugin", "10.0.2.2:8443/plugin/hello:1").await?;
    Seen::of(trial).await
}

fn packages_are_from_the_mirror(trial: &Trial) -> anyhow::Result<()> {
    let requests = trial.site.provider.mirror().requests();
    let packages = requests.iter().filter(|it| it.contains("/pool/")).count();
    ensure!(
        packages > 10,
        "only {packages} packages are from the mirror"
    );
    trial.note(&format!(
        "{packages} packages are from the mirror, over TLS"
    ));
    Ok(())
}

/// The machine has the token of its machine deployment, and not that of all.
async fn own_credentials(trial: &Trial) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(trial.site.worker().await?, SETTINGS);
    let mut shell = trial.shell().await?;
    for (name, wanted) in [(OWN_TOKEN, true), ("cloud-init-getter-token", false)] {
        let secret = secrets.get(name).await.context("reading a token")?;
        let token = secret.data.and_then(|mut it| it.remove("token"));
        let token = token.context("the Secret has a token")?.0;
        let token = String::from_utf8_lossy(&token).into_owned();
        let end = token
            .get(token.len().saturating_sub(40)..)
            .unwrap_or_default();
        let found = shell
            .run(&format!("grep -rlF -- {end} /etc/osm || true"))
            .await?;
        ensure!(found.trim().is_empty() != wanted, "{name} is in {found:?}");
    }
    trial.note("the machine has its machine deployment's own token, and no other");
    Ok(())
}

async fn on_the_node(trial: &Trial) -> anyhow::Result<()> {
    let node = trial.node().await?;
    let taints = node.spec.and_then(|it| it.taints).unwrap_or_default();
    ensure!(
        taints
            .iter()
            .any(|it| it.key == "example.com/first" && it.effect == "NoSchedule"),
        "its taints are {taints:?}"
    );
    let configuration = trial.kubelet_configuration().await?;
    let at = |pointer: &str| configuration.pointer(pointer).cloned();
    for (pointer, wanted) in [
        ("/maxPods", json!(42)),
        ("/systemReserved/cpu", json!("200m")),
        ("/systemReserved/memory", json!("100Mi")),
        ("/featureGates/CPUManagerPolicyAlphaOptions", json!(true)),
        ("/containerLogMaxWorkers", json!(2)),
        ("/nodeStatusMaxImages", json!(44)),
        ("/clusterDNS/0", json!("10.96.0.10")),
    ] {
        let is = at(pointer).with_context(|| format!("the kubelet has no {pointer}"))?;
        ensure!(
            is == wanted,
            "{pointer} of the kubelet is {is}, and not {wanted}"
        );
    }
    trial.note("taints, reserved resources, feature gates and DNS are those of the kubelet");
    let mut shell = trial.shell().await?;
    for unit in ["kubelet", "containerd"] {
        let environment = shell
            .run(&format!(
                "tr '\\0' '\\n' < /proc/$(systemctl show --property MainPID --value {unit})/environ"
            ))
            .await?;
        for wanted in ["HTTP_PROXY=http://proxy.example:3128", "NO_PROXY="] {
            ensure!(
                environment.contains(wanted),
                "{unit} runs with {environment}"
            );
        }
    }
    trial.note("containerd and the kubelet have the proxy");
    Ok(())
}
