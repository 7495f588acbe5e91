use std::convert::Infallible;

use futures::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tower::{service_fn, util::BoxCloneSyncService};

use super::*;
use crate::client::{clock::Clock, tenant_status::TenantStatus};
use crate::tenant::{id::RegistrationId, policy::RequestBudget};

const TIMEOUT: Duration = Duration::from_mins(1);

/// Creates a client of a server whose answers never end.
fn a_client_of_an_endless_server() -> Client {
    let endless = service_fn(|_: Request<Body>| async {
        let part = Bytes::from(vec![b' '; 1 << 16]);
        let parts = stream::repeat_with(move || Ok(Frame::data(part.clone())));
        Ok::<_, Infallible>(Response::new(StreamBody::new(parts).boxed_unsync()))
    });
    let endless = tower::ServiceExt::map_err(endless, |never| match never {});
    client(parts(BoxCloneSyncService::new(endless)))
}

fn parts(transport: Transport) -> ClientParts {
    let budget = RequestBudget {
        per_second: ONE,
        burst: ONE,
    };
    let counted = (ClusterKind::Worker, Metrics::new());
    ClientParts::new(transport, budget, Duration::from_mins(1), counted)
}

#[tokio::test(start_paused = true)]
async fn the_latency_is_that_of_answers_without_our_own_queues_and_without_watches() {
    let slow = service_fn(|request: Request<Body>| async move {
        let is_watch = request.uri().query().is_some();
        let millis = if is_watch { 5_000 } else { 40 };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        let body = Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {});
        Ok::<_, Infallible>(Response::new(body.boxed_unsync()))
    });
    let slow = tower::ServiceExt::map_err(slow, |never| match never {});
    let tenant_status = Arc::<TenantStatus>::default();
    let clock = Clock::tokio(jiff::Timestamp::UNIX_EPOCH);
    let client = client(ClientParts {
        health: Some(Arc::new(Health::new(
            Arc::clone(&tenant_status),
            clock,
            (RegistrationId::new("berlin", "berlin"), TIMEOUT),
        ))),
        ..parts(BoxCloneSyncService::new(slow))
    });
    // The budget allows one request per second. The wait for it is not the server's.
    let watch = "/api/v1/nodes?watch=true";
    for path in ["/version", "/version", watch, "/version"] {
        let mut request = Request::get(path).body(Vec::new()).expect("a request");
        if path == watch {
            request.extensions_mut().insert("watch");
        }
        let answer = client.request_text(request).await;
        assert_eq!(
            answer.is_ok(),
            path != watch,
            "a watch that ends at once is none"
        );
    }
    let latency = tenant_status
        .statistics
        .read()
        .call_latency
        .unwrap_or_default();
    assert!(latency.as_millis().abs_diff(40) <= 2, "{latency:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_paid_beforehand_is_not_paid_again_and_pays_for_one_request() {
    let at_once = service_fn(|_: Request<Body>| async {
        let body = Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {});
        Ok::<_, Infallible>(Response::new(body.boxed_unsync()))
    });
    let at_once = tower::ServiceExt::map_err(at_once, |never| match never {});
    let clients = Clients::new(parts(BoxCloneSyncService::new(at_once)));
    let client = clients.paid(Priority::High).await;
    let begun = Instant::now();
    for seconds in 0..3 {
        let request = Request::get("/version").body(Vec::new()).expect("valid");
        client.request_text(request).await.expect("an answer");
        assert_eq!(begun.elapsed().as_millis().div_ceil(1_001), seconds);
    }
    // `paid` waits as well as a request.
    drop(clients.paid(Priority::High).await);
    assert!(begun.elapsed() > Duration::from_millis(2_900));
}

/// By the time that a request leaves a queue, the replica may have lost the Lease or the
/// tenant.
#[tokio::test(start_paused = true)]
async fn a_write_that_waited_in_a_queue_is_checked_when_its_turn_has_come() {
    let tenant = TenantId::new("berlin");
    let size = RequestBudget {
        per_second: ONE,
        burst: ONE,
    };
    for is_shared in [false, true] {
        let clock = Clock::tokio(jiff::Timestamp::UNIX_EPOCH);
        let fence = Fence::closed(clock, Duration::ZERO);
        fence.extend(Duration::from_hours(1));
        let shared = Arc::new(SharedBudget::new(size));
        let budget = Arc::new(Budget::new(size));
        let mut occupied = Vec::new();
        if is_shared {
            while let Poll::Ready(permit) =
                futures::poll!(pin!(shared.enter(&tenant, Priority::High)))
            {
                occupied.push(permit);
            }
        } else {
            budget.take(ONE).await;
        }
        let (sender, mut sent) = tokio::sync::mpsc::unbounded_channel();
        let server = service_fn(move |request: Request<Body>| {
            let noted = sender.send(request.method().clone());
            async move {
                noted.expect("the test listens");
                let body = Full::new(Bytes::from_static(b"{}")).map_err(|never| match never {});
                Ok::<_, Infallible>(Response::new(body.boxed_unsync()))
            }
        });
        let server = tower::ServiceExt::map_err(server, |never| match never {});
        let client = client(ClientParts {
            budget,
            share: is_shared.then(|| Share {
                budget: shared,
                tenant: tenant.clone(),
            }),
            fence: Some(fence.clone()),
            ..parts(BoxCloneSyncService::new(server))
        });
        let request = Request::post("/").body(Vec::new()).expect("a request");
        let mut write = pin!(client.request_text(request));
        let waits = Duration::from_millis(100);
        let early = tokio::time::timeout(waits, &mut write).await;
        assert!(early.is_err(), "it waits in the queue");
        fence.let_go();
        drop(occupied);
        let refused = write.await.expect_err("the tenant was let go");
        assert!(format!("{refused:?}").contains("LetGo"), "{refused:?}");
        assert!(sent.try_recv().is_err(), "nothing was sent");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let request = Request::get("/version")
        .body(Vec::new())
        .expect("a request");
    let answer = a_client_of_an_endless_server().request_text(request).await;
    let error = answer.expect_err("no memory holds the whole answer");
    assert!(matches!(error, kube::Error::Service(_)), "{error:?}");
}
