//! A client from a kubeconfig, for the tests beside this file.

/// A client that uses what the kubeconfig says and nothing else.
#[expect(clippy::disallowed_methods, reason = "the kubeconfig is our own")]
pub async fn tls_client(kubeconfig: &str) -> kube::Client {
    let kubeconfig = kube::config::Kubeconfig::from_yaml(kubeconfig).expect("it is well-formed");
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .expect("it is complete");
    kube::Client::try_from(config).expect("the configuration is usable")
}
