//! A management cluster with the manager, and one tenant whose worker cluster can have nodes.

use std::time::Duration;

use anyhow::Context as _;
use kube::Client;

use super::Params;
use crate::control_plane;
use crate::demo::cluster::{DemoCluster, Kind};
use crate::demo::folder::Folder;
use crate::demo::process::Manager;
use crate::demo::{install, tenants};
use crate::machine::{self, HOST_ADDRESS, Image, Images, Machine, MachineController, Mirror};

/// A real control plane on a busy machine takes its time.
const SERVED_TIMEOUT: Duration = Duration::from_mins(3);
/// The machine deployment of `loadtest/nodes`.
const DEPLOYMENT: (&str, &str) = ("kube-system", "virtual-workers");

/// Everything that a machine needs to become a node.
pub struct Site {
    controller: MachineController,
    mirror: Mirror,
    images: Images,
    manager: Manager,
    management: DemoCluster,
    worker: DemoCluster,
    folder: Folder,
}

impl Site {
    /// Starts it, and returns when the tenant is served.
    ///
    /// # Errors
    ///
    /// When a part of it does not start, or the tenant is not served in time.
    pub async fn start(params: &Params) -> anyhow::Result<Self> {
        let screen = params.screen;
        let mut tenants = tenants::read_all(&install::repository().join("loadtest/nodes"))?;
        let tenant = tenants.pop().context("loadtest/nodes has a tenant")?;
        let cluster = |name: &str| control_plane::Params {
            name: name.to_owned(),
            ..control_plane::Params::default()
        };
        let with_nodes = control_plane::Params {
            machines_reach: Some(HOST_ADDRESS),
            ..cluster(tenant.name())
        };
        let clusters = futures::future::try_join(
            DemoCluster::start(Kind::Real, cluster("management")),
            DemoCluster::start(Kind::Real, with_nodes),
        );
        let (management, worker) = screen.step("clusters started", Box::pin(clusters)).await?;
        let folder = Folder::new()?;
        let definitions = install::crds(&params.osm).await?;
        install::in_management(&management, &definitions).await?;
        install::in_worker(&worker).await?;
        let manager = install::start_manager(&params.osm, &management, &folder, &[]).await?;
        let mirror = Mirror::start(params.images.mirror()).await?;
        let controller = MachineController::start(worker.client().await?);
        tenants::register(&tenant, &management, &worker).await?;
        let client = management.client().await?;
        let served = tenants::until_served(client, &tenant, SERVED_TIMEOUT);
        screen
            .step("osm run serves the tenant", served)
            .await
            .with_context(|| format!("the log of osm ends with:\n{}", manager.log_tail()))?;
        Ok(Self {
            controller,
            mirror,
            images: params.images.clone(),
            manager,
            management,
            worker,
            folder,
        })
    }

    /// Powers on a machine of the machine deployment.
    ///
    /// # Errors
    ///
    /// When there is no document for it, or it does not start.
    pub async fn power_on(&mut self, image: Image, name: &str) -> anyhow::Result<Machine> {
        let user_data = self.controller.user_data(DEPLOYMENT, name).await?;
        Machine::power_on(&machine::Params {
            name,
            folder: self.folder.path().join(name),
            images: &self.images,
            image,
            user_data: &user_data,
            clock: None,
        })
    }

    /// What machines have asked the mirror for.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// A client of the worker cluster that may do everything.
    ///
    /// # Errors
    ///
    /// When the kubeconfig is not understood.
    pub async fn worker_client(&self) -> anyhow::Result<Client> {
        self.worker.client().await
    }

    /// Ends everything in good order.
    ///
    /// # Errors
    ///
    /// When something does not end.
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.manager.stop().await?;
        self.worker.stop().await?;
        self.management.stop().await?;
        self.folder.remove()
    }
}
