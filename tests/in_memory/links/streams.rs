//! The streams of a connection: a write that waited too long for one is not sent, and a process
//! with many watches takes as many connections as these need.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use clap::Parser;
use fake_cluster::{AuditEntry, Cluster, Options, User, Verb};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use osm::{
    app::{self, LocalDependencies},
    client::{clock::Clock, connect, fence::Fence},
    render_worker::Renderer,
    settings::RunFlags,
    telemetry::{chain::chain, metrics::Metrics},
};
use serde_json::json;
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::*;

/// How many calls share one connection.
const STREAMS_MAX: u32 = 80;
/// How long a write waits here before its caller gives up.
const SHORT: Duration = Duration::from_secs(2);

fn post() -> Request<Vec<u8>> {
    let request = Request::post("/api/v1/namespaces/a/secrets");
    request.body(b"{}".to_vec()).expect("a request")
}

/// A server on these terms whose watches say nothing.
async fn a_silent_server(terms: Terms) -> Hostile {
    let silent = || stream::pending::<Result<Frame<Bytes>, Infallible>>();
    let answer = move || Response::new(StreamBody::new(silent()).boxed_unsync());
    Hostile::start_on(terms, "h2", answer).await
}

/// The number of POSTs that began and that came whole, once a write was given up because watches
/// had all the streams of the connection, and the watches have ended.
async fn given_up_at(streams_max: u32) -> (usize, usize) {
    let terms = Terms {
        streams_max,
        ..Terms::default()
    };
    let hostile = a_silent_server(terms).await;
    let client = hostile.client_for(SHORT);
    let mut watches = Vec::new();
    for _ in 0..streams_max {
        let watch = client.send(a_watch());
        watches.push(watch.await.expect("its head is there"));
    }
    let error = client.request_text(post()).await.expect_err("it waits");
    assert!(chain(&error).to_string().contains("no answer within 2s"));
    drop(watches);
    // What came before these on the connection has come to the server, too.
    for _ in 0..3 {
        let answer = client.request_text(get("/version")).await;
        assert_eq!(answer.expect("it is answered"), "{}");
    }
    assert_eq!(hostile.accepted.load(Ordering::SeqCst), 1);
    let Writes { begun, whole } = &hostile.writes;
    (begun.load(Ordering::SeqCst), whole.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_come_at_once_share_one_connection_which_ends_with_their_client() {
    let hostile = Hostile::start("h2", || Response::new(whole("{}"))).await;
    let client = hostile.client_for(Duration::from_secs(10));
    let calls = (0..50).map(|_| client.request_text(get("/version")));
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.expect("it is answered"), "{}");
    }
    assert_eq!(hostile.accepted.load(Ordering::SeqCst), 1);
    assert_eq!(hostile.connections.len(), 1);
    drop(client);
    hostile.connections.close();
    let ended = tokio::time::timeout(Duration::from_mins(1), hostile.connections.wait());
    ended.await.expect("nothing keeps the connection");
}

#[tokio::test]
async fn a_write_that_was_given_up_while_it_waited_for_a_stream_is_not_begun() {
    assert_eq!(given_up_at(STREAMS_MAX).await, (0, 0));
}

/// hyper has the write already, and sends its head when a stream becomes free.
#[tokio::test]
async fn a_write_that_was_given_up_at_the_limit_of_a_server_is_not_finished() {
    let (_, whole) = given_up_at(1).await;
    assert_eq!(whole, 0);
}

