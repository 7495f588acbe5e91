//! A management cluster with the manager, and one tenant whose worker cluster can have nodes.

use std::path::{Path, PathBuf};
use std::slice;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::Params;
use crate::control_plane::{self, ControlPlane};
use crate::demo::cluster::{DemoCluster, Kind};
use crate::demo::folder::Folder;
use crate::demo::process::Manager;
use crate::demo::tenants::{self, Tenant};
use crate::demo::{install, node};
use crate::machine::{Boot, HOST_ADDRESS, Machine, Provider};

/// A real control plane on a busy machine takes its time.
const SERVED_TIMEOUT: Duration = Duration::from_mins(3);

/// The manager looks every ten minutes whether a machine can join; nobody wants to wait for that.
const SOON: [&str; 2] = ["--facts-interval", "15s"];

/// Everything that a machine needs to become a node.
pub(super) struct Site {
    pub(super) provider: Provider,
    pub(super) manager: Manager,
    pub(super) management: DemoCluster,
    pub(super) worker: DemoCluster,
    pub(super) folder: Folder,
    osm: PathBuf,
    tenant: Tenant,
}

impl Site {
    /// Starts the clusters, the manager and the mirror; the tenant is not registered yet.
    pub(super) async fn open(params: &Params) -> anyhow::Result<Self> {
        let mut tenants = tenants::read_all(&install::repository().join("loadtest/nodes"))?;
        let tenant = tenants.pop().context("loadtest/nodes has a tenant")?;
        let cluster = |name: &str| control_plane::Params {
            name: name.to_owned(),
            ..control_plane::Params::default()
        };
        let with_nodes = with_nodes(tenant.name());
        let (management, worker) = Box::pin(futures::future::try_join(
            DemoCluster::start(Kind::Real, cluster("management")),
            DemoCluster::start(Kind::Real, with_nodes),
        ))
        .await?;
        let folder = Folder::new()?;
        Box::pin(install::in_all(
            &params.osm,
            &management,
            slice::from_ref(&worker),
        ))
        .await?;
        let manager = install::start_manager(&params.osm, &management, &folder, &SOON).await?;
        let (client, machines) = (worker.client().await?, folder.path().to_owned());
        let provider = Provider::start(client, params.images.clone(), machines).await?;
        Ok(Self {
            provider,
            manager,
            management,
            worker,
            folder,
            osm: params.osm.clone(),
            tenant,
        })
    }

    /// Registers the tenant, with its objects changed by merge patches, and waits until it is
    /// served.
    pub(super) async fn register(
        &mut self,
        cluster: &Value,
        deployment: &Value,
    ) -> anyhow::Result<()> {
        self.tenant.change(cluster, deployment)?;
        Box::pin(tenants::register(
            &self.tenant,
            &self.management,
            &self.worker,
        ))
        .await?;
        let client = self.management.client().await?;
        tenants::until_served(client, &self.tenant, SERVED_TIMEOUT)
            .await
            .with_context(|| format!("the log of osm ends with:\n{}", self.manager.log_tail()))?;
        Ok(())
    }

    /// Creates the machine deployment again, or changes it, by a merge patch.
    pub(super) async fn change_deployment(&mut self, patch: &Value) -> anyhow::Result<()> {
        self.tenant.change(&json!({}), patch)?;
        Box::pin(self.worker.apply(self.tenant.worker())).await
    }

    /// The machine deployments of the worker cluster.
    pub(super) async fn machine_deployments(&self) -> anyhow::Result<Api<DynamicObject>> {
        self.objects("MachineDeployment", "machinedeployments")
            .await
    }

    /// The Machines of the worker cluster.
    pub(super) async fn machines(&self) -> anyhow::Result<Api<DynamicObject>> {
        self.objects("Machine", "machines").await
    }

    async fn objects(&self, kind: &str, plural: &str) -> anyhow::Result<Api<DynamicObject>> {
        let kind = GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        let (namespace, _) = node::DEPLOYMENT;
        let client = self.worker().await?;
        Ok(Api::namespaced_with(client, namespace, &resource))
    }

    /// The worker cluster's own control plane.
    pub(super) fn control_plane(&self) -> anyhow::Result<&ControlPlane> {
        self.worker.control_plane().context("the cluster is real")
    }

    /// The program.
    pub(super) fn osm(&self) -> &Path {
        &self.osm
    }

    /// Starts the manager again after it was stopped.
    pub(super) async fn start_manager(&mut self) -> anyhow::Result<()> {
        self.manager =
            install::start_manager(&self.osm, &self.management, &self.folder, &SOON).await?;
        Ok(())
    }

    /// A client of the worker cluster that may do everything.
    pub(super) async fn worker(&self) -> anyhow::Result<Client> {
        self.worker.client().await
    }

    /// Powers on a machine of the machine deployment.
    pub(super) async fn power_on(&self, boot: Boot) -> anyhow::Result<Machine> {
        self.provider
            .power_on(node::DEPLOYMENT, node::NAME, boot)
            .await
    }

    /// Ends everything in good order.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        self.manager.stop().await?;
        drop(self.provider);
        self.worker.stop().await?;
        self.management.stop().await?;
        self.folder.remove()
    }
}

/// A cluster whose machines can become nodes.
fn with_nodes(name: &str) -> control_plane::Params {
    control_plane::Params {
        name: name.to_owned(),
        machines_reach: Some(HOST_ADDRESS),
        ..control_plane::Params::default()
    }
}
