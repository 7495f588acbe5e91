//! The way of a request through the cluster: who asks, what goes wrong on purpose, may they, do it,
//! note it. Both fronts end here. Everything that waits is in this file; the doing is synchronous.

use std::{borrow::Cow, convert::Infallible, io, ops::ControlFlow, sync::Arc};

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    audit::AuditEntry,
    auth::User,
    cluster::Inner,
    fault::Fault,
    kinds::Kind,
    meta,
    rbac::{self, Attributes},
    read::{self, Form},
    request::{Call, Verb},
    state::State,
    status::Refusal,
    watch::{self, BoxError, WatchFaults, WatchPlan, Watching},
    write::Done,
};

/// The body of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// What the core makes of a call.
enum Outcome {
    Object(u16, Value),
    Text(u16, &'static str),
    Watch(Box<WatchPlan>),
}

/// The whole answer where not even the group and version are served.
const NO_PAGE: &str = "404 page not found\n";

/// Faults that matter while and after the request is executed.
#[derive(Default)]
struct Disturbance {
    behind: u64,
    code: Option<u16>,
    hang: bool,
    reset: bool,
    bad_object: bool,
    watch_events: Option<u64>,
}

/// Answers a call of a client, or never does, or breaks the connection. Says when, as every server
/// does.
pub(crate) async fn answer(
    inner: &Arc<Inner>,
    call: Call,
    user: User,
) -> Result<Response<AnswerBody>, io::Error> {
    let mut answer = outcome_of(inner, call, user).await?;
    let now = inner.lock().timestamp();
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&now);
    if let Some(date) = date.ok().and_then(|date| date.parse().ok()) {
        answer.headers_mut().insert(header::DATE, date);
    }
    Ok(answer)
}

async fn outcome_of(
    inner: &Arc<Inner>,
    mut call: Call,
    user: User,
) -> Result<Response<AnswerBody>, io::Error> {
    let user = match identify(inner, &call, user) {
        Ok(user) => user,
        Err(refusal) => {
            note(inner, &call, "", (refusal.code, false));
            return Ok(refused(&refusal));
        }
    };
    let disturbance = match before(inner, &call, &user).await {
        ControlFlow::Continue(disturbance) => disturbance,
        ControlFlow::Break(end) => return end,
    };
    call.behind = disturbance.behind;
    let outcome = execute(inner, &call, &user);
    if disturbance.hang {
        return futures::future::pending().await;
    }
    if disturbance.reset {
        return Err(io::Error::from(io::ErrorKind::ConnectionReset));
    }
    if let Some(code) = disturbance.code {
        return Ok(refused(&Refusal::by_code(code, None)));
    }
    Ok(match outcome {
        Err(refusal) => refused(&refusal),
        Ok(Outcome::Text(code, text)) => response(code, "text/plain", whole(Bytes::from(text))),
        Ok(Outcome::Object(code, object)) => found(code, object, &disturbance),
        Ok(Outcome::Watch(plan)) => {
            let faults = WatchFaults {
                events_left: disturbance.watch_events,
                bad_objects: disturbance.bad_object,
            };
            let stream = Watching::start(*plan, inner, user.name, faults);
            response(
                200,
                "application/json",
                StreamBody::new(stream).boxed_unsync(),
            )
        }
    })
}

fn found(code: u16, mut object: Value, disturbance: &Disturbance) -> Response<AnswerBody> {
    if disturbance.bad_object {
        watch::spoil(&mut object);
    }
    let bytes = Bytes::from(serde_json::to_vec(&object).unwrap_or_default());
    let content_type = match meta::text(&object, "/kind") {
        "APIGroupDiscoveryList" => AGGREGATED,
        _ => "application/json",
    };
    response(code, content_type, whole(bytes))
}

