//! What somebody is told who does not see the fleet page: a browser can sign in, a program reads
//! one line.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::access::Refusal;
use super::document;
use crate::admin::hosts::UNKNOWN_HOST;

/// Returns the answer to a program.
pub fn line(refusal: Refusal) -> Response {
    let answer = match refusal {
        Refusal::NotServed => StatusCode::NOT_FOUND.into_response(),
        _ => format!("{}\n", message(refusal)).into_response(),
    };
    with_status(refusal, answer)
}

/// Returns the answer to a browser: the page where it can sign in, if that would help.
pub fn page(refusal: Refusal) -> Response {
    let can_sign_in = matches!(
        refusal,
        Refusal::NoToken
            | Refusal::WrongToken
            | Refusal::NoTokenIsSet
            | Refusal::TooManyAttempts(_)
    );
    let page = match refusal {
        Refusal::NoToken => document::sign_in(""),
        _ if can_sign_in => document::sign_in(message(refusal)),
        _ => document::no_page(message(refusal)),
    };
    match page {
        Ok(page) => {
            let content = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            with_status(refusal, (content, page).into_response())
        }
        Err(error) => {
            tracing::error!(%error, "the page of a refusal cannot be made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

const fn message(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotServed => {
            "beyond loopback, it is served with --fleet-page-token-file only, by osm run"
        }
        Refusal::AnotherName => UNKNOWN_HOST,
        Refusal::ForeignOrigin => "another page sent this form",
        Refusal::NotAForm => "this is not a form",
        Refusal::NoTenant => "no tenant of this name is registered: /fleet lists all of them",
        Refusal::Failed => "the page cannot be made, and the log says why",
        Refusal::NoToken => "a bearer token is needed",
        Refusal::WrongToken => "this is not the token",
        Refusal::NoTokenIsSet => "no token is configured: the file has none of 16 to 4096 bytes",
        Refusal::TooManyAttempts(_) => "too many tokens were sent from this address: wait a minute",
    }
}

fn with_status(refusal: Refusal, answer: Response) -> Response {
    match refusal {
        Refusal::NotServed | Refusal::NoTenant => (StatusCode::NOT_FOUND, answer).into_response(),
        Refusal::AnotherName | Refusal::ForeignOrigin => {
            (StatusCode::FORBIDDEN, answer).into_response()
        }
        Refusal::Failed => (StatusCode::INTERNAL_SERVER_ERROR, answer).into_response(),
        Refusal::NotAForm => (StatusCode::UNSUPPORTED_MEDIA_TYPE, answer).into_response(),
        Refusal::NoToken | Refusal::WrongToken | Refusal::NoTokenIsSet => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer realm=\"osm\"")];
            (StatusCode::UNAUTHORIZED, challenge, answer).into_response()
        }
        Refusal::TooManyAttempts(wait) => {
            // Rounded up: a client that waits so long is not early.
            let seconds = wait.as_millis().div_ceil(1_000);
            let retry = [(header::RETRY_AFTER, seconds.to_string())];
            (StatusCode::TOO_MANY_REQUESTS, retry, answer).into_response()
        }
    }
}
