//! What a hostile API server can do to the client of a worker cluster, over sockets and TLS: every
//! answer is bounded, and the error names the bound.

mod audience;
mod identity;
mod proxy;
mod streams;

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderValue, Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchParams};
use kube::{Api, Client};
use osm::client::connect::{self, ClientParts};
use osm::client::rate_limit::Budget;
use osm::client::transport::{self, Audience, Caller, Patience, Transport};
use osm::telemetry::chain::chain;
use osm::telemetry::metrics::{ClusterKind, Metrics};
use osm::tenant::access::{AccessRules, ClusterAccess};
use osm::tenant::address::Loopback;
use osm::tenant::policy::RequestBudget;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tower::util::BoxCloneSyncService;

use crate::links::identity::Identity;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What the peak of this process must stay below, whatever its servers send. It takes 40 MiB
/// without them.
const PEAK_MIB_MAX: u64 = 224;

/// How long a call may take: longer than any of these takes.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A server on loopback that gives one answer to everything but `/version`.
struct Hostile {
    address: String,
    kubeconfig: String,
    rules: AccessRules,
    accepted: Arc<AtomicUsize>,
    /// Those that are open.
    connections: TaskTracker,
    writes: Writes,
    metrics: Metrics,
    _task: JoinSet<()>,
}

/// The POSTs that reached a server.
#[derive(Clone, Debug, Default)]
struct Writes {
    /// How many began.
    begun: Arc<AtomicUsize>,
    /// How many came to their end, so that a server would execute them.
    whole: Arc<AtomicUsize>,
}

/// What a server grants.
#[derive(Clone)]
struct Terms {
    /// Streams at once on a connection.
    streams_max: u32,
    /// TLS handshakes.
    handshakes: Arc<Semaphore>,
    /// Who it says that it is.
    identity: Arc<Identity>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            streams_max: 100,
            handshakes: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            identity: Arc::default(),
        }
    }
}

/// What the two sides may speak.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

impl Hostile {
    async fn start(protocol: &str, answer: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        Self::start_on(Terms::default(), protocol, answer).await
    }

    async fn start_on(
        terms: Terms,
        protocol: &str,
        answer: impl Fn() -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let identity = &terms.identity;
        let authority = STANDARD.encode(&identity.authority);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the versions are known")
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
            .expect("the key fits");
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let accepted = Arc::<AtomicUsize>::default();
        let mut task = JoinSet::new();
        let writes = Writes::default();
        let place = Place {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            terms,
            writes: writes.clone(),
            answer: Arc::new(answer),
        };
        let connections = TaskTracker::new();
        let mut rules = AccessRules::default();
        rules.addresses.loopback = Loopback::Allowed;
        task.spawn(serve(
            listener,
            (Arc::clone(&accepted), connections.clone()),
            place,
        ));
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: a\n  \
             cluster:\n    server: https://{address}\n    \
             certificate-authority-data: {authority}\nusers:\n- name: a\n  user:\n    \
             token: t0ken\ncontexts:\n- name: a\n  context:\n    cluster: a\n    user: a\n"
        );
        Self {
            address: address.to_string(),
            kubeconfig,
            rules,
            accepted,
            connections,
            writes,
            metrics: Metrics::new(),
            _task: task,
        }
    }

    /// A client as a tenant has it.
    fn client(&self) -> Client {
        self.client_for(TIMEOUT)
    }

    /// The same, whose calls may take so long.
    fn client_for(&self, timeout: Duration) -> Client {
        client(self.transport(timeout), timeout)
    }

    fn transport(&self, timeout: Duration) -> Transport {
        self.transport_for(Audience::Operator, timeout)
    }

    fn transport_for(&self, audience: Audience, timeout: Duration) -> Transport {
        let access = ClusterAccess::parse(self.kubeconfig.as_bytes(), &self.rules);
        let access = access.expect("our own kubeconfig is taken");
        let caller = Caller {
            user_agent: HeaderValue::from_static("osm"),
            audience,
            metrics: self.metrics.clone(),
        };
        let transport = transport::connect(&access, &self.rules, &caller, Patience::of(timeout));
        transport.expect("it can be connected with")
    }

    /// What is said of an answer that is not taken.
    async fn refusal(&self) -> String {
        let answer = self.client().request_text(get("/api/v1/configmaps")).await;
        let error = answer.expect_err("it is not taken");
        chain(&error).to_string()
    }
}

/// A client of this transport, with a budget that never ends.
fn client(transport: Transport, timeout: Duration) -> Client {
    connect::client(parts(transport, timeout))
}

fn parts(transport: Transport, timeout: Duration) -> ClientParts {
    let plenty = NonZeroU32::MIN.saturating_add(999);
    ClientParts {
        transport,
        budget: Arc::new(Budget::new(RequestBudget {
            per_second: plenty,
            burst: plenty,
        })),
        share: None,
        timeout,
        health: None,
        fence: None,
        memory: None,
        kind: ClusterKind::Worker,
        metrics: Metrics::new(),
    }
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).expect("a request")
}

