//! What goes wrong on a machine's way: its console says what, and it goes on by itself once the
//! fault is gone.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use super::site::Site;
use super::trial::{NODE, Trial};
use super::{Params, Seen};
use crate::machine::{Fault, Image};

const SETTINGS: &str = "cloud-init-settings";
const PROVISIONING: &str = "virtual-workers-kube-system-provisioning-config";
const KUBE_SYSTEM: &str = "kube-system";
const FETCHER_TOKEN: &str = "cloud-init-getter-token";
/// The kubelet's setting by which the second revision of the machine deployment is known.
const MAX_PODS: &str = "v1.kubelet-config.machine-controller.kubermatic.io/MaxPods";
/// Large enough that containerd's package does not fit, small enough for the shell.
const FILL: &str = "fallocate -l $(($(df --output=avail -B1 / | tail -n 1) - 4000000)) /filler";

/// One after the other, in one boot.
pub(super) async fn on_the_way(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.register(&json!({}), &json!({})).await?;
    let machine = site
        .provider
        .power_on(Site::deployment(), Image::Trixie, NODE)
        .await?;
    // The document is not there yet, and nobody is there who would write it.
    site.manager.stop().await?;
    let secrets: Api<Secret> = Api::namespaced(site.worker().await?, SETTINGS);
    secrets
        .delete(PROVISIONING, &DeleteParams::default())
        .await
        .context("deleting the provisioning Secret")?;
    site.provider.mirror().set_fault(Some(Fault::Down));
    let mut trial = Trial::with(site, params, machine).await?;
    trial.console_shows(0, "404").await?;
    trial.is_explained_by("missing in cloud-init-settings")?;
    trial.site.start_manager().await?;
    trial.until("bootstrap: starting setup").await?;
    trial.saw("it went on when the document was there");

    let at = trial.machine.console().len();
    trial
        .console_shows(at, "setup: failed while installing packages")
        .await?;
    trial.is_explained_by("Next: the machine has not asked for a certificate")?;
    let at = trial.machine.console().len();
    let mirror = trial.site.provider.mirror();
    mirror.set_fault(Some(Fault::WrongChecksums));
    trial
        .console_shows(at, "setup: failed while downloading")
        .await?;
    another_bootstrap_token(&trial).await?;
    trial.shell().await?.run(FILL).await?;
    trial.saw("its disk is full, and the mirror is right again");
    let at = trial.machine.console().len();
    trial.site.provider.mirror().set_fault(None);
    trial.console_shows(at, "No space left on device").await?;
    trial.shell().await?.run("rm /filler").await?;
    trial.joins().await?;
    Seen::of(trial).await
}

/// The token that the machine would join with goes; the manager makes another.
async fn another_bootstrap_token(trial: &Trial) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(trial.site.worker().await?, KUBE_SYSTEM);
    let of_nodes = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    let tokens = secrets.list_metadata(&of_nodes).await?;
    ensure!(!tokens.items.is_empty(), "there is a bootstrap token");
    for token in tokens.items {
        secrets
            .delete(&token.name_any(), &DeleteParams::default())
            .await?;
    }
    trial.saw("its bootstrap token is deleted");
    Ok(())
}

/// The clock is a year behind: nothing that the API server shows is valid yet.
pub(super) async fn clock(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.register(&json!({}), &json!({})).await?;
    let machine = site
        .provider
        .power_on_at(Site::deployment(), NODE, "2020-01-01T00:00:00")
        .await?;
    let mut trial = Trial::with(site, params, machine).await?;
    trial.console_shows(0, "not yet valid").await?;
    // As a time server would.
    let now = k8s_openapi::jiff::Timestamp::now().as_second();
    trial
        .shell()
        .await?
        .run(&format!("date --set=@{now}"))
        .await?;
    trial.joins().await?;
    Seen::of(trial).await
}

/// The token that the machine has is deleted: it never gets its document, and the machine that
/// replaces it does, whose machine deployment goes and comes back with another revision, while the
/// API server is away.
pub(super) async fn replaced(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.register(&json!({}), &json!({})).await?;
    let mut trial = Trial::power_on(site, params, Image::Trixie).await?;
    let secrets: Api<Secret> = Api::namespaced(trial.site.worker().await?, SETTINGS);
    secrets
        .delete(FETCHER_TOKEN, &DeleteParams::default())
        .await
        .context("deleting the fetch token")?;
    trial.console_shows(0, "401").await?;
    trial.is_explained_by("Next: the machine has not asked for a certificate")?;
    trial.is_replaced(Image::Trixie).await?;

    let (namespace, name) = Site::deployment();
    let deployments = trial.site.machine_deployments().await?;
    deployments
        .delete(name, &DeleteParams::default())
        .await
        .context("deleting the machine deployment")?;
    trial.console_shows(0, "404").await?;
    trial.is_explained_by(&format!(
        "there is no machine deployment {namespace}/{name}"
    ))?;
    let plane = trial.site.control_plane()?;
    plane.stop_api_server().await?;
    let at = trial.machine.console().len();
    trial.console_shows(at, "onnect to").await?;
    trial.site.control_plane()?.start_api_server().await?;
    let annotations = json!({ "machinedeployment.clusters.k8s.io/revision": "2", MAX_PODS: "43" });
    let second = json!({ "metadata": { "annotations": annotations } });
    trial.site.change_deployment(&second).await?;
    trial.saw("the API server and the machine deployment are back, with another revision");
    trial.joins().await?;
    let configuration = trial.kubelet_configuration().await?;
    let pods = configuration
        .get("maxPods")
        .context("the kubelet has maxPods")?;
    ensure!(
        *pods == json!(43),
        "maxPods is {pods}, of the first revision"
    );
    trial.saw("it joined with the settings of the second revision");
    Seen::of(trial).await
}
