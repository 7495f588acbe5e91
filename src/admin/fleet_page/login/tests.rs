use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::http::request::Builder;
use jiff::Timestamp;
use tower::ServiceExt;

use super::super::tests::{a_row, a_state};
use super::super::{Access, AccessParams};
use super::*;
use crate::admin::router;
use crate::port::Source;

const TOKEN: &str = "t0ken-of-sixteen-bytes";
const BODY: &str = "token=t0ken-of-sixteen-bytes";
const HOST: (&str, &str) = ("host", "localhost:8080");
const ORIGIN: (&str, &str) = ("origin", "http://localhost:8080");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A replica whose clock is set by the test.
struct Replica {
    state: AdminState,
    now: Arc<AtomicI64>,
}

/// An answer, with what of it matters here.
#[derive(Debug)]
struct Answer {
    status: u16,
    cookie: Option<String>,
    location: Option<String>,
    retry_after: Option<String>,
    text: String,
}

impl Answer {
    /// Returns the cookie as a browser sends it.
    fn session(&self) -> &str {
        let cookie = self.cookie.as_deref().expect("it is signed in");
        cookie.split(';').next().unwrap()
    }
}

impl Replica {
    fn new(token_file: Option<&Path>) -> Self {
        let now = Arc::new(AtomicI64::new(1_000_000));
        let clock = Arc::clone(&now);
        let access = Access::new(AccessParams {
            address: ([127, 0, 0, 1], 8080).into(),
            token_file: token_file.map(Path::to_owned),
            hosts: vec!["osm.example".to_owned()],
            now: Arc::new(move || Timestamp::from_second(clock.load(Ordering::Relaxed)).unwrap()),
        });
        let state = a_state(access, vec![a_row("berlin/worker", "one")]);
        Self { state, now }
    }

    async fn ask(&self, request: Builder, body: &str) -> Answer {
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answer = router(self.state.clone()).oneshot(request).await.unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(!text.contains(TOKEN), "{text}");
        let header = |name| {
            let value = head.headers.get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        Answer {
            status: head.status.as_u16(),
            cookie: header(header::SET_COOKIE),
            location: header(header::LOCATION),
            retry_after: header(header::RETRY_AFTER),
            text,
        }
    }

    async fn post(&self, headers: &[(&str, &str)], body: &str) -> Answer {
        self.ask(with(Request::post("/fleet"), headers), body).await
    }

    async fn get(&self, headers: &[(&str, &str)]) -> Answer {
        self.ask(with(Request::get("/fleet"), headers), "").await
    }

    async fn sign_in(&self) -> Answer {
        self.post(&[HOST, ORIGIN, FORM], BODY).await
    }
}

fn with(request: Builder, headers: &[(&str, &str)]) -> Builder {
    headers
        .iter()
        .fold(request, |it, (name, value)| it.header(*name, *value))
}

fn a_file() -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{TOKEN}\n")).unwrap();
    file
}