/// How clients tell aggregated discovery from the older kind.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Lets the faults of a call happen that come before it, and collects those that come later.
async fn before(
    inner: &Inner,
    call: &Call,
    user: &User,
) -> ControlFlow<io::Result<Response<AnswerBody>>, Disturbance> {
    let faults = inner.lock().faults.hit(call.verb, &call.target, &user.name);
    let mut disturbance = Disturbance::default();
    let broken = |kind: io::ErrorKind| ControlFlow::Break(Err(io::Error::from(kind)));
    for fault in faults {
        match fault {
            Fault::Delay(time) => sleep(time).await,
            Fault::Hang => {
                note(inner, call, &user.name, (0, false));
                return futures::future::pending().await;
            }
            Fault::ConnectionRefused => return broken(io::ErrorKind::ConnectionRefused),
            Fault::ConnectionReset => {
                note(inner, call, &user.name, (0, false));
                return broken(io::ErrorKind::ConnectionReset);
            }
            Fault::Body(chunks) => {
                note(inner, call, &user.name, (200, false));
                let cleared = inner.lock().faults.until_cleared();
                let chunks = chunks().take_while(move |_| cleared.strong_count() > 0);
                let chunks = futures::stream::iter(chunks.map(|it| Ok(Frame::data(it))));
                let body = StreamBody::new(chunks).boxed_unsync();
                return ControlFlow::Break(Ok(response(200, "application/json", body)));
            }
            Fault::Status { code, retry_after } => {
                note(inner, call, &user.name, (code, false));
                let refusal = Refusal::by_code(code, retry_after.map(|time| time.as_secs()));
                return ControlFlow::Break(Ok(refused(&refusal)));
            }
            Fault::StatusAfter { code } => disturbance.code = Some(code),
            Fault::HangAfter => disturbance.hang = true,
            Fault::ConnectionResetAfter => disturbance.reset = true,
            Fault::CloseMidWatch { events } => disturbance.watch_events = Some(events),
            Fault::BadObject => disturbance.bad_object = true,
            Fault::StaleList { revisions } => disturbance.behind = revisions,
            Fault::DropWatchEvents(_) => {}
        }
    }
    ControlFlow::Continue(disturbance)
}

fn identify(inner: &Inner, call: &Call, user: User) -> Result<User, Refusal> {
    let user = match &call.bearer {
        None => user,
        Some(token) => {
            let state = inner.lock();
            let found = state
                .credentials
                .by_token(&state.store, token, state.timestamp());
            found.ok_or_else(Refusal::unauthenticated)?
        }
    };
    match call.impersonated.as_str() {
        "" => Ok(user),
        // Only the super user: RBAC's verb `impersonate` is not known here.
        name if user.is_master() => Ok(User::impersonated(name)),
        name => Err(Refusal::not_impersonated(&user.name, name)),
    }
}

/// Executes a call under one lock, so that nothing comes between its reading and its writing.
fn execute(inner: &Inner, call: &Call, user: &User) -> Result<Outcome, Refusal> {
    let (outcome, wrote, revision) = {
        let mut state = inner.lock();
        let before = state.store.revision();
        let outcome = perform(&mut state, call, user);
        let revision = state.store.revision();
        (outcome, revision != before, revision)
    };
    let code = match &outcome {
        Ok(Outcome::Object(code, _) | Outcome::Text(code, _)) => *code,
        Ok(_) => 200,
        Err(refusal) => refusal.code,
    };
    note(inner, &named(call, &outcome), &user.name, (code, wrote));
    if wrote {
        inner.changed.send_replace(revision);
    }
    outcome
}

/// The path of a creation does not name the object; its answer does, and so does a real audit.
fn named<'a>(call: &'a Call, outcome: &Result<Outcome, Refusal>) -> Cow<'a, Call> {
    let mut call = Cow::Borrowed(call);
    if let (Verb::Create, "", Ok(Outcome::Object(_, object))) =
        (call.verb, call.target.name.as_str(), outcome)
    {
        meta::name(object).clone_into(&mut call.to_mut().target.name);
    }
    call
}

fn note(inner: &Inner, call: &Call, user: &str, answer: (u16, bool)) {
    let (code, wrote) = answer;
    let mut state = inner.lock();
    state.audit.record(AuditEntry {
        sequence: 0,
        at: Instant::now(),
        verb: call.verb,
        target: call.target.clone(),
        path: call.path.clone(),
        user: user.to_owned(),
        user_agent: call.user_agent.clone(),
        code,
        dry_run: call.is_dry_run(),
        wrote,
    });
    let requests = state.audit.requests();
    drop(state);
    inner.requested.send_replace(requests);
}

