//! A thread with its own runtime, for work that must continue while all other threads are busy: the
//! admin port and the replica's Lease.

use std::{io, thread};

use tokio::{
    net::TcpListener,
    runtime::{Builder, Handle},
};
use tokio_util::sync::CancellationToken;

/// The thread. Dropping this ends it.
pub(super) struct DedicatedRuntime {
    handle: Handle,
    end: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

impl DedicatedRuntime {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine has no thread or descriptor left.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        let thread = thread::Builder::new().name("admin-and-lease".to_owned());
        let thread = thread.spawn(move || {
            runtime.block_on(ended.cancelled());
            // Pages that are being rendered do not delay the end.
            runtime.shutdown_background();
        })?;
        Ok(Self {
            handle,
            end,
            thread: Some(thread),
        })
    }

    /// Returns the handle for spawning tasks on the thread.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for DedicatedRuntime {
    fn drop(&mut self) {
        self.end.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Moves a listener to another runtime.
///
/// # Errors
///
/// Returns an error if the runtime cannot watch the socket.
pub(super) fn hand_over(listener: TcpListener, to: &Handle) -> io::Result<TcpListener> {
    let listener = listener.into_std()?;
    let _entered = to.enter();
    TcpListener::from_std(listener)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        sync::{Arc, mpsc},
    };

    use super::*;
    use crate::admin::{self, AdminState, Readiness};
    use crate::telemetry::{heartbeat::Heartbeat, metrics::Metrics};

    #[test]
    fn the_admin_port_answers_while_every_other_thread_is_busy() {
        let dedicated_runtime = DedicatedRuntime::start().unwrap();
        let others = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let others = others.unwrap();
        let listener = others.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let state = AdminState {
            metrics: Metrics::new(),
            heartbeat: Some(Heartbeat::default()),
            readiness: Readiness::waiting_for(&[]),
            refresh: Arc::new(|| {}),
            fleet: None,
        };
        let listener = hand_over(listener, dedicated_runtime.handle()).unwrap();
        let (busy, is_busy) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        others.spawn(async move {
            busy.send(()).unwrap();
            let _ = released.recv();
        });
        is_busy.recv().unwrap();
        let served = admin::run(listener, state, CancellationToken::new());
        dedicated_runtime.handle().spawn(served);
        let mut client = TcpStream::connect(address).unwrap();
        let request = "GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        drop(release);
    }
}
