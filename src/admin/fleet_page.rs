//! The fleet page: every tenant in a row, as HTML for people and as JSON for programs.
//!
//! It is shown to this machine where the admin port is on loopback, else to clients that have the
//! token;
//! `fleet_page/access.rs` decides. The page is one document: it asks nobody for anything, and works
//! without its script.

mod access;
mod attempts;
mod browser;
mod document;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

pub use self::access::Access;
use self::access::{Asked, Refusal};
use crate::admin::AdminState;
use crate::port::Source;
use crate::tenant::summary::{Filter, FleetSummary};

/// How many pages are rendered concurrently: each takes some milliseconds for a thousand tenants,
/// and nobody may take them from reconciles by asking often.
const PAGES_AT_ONCE: usize = 1;

/// The page: its content, and who may see it.
pub struct FleetPage {
    access: Access,
    summary: Arc<dyn Fn(&Filter) -> FleetSummary + Send + Sync>,
    turns: Arc<Semaphore>,
}

impl FleetPage {
    /// Shows what the function returns, to whom the access lets in.
    pub fn new(
        access: Access,
        summary: impl Fn(&Filter) -> FleetSummary + Send + Sync + 'static,
    ) -> Self {
        Self {
            access,
            summary: Arc::new(summary),
            turns: Arc::new(Semaphore::new(PAGES_AT_ONCE)),
        }
    }

    /// Makes an answer aside of the runtime, one after the other.
    async fn make(
        &self,
        filter: Filter,
        write: fn(&FleetSummary, &Filter) -> Result<Vec<u8>, document::Unwritable>,
    ) -> Result<Vec<u8>, StatusCode> {
        let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(failed)?;
        let summary = Arc::clone(&self.summary);
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            write(&summary(&filter), &filter)
        });
        let made = made.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        made.map_err(|error| {
            tracing::error!(%error, "the fleet page cannot be made");
            StatusCode::INTERNAL_SERVER_ERROR
        })
    }
}

/// `/fleet`, for people.
pub async fn html(State(state): State<AdminState>, request: Parts) -> Response {
    let answer = serve(&state, &request, document::html).await;
    let content = "text/html; charset=utf-8";
    finished(answer, (content, document::content_security_policy()))
}

/// `/fleet.json`, for programs.
pub async fn json(State(state): State<AdminState>, request: Parts) -> Response {
    let answer = serve(&state, &request, document::json).await;
    finished(answer, ("application/json", "default-src 'none'"))
}

async fn serve(
    state: &AdminState,
    request: &Parts,
    write: fn(&FleetSummary, &Filter) -> Result<Vec<u8>, document::Unwritable>,
) -> Result<Vec<u8>, Response> {
    let Some(page) = &state.fleet else {
        return Err(StatusCode::NOT_FOUND.into_response());
    };
    let admitted = page.access.admit(asked(request)).await;
    admitted.map_err(refused)?;
    let filter = filter(request.uri.query().unwrap_or_default());
    let made = page.make(filter, write).await;
    made.map_err(IntoResponse::into_response)
}

/// The port says where a request came from. Requests that did not come over it share one source.
fn asked(request: &Parts) -> Asked<'_> {
    let source = request.extensions.get::<Source>().copied();
    Asked {
        headers: &request.headers,
        source: source.unwrap_or_else(|| Source::of(Ipv4Addr::UNSPECIFIED.into())),
    }
}

fn refused(refusal: Refusal) -> Response {
    match refusal {
        Refusal::NotServed => StatusCode::NOT_FOUND.into_response(),
        Refusal::AnotherName => {
            (StatusCode::FORBIDDEN, "ask by an address or as localhost\n").into_response()
        }
        Refusal::NoToken => (
            StatusCode::UNAUTHORIZED,
            [(header::WWW_AUTHENTICATE, "Bearer realm=\"osm\"")],
            "a bearer token is needed\n",
        )
            .into_response(),
        Refusal::TooManyAttempts(wait) => (
            StatusCode::TOO_MANY_REQUESTS,
            [(header::RETRY_AFTER, seconds(wait).to_string())],
            "too many tokens were sent from this address: wait a minute\n",
        )
            .into_response(),
    }
}

/// Returns whole seconds, rounded up: a client that waits so long is not early.
const fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + if wait.subsec_nanos() > 0 { 1 } else { 0 }
}

/// Reads `?q=` and `?state=`; the last of each counts.
fn filter(query: &str) -> Filter {
    let (mut text, mut state) = (String::new(), String::new());
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        match key.as_ref() {
            "q" => text = value.into_owned(),
            "state" => state = value.into_owned(),
            _ => {}
        }
    }
    Filter::new(&text, &state)
}

/// Nothing of an answer is kept, guessed at, framed or told to another page.
fn finished(
    answer: Result<Vec<u8>, Response>,
    (content, policy): (&'static str, &'static str),
) -> Response {
    let mut answer = answer.map_or_else(std::convert::identity, |body| {
        ([(header::CONTENT_TYPE, content)], body).into_response()
    });
    let hardened: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in hardened {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}

#[cfg(test)]
mod tests;
