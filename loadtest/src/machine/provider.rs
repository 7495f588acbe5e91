//! A cloud provider of one host, with everything that a machine needs on its way to a node.

use std::path::PathBuf;

use kube::Client;

use super::controller::MachineController;
use super::images::{Image, Images};
use super::mirror::Mirror;
use super::qemu::{self, Machine};

/// Makes machines for a worker cluster, and has a mirror for them.
pub struct Provider {
    controller: MachineController,
    mirror: Mirror,
    images: Images,
    folder: PathBuf,
}

/// How a machine is powered on.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// The disk.
    pub image: Image,
    /// What its clock says, such as `2020-01-01T12:00:00`; else the time.
    pub clock: Option<&'static str>,
}

impl From<Image> for Boot {
    fn from(image: Image) -> Self {
        Self { image, clock: None }
    }
}

impl Provider {
    /// Starts for a cluster; the machines' files are below the folder.
    ///
    /// # Errors
    ///
    /// When the mirror's port is taken.
    pub async fn start(worker: Client, images: Images, folder: PathBuf) -> anyhow::Result<Self> {
        Ok(Self {
            controller: MachineController::start(worker),
            mirror: Mirror::start(images.mirror()).await?,
            images,
            folder,
        })
    }

    /// Powers on a machine of a machine deployment (its namespace and name).
    ///
    /// # Errors
    ///
    /// When there is no document for it, or it does not start.
    pub async fn power_on(
        &self,
        deployment: (&str, &str),
        name: &str,
        boot: Boot,
    ) -> anyhow::Result<Machine> {
        let user_data = self.controller.user_data(deployment, name).await?;
        self.power_on_with(name, &user_data, boot)
    }

    /// Powers on a machine with user data of the caller's own.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn power_on_with(
        &self,
        name: &str,
        user_data: &str,
        boot: Boot,
    ) -> anyhow::Result<Machine> {
        Machine::power_on(&qemu::Params {
            name,
            folder: self.folder.join(name),
            images: &self.images,
            image: boot.image,
            user_data,
            clock: boot.clock,
        })
    }

    /// Waits until the Machine is gone, powers its machine off, and powers on another one of its
    /// name.
    ///
    /// # Errors
    ///
    /// When the Machine stays, or as [`Self::power_on`].
    pub async fn replaced(
        &self,
        old: Machine,
        deployment: (&str, &str),
        boot: Boot,
    ) -> anyhow::Result<Machine> {
        let name = old.name().to_owned();
        self.controller.until_gone(&name).await?;
        old.power_off().await?;
        self.power_on(deployment, &name, boot).await
    }

    /// What machines download from.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }
}
