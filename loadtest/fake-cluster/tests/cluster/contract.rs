//! The contract, against both fronts.

use fake_cluster::{Cluster, contract};

#[tokio::test(start_paused = true)]
async fn the_contract_holds_without_sockets() {
    let cluster = Cluster::default();
    contract::suite(&cluster.client(), "tower").await;
}
