mod tenant;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use base64::Engine;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::Value;
use sha2::Digest;
use tower::ServiceExt;

use self::tenant::Rows;
use super::*;
use crate::admin::{Readiness, router};
use crate::api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{MachineDeploymentState, WorkerClusterStatus},
};
use crate::telemetry::metrics::Metrics;
use crate::tenant::{
    report::{ConditionState, Outcome, Report},
    summary::{self, Queue, Rfc3339Time, Row, ServedTenant, Statistics},
};

const TOKEN: &str = "t0ken-of-sixteen-bytes";
const HOSTILE: &str = "<script>alert(1)</script>\"'&</title><!--";

fn a_report(message: &str) -> Report {
    let outcome = Outcome {
        state: MachineDeploymentState::Failing,
        reason: Reason::CallFailed,
        message: Some(message.to_owned()),
        at: Timestamp::from_second(1_000).unwrap(),
        waits_since: None,
        trace_id: None,
        profile: None,
        behind: None,
    };
    Report {
        findings: [(
            ConditionType::Connected,
            ConditionState::well(Reason::Healthy),
        )]
        .into(),
        version: Some(message.to_owned()),
        existing: Some(BTreeSet::from([format!("kube-system/{message}")])),
        outcomes: [(format!("kube-system/{message}"), outcome)].into(),
        ..Report::default()
    }
}

pub(super) fn a_row(name: &str, message: &str) -> Row {
    let statistics = Statistics {
        queue: Queue {
            waiting: 3,
            under_way: 2,
        },
        user_data_bytes_max: Some(19_000),
        call_latency: Some(Duration::from_micros(12_340)),
    };
    let known = ServedTenant {
        report: &a_report(message),
        status: None,
        statistics,
    };
    summary::row(name.to_owned(), known)
}

pub(super) fn a_state(access: Access, rows: Vec<Row>) -> AdminState {
    let page = FleetPage::new(access, Rows(rows));
    AdminState {
        heartbeat: None,
        metrics: Metrics::new(),
        readiness: Readiness::waiting_for(&[]),
        refresh: Arc::new(|| {}),
        fleet: Some(Arc::new(page)),
    }
}

fn access(address: [u8; 4], token_file: Option<PathBuf>) -> Access {
    Access::new(AccessParams {
        address: (address, 8080).into(),
        token_file,
        hosts: Vec::new(),
        now: Arc::new(|| Timestamp::from_second(4_700).unwrap()),
    })
}

fn on_loopback() -> Access {
    access([127, 0, 0, 1], None)
}

pub(super) async fn ask(state: &AdminState, path: &str, authorization: &str) -> (Response, String) {
    let request = Request::get(path)
        .header(header::HOST, "localhost:8080")
        .header(header::AUTHORIZATION, authorization);
    let request = request.body(Body::empty()).unwrap();
    let answer = router(state.clone()).oneshot(request).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    (Response::from_parts(head, Body::empty()), text)
}

pub(super) async fn text(state: &AdminState, path: &str) -> String {
    let (answer, text) = ask(state, path, "").await;
    assert_eq!(answer.status(), StatusCode::OK, "{text}");
    text
}

#[tokio::test]
async fn every_tenant_is_a_row_of_the_page_and_of_the_json() {
    let state = a_state(on_loopback(), vec![a_row("berlin/worker", "refused")]);
    let page = text(&state, "/fleet").await;
    for told in [
        "osm-0",
        "<th scope=\"row\"><a href=\"?tenant=berlin%2Fworker\">berlin&#x2f;worker</a></th>",
        "<span class=\"state\">NotReady</span>",
        "CallFailed: kube-system&#x2f;refused: refused",
        "1 h 1 min ago</time>: CallFailed",
        "<td>0 of 1 current, <span class=\"bad\">1 failing</span></td>",
        "<caption",
        "1</span> of 1 tenant<",
    ] {
        assert!(page.contains(told), "{told} is missing in {page}");
    }
    let json: Value = serde_json::from_str(&text(&state, "/fleet.json").await).unwrap();
    let expected = serde_json::json!({
        "replica": "osm-0", "takenAt": "1970-01-01T01:18:20Z", "total": 1,
        "states": { "NotReady": 1 }, "changedLastHour": {}, "servedElsewhere": 0,
        "causes": [{
            "reason": "CallFailed", "detail": null, "tenants": 1, "remediation": Reason::CallFailed.remediation(),
        }],
        "tenants": [{
            "name": "berlin/worker", "state": "NotReady", "servedHere": true, "servedBy": null,
            "since": null, "reason": "CallFailed",
            "why": "CallFailed: kube-system/refused: refused", "version": "refused",
            "machineDeployments":
                { "total": 1, "current": 0, "outdated": 0, "waiting": 0, "failing": 1 },
            "behind": {},
            "lastReconcile": {
                "at": "1970-01-01T00:16:40Z", "machineDeployment": "kube-system/refused",
                "outcome": "Failing", "reason": "CallFailed",
            },
            "queue": { "waiting": 3, "underWay": 2 },
            "userDataBytesMax": 19_000, "callLatencyMilliseconds": 12.3,
        }],
    });
    assert_eq!(json, expected);
}

