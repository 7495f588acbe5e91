//! The contract that fake-cluster keeps is the real server's: the same suite runs here on a real
//! kube-apiserver. Where the two differ, fake-cluster is wrong.

use fake_cluster::contract;
use loadtest::control_plane::{ControlPlane, Params};

#[tokio::test]
async fn the_real_server_keeps_the_contract() {
    let params = Params {
        name: "contract".to_owned(),
        ..Params::default()
    };
    let cluster = ControlPlane::start(params)
        .await
        .expect("the control plane starts");
    let client = cluster.client().await.expect("a client");
    contract::suite(&client, "real").await;
    cluster.shutdown().await.expect("it stops");
}