#[tokio::test]
async fn only_our_own_page_under_a_known_host_signs_in_with_the_token() {
    let file = a_file();
    let replica = Replica::new(Some(file.path()));
    let named = ("host", "osm.example");
    let of_name = ("origin", "https://osm.example");
    let evil = ("host", "evil.example");
    let of_evil = ("origin", "http://evil.example");
    let of_another_port = ("origin", "http://localhost:9090");
    let json = ("content-type", "application/json");
    for (headers, body, expected) in [
        (&[HOST, ORIGIN, FORM][..], BODY, 303),
        (&[named, of_name, FORM], BODY, 303),
        (
            &[HOST, ORIGIN, FORM, ("sec-fetch-site", "same-origin")],
            BODY,
            303,
        ),
        (
            &[HOST, ORIGIN, FORM],
            "token=+t0ken-of-sixteen-bytes%0A&a=b",
            303,
        ),
        // The host.
        (&[evil, of_evil, FORM], BODY, 403),
        (&[HOST, HOST, ORIGIN, FORM], BODY, 403),
        (&[ORIGIN, FORM], BODY, 403),
        // The origin.
        (&[HOST, FORM], BODY, 403),
        (&[HOST, of_evil, FORM], BODY, 403),
        (&[HOST, of_another_port, FORM], BODY, 403),
        (&[HOST, ("origin", "null"), FORM], BODY, 403),
        (
            &[HOST, ORIGIN, FORM, ("sec-fetch-site", "cross-site")],
            BODY,
            403,
        ),
        // The content.
        (&[HOST, ORIGIN], BODY, 415),
        (&[HOST, ORIGIN, json], BODY, 415),
        (&[HOST, ORIGIN, FORM], "", 401),
        (&[HOST, ORIGIN, FORM], "token=another-of-sixteen-bytes", 401),
        (&[HOST, ORIGIN, FORM], "bearer=t0ken-of-sixteen-bytes", 401),
        (
            &[HOST, ORIGIN, FORM],
            &format!("{BODY}&a={}", "b".repeat(17_000)),
            413,
        ),
    ] {
        let answer = replica.post(headers, body).await;
        assert_eq!(answer.status, expected, "{headers:?} {body}: {answer:?}");
        assert_eq!(answer.cookie.is_some(), expected == 303, "{answer:?}");
        assert!(!answer.text.contains("berlin"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_session_opens_the_page_at_each_replica_until_it_ends() {
    let file = a_file();
    let [here, there] = [(); 2].map(|()| Replica::new(Some(file.path())));
    let signed = here.sign_in().await;
    let cookie = ("cookie", signed.session());
    let attributes = signed
        .cookie
        .as_deref()
        .unwrap()
        .split_once("; ")
        .unwrap()
        .1;
    assert_eq!(
        attributes,
        "HttpOnly; SameSite=Strict; Path=/; Max-Age=3600"
    );
    for (host, expected) in [
        ("localhost", 200),
        ("osm.example", 200),
        ("evil.example", 403),
    ] {
        let page = there.get(&[("host", host), cookie]).await;
        assert_eq!(page.status, expected, "{host}: {page:?}");
        assert_eq!(page.text.contains("berlin"), expected == 200, "{page:?}");
    }
    let json = with(Request::get("/fleet.json"), &[HOST, cookie]);
    assert_eq!(there.ask(json, "").await.status, 200);
    let name = cookie.1.split_once('=').unwrap().0;
    let tossed = format!("{name}=forged; {}", cookie.1);
    assert_eq!(there.get(&[HOST, ("cookie", &tossed)]).await.status, 200);

    there.now.fetch_add(3_600, Ordering::Relaxed);
    assert_eq!(there.get(&[HOST, cookie]).await.status, 401);
    assert_eq!(here.get(&[HOST, cookie]).await.status, 200);
    std::fs::write(file.path(), "another-of-sixteen-bytes").unwrap();
    let rotated = here.get(&[HOST, cookie]).await;
    assert_eq!(rotated.status, 401, "{rotated:?}");
    assert!(rotated.text.contains("name=\"token\""), "{rotated:?}");
}

#[tokio::test]
async fn signing_out_takes_the_cookie_back_for_our_own_page_alone() {
    let file = a_file();
    let replica = Replica::new(Some(file.path()));
    let signed = replica.sign_in().await;
    let name = signed.session().split_once('=').unwrap().0;
    let out = replica.post(&[HOST, ORIGIN, FORM], "session=end").await;
    assert_eq!(out.status, 303);
    let expected = format!("{name}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
    assert_eq!(out.cookie, Some(expected));
    let foreign = ("origin", "http://evil.example");
    let forged = replica.post(&[HOST, foreign, FORM], "session=end").await;
    assert_eq!((forged.status, forged.cookie), (403, None));
    let page = replica.get(&[HOST, ("cookie", signed.session())]).await;
    assert!(page.text.contains("value=\"end\">Sign out<"), "{page:?}");
    let bearer = format!("Bearer {TOKEN}");
    let page = replica.get(&[HOST, ("authorization", &bearer)]).await;
    assert!(!page.text.contains("Sign out"), "{page:?}");
}

#[tokio::test]
async fn a_form_leads_back_to_its_own_address_and_nowhere_else() {
    let file = a_file();
    let replica = Replica::new(Some(file.path()));
    for query in ["", "q=a%0D%0Ab&state=Healthy", "next=https://evil.example"] {
        let request = Request::post(format!("/fleet?{query}"));
        let answer = replica
            .ask(with(request, &[HOST, ORIGIN, FORM]), BODY)
            .await;
        assert_eq!(answer.location, Some(format!("?{query}")));
    }
    let tls = ("x-forwarded-proto", "https");
    let answer = replica.post(&[HOST, ORIGIN, FORM, tls], BODY).await;
    let cookie = answer.cookie.unwrap();
    assert!(cookie.ends_with("; Max-Age=3600; Secure"), "{cookie}");
}

#[tokio::test(start_paused = true)]
async fn forms_and_bearer_tokens_share_the_attempts_of_their_source() {
    let file = a_file();
    let replica = Replica::new(Some(file.path()));
    let post = async |number, body| {
        let source = Source::of([10, 0, 0, number].into());
        let request = Request::post("/fleet").extension(source);
        replica
            .ask(with(request, &[HOST, ORIGIN, FORM]), body)
            .await
    };
    for _ in 0..10 {
        assert_eq!(post(1, "token=wrong-of-sixteen-bytes").await.status, 401);
    }
    let late = post(1, BODY).await;
    assert_eq!((late.status, late.cookie), (429, None));
    assert_eq!(late.retry_after.as_deref(), Some("60"));
    assert!(late.text.contains("too many tokens"), "{}", late.text);
    let bearer = format!("Bearer {TOKEN}");
    let request = Request::get("/fleet.json").extension(Source::of([10, 0, 0, 1].into()));
    let request = with(request, &[HOST, ("authorization", &bearer)]);
    assert_eq!(replica.ask(request, "").await.status, 429);
    let other = post(2, BODY).await;
    assert_eq!(other.status, 303);
    // A session needs no attempt.
    let request = Request::get("/fleet").extension(Source::of([10, 0, 0, 1].into()));
    let request = with(request, &[HOST, ("cookie", other.session())]);
    assert_eq!(replica.ask(request, "").await.status, 200);
}

#[tokio::test]
async fn without_a_token_there_is_nothing_to_sign_in_to() {
    let open = Replica::new(None);
    assert_eq!(open.sign_in().await.status, 404);
    let file = a_file();
    let replica = Replica::new(Some(file.path()));
    std::fs::write(file.path(), "short").unwrap();
    let page = replica.get(&[HOST]).await;
    assert_eq!(page.status, 401);
    assert!(page.text.contains("no token is configured"), "{page:?}");
    let answer = replica.sign_in().await;
    assert_eq!((answer.status, answer.cookie), (401, None));
    let out = replica.post(&[HOST, ORIGIN, FORM], "session=end").await;
    assert_eq!((out.status, out.cookie), (303, None));
}

#[tokio::test(start_paused = true)]
async fn a_form_that_never_ends_is_given_up() {
    let file = a_file();
    let replica = Replica::new(Some(file.path()));
    let endless = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
    let request = with(Request::post("/fleet"), &[HOST, ORIGIN, FORM]);
    let request = request.body(Body::from_stream(endless)).unwrap();
    let answer = router(replica.state.clone())
        .oneshot(request)
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
}