/// Where connections are served.
#[derive(Clone)]
struct Place {
    acceptor: TlsAcceptor,
    terms: Terms,
    writes: Writes,
    answer: Arc<dyn Fn() -> Answer + Send + Sync>,
}

async fn serve(
    listener: TcpListener,
    (accepted, connections): (Arc<AtomicUsize>, TaskTracker),
    place: Place,
) {
    while let Ok((stream, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::SeqCst);
        let place = place.clone();
        connections.spawn(async move {
            let granted = place.terms.handshakes.acquire().await;
            granted.expect("it stays open").forget();
            let Ok(stream) = place.acceptor.accept(stream).await else {
                return;
            };
            let mut builder = Builder::new(TokioExecutor::new());
            let streams_max = place.terms.streams_max;
            builder.http2().max_concurrent_streams(streams_max);
            let service = service_fn(move |request| reply(place.clone(), request));
            // The client ends it, in its own way.
            let _ = builder
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn reply(place: Place, request: Request<Incoming>) -> Result<Answer, Infallible> {
    if request.method() == Method::POST {
        place.writes.begun.fetch_add(1, Ordering::SeqCst);
        if request.into_body().collect().await.is_ok() {
            place.writes.whole.fetch_add(1, Ordering::SeqCst);
        }
        return Ok(Response::new(whole("{}")));
    }
    Ok(match request.uri().path() {
        "/version" => Response::new(whole("{}")),
        _ => (place.answer)(),
    })
}

fn whole(text: &'static str) -> UnsyncBoxBody<Bytes, Infallible> {
    Full::new(Bytes::from_static(text.as_bytes())).boxed_unsync()
}

/// An endless body that repeats a part, and counts how often.
fn endless(part: &'static [u8], sent: &Arc<AtomicUsize>) -> UnsyncBoxBody<Bytes, Infallible> {
    let sent = Arc::clone(sent);
    let parts = stream::repeat_with(move || {
        sent.fetch_add(part.len(), Ordering::SeqCst);
        Ok(Frame::data(Bytes::from_static(part)))
    });
    StreamBody::new(parts).boxed_unsync()
}

/// The peak of this process so far.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("in KiB") / 1024
}

/// As kube marks it.
fn a_watch() -> Request<kube::client::Body> {
    let watch = Request::get("/api/v1/configmaps?watch=true").extension("watch");
    let watch = watch.body(kube::client::Body::empty());
    watch.expect("a request")
}

/// Objects in objects without end, of 16 KiB a part.
fn nested() -> &'static [u8] {
    b"{\"object\":".repeat(1 << 10).leak()
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    for protocol in PROTOCOLS {
        let (object, spaces) = (nested(), &[b' '; 1 << 14]);
        for (part, bound) in [(object, "longer than 4 MiB"), (spaces, "more than 8 KiB")] {
            let hostile = Hostile::start(protocol, move || {
                Response::new(endless(part, &Arc::default()))
            });
            let said = hostile.await.refusal().await;
            assert!(said.contains(bound), "{protocol}: {said}");
            assert!(peak_mib() < PEAK_MIB_MAX, "{protocol}: {}", peak_mib());
        }
    }
}

/// Each would take two hundred times its bytes once it is parsed.
#[tokio::test]
async fn a_list_of_more_objects_than_were_asked_for_is_not_read() {
    for protocol in PROTOCOLS {
        let sent = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&sent);
        let hostile = Hostile::start(protocol, move || {
            let items = Bytes::from(b"{},".repeat(1 << 12));
            let counted = Arc::clone(&counted);
            let items = stream::repeat_with(move || {
                counted.fetch_add(items.len(), Ordering::SeqCst);
                Ok::<_, Infallible>(Frame::data(items.clone()))
            });
            let begin = Bytes::from_static(br#"{"items":["#);
            let parts = stream::once(async { Ok(Frame::data(begin)) }).chain(items);
            Response::new(StreamBody::new(parts).boxed_unsync())
        })
        .await;
        let api: Api<ConfigMap> = Api::all(hostile.client());
        let error = api.list(&ListParams::default().limit(100)).await;
        let said = chain(&error.expect_err("it has no end")).to_string();
        assert!(said.contains("more objects than were asked for"), "{said}");
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 16 << 20, "{protocol}: {sent} bytes");
    }
}

#[tokio::test]
async fn a_flood_of_tiny_frames_ends_the_connection() {
    let hostile = Hostile::start("h2", || Response::new(endless(b" ", &Arc::default()))).await;
    let said = hostile.refusal().await;
    assert!(said.contains("too_many_data_frames"), "{said}");
    assert!(peak_mib() < PEAK_MIB_MAX, "{} MiB", peak_mib());
}

#[tokio::test]
async fn a_list_of_pieces_costs_no_more_than_what_is_in_them() {
    let tiny = tower::service_fn(|_: Request<kube::client::Body>| async {
        let parts = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"    "))));
        Ok::<_, tower::BoxError>(Response::new(StreamBody::new(parts).boxed_unsync()))
    });
    let client = client(BoxCloneSyncService::new(tiny), TIMEOUT);
    let answer = client.request_text(get("/api")).await;
    let error = answer.expect_err("it has no end");
    assert!(chain(&error).to_string().contains("more than 8 KiB"));
    assert!(peak_mib() < PEAK_MIB_MAX, "{} MiB", peak_mib());
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    for (protocol, kib, bound) in [
        ("h2", 80, "larger than 64 KiB"),
        ("h2", 256, "larger than 64 KiB"),
        ("http/1.1", 256, "larger than 128 KiB"),
    ] {
        let hostile = Hostile::start(protocol, move || {
            let large = HeaderValue::from_str(&"a".repeat(kib << 10)).expect("letters");
            let mut answer = Response::new(Empty::new().boxed_unsync());
            answer.headers_mut().insert("large", large);
            answer
        })
        .await;
        let said = hostile.refusal().await;
        assert!(said.contains(bound), "{protocol}: {said}");
    }
}

