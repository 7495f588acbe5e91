//! The Lease of a worker cluster that is its tenant's home, and a candidate of client-go, as the
//! previous manager is one.

use osm::{
    client::clock::Clock,
    fleet::claim::{
        Claimant,
        lease::{self, LeaseError},
    },
    tenant::id::TenantId,
};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::ChildStdout;

use super::*;

/// With at least 0.4 s between two, these take twice as long as the candidate's own Leases last.
const ATTEMPTS: usize = 20;

/// A program that wants to lead. Dropping it ends it.
struct Candidate {
    _process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Candidate {
    fn start(cluster: &ControlPlane) -> Self {
        let kubeconfig = cluster.folder().join("administrator.kubeconfig");
        std::fs::write(&kubeconfig, cluster.admin_kubeconfig()).expect("the folder is ours");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut process = Command::new(root.join("target/consumers/go/lease-candidate"))
            .arg(kubeconfig)
            .arg("operating-system-manager")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect(".ci/consumers has built lease-candidate");
        let output = process.stdout.take().expect("it is piped");
        Self {
            _process: process,
            lines: BufReader::new(output).lines(),
        }
    }

    /// What it says next: `attempt`, or `leading`.
    async fn says(&mut self) -> String {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await;
        let line = line.expect("it tries again").expect("its output is a pipe");
        line.expect("it runs")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_of_client_go_waits_for_as_long_as_our_lease_says() {
    let cluster = a_cluster("worker").await;
    let client = cluster.client().await.expect("a client");
    let clock = Clock::system();
    let claimant = Claimant {
        management_uid: "m".to_owned(),
        tenant: TenantId::new("berlin"),
    };
    let acquired = lease::acquire(&client, &claimant, &clock).await;
    acquired.expect("nobody has it");
    let mut candidate = Candidate::start(&cluster);
    for _ in 0..ATTEMPTS {
        assert_eq!(candidate.says().await, "attempt");
    }
    let released = lease::release(&client, &claimant).await;
    released.expect("it is ours");
    while candidate.says().await != "leading" {}
    let held = lease::acquire(&client, &claimant, &clock).await;
    assert!(
        matches!(&held, Err(LeaseError::Held(it)) if it.identity == "candidate"),
        "{held:?}"
    );
}