#[tokio::test]
async fn a_tenant_of_another_replica_is_among_the_others_and_marked() {
    let down = Condition {
        type_: "Connected".to_owned(),
        status: "False".to_owned(),
        reason: "Unreachable".to_owned(),
        message: "connection refused".to_owned(),
        last_transition_time: Time(Timestamp::from_second(1_000).unwrap()),
        observed_generation: None,
    };
    let status = WorkerClusterStatus {
        conditions: vec![down],
        ..WorkerClusterStatus::default()
    };
    let elsewhere = Row {
        served_by: Some("osm-1".to_owned()),
        ..summary::row_elsewhere("oslo/worker".to_owned(), Some(&status))
    };
    let state = a_state(
        on_loopback(),
        vec![a_row("berlin/worker", "one"), elsewhere],
    );
    let page = text(&state, "/fleet").await;
    for told in [
        "marked with <i>at</i> are served by another replica",
        "<span class=\"state\">Unreachable</span> <i>at osm-1</i>",
        "<span class=\"state\">NotReady</span></td>",
        "Unreachable (1)",
        "Unreachable: connection refused",
    ] {
        assert!(page.contains(told), "{told} is missing in {page}");
    }
    let (oslo, berlin) = (page.find("oslo").unwrap(), page.find("berlin").unwrap());
    assert!(oslo < berlin, "worst first: {page}");
    let json: Value = serde_json::from_str(&text(&state, "/fleet.json").await).unwrap();
    assert_eq!(json["servedElsewhere"], 1);
    assert_eq!(json["states"]["Unreachable"], 1);
    assert_eq!(json["tenants"][0]["name"], "oslo/worker");
    assert_eq!(json["tenants"][0]["servedHere"], false);
    assert_eq!(json["tenants"][0]["servedBy"], "osm-1");
    assert_eq!(json["tenants"][0]["reason"], "Unreachable");
}

#[tokio::test]
async fn nothing_that_a_tenant_says_becomes_markup() {
    let state = a_state(on_loopback(), vec![a_row(HOSTILE, HOSTILE)]);
    let encoded = "%3Cscript%3Ealert(1)%3C/script%3E%22'%26%3C/title%3E%3C!--";
    let plain = text(&a_state(on_loopback(), Vec::new()), "/fleet").await;
    let marks = |page: &str| {
        let count = |mark| page.matches(mark).count();
        ["<script", "</script", "</title", "<!--", "alert(1)\""].map(count)
    };
    for query in ["", &format!("?q={encoded}"), &format!("?state={encoded}")] {
        let page = text(&state, &format!("/fleet{query}")).await;
        assert!(
            page.contains("&lt;script&gt;alert(1)"),
            "it is told: {page}"
        );
        assert_eq!(marks(&page), marks(&plain), "{page}");
    }
}

#[tokio::test]
async fn the_server_filters_for_those_without_script() {
    let rows = vec![a_row("berlin/worker", "one"), a_row("lisbon/worker", "two")];
    let state = a_state(on_loopback(), rows);
    for (query, berlin, lisbon) in [
        ("", true, true),
        ("?q=BERLIN", true, false),
        ("?q=two&state=NotReady", false, true),
        ("?q=ignored&q=two", false, true),
        ("?state=Healthy", false, false),
        ("?other=1&q=lisbon%2Fworker", false, true),
    ] {
        for path in ["/fleet", "/fleet.json"] {
            let page = text(&state, &format!("{path}{query}")).await;
            let page = page.replace("&#x2f;", "/");
            let row = |name: &str| {
                let heading = format!("\">{name}</a></th>");
                let html = page.split_once(&heading).map(|(before, _)| before);
                html.and_then(|before| before.rsplit_once("<tr "))
                    .is_some_and(|(_, row)| !row.contains(" hidden"))
                    || page.contains(&format!("\"name\": \"{name}\""))
            };
            let told = (row("berlin/worker"), row("lisbon/worker"));
            assert_eq!(told, (berlin, lisbon), "{path}{query}");
        }
    }
    let none = text(&state, "/fleet?q=none").await;
    assert!(none.contains("0</span> of 2 tenants"), "{none}");
    assert!(
        none.contains("<p id=\"none\">No tenant matches. <a"),
        "{none}"
    );
    let empty = text(&a_state(on_loopback(), Vec::new()), "/fleet").await;
    assert!(empty.contains("osm tenant add NAME"), "{empty}");
    assert!(
        !empty.contains("<table") && !empty.contains("id=\"none\""),
        "{empty}"
    );
}

