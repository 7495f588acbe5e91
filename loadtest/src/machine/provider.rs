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
        image: Image,
        name: &str,
    ) -> anyhow::Result<Machine> {
        let user_data = self.controller.user_data(deployment, name).await?;
        self.start_machine((name, &user_data), image, None)
    }

    /// As [`Self::power_on`], of Debian 13, and the machine's clock is wrong.
    ///
    /// # Errors
    ///
    /// As [`Self::power_on`].
    pub async fn power_on_at(
        &self,
        deployment: (&str, &str),
        name: &str,
        clock: &str,
    ) -> anyhow::Result<Machine> {
        let user_data = self.controller.user_data(deployment, name).await?;
        self.start_machine((name, &user_data), Image::Trixie, Some(clock))
    }

    /// Powers on a machine with user data of the caller's own.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn power_on_with(
        &self,
        image: Image,
        name: &str,
        user_data: &str,
    ) -> anyhow::Result<Machine> {
        self.start_machine((name, user_data), image, None)
    }

    fn start_machine(
        &self,
        (name, user_data): (&str, &str),
        image: Image,
        clock: Option<&str>,
    ) -> anyhow::Result<Machine> {
        Machine::power_on(&qemu::Params {
            name,
            folder: self.folder.join(name),
            images: &self.images,
            image,
            user_data,
            clock,
        })
    }

    /// What machines download from.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }
}
