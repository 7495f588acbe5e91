//! What carries the requests of one process to its clusters: counts them over all clusters, and
//! strikes at one of them.

use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use fake_cluster::Front;
use futures::{StreamExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, header::AUTHORIZATION};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use osm::client::transport::Transport;
use serde_json::Value;
use tokio::{sync::watch, time::Instant};
use tower::{BoxError, Service, util::BoxCloneSyncService};

/// What happens to the call that is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The process dies before the call is executed.
    DieBefore,
    /// The process dies after the call is executed, before it is answered.
    DieAfter,
    /// The call is executed, and the connection breaks before its answer.
    BreakAfter,
    /// The call is not executed, and the server says that something is wrong with it.
    Refuse,
    /// The call is executed, and never answered.
    HangAfter,
}

/// Which calls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All of them, watches too.
    Calls,
    /// Those that may change something.
    Writes,
}

/// One blow, at the call of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Counted from 1.
    pub at: u64,
    /// Which calls count.
    pub counted: Counted,
    /// What happens.
    pub blow: Blow,
}

/// A request that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// To which cluster: the name that the wire was given.
    pub to: String,
    /// Its method.
    pub method: Method,
    /// Its path, without the query.
    pub path: String,
    /// Whether it is a watch.
    pub is_watch: bool,
    /// Whether it is a review or a dry run.
    pub stores_nothing: bool,
    /// Its body; nothing where it has none.
    pub body: Value,
    /// When the last write of the process' own Lease was sent that has succeeded; nothing without
    /// a Lease.
    pub leased: Option<Instant>,
}

impl Sent {
    /// What it writes, in short: `POST secrets name`.
    pub fn line(&self) -> String {
        let mut parts: Vec<&str> = self.path.split('/').skip(1).collect();
        let named = (self.method != Method::POST).then(|| parts.pop());
        let resource = parts.pop().unwrap_or_default();
        // An Event's name says when it was: no two runs have the same.
        let field = match resource {
            "events" => "/reason",
            _ => "/metadata/name",
        };
        let in_body = self.body.pointer(field).and_then(Value::as_str);
        let name = named.map_or(in_body, |name| name).unwrap_or_default();
        format!("{} {resource} {name}", self.method)
    }
}

/// The life of one process, as its clusters see it.
#[derive(Debug)]
pub struct Life {
    sent: Mutex<Vec<Sent>>,
    plan: Mutex<(Option<Strike>, u64)>,
    /// Set when the blow has fallen.
    struck: watch::Sender<bool>,
    /// Calls that panic: to which cluster, with what in the path, and how often still.
    panics: Mutex<Option<(String, String, usize)>>,
    dead: watch::Sender<bool>,
    /// The clusters that it does not reach for now.
    stalled: watch::Sender<BTreeSet<String>>,
    /// Whether watches deliver what they have to tell.
    watches: watch::Sender<Watches>,
    /// When the last write of its Lease was sent that has succeeded.
    leased: Mutex<Option<Instant>>,
}

/// Whether watches deliver what they have to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watches {
    /// They do.
    Deliver,
    /// It comes late: none of it is lost, and the connections stand.
    Lag,
}