#[tokio::test]
async fn the_page_reloads_itself_unless_that_is_paused() {
    let state = a_state(on_loopback(), vec![a_row("berlin/worker", "one")]);
    let refresh = "<noscript><meta http-equiv=\"refresh\" content=\"60\"></noscript>";
    for (query, expected) in [("", true), ("?pause=1", false), ("?pause=", true)] {
        let page = text(&state, &format!("/fleet{query}")).await;
        assert_eq!(page.contains(refresh), expected, "{query}: {page}");
        let is_checked = page.contains("name=\"pause\" value=\"1\" checked");
        assert_eq!(is_checked, !expected, "{query}: {page}");
        assert!(page.contains(">01:18:20 UTC</time>"), "{page}");
    }
    let by_token = access([0, 0, 0, 0], Some(PathBuf::from("/nowhere")));
    let (_, sign_in) = ask(&a_state(by_token, Vec::new()), "/fleet", "").await;
    // A reload of the answer to a form would send the form again.
    assert!(
        !sign_in.contains("refresh") && !sign_in.contains("<script"),
        "{sign_in}"
    );
}

#[tokio::test]
async fn headings_sort_and_keep_the_filter() {
    let rows = vec![a_row("berlin/worker", "one"), a_row("lisbon/worker", "two")];
    let state = a_state(on_loopback(), rows);
    for (query, told, is_berlin_first) in [
        (
            "",
            "aria-sort=\"ascending\"><button form=\"view\" name=\"sort\" value=\"-state\">",
            true,
        ),
        (
            "?sort=-name",
            "aria-sort=\"descending\"><button form=\"view\" name=\"sort\" value=\"name\">",
            false,
        ),
        (
            "?sort=name",
            "<th scope=\"col\"><button form=\"view\" name=\"sort\" value=\"-failing\">",
            true,
        ),
        (
            "?sort=name&sort=-name",
            "<input type=\"hidden\" name=\"sort\" value=\"-name\">",
            false,
        ),
        (
            "?sort=%3Ci%3E",
            "<input type=\"hidden\" name=\"sort\" value=\"state\">",
            true,
        ),
    ] {
        for path in ["/fleet", "/fleet.json"] {
            let page = text(&state, &format!("{path}{query}")).await;
            let berlin = page.find("berlin").unwrap();
            let lisbon = page.find("lisbon").unwrap();
            assert_eq!(berlin < lisbon, is_berlin_first, "{path}{query}");
            assert!(path != "/fleet" || page.contains(told), "{query}: {page}");
        }
    }
    let page = text(&state, "/fleet?sort=for&q=two&changed=1h").await;
    for told in [
        "name=\"sort\" value=\"for\"",
        "name=\"q\" value=\"two\"",
        "value=\"1h\" checked",
        "<tr data-state=\"NotReady\" data-reason=\"CallFailed\" hidden>",
    ] {
        assert!(page.contains(told), "{told} is missing in {page}");
    }
}