#[tokio::test]
async fn a_write_asks_the_fence_again_once_its_connection_is_there() {
    for protocol in PROTOCOLS {
        let terms = Terms {
            handshakes: Arc::new(Semaphore::new(0)),
            ..Terms::default()
        };
        let handshakes = Arc::clone(&terms.handshakes);
        let hostile = Hostile::start_on(terms, protocol, || Response::new(whole("{}"))).await;
        let clock = Clock::system();
        let fence = Fence::closed(clock.clone(), TIMEOUT);
        fence.extend(clock.since_boot() + 2 * TIMEOUT);
        let metrics = Metrics::new();
        let client = connect::client(ClientParts {
            fence: Some(fence.clone()),
            metrics: metrics.clone(),
            ..parts(hostile.transport(TIMEOUT), TIMEOUT)
        });
        let let_go = async {
            while hostile.accepted.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            // The write has passed the fence for the first time, and is being connected.
            fence.let_go();
            handshakes.add_permits(9);
        };
        let (sent, ()) = tokio::join!(client.request_text(post()), let_go);
        let said = chain(&sent.expect_err("the tenant was let go")).to_string();
        assert!(said.contains("has let go of the tenant"), "{said}");
        let answer = client.request_text(get("/version")).await;
        assert_eq!(answer.expect("reads pass"), "{}");
        assert_eq!(hostile.writes.whole.load(Ordering::SeqCst), 0);
        let counted = "osm_fenced_writes_total{reason=\"let_go\"} 1";
        let page = metrics.encode();
        assert!(page.contains(counted), "{page}");
    }
}

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    flags: RunFlags,
}

const ACCOUNT: &str = "operating-system-manager";
const NAMESPACES: usize = 60;
/// The kinds that are watched in each namespace.
const WATCHED: [&str; 4] = [
    "operatingsystemconfigs",
    "operatingsystemprofiles",
    "secrets",
    "workerclusters",
];

/// A management cluster with the namespaces of tenants.
fn a_management_cluster() -> Cluster {
    let cluster = Cluster::new(Options {
        started_at: jiff::Timestamp::now(),
        ..Options::default()
    });
    for manifest in [
        include_str!("../../../manifests/crds/operatingsystemconfigs.yaml"),
        include_str!("../../../manifests/crds/operatingsystemprofiles.yaml"),
        include_str!("../../../manifests/crds/workerclusters.yaml"),
    ] {
        cluster.apply_yaml(manifest).expect("the manifests apply");
    }
    let names = (0..NAMESPACES).map(|number| format!("tenant-{number}"));
    for name in names.chain([ACCOUNT.to_owned()]) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.put_raw(namespace).expect("the kind is served");
    }
    cluster
}

/// The watches that there were, each by its kind and namespace.
fn watched(audit: &[AuditEntry]) -> BTreeSet<(&str, &str)> {
    let watches = audit.iter().filter(|it| it.verb == Verb::Watch);
    let watches = watches.map(|it| (it.target.resource.as_str(), it.target.namespace.as_str()));
    watches
        .filter(|(kind, namespace)| WATCHED.contains(kind) && namespace.starts_with("tenant-"))
        .collect()
}

/// The server allows 100 streams on a connection, and there are 240 watches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_listed_namespaces_are_watched_and_the_lease_is_renewed_beside_them() {
    let cluster = a_management_cluster();
    let front = cluster.serve_tls().await.expect("a port");
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let written = std::fs::write(&kubeconfig, front.kubeconfig(&User::admin()));
    written.expect("the folder is ours");
    let mut line = vec!["osm".to_owned(), "--lease-duration=11s".to_owned()];
    line.push(format!("--kubeconfig={}", kubeconfig.display()));
    line.extend((0..NAMESPACES).map(|number| format!("--namespace=tenant-{number}")));
    let flags = CommandLine::try_parse_from(line).expect("the flags exist");
    let settings = flags.flags.check().expect("the flags are right");
    let cancel = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let local = LocalDependencies {
        admin: TcpListener::bind("127.0.0.1:0").await.expect("a port"),
        metrics: Metrics::new(),
        renderer: Renderer::InProcess,
    };
    let run = app::run_on(settings, local, cancel.clone());
    tasks.spawn(run);
    let served = async {
        let mut renewals_before = None;
        loop {
            let audit = cluster.audit();
            let renewals = audit
                .iter()
                .filter(|it| it.target.resource == "leases" && it.verb == Verb::Patch);
            let renewals = renewals.filter(|it| it.code == 200).count();
            if watched(&audit).len() == NAMESPACES * WATCHED.len() {
                // From here on each watch has its stream.
                if renewals >= *renewals_before.get_or_insert(renewals) + 3 {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let outcome = tokio::time::timeout(Duration::from_mins(1), served).await;
    let audit = cluster.audit();
    assert!(outcome.is_ok(), "{} watches", watched(&audit).len());
    cancel.cancel();
    let ended = tasks.join_next().await.expect("there is one task");
    ended.expect("no panic").expect("it ends in order");
}