fn perform(state: &mut State, call: &Call, user: &User) -> Result<Outcome, Refusal> {
    let wanted = Attributes::of(call);
    rbac::authorize(&state.store, user, &wanted)?;
    if !call.target.is_resource() {
        if matches!(call.path.as_str(), "/healthz" | "/livez" | "/readyz") {
            return Ok(Outcome::Text(200, "ok"));
        }
        return Ok(match state.discover(&call.path, &call.accept) {
            Some(found) => Outcome::Object(200, found),
            None => Outcome::Text(404, NO_PAGE),
        });
    }
    let target = &call.target;
    if !state
        .kinds()
        .any(|kind| kind.group == target.group && kind.version == target.version)
    {
        return Ok(Outcome::Text(404, NO_PAGE));
    }
    let kind = state.kind_of(target).ok_or_else(Refusal::unserved)?;
    check_path(call, &kind)?;
    if kind.create_only {
        return match call.verb {
            Verb::Create => Ok(Outcome::Object(201, state.review(call, &kind, user)?)),
            _ => Err(Refusal::method_not_allowed()),
        };
    }
    if call.target.subresource == "token" {
        return Ok(Outcome::Object(201, state.request_token(call, &kind)?));
    }
    let done = match call.verb {
        Verb::Get => return Ok(Outcome::Object(200, state.get(call, &kind)?)),
        Verb::List => return Ok(Outcome::Object(200, state.list(call, &kind)?)),
        Verb::Watch => return Ok(Outcome::Watch(Box::new(state.plan_watch(call, &kind)?))),
        Verb::DeleteCollection => {
            return Ok(Outcome::Object(200, state.delete_collection(call, &kind)?));
        }
        Verb::Create => state.create(call, &kind)?,
        Verb::Update => state.update(call, &kind)?,
        Verb::Patch => state.patch(call, &kind)?,
        Verb::Delete => state.delete(call, &kind)?,
    };
    let form = Form::of(&call.accept, state.timestamp()).unwrap_or(Form::Whole);
    Ok(written(&kind, &done, form))
}

fn written(kind: &Kind, done: &Done, form: Form) -> Outcome {
    let is_object = meta::text(&done.object, "/kind") != "Status";
    let shown = if is_object {
        read::show(kind, &done.object, form)
    } else {
        Value::clone(&done.object)
    };
    Outcome::Object(done.code, shown)
}

/// Whether the path fits the kind: its scope, its subresources, its verbs.
fn check_path(call: &Call, kind: &Kind) -> Result<(), Refusal> {
    let target = &call.target;
    let cluster_wide_in_namespace =
        !kind.namespaced && !target.namespace.is_empty() && !kind.is("", "namespaces");
    let known_subresource = match target.subresource.as_str() {
        "" => true,
        "status" => kind.status,
        "token" => kind.is("", "serviceaccounts"),
        "finalize" => kind.is("", "namespaces"),
        _ => false,
    };
    if cluster_wide_in_namespace || !known_subresource {
        return Err(Refusal::unserved());
    }
    let needs_namespace = kind.namespaced && target.namespace.is_empty();
    let on_one = !target.name.is_empty() && !matches!(call.verb, Verb::List | Verb::Watch);
    if needs_namespace && (on_one || call.verb == Verb::Create) {
        let is_collection = target.name.is_empty();
        return Err(if is_collection {
            Refusal::method_not_allowed()
        } else {
            Refusal::unserved()
        });
    }
    let create_on_name =
        call.verb == Verb::Create && !target.name.is_empty() && target.subresource != "token";
    let change_of_all = matches!(call.verb, Verb::Update | Verb::Patch) && target.name.is_empty();
    if create_on_name || change_of_all {
        return Err(Refusal::method_not_allowed());
    }
    Ok(())
}

/// The answer to a refused request.
pub(crate) fn refused(refusal: &Refusal) -> Response<AnswerBody> {
    let body = refusal.body();
    let mut response = response(
        refusal.code,
        "application/json",
        whole(Bytes::from(body.to_string())),
    );
    if let Some(seconds) = body
        .pointer("/details/retryAfterSeconds")
        .and_then(Value::as_u64)
    {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn response(code: u16, content_type: &'static str, body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let value = header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

fn whole(bytes: Bytes) -> AnswerBody {
    Full::new(bytes)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// The answer to a request that cannot even be read.
pub(crate) fn unreadable() -> Response<AnswerBody> {
    refused(&Refusal::method_not_allowed())
}
