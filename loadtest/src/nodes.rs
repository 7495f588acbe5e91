//! Machines that become nodes, from what the manager's real binary has written for them. Each case
//! has a site of its own: clusters, the manager, a mirror.

mod changes;
mod edge;
mod faults;
mod join;
pub mod record;
mod rollout;
mod settings;
mod site;
mod trial;
mod updates;

use std::path::PathBuf;

use clap::ValueEnum;

use self::trial::Trial;
use crate::demo::screen::Screen;
use crate::machine::{Image, Images, Reached};

const DEBIAN: &str = "osp-debian";
const UBUNTU: &str = "osp-ubuntu";
/// The version of `loadtest/nodes/kubelet-1.37`, for which the machine deployment of
/// `loadtest/nodes/tenant-virtual` asks.
const NEWEST: &str = "1.37.2";
/// The version of `loadtest/nodes/kubelet-1.34`.
const OLDER: &str = "1.34.4";
/// What the script calls that one.
const OLDER_NAME: &str = "kubelet-1.34";

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Debian 13: joins, runs a pod from the mirror, survives a reboot.
    Join,
    /// The same with Debian 12.
    Bookworm,
    /// Debian 13 with kubelet 1.34.
    #[value(name = "kubelet-1.34")]
    Older,
    /// Debian 12 with kubelet 1.34.
    #[value(name = "bookworm-kubelet-1.34")]
    BookwormOlder,
    /// Ubuntu 24.04. Its image comes from Ubuntu's archive.
    Noble,
    /// Settings and annotations reach the machine, all packages come over TLS.
    Settings,
    /// No document yet, no mirror, wrong checksums, another token, a full disk.
    OnTheWay,
    /// A clock that is years behind.
    Clock,
    /// A deleted fetch token, a replaced machine, two revisions, no API server.
    Replaced,
    /// A new template: the machine of the old one is replaced, and the new one has new settings.
    Rollout,
    /// Changes of each class: what the class names is restarted, and nothing else.
    Changes,
    /// A machine that follows its document: reports what differs, and takes what needs no restart.
    Updates,
    /// The edge script, run by hand on a machine of no provider.
    Edge,
}

impl Case {
    /// What the script makes for it.
    pub fn needs(self) -> Vec<&'static str> {
        let mut needs = vec![self.image().name()];
        if self.kubelet() == OLDER {
            needs.push(OLDER_NAME);
        }
        needs
    }

    fn image(self) -> Image {
        match self {
            Self::Bookworm | Self::BookwormOlder => Image::Bookworm,
            Self::Noble => Image::Noble,
            Self::Settings => Image::TrixieBare,
            _ => Image::Trixie,
        }
    }

    /// The default profile that the machine's own extends.
    pub fn profile(self) -> &'static str {
        match self {
            Self::Noble => UBUNTU,
            _ => DEBIAN,
        }
    }

    fn kubelet(self) -> &'static str {
        match self {
            Self::Older | Self::BookwormOlder => OLDER,
            _ => NEWEST,
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
        Case::Join | Case::Bookworm | Case::Older | Case::BookwormOlder | Case::Noble => {
            Box::pin(join::run(params, case)).await
        }
        Case::Settings => Box::pin(settings::run(params)).await,
        Case::OnTheWay => Box::pin(faults::on_the_way(params)).await,
        Case::Clock => Box::pin(faults::clock(params)).await,
        Case::Replaced => Box::pin(faults::replaced(params)).await,
        Case::Rollout => Box::pin(rollout::run(params)).await,
        Case::Changes => Box::pin(changes::run(params)).await,
        Case::Updates => Box::pin(updates::run(params)).await,
        Case::Edge => Box::pin(edge::run(params)).await,
    }
}
