//! The front without sockets: a tower service that `kube::Client` can be built on. It stands for
//! one client process, which can be made to die between any two of its calls.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;

use crate::{
    auth::User,
    cluster::{Cluster, Inner},
    fault::Matcher,
    front::life::{Fate, Life},
    request::Call,
    serve::{self, AnswerBody},
};

/// One client process without sockets. Clones are the same process.
#[derive(Debug, Clone)]
pub struct Front {
    inner: Arc<Inner>,
    user: User,
    life: Arc<Life>,
}

impl Cluster {
    /// A new client process of the super user.
    pub fn front(&self) -> Front {
        self.front_as(&User::admin())
    }

    /// A new client process of this user. A bearer token in a request wins over it.
    pub fn front_as(&self, user: &User) -> Front {
        Front {
            inner: Arc::clone(&self.inner),
            user: user.clone(),
            life: Arc::new(Life::new()),
        }
    }

    /// A client of the super user, on a front of its own.
    pub fn client(&self) -> kube::Client {
        self.front().client()
    }
}

impl Front {
    /// A client on this front; it must be made inside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }

    /// The process dies after its k-th request from now on (0: at once): the request is executed,
    /// and then nothing is ever answered.
    pub fn die_after_call(&self, calls: u64) {
        self.life.die_after(calls, Matcher::any());
    }

    /// As [`Front::die_after_call`], counting only requests that can change an object.
    pub fn die_after_write(&self, calls: u64) {
        self.life.die_after(calls, Matcher::writes());
    }

    /// As [`Front::die_after_call`], counting only requests that match.
    pub fn die_after(&self, calls: u64, matcher: Matcher) {
        self.life.die_after(calls, matcher);
    }

    /// The process dies now.
    pub fn die(&self) {
        self.life.die();
    }

    /// Whether the process is dead.
    pub fn is_dead(&self) -> bool {
        self.life.is_dead()
    }

    /// How many requests the process has sent while it lived.
    pub fn calls(&self) -> u64 {
        self.life.calls()
    }

    /// Waits for the death of the process.
    pub async fn died(&self) {
        let mut dead = self.life.dead();
        // The sender lives in this front, so the wait cannot fail.
        let _ = dead.wait_for(|dead| *dead).await;
    }
}

impl ::tower::Service<Request<Body>> for Front {
    type Response = Response<AnswerBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let front = self.clone();
        Box::pin(async move { front.answer(request).await })
    }
}

impl Front {
    async fn answer(self, request: Request<Body>) -> Result<Response<AnswerBody>, io::Error> {
        let (parts, body) = request.into_parts();
        let Some(mut call) = Call::read(&parts.method, &parts.uri, &parts.headers) else {
            return Ok(serve::unreadable());
        };
        call.body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let fate = self.life.meet(&call, &self.user.name);
        match fate {
            Fate::Dead => return futures::future::pending().await,
            Fate::Goes | Fate::DiesAfter => {}
        }
        let answer = serve::answer(&self.inner, call, self.user.clone(), &self.life).await;
        if fate == Fate::DiesAfter {
            self.life.die();
        }
        if self.life.is_dead() {
            return futures::future::pending().await;
        }
        answer
    }
}
