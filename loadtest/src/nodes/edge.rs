//! A machine that nobody's provider made: an operator copies the script to it, and runs it.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::site::Site;
use super::trial::Trial;
use super::{Params, Seen};
use crate::demo::node::{DEPLOYMENT, POD_IMAGE};
use crate::machine::{Image, SETTINGS};

const SCRIPT: &str = "edge-provider-script-virtual-workers-kube-system";
const KEY: &str = "fetch-bootstrap-script";

pub(super) async fn run(params: &Params) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    let provider = json!({ "value": { "cloudProvider": "edge" } });
    let deployment = json!({ "spec": { "template": { "spec": { "providerSpec": provider } } } });
    site.register(&json!({}), &deployment).await?;
    let secrets: Api<Secret> = Api::namespaced(site.worker().await?, SETTINGS);
    let is_there = |secret: Option<&Secret>| {
        secret.is_some_and(|it| it.data.iter().any(|data| data.contains_key(KEY)))
    };
    let secret = await_condition(secrets, SCRIPT, is_there).await?;
    let data = secret.and_then(|it| it.data).unwrap_or_default();
    let script = STANDARD.encode(&data.get(KEY).context("the script is gone")?.0);
    // The machine of somebody who has a script, and root. It is named after its machine deployment.
    let user_data = format!(
        "#cloud-config\nwrite_files:\n- path: /opt/fetch-bootstrap-script\n  encoding: b64\n  \
         content: {script}\nruncmd:\n- bash /opt/fetch-bootstrap-script\n"
    );
    let boot = Image::Trixie.into();
    let machine = site
        .provider
        .power_on_with(DEPLOYMENT.1, &user_data, boot)?;
    let mut trial = Trial::with(site, params, machine).await?;
    trial.joins().await?;
    trial.runs("hello", POD_IMAGE).await?;
    Seen::of(trial).await
}