impl Life {
    /// A process that nothing happens to.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            sent: Mutex::default(),
            plan: Mutex::new((None, 0)),
            struck: watch::Sender::new(false),
            panics: Mutex::default(),
            dead: watch::Sender::new(false),
            stalled: watch::Sender::default(),
            watches: watch::Sender::new(Watches::Deliver),
            leased: Mutex::default(),
        })
    }

    /// Everything that was sent, in order, to all clusters.
    pub fn sent(&self) -> Vec<Sent> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.clone()
    }

    /// What was sent to change something, Events and status excepted.
    pub fn writes(&self) -> Vec<Sent> {
        let mut sent = self.sent();
        sent.retain(|sent| {
            sent.method != Method::GET
                && !sent.path.contains("/events")
                && !sent.path.ends_with("/status")
                && !sent.stores_nothing
        });
        sent
    }

    /// Whether anything was sent to a cluster.
    pub fn has_called(&self, cluster: &str) -> bool {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter().any(|it| it.to == cluster)
    }

    /// What [`Self::writes`] returns, in short.
    pub fn lines(&self) -> Vec<String> {
        self.writes().iter().map(Sent::line).collect()
    }

    /// Forgets what was sent.
    pub fn forget(&self) {
        self.sent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// What is sent to a cluster does not arrive until this is undone.
    pub fn stall(&self, cluster: &str) {
        self.stalled.send_modify(|stalled| {
            stalled.insert(cluster.to_owned());
        });
    }

    /// What watches tell arrives from now on, or later.
    pub fn let_watches(&self, watches: Watches) {
        self.watches.send_replace(watches);
    }

    /// Everything arrives again, what was sent meanwhile too.
    pub fn go_on(&self) {
        self.stalled.send_modify(BTreeSet::clear);
    }

    /// Calls count from here on.
    pub fn arm(&self, strike: Strike) {
        *self.lock() = (Some(strike), 0);
    }

    /// Makes this many calls to a cluster with this in their path panic.
    pub fn panic_at(&self, cluster: &str, part: &str, times: usize) {
        let panics = (cluster.to_owned(), part.to_owned(), times);
        *self.panics.lock().unwrap_or_else(PoisonError::into_inner) = Some(panics);
    }

    /// How many calls are still to panic.
    pub fn panics_left(&self) -> usize {
        let panics = self.panics.lock().unwrap_or_else(PoisonError::into_inner);
        panics.as_ref().map_or(0, |(_, _, left)| *left)
    }

    fn panic_if_due(&self, cluster: &str, path: &str) {
        let is_due = {
            let mut panics = self.panics.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *panics {
                Some((to, part, left)) if to == cluster && path.contains(&*part) && *left > 0 => {
                    *left -= 1;
                    true
                }
                _ => false,
            }
        };
        assert!(!is_due, "the call to {path} panics, as it was told to");
    }

    /// No blow falls any more.
    pub fn disarm(&self) {
        *self.lock() = (None, 0);
    }

    /// Whether the blow has fallen.
    pub fn is_struck(&self) -> bool {
        *self.struck.borrow()
    }

    /// Waits for death.
    pub async fn died(&self) {
        // The sender lives as long as this, so the wait cannot fail.
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    fn meet(&self, request: &Request<Body>) -> Option<Blow> {
        // What keeps the Lease depends on the time, not on what is done.
        if is_of_leases(request) {
            return None;
        }
        let is_write = !matches!(*request.method(), Method::GET | Method::HEAD);
        let mut plan = self.lock();
        let (strike, count) = &mut *plan;
        let strike = (*strike)?;
        if strike.counted == Counted::Writes && !is_write {
            return None;
        }
        *count += 1;
        if *count != strike.at {
            return None;
        }
        drop(plan);
        self.struck.send_replace(true);
        Some(strike.blow)
    }

    fn die(&self) {
        self.dead.send_replace(true);
    }

    fn leased(&self) -> MutexGuard<'_, Option<Instant>> {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the writes of the process' own Lease. Who leaves writes nothing from then on.
    fn follow(&self, (write, sent): (OwnLease, Instant), answer: Option<&Answer>) {
        let has_succeeded = answer.is_some_and(|answer| answer.status().is_success());
        match write {
            OwnLease::Released => *self.leased() = None,
            OwnLease::Written if has_succeeded => *self.leased() = Some(sent),
            OwnLease::Written => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Option<Strike>, u64)> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way of one process to one cluster.
#[derive(Clone)]
struct Wire {
    name: String,
    front: Front,
    bearer: Option<HeaderValue>,
    life: Arc<Life>,
}

/// A transport to the cluster of this name, for one process.
pub fn transport(name: &str, front: Front, token: Option<&str>, life: &Arc<Life>) -> Transport {
    let bearer = token.map(|token| {
        HeaderValue::try_from(format!("Bearer {token}")).expect("tokens of tests are plain text")
    });
    BoxCloneSyncService::new(Wire {
        name: name.to_owned(),
        front,
        bearer,
        life: Arc::clone(life),
    })
}

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;
/// A request to be sent, and whether and when it writes the process' own Lease.
type Noted = (Request<Body>, Option<(OwnLease, Instant)>);

impl Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move { wire.send(request).await })
    }
}