#[tokio::test]
async fn a_watch_whose_line_has_no_end_fails() {
    for protocol in PROTOCOLS {
        let sent = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&sent);
        let hostile =
            Hostile::start(protocol, move || Response::new(endless(nested(), &counted))).await;
        let api: Api<ConfigMap> = Api::all(hostile.client());
        let watch = api.watch(&WatchParams::default(), "0").await;
        let mut watch = Box::pin(watch.expect("it begins well"));
        let event = watch.next().await.expect("something comes");
        let error = event.expect_err("it is no event");
        let said = chain(&error).to_string();
        assert!(said.contains("longer than 4 MiB"), "{protocol}: {said}");
        // The rest is in buffers on the way.
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent < 16 << 20, "{protocol}: {sent} bytes");
    }
}

#[tokio::test]
async fn dials_are_counted_with_how_they_ended() {
    let counted = |hostile: &Hostile, result: &str, count: usize| {
        let line = format!("osm_connect_duration_seconds_count{{result=\"{result}\"}} {count}");
        let page = hostile.metrics.encode();
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    };
    let mut hostile = Hostile::start("h2", || Response::new(whole("{}"))).await;
    let client = hostile.client();
    for _ in 0..3 {
        let answer = client.request_text(get("/version")).await;
        assert_eq!(answer.expect("it is answered"), "{}");
    }
    counted(&hostile, "success", 1);
    counted(&hostile, "failure", 0);
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = closed.local_addr().expect("an address").to_string();
    drop(closed);
    hostile.kubeconfig = hostile.kubeconfig.replace(&hostile.address, &address);
    let answer = hostile.client().request_text(get("/version")).await;
    answer.expect_err("nobody is there");
    counted(&hostile, "failure", 1);
}

/// A watch may be all that a connection is used for, for hours.
#[tokio::test]
async fn a_call_after_a_long_rest_shares_the_connection_of_the_watches() {
    let silent = || stream::pending::<Result<Frame<Bytes>, Infallible>>();
    let hostile = Hostile::start("h2", move || {
        Response::new(StreamBody::new(silent()).boxed_unsync())
    })
    .await;
    let client = hostile.client();
    let watch = client.send(a_watch()).await;
    let watch = watch.expect("its head is there");
    for _ in 0..3 {
        tokio::time::pause();
        tokio::time::advance(Duration::from_mins(30)).await;
        tokio::time::resume();
        let answer = client.request_text(get("/version")).await;
        assert_eq!(answer.expect("it is answered"), "{}");
        assert_eq!(hostile.accepted.load(Ordering::SeqCst), 1);
    }
    drop(watch);
}

#[tokio::test]
async fn calls_that_come_at_once_share_one_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut silent = Hostile::start("h2", || Response::new(whole("{}"))).await;
    silent.kubeconfig = silent
        .kubeconfig
        .replace(&silent.address, &address.to_string());
    let client = silent.client_for(Duration::from_secs(3));
    let calls = (0..50).map(|_| client.request_text(get("/version")));
    for answer in futures::future::join_all(calls).await {
        let error = answer.expect_err("nobody speaks TLS");
        let said = chain(&error).to_string();
        assert!(said.contains("no TLS handshake within 900ms"), "{said}");
    }
    drop(listener.accept().await.expect("one came"));
    let more = futures::FutureExt::now_or_never(listener.accept());
    assert!(more.is_none(), "a second came");
}

#[tokio::test]
async fn what_nobody_reads_is_parked_at_the_server_and_holds_nothing_up() {
    let sent = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&sent);
    let hostile = Hostile::start("h2", move || {
        Response::new(endless(&[b'\n'; 1 << 14], &counted))
    })
    .await;
    let client = hostile.client();
    let mut unread = Vec::new();
    for _ in 0..3 {
        let watch = client.send(a_watch());
        unread.push(watch.await.expect("it begins well"));
    }
    for _ in 0..100 {
        let version = client.request_text(get("/version")).await;
        assert_eq!(version.expect("it is answered"), "{}");
    }
    // What the server has in its own buffers counts, too.
    let parked = sent.load(Ordering::SeqCst);
    assert!(parked < 4 << 20, "{parked} bytes left the server's hands");
    assert_eq!(hostile.accepted.load(Ordering::SeqCst), 1);
    drop(unread);
}
