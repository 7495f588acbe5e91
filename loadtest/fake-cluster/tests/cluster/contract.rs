//! The contract, against both fronts.

use crate::tls_client::tls_client;
use fake_cluster::{Cluster, User, contract};

#[tokio::test(start_paused = true)]
async fn the_contract_holds_without_sockets() {
    let cluster = Cluster::default();
    contract::suite(&cluster.client(), "tower").await;
}

#[tokio::test]
async fn the_contract_holds_over_tls() {
    let cluster = Cluster::default();
    let front = cluster.serve_tls().await.unwrap();
    let client = tls_client(&front.kubeconfig(&User::admin())).await;
    contract::suite(&client, "tls").await;
}
