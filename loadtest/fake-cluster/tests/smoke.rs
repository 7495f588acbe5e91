//! The shortest way through both fronts.

use fake_cluster::{Cluster, User, object};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt, api::PostParams};

fn a_map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

#[tokio::test(start_paused = true)]
async fn an_object_is_created_and_read_without_sockets() {
    let cluster = Cluster::default();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    maps.create(&PostParams::default(), &a_map("a"))
        .await
        .unwrap();
    let found = maps.list(&Default::default()).await.unwrap();
    assert_eq!(
        found.items.len(),
        2,
        "{:?}",
        found.items.iter().map(|m| m.name_any()).collect::<Vec<_>>()
    );
    assert!(cluster.get(object("configmaps", "default", "a")).is_some());
}

#[tokio::test]
async fn an_object_is_created_and_read_over_tls() {
    let cluster = Cluster::default();
    let front = cluster.serve_tls().await.unwrap();
    for kubeconfig in [
        front.kubeconfig(&User::admin()),
        front.kubeconfig_with_certificate(&User::admin()),
    ] {
        let client = client(&kubeconfig).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.create(&PostParams::default(), &a_map("a"))
            .await
            .unwrap();
        maps.delete("a", &Default::default()).await.unwrap();
        front.stop().await;
        assert!(maps.get("a").await.is_err());
        front.start().await.unwrap();
        assert!(maps.get_opt("a").await.unwrap().is_none());
    }
}

#[expect(clippy::disallowed_methods, reason = "the kubeconfig is our own")]
async fn client(kubeconfig: &str) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).expect("it is well-formed");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .expect("it is complete");
    kube::Client::try_from(config).expect("the configuration is usable")
}
