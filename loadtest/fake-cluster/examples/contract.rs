//! Runs the contract against any cluster: `contract KUBECONFIG PREFIX`. The namespaces that it
//! makes begin with the prefix and are left behind.

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(prefix)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: contract KUBECONFIG PREFIX");
        return;
    };
    let kubeconfig = kube::config::Kubeconfig::read_from(path).expect("the file is a kubeconfig");
    fake_cluster::contract::suite(&client(kubeconfig).await, &prefix).await;
    println!("all behaviours hold");
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kubeconfig is the caller's own"
)]
async fn client(kubeconfig: kube::config::Kubeconfig) -> kube::Client {
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .expect("the kubeconfig is complete");
    kube::Client::try_from(config).expect("the configuration is usable")
}
