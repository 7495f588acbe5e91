//! What goes wrong on a machine's way: its console says what, and it goes on by itself once the
//! fault is gone.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::rollout::MAX_PODS;
use super::site::Site;
use super::trial::Trial;
use super::{Params, Seen};
use crate::demo::node::DEPLOYMENT;
use crate::machine::{Boot, Fault, Image, SETTINGS};

const PROVISIONING: &str = "virtual-workers-kube-system-provisioning-config";
const EXPIRED: &str = "2020-01-01T00:00:00Z";
/// The manager corrects what is wrong with a token, or the cluster deletes it, within a minute.
const TOKEN_TIMEOUT: Duration = Duration::from_mins(3);
const FETCHER_TOKEN: &str = "cloud-init-getter-token";
/// Large enough that containerd's package does not fit, small enough for the shell.
const FILL: &str = "fallocate -l $(($(df --output=avail -B1 / | tail -n 1) - 4000000)) /filler";

/// One after the other, in one boot.
pub(super) async fn on_the_way(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.register(&json!({}), &json!({})).await?;
    let machine = site.power_on(Image::Trixie.into()).await?;
    // The document is not there yet, and nobody is there who would write it.
    site.manager.stop().await?;
    let secrets: Api<Secret> = Api::namespaced(site.worker().await?, SETTINGS);
    secrets
        .delete(PROVISIONING, &DeleteParams::default())
        .await
        .context("deleting the provisioning Secret")?;
    site.provider.mirror().set_fault(Some(Fault::Down));
    let mut trial = Trial::with(site, params, machine).await?;
    trial.console_shows(0, "error: 404").await?;
    trial.is_explained_by("missing in cloud-init-settings")?;
    trial.site.start_manager().await?;
    trial.until("bootstrap: starting setup").await?;
    trial.note("it went on when the document was there");

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
    trial.note("its disk is full, and the mirror is right again");
    let at = trial.machine.console().len();
    trial.site.provider.mirror().set_fault(None);
    trial.console_shows(at, "No space left on device").await?;
    trial.shell().await?.run("rm /filler").await?;
    trial.joins().await?;
    Seen::of(trial).await
}

/// The token that the machine would join with expires; the cluster deletes it, and the manager
/// makes another.
async fn another_bootstrap_token(trial: &Trial) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(trial.site.worker().await?, "kube-system");
    let of_nodes = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    let tokens = secrets.list_metadata(&of_nodes).await?;
    let [token] = tokens.items.as_slice() else {
        bail!("there are {} bootstrap tokens", tokens.items.len());
    };
    let name = token.name_any();
    let expired = json!({ "stringData": { "expiration": EXPIRED } });
    secrets
        .patch(&name, &PatchParams::default(), &Patch::Merge(&expired))
        .await
        .context("having a bootstrap token expire")?;
    let is_corrected = |secret: Option<&Secret>| {
        let data = secret.and_then(|it| it.data.as_ref());
        let expiration = data.and_then(|it| it.get("expiration"));
        expiration.is_none_or(|it| it.0 != EXPIRED.as_bytes())
    };
    let corrected = await_condition(secrets, &name, is_corrected);
    tokio::time::timeout(TOKEN_TIMEOUT, corrected)
        .await
        .context("waiting until nothing is left of the expired token")??;
    trial.note("its bootstrap token has expired, and nothing is left of it");
    Ok(())
}

/// The clock is years behind: nothing that the API server shows is valid yet.
pub(super) async fn clock(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.register(&json!({}), &json!({})).await?;
    let boot = Boot {
        image: Image::Trixie,
        clock: Some("2020-01-01T00:00:00"),
    };
    let machine = site.power_on(boot).await?;
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
    let mut trial = Trial::power_on(site, params, Image::Trixie.into()).await?;
    let secrets: Api<Secret> = Api::namespaced(trial.site.worker().await?, SETTINGS);
    secrets
        .delete(FETCHER_TOKEN, &DeleteParams::default())
        .await
        .context("deleting the fetch token")?;
    trial.console_shows(0, "error: 401").await?;
    trial.is_explained_by("Next: the machine has not asked for a certificate")?;
    let mut trial = trial.deleted(params, Image::Trixie.into()).await?;

    let (_, name) = DEPLOYMENT;
    let deployments = trial.site.machine_deployments().await?;
    deployments
        .delete(name, &DeleteParams::default())
        .await
        .context("deleting the machine deployment")?;
    trial.console_shows(0, "error: 404").await?;
    // The garbage collector takes the Machine along.
    trial.is_explained_by("there is no Machine of this name")?;
    let plane = trial.site.control_plane()?;
    plane.stop_api_server().await?;
    let at = trial.machine.console().len();
    trial.console_shows(at, "onnect to").await?;
    trial.site.control_plane()?.start_api_server().await?;
    let annotations = json!({ "machinedeployment.clusters.k8s.io/revision": "2", MAX_PODS: "43" });
    let second = json!({ "metadata": { "annotations": annotations } });
    trial.site.change_deployment(&second).await?;
    trial.note("the API server and the machine deployment are back, with another revision");
    trial.joins().await?;
    trial.has_max_pods(43).await?;
    Seen::of(trial).await
}
