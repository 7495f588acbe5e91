//! Serves an empty cluster on loopback and prints the super user's kubeconfig, for a look with
//! `kubectl --kubeconfig`. It ends with ctrl-c.

use fake_cluster::{Cluster, Options, User};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let options = Options {
        started_at: jiff::Timestamp::now(),
        ..Options::default()
    };
    let front = Cluster::new(options).serve_tls().await?;
    println!("{}", front.kubeconfig(&User::admin()));
    tokio::signal::ctrl_c().await
}
