//! A machine that follows its document. It reports each file and service that somebody changes
//! there, until it is put back, and nothing after a reboot. What is read again without a restart
//! comes to it by itself, and goes; of what is not, it says so. Its kubelet's certificate and its
//! token do no more than that.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::runtime::wait::await_condition;
use kube::{
    ResourceExt as _,
    api::{Api, DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::changes::{REGISTRY, create_pod, of_settings, patch, state};
use super::site::Site;
use super::trial::Trial;
use super::{Params, Seen};
use crate::machine::{Image, JOIN_TIMEOUT};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
const REPORT: &str = "operatingsystemmanager.k8c.io/machine-report";
const APPLIED: (&str, &str) = ("True", "");
/// A change on the machine, what is reported then, and the way back.
const CHANGES: [(&str, &str, &str); 4] = [
    (
        "cp -p /etc/crictl.yaml /run; echo >> /etc/crictl.yaml",
        "not as in the document: /etc/crictl.yaml",
        "cp -p /run/crictl.yaml /etc",
    ),
    (
        "mv /etc/sysctl.d/k8s.conf /run",
        "not as in the document: /etc/sysctl.d/k8s.conf",
        "mv /run/k8s.conf /etc/sysctl.d",
    ),
    (
        "chown 1:1 /etc/kubernetes/kubelet.conf",
        "not as in the document: /etc/kubernetes/kubelet.conf",
        "chown 0:0 /etc/kubernetes/kubelet.conf",
    ),
    (
        "mkdir -p /run/systemd/system/kubelet-healthcheck.service.d; \
         printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' \
         > /run/systemd/system/kubelet-healthcheck.service.d/a.conf; \
         systemctl daemon-reload; systemctl restart kubelet-healthcheck",
        "failing: kubelet-healthcheck.service",
        "rm -r /run/systemd/system/kubelet-healthcheck.service.d; systemctl daemon-reload; \
         systemctl restart kubelet-healthcheck",
    ),
];

pub(super) async fn run(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.register(
        &json!({ "spec": { "machineUpdates": "Reload" } }),
        &json!({}),
    )
    .await?;
    let mut trial = Trial::power_on(site, params, Image::Trixie.into()).await?;
    trial.joins().await?;
    reports(&trial, APPLIED).await?;
    for (change, expected, back) in CHANGES {
        trial.shell().await?.run(change).await?;
        reports(&trial, ("False", expected)).await?;
        trial.is_explained_by(expected)?;
        trial.shell().await?.run(back).await?;
        reports(&trial, APPLIED).await?;
    }
    trial.reboots().await?;
    reports(&trial, APPLIED).await?;
    it_may_no_more(&trial).await?;

    create_pod(&trial).await?;
    let before = state(&trial).await?;
    patch(
        &trial,
        of_settings(&json!({ "insecureRegistries": [REGISTRY] })),
    )
    .await?;
    has_hosts(&trial, "there").await?;
    trial
        .runs("reloaded", &format!("{REGISTRY}/hello:1"))
        .await?;
    let burst = |burst: Value| of_settings(&json!({ "kubeletConfiguration": burst }));
    patch(&trial, burst(json!({ "eventBurst": 7 }))).await?;
    let newer = "a newer document differs in: /etc/kubernetes/kubelet.conf.d/10-tenant.conf";
    reports(&trial, ("False", newer)).await?;
    patch(&trial, burst(Value::Null)).await?;
    reports(&trial, APPLIED).await?;
    patch(&trial, of_settings(&json!({ "insecureRegistries": null }))).await?;
    has_hosts(&trial, "gone").await?;
    let after = state(&trial).await?;
    ensure!(after == before, "there was {before:?}, and is {after:?}");
    trial.note("the pod of before runs on, and the machine has not rebooted");
    Seen::of(trial).await
}

/// Waits until a file of containerd's is `there` or `gone`.
async fn has_hosts(trial: &Trial, wanted: &str) -> anyhow::Result<()> {
    let begun = tokio::time::Instant::now();
    let path = format!("/etc/containerd/certs.d/{REGISTRY}/hosts.toml");
    let look = format!("test -e {path} && echo there || echo gone");
    let mut shell = trial.shell().await?;
    while shell.run(&look).await?.trim() != wanted {
        ensure!(begun.elapsed() < JOIN_TIMEOUT, "{path} is not {wanted}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let took = begun.elapsed().as_secs();
    trial.note(&format!("{path} is {wanted}, {took} s after the setting"));
    Ok(())
}

const DOCUMENT: &str = "namespaces/cloud-init-settings/secrets/\
                        virtual-workers-kube-system-provisioning-config";
/// What the machine sends with the kubelet's certificate or its token, and the answer's status.
const REQUESTS: [(&str, &str, &str); 7] = [
    ("nodes/$(hostname)/status", "cert", "200"),
    ("nodes/other/status", "cert", "403"),
    ("namespaces/kube-system/secrets/other", "cert", "403"),
    (DOCUMENT, "cert", "403"),
    ("nodes/$(hostname)/status", "token", "403"),
    ("namespaces/kube-system/secrets/other", "token", "403"),
    (DOCUMENT, "token", "200"),
];

/// Sees that its identities may do what it does, and not the like for others.
async fn it_may_no_more(trial: &Trial) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(trial.site.worker().await?);
    let other = json!({ "metadata": { "name": "other" } });
    let other = serde_json::from_value(other).context("a node")?;
    let created = nodes.create(&PostParams::default(), &other).await;
    created.context("creating another node")?;
    let mut shell = trial.shell().await?;
    for (path, identity, expected) in REQUESTS {
        let how = match identity {
            "cert" => "--cert /var/lib/kubelet/pki/kubelet-client-current.pem",
            _ => "--header @/etc/osm/machine/header",
        };
        let what = if path.starts_with("nodes") {
            "--request PATCH --header 'Content-Type: application/merge-patch+json' --data '{}'"
        } else {
            ""
        };
        let said = shell
            .run(&format!(
                "eval \"$(grep ^server= /opt/bin/osm-machine)\"; curl --silent --output /dev/null \
                 --write-out '%{{http_code}}' --cacert /etc/osm/machine/ca.crt {how} {what} \
                 $server/api/v1/{path}"
            ))
            .await?;
        ensure!(
            said.trim() == expected,
            "{identity} {path}: {said}, and not {expected}"
        );
        trial.note(&format!("{identity}: {expected} {path}"));
    }
    let deleted = nodes.delete("other", &DeleteParams::default()).await;
    deleted.context("deleting the other node")?;
    Ok(())
}

/// Waits until the node has a condition of this status, with this in its message.
async fn reports(trial: &Trial, (status, message): (&str, &str)) -> anyhow::Result<()> {
    let begun = tokio::time::Instant::now();
    let nodes: Api<Node> = Api::all(trial.site.worker().await?);
    let is_so = |node: Option<&Node>| {
        node.and_then(condition).is_some_and(|it| {
            let said = it.message.as_deref().unwrap_or_default();
            let report = node.and_then(|it| it.annotations().get(REPORT));
            let report = report.and_then(|it| it.split(' ').next());
            it.status == status && said.contains(message) && report == it.reason.as_deref()
        })
    };
    let reported = await_condition(nodes, trial.machine.name(), is_so);
    let reported = tokio::time::timeout(JOIN_TIMEOUT, reported).await;
    let node = trial.node().await?;
    let is = condition(&node);
    reported.with_context(|| format!("waiting for {status} {message}; it is {is:?}"))??;
    let said = is.and_then(|it| it.message.clone()).unwrap_or_default();
    let took = begun.elapsed().as_secs();
    trial.note(&format!("{status} after {took} s: {said}"));
    Ok(())
}

fn condition(node: &Node) -> Option<&NodeCondition> {
    let mut all = node.status.as_ref()?.conditions.iter().flatten();
    all.find(|it| it.type_ == "DocumentApplied")
}
