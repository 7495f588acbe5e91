//! A machine joins without a hand, runs a pod from the mirror, and survives a reboot.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use serde_json::json;

use super::site::Site;
use super::trial::Trial;
use super::{Case, Params, Seen};
use crate::demo::install;
use crate::demo::node::{NAME, POD_IMAGE};

/// The other architecture of the profile's lists.
const OTHER: &str = "arm64";

pub(super) async fn run(params: &Params, case: Case) -> anyhow::Result<Seen> {
    let mut site = Site::open(params).await?;
    let profile = case.profile().replace("osp-", "") + "-bridge";
    let deployment = json!({
        "metadata": { "annotations": { "k8c.io/operating-system-profile": profile } },
        "spec": { "template": { "spec": { "versions": { "kubelet": case.kubelet() } } } },
    });
    site.register(&json!({}), &deployment).await?;
    let mut trial = Trial::power_on(site, params, case.image().into()).await?;
    trial.joins().await?;
    trial.is_explained_by("done Ready")?;
    only_what_is_listed(params, &trial, case)?;
    trial.runs("hello", POD_IMAGE).await?;
    as_asked(&trial).await?;
    let stages = stages(&trial);
    trial.reboots().await?;
    ensure!(
        stages == self::stages(&trial),
        "bootstrap or setup ran again after the reboot"
    );
    trial.note("neither bootstrap nor setup ran again");
    trial.runs("again", POD_IMAGE).await?;
    let seen = Seen::of(trial).await?;
    let wanted = format!("v{}", case.kubelet());
    ensure!(seen.kubelet == wanted, "{} and not {wanted}", seen.kubelet);
    Ok(seen)
}

/// How many stages of scripts the console has shown.
fn stages(trial: &Trial) -> usize {
    let console = trial.machine.console();
    let of = |script: &str| console.matches(script).count();
    of("]: bootstrap: ") + of("]: setup: ")
}

/// The machine has downloaded every file that `osm bom` lists for its architecture, and nothing
/// that is neither listed nor below a repository that is.
#[expect(
    clippy::disallowed_methods,
    reason = "running the program is what this is for"
)]
fn only_what_is_listed(params: &Params, trial: &Trial, case: Case) -> anyhow::Result<()> {
    let settings = install::repository().join("loadtest/nodes/tenant-virtual/management.yaml");
    let output = Command::new(&params.osm)
        .args(["bom", case.profile(), "--kubernetes", case.kubelet()])
        .arg("--worker-cluster")
        .arg(settings)
        .output()
        .context("running osm bom")?;
    ensure!(output.status.success(), "osm bom failed");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let of = |kinds: &[&str]| -> BTreeSet<String> {
        let lines = listed.lines().filter_map(|line| line.split_once(' '));
        lines
            .filter(|(kind, url)| kinds.contains(kind) && !url.contains(OTHER))
            .filter_map(|(_, url)| url.splitn(4, '/').nth(3))
            .map(|path| format!("/{path}"))
            .collect()
    };
    let (files, repositories) = (of(&["file", "checksum"]), of(&["apt"]));
    let requests = trial.site.provider.mirror().requests();
    let paths: BTreeSet<&str> = requests
        .iter()
        .filter_map(|it| it.split_once(' '))
        .map(|(_, path)| path)
        .filter(|path| !path.starts_with("/v2/"))
        .collect();
    let in_repository = |path: &&str| repositories.iter().any(|it| path.starts_with(it.as_str()));
    let fetched: BTreeSet<String> = paths
        .into_iter()
        .filter(|path| files.contains(*path) || !in_repository(path))
        .map(str::to_owned)
        .collect();
    if fetched != files {
        bail!("osm bom lists {files:#?}\nthe machine has fetched {fetched:#?}");
    }
    trial.note(&format!(
        "it fetched the {} files that osm bom lists",
        files.len()
    ));
    Ok(())
}

/// Swap, kernel parameters and modules are what the profile says.
async fn as_asked(trial: &Trial) -> anyhow::Result<()> {
    let mut shell = trial.shell().await?;
    let swap = shell.run("swapon --show --noheadings").await?;
    ensure!(swap.trim().is_empty(), "swap is on: {swap}");
    let parameters = shell
        .run(
            "grep -h '^[a-z]' /etc/sysctl.d/*k8s* /etc/sysctl.d/*kube* 2> /dev/null | \
             while IFS='= ' read -r key value; do \
             echo \"$key $value $(sysctl -n \"$key\")\"; done",
        )
        .await?;
    ensure!(
        !parameters.trim().is_empty(),
        "no kernel parameters are set"
    );
    for line in parameters.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, wanted, is] = words.as_slice() else {
            bail!("the kernel does not have {line}");
        };
        ensure!(wanted == is, "{line}: it is {is}, and not {wanted}");
    }
    shell
        .run("for it in br_netfilter nf_conntrack overlay; do grep -q \"^$it \" /proc/modules || exit 1; done")
        .await
        .context("kernel modules are loaded")?;
    trial.note(&format!(
        "no swap, {} kernel parameters and all modules as the profile says on {NAME}",
        parameters.lines().count()
    ));
    Ok(())
}
