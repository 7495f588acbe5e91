use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use super::*;

fn a_state(gates: &[Gate]) -> AdminState {
    AdminState {
        metrics: Metrics::new(),
        heartbeat: None,
        readiness: Readiness::waiting_for(gates),
        refresh: Arc::new(|| {}),
        fleet: None,
    }
}

async fn fetch(state: &AdminState, path: &str) -> Response<Body> {
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    router(state.clone()).oneshot(request).await.unwrap()
}

async fn text(answer: Response<Body>) -> String {
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn the_process_is_ready_when_the_last_gate_opens() {
    let state = a_state(&[Gate::ManagementWatches, Gate::Membership]);
    assert!(!state.readiness.is_ready());
    let answer = fetch(&state, "/readyz").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        text(answer).await,
        "waiting for management-watches\nwaiting for membership\n"
    );

    state.readiness.set_ready(Gate::Membership);
    state.readiness.clone().set_ready(Gate::ManagementWatches);
    state.readiness.set_ready(Gate::ManagementWatches);
    assert!(state.readiness.is_ready());
    let answer = fetch(&state, "/readyz").await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_process_that_is_not_ready_is_alive() {
    let answer = fetch(&a_state(&Gate::ALL), "/livez").await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_threads_hang_is_not_alive() {
    let heartbeat = Heartbeat::default();
    let state = AdminState {
        heartbeat: Some(heartbeat.clone()),
        ..a_state(&[])
    };
    let alive = async || fetch(&state, "/livez").await.status() == StatusCode::OK;
    assert!(alive().await);
    tokio::time::advance(Duration::from_secs(21)).await;
    assert!(!alive().await);
    assert_eq!(fetch(&state, "/readyz").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_worker_cluster_that_is_down_leaves_the_process_ready() {
    let state = a_state(&[]);
    state
        .metrics
        .set_cluster("tenant-a/prod", crate::telemetry::metrics::Connection::Down);
    assert_eq!(fetch(&state, "/readyz").await.status(), StatusCode::OK);
}

#[tokio::test]
async fn metrics_are_openmetrics() {
    let answer = fetch(&a_state(&[]), "/metrics").await;
    assert_eq!(answer.headers()["content-type"], OPENMETRICS);
    assert!(text(answer).await.ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_index_names_the_pages() {
    let index = text(fetch(&a_state(&[]), "/").await).await;
    for page in ["/livez", "/readyz", "/metrics", "/fleet"] {
        assert!(index.contains(page));
    }
}

#[tokio::test]
async fn on_loopback_no_path_is_answered_under_a_name_of_strangers() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cancelled = CancellationToken::new();
    let served = run(listener, a_state(&[]), cancelled.clone());
    let ask = async |path: &str, host: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nhost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let client = async {
        for path in ["/", "/livez", "/metrics", "/fleet", "/fleet.json", "/none"] {
            for host in ["evil.example", "localhost.evil.example:1", ""] {
                let answer = ask(path, host).await;
                assert!(answer.contains(" 403 "), "{path} as {host}: {answer}");
            }
        }
        for host in ["localhost:1", "127.0.0.1", "[::1]:8080"] {
            assert!(ask("/metrics", host).await.contains(" 200 OK"), "{host}");
        }
        cancelled.cancel();
    };
    tokio::join!(served, client);
}

#[tokio::test]
async fn it_serves_until_it_is_cancelled_and_a_silent_client_does_not_hold_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cancelled = CancellationToken::new();
    let served = run(listener, a_state(&[]), cancelled.clone());
    let client = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .unwrap();
        let mut head = [0; 15];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        // A request that never ends.
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent
            .write_all(b"GET /metrics HTTP/1.1\r\n")
            .await
            .unwrap();
        cancelled.cancel();
        (stream, silent)
    };
    let (served, _open) =
        tokio::time::timeout(DRAIN_TIMEOUT * 2, async { tokio::join!(served, client) })
            .await
            .unwrap();
    let () = served;
}
