//! A new template of the machine deployment: the machine of the old one is replaced by itself, and
//! the new one is a node with the new settings.

use anyhow::ensure;
use kube::ResourceExt as _;
use serde_json::json;

use super::site::Site;
use super::trial::Trial;
use super::{Params, Seen};
use crate::demo::node::POD_IMAGE;
use crate::machine::Image;

/// The kubelet's setting by which a revision is known.
pub(super) const MAX_PODS: &str = "v1.kubelet-config.machine-controller.kubermatic.io/MaxPods";
const PODS: u32 = 43;

pub(super) async fn run(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    site.register(&json!({}), &json!({})).await?;
    let mut trial = Trial::power_on(site, params, Image::Trixie.into()).await?;
    trial.joins().await?;
    let first = trial.node().await?;
    trial.is_explained_by("for revision 1 of")?;

    let label = json!({ "pool": "second" });
    let second = json!({
        "metadata": { "annotations": { MAX_PODS: PODS.to_string() } },
        "spec": { "template": { "spec": { "metadata": { "labels": label } } } },
    });
    trial.site.change_deployment(&second).await?;
    let mut trial = trial.replaced(params, Image::Trixie.into()).await?;
    trial.joins().await?;
    let node = trial.node().await?;
    ensure!(node.uid() != first.uid(), "the first node is still there");
    trial.has_max_pods(PODS).await?;
    trial.is_explained_by("for revision 2 of")?;
    trial.runs("hello", POD_IMAGE).await?;
    Seen::of(trial).await
}
