use std::net::SocketAddr;

use axum::routing::get;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    task::JoinSet,
};

use super::*;

const CONNECTIONS_MAX: usize = 8;

struct Served {
    address: SocketAddr,
    _port: JoinSet<()>,
}

impl Served {
    async fn start() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let params = Params {
            listener,
            tls: None,
            router: Router::new().route("/", get("ok\n")),
            connections_max: CONNECTIONS_MAX,
            drain: Duration::from_secs(1),
        };
        let mut port = JoinSet::new();
        port.spawn(run(params, CancellationToken::new()));
        Self {
            address,
            _port: port,
        }
    }

    /// A connection from one of the addresses that this machine has for itself.
    async fn client(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        let server = ([127, 0, 0, 1], self.address.port()).into();
        socket.connect(server).await.unwrap()
    }
}

async fn ask(client: &mut TcpStream, more: &str) -> Option<String> {
    let request = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{more}\r\n");
    client.write_all(request.as_bytes()).await.ok()?;
    let mut some = vec![0; 4096];
    let length = client.read(&mut some).await.ok()?;
    let answer = String::from_utf8_lossy(&some[..length]).into_owned();
    Some(answer).filter(|answer| !answer.is_empty())
}

async fn is_served(client: &mut TcpStream) -> bool {
    let answer = ask(client, "").await;
    answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

#[tokio::test]
async fn who_opens_many_connections_loses_its_own() {
    let port = Served::start().await;
    let mut other = port.client(1).await;
    assert!(is_served(&mut other).await);
    let mut many = Vec::new();
    for _ in 0..20 {
        let mut client = port.client(2).await;
        // Each is of more use than the other was last.
        assert!(is_served(&mut client).await, "a newcomer is let in");
        many.push(client);
    }
    for (number, client) in many.iter_mut().enumerate() {
        let stays = number > 20 - CONNECTIONS_MAX;
        assert_eq!(is_served(client).await, stays, "{number}");
    }
    assert!(is_served(&mut other).await);
    assert!(is_served(&mut port.client(3).await).await);
}

#[tokio::test]
async fn of_one_source_the_one_of_the_least_use_leaves() {
    let port = Served::start().await;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        clients.push(port.client(1).await);
    }
    // The first was of use last, and the second never.
    for number in [7, 6, 5, 4, 3, 2, 0] {
        assert!(is_served(&mut clients[number]).await);
    }
    let mut newcomer = port.client(1).await;
    assert!(is_served(&mut newcomer).await);
    assert!(!is_served(&mut clients[1]).await);
    // Newer ones of no use go before it.
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(port.client(1).await);
    }
    assert!(is_served(&mut newcomer).await);
    assert!(!is_served(&mut clients[7]).await);
    for number in [0, 2, 3, 4, 5, 6] {
        assert!(is_served(&mut clients[number]).await, "{number}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let port = Served::start().await;
    let mut client = port.client(1).await;
    let more = format!("x: {}\r\n", "x".repeat(8_000));
    assert!(ask(&mut client, &more).await.unwrap().contains("200"));
    let much = format!("x: {}\r\n", "x".repeat(HEAD_BYTES_MAX as usize));
    let answer = ask(&mut client, &much).await;
    assert!(answer.is_none_or(|it| it.starts_with("HTTP/1.1 431")));
}

#[test]
fn a_machine_with_a_network_of_its_own_is_one_source() {
    let source = |address: &str| Source::of(address.parse().unwrap());
    assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
    assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
    assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
    assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
}
