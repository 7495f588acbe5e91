//! The fleet page: every tenant in a row, and a page for each, as HTML for people and as JSON for
//! programs.
//!
//! It is shown to this machine where the admin port is on loopback, else to clients that have the
//! token, and to browsers that have signed in with it; `fleet_page/access.rs` decides. The page is
//! one document: it asks nobody for anything, and works without its script.

mod access;
mod attempts;
mod browser;
mod document;
mod login;
mod refusal;
mod session;
mod token_file;

use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

pub use self::access::{Access, AccessParams};
use self::access::{Admitted, Asked, Refusal};
use self::document::View;
pub use self::login::post as sign_in;
use crate::admin::AdminState;
use crate::port::Source;
use crate::tenant::summary::{Filter, FleetSummary, Sort, TenantPage};

/// How many pages are rendered concurrently: each takes some milliseconds for a thousand tenants,
/// and nobody may take them from reconciles by asking often.
const PAGES_AT_ONCE: usize = 1;

/// No page of another origin keeps a reference to ours.
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// No page of another origin loads ours.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

type Written = Result<Vec<u8>, document::Unwritable>;

/// A form of the page.
struct Form {
    content: &'static str,
    policy: fn() -> &'static str,
    referrer: &'static str,
    write: fn(FleetSummary, &View) -> Written,
    write_tenant: fn(&TenantPage, &View) -> Written,
    refuse: fn(Refusal) -> Response,
}

/// Without a referrer, browsers would hide the origin of the page's own forms.
const HTML: Form = Form {
    content: "text/html; charset=utf-8",
    policy: document::content_security_policy,
    referrer: "same-origin",
    write: document::html,
    write_tenant: document::tenant_html,
    refuse: refusal::page,
};

const JSON: Form = Form {
    content: "application/json",
    policy: || "default-src 'none'",
    referrer: "no-referrer",
    write: document::json,
    write_tenant: document::tenant_json,
    refuse: refusal::line,
};

/// What the page shows.
pub trait Fleet: Send + Sync {
    /// Returns all tenants, in this order.
    fn summary(&self, sort: Sort) -> FleetSummary;

    /// Returns what is known of the tenant with this registration, `namespace/name`.
    fn tenant(&self, name: &str) -> Option<TenantPage>;
}

/// The page: its content, and who may see it.
pub struct FleetPage {
    access: Access,
    fleet: Arc<dyn Fleet>,
    turns: Arc<Semaphore>,
}

impl FleetPage {
    /// Shows this fleet, to whom the access lets in.
    pub fn new(access: Access, fleet: impl Fleet + 'static) -> Self {
        Self {
            access,
            fleet: Arc::new(fleet),
            turns: Arc::new(Semaphore::new(PAGES_AT_ONCE)),
        }
    }

    /// Returns the names under which browsers may sign in, besides addresses and `localhost`.
    pub(super) fn hosts(&self) -> Arc<[String]> {
        self.access.hosts()
    }

    /// Makes an answer aside of the runtime, one after the other.
    async fn make(&self, view: View, form: &'static Form) -> Result<Vec<u8>, Refusal> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| Refusal::Failed)?;
        let fleet = Arc::clone(&self.fleet);
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let Some(name) = &view.tenant else {
                return Ok((form.write)(fleet.summary(view.sort), &view));
            };
            let page = fleet.tenant(name).ok_or(Refusal::NoTenant)?;
            Ok((form.write_tenant)(&page, &view))
        });
        let made = made.await.map_err(|_| Refusal::Failed)??;
        made.map_err(|error| {
            tracing::error!(%error, "the fleet page cannot be made");
            Refusal::Failed
        })
    }
}

/// `/fleet`, for people.
pub async fn html(State(state): State<AdminState>, request: Parts) -> Response {
    finished(serve(&state, &request, &HTML).await, &HTML)
}

/// `/fleet.json`, for programs.
pub async fn json(State(state): State<AdminState>, request: Parts) -> Response {
    finished(serve(&state, &request, &JSON).await, &JSON)
}

async fn serve(state: &AdminState, request: &Parts, form: &'static Form) -> Response {
    let (page, admitted) = match admit(state, request).await {
        Ok(admitted) => admitted,
        Err(refusal) => return (form.refuse)(refusal),
    };
    let mut view = View {
        tenant: None,
        filter: Filter::default(),
        sort: Sort::default(),
        is_paused: false,
        admitted,
    };
    view.set(request.uri.query().unwrap_or_default());
    let made = page.make(view, form).await;
    match made {
        Ok(body) => ([(header::CONTENT_TYPE, form.content)], body).into_response(),
        Err(refusal) => (form.refuse)(refusal),
    }
}

async fn admit<'a>(
    state: &'a AdminState,
    request: &Parts,
) -> Result<(&'a FleetPage, Admitted), Refusal> {
    let page = state.fleet.as_deref().ok_or(Refusal::NotServed)?;
    let admitted = page.access.admit(asked(request)).await?;
    Ok((page, admitted))
}

/// The port says where a request came from. Requests that did not come over it share one source.
fn asked(request: &Parts) -> Asked<'_> {
    let source = request.extensions.get::<Source>().copied();
    Asked {
        headers: &request.headers,
        source: source.unwrap_or_else(|| Source::of(Ipv4Addr::UNSPECIFIED.into())),
    }
}

/// Nothing of an answer is kept, guessed at, framed or told to another site.
fn finished(mut answer: Response, form: &Form) -> Response {
    let hardened: [(HeaderName, &'static str); 6] = [
        (header::CONTENT_SECURITY_POLICY, (form.policy)()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, form.referrer),
        (header::CACHE_CONTROL, "no-store"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ];
    for (name, value) in hardened {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}

#[cfg(test)]
mod tests;