impl Wire {
    async fn note(&self, request: Request<Body>) -> Result<Noted, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let asks = |what: &str| head.uri.query().is_some_and(|query| query.contains(what));
        let sent = Sent {
            at: Instant::now(),
            to: self.name.clone(),
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            is_watch: asks("watch=true"),
            stores_nothing: head.uri.path().ends_with("reviews") || asks("dryRun=All"),
            body: serde_json::from_slice(&body).unwrap_or_default(),
            leased: *self.life.leased(),
        };
        let own_lease = own_lease(&sent).map(|write| (write, sent.at));
        if let Some(write) = own_lease {
            self.life.follow(write, None);
        }
        if !sent.path.contains(LEASES) {
            let kept = &self.life.sent;
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(sent);
        }
        Ok((Request::from_parts(head, Body::from(body)), own_lease))
    }

    async fn send(mut self, mut request: Request<Body>) -> Result<Answer, BoxError> {
        if let Some(bearer) = &self.bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        }
        if *self.life.dead.borrow() {
            return std::future::pending().await;
        }
        self.life.panic_if_due(&self.name, request.uri().path());
        // The sender lives as long as this, so the wait cannot fail.
        let _ = self
            .life
            .stalled
            .subscribe()
            .wait_for(|stalled| !stalled.contains(&self.name))
            .await;
        let (request, own_lease) = self.note(request).await?;
        let uri = request.uri().query();
        let is_watch = uri.is_some_and(|query| query.contains("watch=true"));
        let blow = self.life.meet(&request);
        match blow {
            Some(Blow::DieBefore) => {
                self.life.die();
                return std::future::pending().await;
            }
            Some(Blow::Refuse) => return Ok(refusal()),
            Some(Blow::DieAfter | Blow::BreakAfter | Blow::HangAfter) | None => {}
        }
        let answer = self.front.call(request).await?;
        match blow {
            Some(Blow::DieAfter) => self.life.die(),
            Some(Blow::BreakAfter) => return Err(broken()),
            Some(Blow::HangAfter) => return std::future::pending().await,
            _ => {}
        }
        if *self.life.dead.borrow() {
            return std::future::pending().await;
        }
        let watches = self.life.watches.subscribe();
        let answer = answer.map(|body| {
            let body = body.map_err(io::Error::other);
            if is_watch {
                delivered(body, watches)
            } else {
                body.boxed_unsync()
            }
        });
        if let Some(write) = own_lease {
            self.life.follow(write, Some(&answer));
        }
        Ok(answer)
    }
}

/// What a watch tells, for as long as watches deliver.
fn delivered(
    body: impl http_body::Body<Data = Bytes, Error = io::Error> + Send + 'static,
    watches: watch::Receiver<Watches>,
) -> UnsyncBoxBody<Bytes, io::Error> {
    let frames = BodyStream::new(body).then(move |frame| {
        let mut watches = watches.clone();
        async move {
            // The sender may be gone with the life: then nobody listens.
            let _ = watches.wait_for(|it| *it == Watches::Deliver).await;
            frame
        }
    });
    StreamBody::new(frames).boxed_unsync()
}

/// A write of the process' own Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnLease {
    /// It is made, or renewed.
    Written,
    /// It is given up.
    Released,
}

/// A Lease of another is written without a time.
fn own_lease(sent: &Sent) -> Option<OwnLease> {
    if !sent.path.starts_with(LEASES) || sent.body.pointer("/spec/renewTime").is_none() {
        return None;
    }
    let is_released = sent.body.pointer("/spec/holderIdentity") == Some(&Value::from(""));
    Some(if is_released {
        OwnLease::Released
    } else {
        OwnLease::Written
    })
}

/// The Leases of replicas.
const LEASES: &str = "/apis/coordination.k8s.io/";

fn is_of_leases(request: &Request<Body>) -> bool {
    request.uri().path().starts_with(LEASES)
}

fn broken() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

fn refusal() -> Answer {
    let body = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"struck","reason":"InternalError","code":500}"#;
    let body = Full::new(Bytes::from_static(body.as_bytes())).map_err(|never| match never {});
    let mut answer = Response::new(body.boxed_unsync());
    *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    answer
}
