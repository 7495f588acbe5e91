//! KKP in a seed: its Clusters, and a program that does what it does.

#[path = "../kkp/clusters.rs"]
mod clusters;

use kube::api::{Api, DynamicObject};
use tokio::task::JoinSet;

use crate::administrator::{create, get};
use crate::server::Server;

/// KKP in a seed.
pub struct Kkp {
    api: Api<DynamicObject>,
    _task: JoinSet<()>,
}

impl Kkp {
    pub async fn start(seed: &Server) -> Self {
        seed.apply(clusters::DEFINITION).await;
        let client = seed.admin().await;
        let api = clusters::clusters(&client);
        let mut task = JoinSet::new();
        task.spawn(clusters::follow(client));
        Self { api, _task: task }
    }

    /// Creates a user cluster whose manager has this number of replicas.
    pub async fn has(&self, id: &str, replicas: i32) {
        create(&self.api, &clusters::cluster(id, Some(replicas))).await;
    }

    /// The number of replicas that its operator has set.
    pub async fn replicas(&self, id: &str) -> Option<i64> {
        clusters::replicas(&get(&self.api, id).await)
    }
}
