//! Browsers sign in to the fleet page with the token, and out.
//!
//! A form is answered by a redirect to the address that it was sent to, so that a reload sends no
//! token again, and no parameter can lead to another site.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};
use zeroize::Zeroizing;

use super::access::{Cookie, Refusal};
use super::browser::is_over_tls;
use super::session::LIFETIME;
use super::{HTML, asked, finished, refusal};
use crate::admin::AdminState;

/// A form is no larger, in bytes: a token has at most 4 KiB, and each of its bytes takes at most
/// three characters.
const FORM_BYTES_MAX: usize = 16 * 1024;
/// How long a form may take to arrive. Browsers send it at once.
const FORM_TIMEOUT: Duration = Duration::from_secs(5);

/// What a form asks for.
enum Submitted {
    Token(Zeroizing<String>),
    SignOut,
}

/// `POST /fleet`: signs a browser in or out.
pub async fn post(State(state): State<AdminState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let answer = submit(&state, &parts, body).await;
    finished(answer.unwrap_or_else(std::convert::identity), &HTML)
}

async fn submit(state: &AdminState, parts: &Parts, body: Body) -> Result<Response, Response> {
    let page = state.fleet.as_ref().ok_or(Refusal::NotServed);
    let page = page.map_err(refusal::page)?;
    let form = page.access.accept_form(&parts.headers);
    let form = form.map_err(refusal::page)?;
    let cookie = match read(body).await.map_err(IntoResponse::into_response)? {
        Submitted::Token(token) => {
            let signed = form.sign_in(token.as_bytes(), asked(parts).source).await;
            let Cookie(name, value) = signed.map_err(refusal::page)?;
            Some((name, value, LIFETIME))
        }
        Submitted::SignOut => {
            let name = form.sign_out().await;
            name.map(|name| (name, String::new(), Duration::ZERO))
        }
    };
    let cookie = cookie.map(|(name, value, lifetime)| {
        let secure = if is_over_tls(&parts.headers) {
            "; Secure"
        } else {
            ""
        };
        let seconds = lifetime.as_secs();
        format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}")
    });
    Ok(redirect(parts, cookie))
}

async fn read(body: Body) -> Result<Submitted, StatusCode> {
    let body = Limited::new(body, FORM_BYTES_MAX).collect();
    let body = tokio::time::timeout(FORM_TIMEOUT, body).await;
    let body = body.map_err(|_| StatusCode::REQUEST_TIMEOUT)?;
    let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?.to_bytes();
    let mut token = Zeroizing::new(String::new());
    for (key, value) in form_urlencoded::parse(&body) {
        match (key.as_ref(), value.as_ref()) {
            ("session", "end") => return Ok(Submitted::SignOut),
            ("token", sent) => token = Zeroizing::new(sent.trim().to_owned()),
            _ => {}
        }
    }
    Ok(Submitted::Token(token))
}

fn redirect(parts: &Parts, cookie: Option<String>) -> Response {
    let query = parts.uri.query().unwrap_or_default();
    let mut answer = StatusCode::SEE_OTHER.into_response();
    let headers = [
        (header::LOCATION, Some(format!("?{query}"))),
        (header::SET_COOKIE, cookie),
    ];
    for (name, value) in headers {
        let value = value.and_then(|value| HeaderValue::try_from(value).ok());
        if let Some(value) = value {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

#[cfg(test)]
mod tests;
