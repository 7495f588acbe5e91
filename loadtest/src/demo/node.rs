//! A machine of the first tenant, from power on to a pod that ran on it.

use std::path::PathBuf;

use kube::Client;

use super::screen::{Look, Screen};
use crate::machine::{Image, Images, JOIN_TIMEOUT, Machine, Progress, Provider, READY, pods};

/// The machine deployment of `loadtest/nodes`.
pub(crate) const DEPLOYMENT: (&str, &str) = ("kube-system", "virtual-workers");
/// The machine, and its node.
pub(crate) const NAME: &str = "virtual-1";
/// The image that the mirror has for everybody.
pub(crate) const POD_IMAGE: &str = "registry.example/hello:1";

/// Boots it, and shows each of its stages. The machine runs for as long as what is returned.
pub async fn join(
    screen: Screen,
    worker: Client,
    images: Images,
    folder: PathBuf,
) -> anyhow::Result<(Provider, Machine)> {
    let provider = Provider::start(worker.clone(), images, folder).await?;
    screen.heading("A machine, by seconds since power on: about four minutes on two processors");
    let mut machine = provider
        .power_on(DEPLOYMENT, NAME, Image::Trixie.into())
        .await?;
    let mut progress = watched(screen, worker.clone());
    progress.until(&mut machine, READY, JOIN_TIMEOUT).await?;
    screen.heading("A pod on it");
    let what = "its image pulled from the mirror, its log read through the serving certificate";
    let log = pods::log_of(worker, NAME, "hello", POD_IMAGE);
    let log = screen.step(what, Box::pin(log)).await?;
    for line in log.lines() {
        screen.print(&format!("  {line}"));
    }
    Ok((provider, machine))
}

/// Shows each stage of a machine.
pub(crate) fn watched(screen: Screen, worker: Client) -> Progress {
    Progress::new(worker, move |reached| {
        let after = format!("{:6.0}", reached.after.as_secs_f64());
        let after = screen.paint(Look::Dim, &after);
        screen.print(&format!("{after}  {}", reached.stage));
    })
}
