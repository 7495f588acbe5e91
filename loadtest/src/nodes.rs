//! Machines that become nodes, from what the manager's real binary has written for them. Each case
//! has a site of its own: clusters, the manager, a mirror.

mod faults;
mod join;
mod settings;
mod site;
mod trial;

use std::path::PathBuf;

use clap::ValueEnum;

use self::trial::Trial;
use crate::demo::screen::Screen;
use crate::machine::{Image, Images, Reached};

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Debian 13: joins, runs a pod from the mirror, survives a reboot.
    Join,
    /// The same with Debian 12.
    Bookworm,
    /// Settings and annotations reach the machine, all packages come over TLS.
    Settings,
    /// No document yet, no mirror, wrong checksums, another token, a full disk.
    OnTheWay,
    /// A clock that is years behind.
    Clock,
}

impl Case {
    /// The disks that it needs.
    pub fn images(self) -> &'static [Image] {
        match self {
            Self::Join | Self::OnTheWay | Self::Clock => &[Image::Trixie],
            Self::Bookworm => &[Image::Bookworm],
            Self::Settings => &[Image::TrixieBare],
        }
    }
}

/// What is needed to try anything.
#[derive(Debug)]
pub struct Params {
    /// The `osm` program.
    pub osm: PathBuf,
    /// Disks and the mirror's files.
    pub images: Images,
    /// Where everything is printed.
    pub screen: Screen,
}

/// A machine that became a node.
#[derive(Debug)]
pub struct Seen {
    /// The operating system, as the kubelet reports it.
    pub image: String,
    /// The kubelet's version.
    pub kubelet: String,
    /// Its stages.
    pub reached: Vec<Reached>,
}

impl Seen {
    async fn of(trial: Trial) -> anyhow::Result<Self> {
        let info = trial.node().await?.status.and_then(|it| it.node_info);
        let info = info.unwrap_or_default();
        Ok(Self {
            image: info.os_image,
            kubelet: info.kubelet_version,
            reached: trial.end().await?,
        })
    }
}

/// Tries one case to its end.
///
/// # Errors
///
/// When something is not as the case says.
pub async fn run(case: Case, params: &Params) -> anyhow::Result<Seen> {
    match case {
        Case::Join => Box::pin(join::run(params, Image::Trixie)).await,
        Case::Bookworm => Box::pin(join::run(params, Image::Bookworm)).await,
        Case::Settings => Box::pin(settings::run(params)).await,
        Case::OnTheWay => Box::pin(faults::on_the_way(params)).await,
        Case::Clock => Box::pin(faults::clock(params)).await,
    }
}