#[tokio::test]
async fn each_number_of_the_summary_leads_to_its_tenants() {
    let hostile = Row {
        reason: Some("A&b=c#<i>".to_owned()),
        since: Some(Rfc3339Time(Timestamp::from_second(4_000).unwrap())),
        ..a_row("lisbon/worker", "two")
    };
    let state = a_state(on_loopback(), vec![a_row("berlin/worker", "one"), hostile]);
    let page = text(&state, "/fleet").await;
    for told in [
        "href=\"?state=NotReady\"><b>2</b> <span class=\"state\">NotReady</span></a>",
        "href=\"?state=NotReady&amp;changed=1h\">1 in the last hour</a>",
        "href=\"?reason=CallFailed\"><b>1</b> CallFailed</a>",
        "href=\"?reason=A%26b%3Dc%23%3Ci%3E\"><b>1</b> A&amp;b=c#&lt;i&gt;</a>",
    ] {
        assert!(page.contains(told), "{told} is missing in {page}");
    }
    for (query, expected) in [
        ("state=NotReady&changed=1h", ["lisbon/worker"]),
        ("reason=CallFailed", ["berlin/worker"]),
        ("reason=A%26b%3Dc%23%3Ci%3E", ["lisbon/worker"]),
    ] {
        let json = text(&state, &format!("/fleet.json?{query}")).await;
        let json: Value = serde_json::from_str(&json).unwrap();
        let tenants = json["tenants"].as_array().unwrap().iter();
        let names = tenants.map(|row| row["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), expected, "{query}");
    }
    let page = text(&state, "/fleet?state=Bogus").await;
    assert!(page.contains("There is no state Bogus."), "{page}");
}

#[tokio::test]
async fn a_browser_may_run_our_script_and_style_and_fetch_nothing() {
    let state = a_state(on_loopback(), Vec::new());
    let (answer, page) = ask(&state, "/fleet", "").await;
    let policy = answer.headers()["content-security-policy"]
        .to_str()
        .unwrap();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    // With `no-referrer`, a browser would send `Origin: null` with the form of this page.
    assert_eq!(answer.headers()["referrer-policy"], "same-origin");
    for (open, close) in [("<style>", "</style>"), ("<script>", "</script>")] {
        let (_, rest) = page.split_once(open).unwrap();
        let (content, _) = rest.split_once(close).unwrap();
        let hash = sha2::Sha256::digest(content);
        let hash = base64::engine::general_purpose::STANDARD.encode(hash);
        assert!(policy.contains(&format!("'sha256-{hash}'")), "{open}");
    }
    for attribute in [
        " src=",
        " style=",
        " onclick=",
        "http://",
        "https://",
        "url(",
    ] {
        assert!(!page.contains(attribute), "{attribute}");
    }
    let (answer, _) = ask(&state, "/fleet.json", "").await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert_eq!(answer.headers()["referrer-policy"], "no-referrer");
    assert_eq!(
        answer.headers()["cross-origin-opener-policy"],
        "same-origin"
    );
}

#[tokio::test]
async fn both_forms_are_shown_to_whom_the_access_lets_in_alone() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TOKEN).unwrap();
    let anywhere = [0, 0, 0, 0];
    let rows = || vec![a_row("berlin/worker", "one")];
    let open = a_state(on_loopback(), rows());
    let closed = a_state(access(anywhere, None), rows());
    let by_token = access(anywhere, Some(file.path().to_owned()));
    let by_token = a_state(by_token, rows());
    let none = AdminState {
        fleet: None,
        ..open.clone()
    };
    let bearer = format!("Bearer {TOKEN}");
    for path in ["/fleet", "/fleet.json"] {
        for (state, authorization, expected) in [
            (&open, "", StatusCode::OK),
            (&closed, "", StatusCode::NOT_FOUND),
            (&closed, &bearer, StatusCode::NOT_FOUND),
            (&none, "", StatusCode::NOT_FOUND),
            (&by_token, "", StatusCode::UNAUTHORIZED),
            (
                &by_token,
                "Bearer wrong-of-sixteen-bytes",
                StatusCode::UNAUTHORIZED,
            ),
            (&by_token, &bearer, StatusCode::OK),
        ] {
            let (answer, text) = ask(state, path, authorization).await;
            assert_eq!(answer.status(), expected, "{path} {authorization}");
            let challenge = answer.headers().get("www-authenticate");
            assert_eq!(challenge.is_some(), expected == StatusCode::UNAUTHORIZED);
            assert_eq!(text.contains("berlin"), expected == StatusCode::OK);
            let is_html = text.starts_with("<!doctype html>");
            assert_eq!(is_html, path == "/fleet", "{path}: {text}");
            assert!(answer.headers().contains_key("content-security-policy"));
            assert!(!text.contains(TOKEN));
        }
    }
}

/// A measure, printed: `cargo test --lib a_thousand_tenants_fit -- --nocapture`.
#[tokio::test]
async fn a_thousand_tenants_fit_on_a_page() {
    let why = "cannot reach https://api.example.com:6443: connection refused (os error 111)";
    let rows: Vec<Row> = (0..1_000)
        .map(|index| a_row(&format!("tenant-{index:04}/worker"), why))
        .collect();
    let state = a_state(on_loopback(), rows);
    for path in ["/fleet", "/fleet.json"] {
        let begun = Instant::now();
        let page = text(&state, path).await;
        let (took, size) = (begun.elapsed(), page.len());
        println!("{path} of 1000 tenants: {size} bytes in {took:?}");
        assert_eq!(
            page.matches("/worker\"").count() + page.matches("worker</a>").count(),
            1_000
        );
        assert!(size < 1_500_000, "{size}");
    }
}
