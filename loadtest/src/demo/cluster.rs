//! One cluster of the demo, in memory or real, with the same questions to both.

use anyhow::Context as _;
use clap::ValueEnum;
use fake_cluster::{Cluster, Options, TlsFront, User, cluster_info};
use k8s_openapi::jiff::Timestamp;
use kube::Client;

use crate::control_plane::{self, ControlPlane, Params};
use crate::tested_servers;

/// What the clusters of the demo are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// API servers in memory, in this process: they start at once.
    Fake,
    /// kube-apiserver and etcd, each cluster its own: built once, and started in seconds.
    Real,
}

/// A running cluster. Dropping it ends it.
pub struct DemoCluster {
    name: String,
    server: Server,
}

enum Server {
    Fake(TlsFront),
    // Boxed, as it is many times as large as the other.
    Real(Box<ControlPlane>),
}

impl DemoCluster {
    /// Starts a cluster, and returns when it serves. One in memory takes the name alone.
    pub async fn start(kind: Kind, params: Params) -> anyhow::Result<Self> {
        let name = params.name.clone();
        let server = match kind {
            Kind::Fake => Server::Fake(start_fake(&name).await?),
            Kind::Real => Server::Real(Box::new(ControlPlane::start(params).await?)),
        };
        let cluster = Self { name, server };
        if kind == Kind::Fake {
            let version = cluster.client().await?.apiserver_version().await?;
            let record = format!("fake-cluster {}", version.git_version);
            tested_servers::record(&record).context("telling which server this was")?;
        }
        Ok(cluster)
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A kubeconfig that may do everything.
    pub fn admin_kubeconfig(&self) -> String {
        match &self.server {
            Server::Fake(front) => front.kubeconfig(&User::admin()),
            Server::Real(plane) => plane.admin_kubeconfig(),
        }
    }

    /// A kubeconfig of a service account, which may do what its roles say.
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<String> {
        Ok(match &self.server {
            Server::Fake(front) => front.kubeconfig(&User::service_account(namespace, name)),
            Server::Real(plane) => {
                plane
                    .kubeconfig_for_service_account(namespace, name)
                    .await?
            }
        })
    }

    /// A client that may do everything.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Ok(control_plane::client_of(&self.admin_kubeconfig()).await?)
    }

    /// Applies every document of a text.
    pub async fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        // Boxed, as discovery makes a future of 16 KiB.
        Box::pin(control_plane::apply_yaml(self.client().await?, yaml))
            .await
            .with_context(|| format!("in cluster {}", self.name))
    }

    /// The real control plane, where it is one.
    pub fn control_plane(&self) -> Option<&ControlPlane> {
        match &self.server {
            Server::Fake(_) => None,
            Server::Real(plane) => Some(plane),
        }
    }

    /// Ends the cluster without blocking the thread.
    pub async fn stop(self) -> anyhow::Result<()> {
        match self.server {
            Server::Fake(front) => front.stop().await,
            Server::Real(plane) => plane.shutdown().await?,
        }
        Ok(())
    }
}

async fn start_fake(name: &str) -> anyhow::Result<TlsFront> {
    let cluster = Cluster::new(Options {
        name: name.to_owned(),
        // Certificates and tokens are compared with the real time.
        started_at: Timestamp::now(),
        ..Options::default()
    });
    let front = cluster.serve_tls().await.context("opening a port")?;
    let announced = cluster_info(&front.url(), &cluster.ca_pem());
    cluster
        .apply_yaml(&announced.to_string())
        .context("publishing cluster-info")?;
    Ok(front)
}
