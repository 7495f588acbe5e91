//! The front without sockets: a tower service that `kube::Client` can be built on.

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
    request::Call,
    serve::{self, AnswerBody},
};

/// One user's way to a cluster, without sockets.
#[derive(Debug, Clone)]
pub struct Front {
    inner: Arc<Inner>,
    user: User,
}

impl Cluster {
    /// A front for the super user.
    pub fn front(&self) -> Front {
        self.front_as(&User::admin())
    }

    /// A front for this user. A bearer token in a request wins over it.
    pub fn front_as(&self, user: &User) -> Front {
        Front {
            inner: Arc::clone(&self.inner),
            user: user.clone(),
        }
    }

    /// A client of the super user.
    pub fn client(&self) -> kube::Client {
        self.front().client()
    }
}

impl Front {
    /// A client on this front; it must be made inside a tokio runtime.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
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
        serve::answer(&self.inner, call, self.user).await
    }
}
