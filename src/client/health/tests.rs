use http::Request;

use crate::api::reason::Reason;
use crate::client::health::*;
use crate::tenant::report::ConditionState;

#[tokio::test(start_paused = true)]
async fn a_problem_of_a_watch_is_reported_until_a_minute_after_it_was_last_seen() {
    let (health, tenant_status) = a_health();
    let reason = || tenant_status.read(|report| report.findings[&ConditionType::Connected].reason);
    let succeed = || {
        let call = health.admit(&Method::GET).unwrap();
        call.answered(&Response::new(()));
    };
    health.events_delayed();
    tokio::time::advance(WATCH_PROBLEM / 2).await;
    health.events_delayed();
    tokio::time::advance(WATCH_PROBLEM / 2).await;
    succeed();
    assert_eq!(reason(), "EventsDelayed");
    health.watch_failed("why".to_owned());
    tokio::time::advance(WATCH_PROBLEM / 2).await;
    health.events_delayed();
    succeed();
    assert_eq!(reason(), "WatchFailed", "it matters more than a delay");
    tokio::time::advance(WATCH_PROBLEM / 2).await;
    health.watch_problem_ends().await;
    succeed();
    assert_eq!(reason(), "Healthy");
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_and_succeed_do_not_end_a_problem_of_a_watch() {
    let (health, tenant_status) = a_health();
    health.watch_failed("why".to_owned());
    answered(&health, StatusCode::NO_CONTENT, 3).await;
    assert_eq!(said(&tenant_status).1, "Degraded", "it matters more");
    answered(&health, StatusCode::OK, 1).await;
    assert_eq!(said(&tenant_status).1, "WatchFailed");
    tokio::time::advance(WATCH_PROBLEM).await;
    answered(&health, StatusCode::OK, 1).await;
    assert_eq!(said(&tenant_status).1, "Healthy");
}

const QUIET_MAX: Duration = Duration::from_secs(30);

fn a_health() -> (Health, Arc<TenantStatus>) {
    let tenant_status = Arc::new(TenantStatus::default());
    let clock = Clock::tokio(Timestamp::UNIX_EPOCH);
    (
        Health::new(
            Arc::clone(&tenant_status),
            clock,
            (RegistrationId::new("berlin", "berlin"), QUIET_MAX),
        ),
        tenant_status,
    )
}

fn said(tenant_status: &TenantStatus) -> (bool, Reason, String) {
    let report = tenant_status.report();
    let finding = report.findings[&ConditionType::Connected].clone();
    (finding.holds, finding.reason, finding.message)
}

fn an_answer(status: StatusCode) -> Response<()> {
    let mut answer = Response::new(());
    *answer.status_mut() = status;
    answer
}

/// Lets the next calls be answered with this status.
async fn answered(health: &Health, status: StatusCode, times: usize) {
    for _ in 0..times {
        health.due().await;
        health
            .admit(&Method::GET)
            .unwrap()
            .answered(&an_answer(status));
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_call_that_moves_the_circuit_wakes_who_waits_for_it() {
    let (health, _) = a_health();
    let mut circuit = health.circuit.subscribe();
    let mut has_moved = || {
        let has_moved = circuit.has_changed().unwrap();
        circuit.mark_unchanged();
        has_moved
    };
    answered(&health, StatusCode::OK, 1).await;
    assert!(!has_moved(), "it is well as before");
    answered(&health, StatusCode::SERVICE_UNAVAILABLE, 3).await;
    assert!(has_moved(), "it is in doubt");
    health.due().await;
    let call = health.admit(&Method::GET).unwrap();
    assert!(has_moved(), "the call that decides is under way");
    call.answered(&an_answer(StatusCode::OK));
    assert!(has_moved(), "it is well again");
}

#[tokio::test(start_paused = true)]
async fn the_board_says_what_the_circuit_says() {
    let (health, tenant_status) = a_health();
    for (status, holds, reason) in [
        (StatusCode::OK, true, "Healthy"),
        (StatusCode::SERVICE_UNAVAILABLE, false, "Degraded"),
        (StatusCode::NOT_FOUND, true, "Healthy"),
        (StatusCode::TOO_MANY_REQUESTS, false, "Degraded"),
        (StatusCode::CONFLICT, true, "Healthy"),
        (StatusCode::UNAUTHORIZED, false, "CredentialRefused"),
        (StatusCode::FORBIDDEN, true, "Healthy"),
    ] {
        answered(&health, status, 1).await;
        assert!(said(&tenant_status).0, "once is an accident: {status}");
        answered(&health, status, 2).await;
        assert_eq!(said(&tenant_status).0, holds, "{status}");
        assert_eq!(said(&tenant_status).1, reason, "{status}");
    }
    answered(&health, StatusCode::INTERNAL_SERVER_ERROR, 3).await;
    assert!(said(&tenant_status).2.contains("500"));
    answered(&health, StatusCode::BAD_GATEWAY, 1).await;
    assert!(
        said(&tenant_status).2.contains("502"),
        "another failure is news"
    );
    health.due().await;
    let refused = std::io::Error::other("refused");
    health.admit(&Method::GET).unwrap().unreachable(&refused);
    assert_eq!(
        said(&tenant_status),
        (false, Reason::Unreachable, "refused".to_owned())
    );
    health.due().await;
    health
        .admit(&Method::GET)
        .unwrap()
        .answered(&an_answer(StatusCode::OK));
    assert!(said(&tenant_status).0);
}

#[tokio::test(start_paused = true)]
async fn a_state_keeps_its_beginning_and_says_its_last_cause() {
    let (health, _) = a_health();
    assert_eq!(health.state(), Connectivity::Unknown);
    for cause in ["refused", "reset", "refused"] {
        health.due().await;
        let error = std::io::Error::other(cause);
        health.admit(&Method::GET).unwrap().unreachable(&error);
        let since = Timestamp::UNIX_EPOCH;
        let why = cause.to_owned();
        assert_eq!(health.state(), Connectivity::Unreachable { since, why });
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    answered(&health, StatusCode::BAD_GATEWAY, 1).await;
    let Connectivity::Degraded { since, .. } = health.state() else {
        panic!("{:?}", health.state());
    };
    assert!(since > Timestamp::UNIX_EPOCH, "another state has begun");
}

/// The error of a call on a connection that its server closes.
async fn closed() -> h2::Error {
    let (here, there) = tokio::io::duplex(4096);
    let serve = async {
        let mut server = h2::server::handshake(there).await.unwrap();
        let call = server.accept().await;
        server.abrupt_shutdown(h2::Reason::NO_ERROR);
        while server.accept().await.is_some() {}
        drop(call);
    };
    let call = async {
        let (mut sender, connection) = h2::client::handshake(here).await.unwrap();
        let (answer, _) = sender.send_request(Request::new(()), true).unwrap();
        let (answer, _) = tokio::join!(answer, connection);
        answer.unwrap_err()
    };
    tokio::join!(serve, call).1
}

/// An API server closes the connection after such an answer, with the calls that are on it.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_closed_after_a_refusal_is_part_of_the_refusal() {
    let (health, tenant_status) = a_health();
    let unreachable = async |error: &(dyn Error + 'static)| {
        health.due().await;
        health.admit(&Method::GET).unwrap().unreachable(error);
    };
    answered(&health, StatusCode::UNAUTHORIZED, 3).await;
    for _ in 0..4 {
        unreachable(&closed().await).await;
        assert_eq!(said(&tenant_status).1, Reason::CredentialRefused);
    }
    unreachable(&std::io::Error::other("no route")).await;
    assert_eq!(said(&tenant_status).1, Reason::Unreachable);
    unreachable(&closed().await).await;
    assert_eq!(said(&tenant_status).1, Reason::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn who_waits_until_it_is_well_wakes_when_it_is() {
    let (health, _) = a_health();
    let refused = std::io::Error::other("refused");
    health.admit(&Method::GET).unwrap().unreachable(&refused);
    assert!(health.holds_back());
    assert!(health.admit(&Method::GET).is_err());
    let heal = async {
        health.due().await;
        let probe = health.admit(&Method::GET).expect("it is due");
        assert!(health.admit(&Method::GET).is_err(), "one call decides");
        drop(probe);
        let probe = health.admit(&Method::GET).expect("the other was given up");
        probe.answered(&an_answer(StatusCode::OK));
    };
    tokio::join!(health.well(), heal);
    assert_eq!(health.state(), Connectivity::Healthy);
}

#[tokio::test(start_paused = true)]
async fn errors_of_writes_leave_the_cluster_healthy_and_those_of_reads_do_not() {
    let failed = an_answer(StatusCode::INTERNAL_SERVER_ERROR);
    for (method, is_wrong) in [
        (Method::POST, false),
        (Method::PATCH, false),
        (Method::GET, true),
    ] {
        let (health, _) = a_health();
        for _ in 0..3 {
            health.admit(&method).unwrap().answered(&failed);
        }
        assert_eq!(health.is_wrong(), is_wrong, "{method}");
        assert_eq!(health.holds_back(), is_wrong, "{method}");
    }
    let (health, _) = a_health();
    for _ in 0..3 {
        let unavailable = an_answer(StatusCode::SERVICE_UNAVAILABLE);
        health.admit(&Method::POST).unwrap().answered(&unavailable);
    }
    assert!(health.is_wrong(), "another error of a write counts");
}

#[tokio::test(start_paused = true)]
async fn a_state_that_was_forgotten_is_news_again() {
    let (health, tenant_status) = a_health();
    answered(&health, StatusCode::OK, 1).await;
    assert!(!health.is_wrong());
    tenant_status.set_condition(
        ConditionType::Connected,
        ConditionState::wrong(Reason::Quarantined, "why"),
    );
    answered(&health, StatusCode::OK, 1).await;
    assert_eq!(said(&tenant_status).1, "Quarantined", "it was not news");
    health.forget();
    assert_eq!(health.state(), Connectivity::Unknown);
    answered(&health, StatusCode::OK, 1).await;
    assert_eq!(said(&tenant_status).1, "Healthy");
}

#[test]
fn a_call_that_was_held_back_is_found_among_the_causes() {
    let held_back = kube::Error::Service(Box::new(HeldBack));
    assert!(HeldBack::is_cause_of(&HeldBack));
    assert!(HeldBack::is_cause_of(&held_back));
    assert!(!HeldBack::is_cause_of(&std::io::Error::other("refused")));
}

/// Creates an answer from a connection that carries one call at a time.
fn alone() -> Response<()> {
    let mut answer = Response::new(());
    answer.extensions_mut().insert(OneCallAtATime);
    answer
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_speaks_http1_is_asked_when_it_has_been_quiet() {
    let (health, _) = a_health();
    let is_quiet = || futures::FutureExt::now_or_never(health.quiet()).is_some();
    answered(&health, StatusCode::OK, 1).await;
    tokio::time::advance(QUIET_MAX).await;
    assert!(!is_quiet(), "its connection has pings");
    health.admit(&Method::GET).unwrap().answered(&alone());
    assert!(!is_quiet(), "it has just answered");
    tokio::time::advance(QUIET_MAX).await;
    assert!(is_quiet());
    health.admit(&Method::GET).unwrap().answered(&alone());
    assert!(!is_quiet());
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_given_up_when_its_server_does_not_answer_and_not_when_it_refuses() {
    let (health, _) = a_health();
    let is_lost = || futures::FutureExt::now_or_never(health.silent()).is_some();
    answered(&health, StatusCode::SERVICE_UNAVAILABLE, 3).await;
    assert!(!is_lost());
    answered(&health, StatusCode::OK, 1).await;
    let silence = std::io::Error::other("no answer");
    health.admit(&Method::GET).unwrap().unreachable(&silence);
    assert!(is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_failure_with_another_time_in_it_is_no_news() {
    let (health, tenant_status) = a_health();
    for second in 1..9 {
        health.due().await;
        let error = std::io::Error::other(format!("the time is {second}"));
        health.admit(&Method::GET).unwrap().unreachable(&error);
        let (_, reason, message) = said(&tenant_status);
        assert_eq!(
            (reason, message.as_str()),
            (Reason::Unreachable, "the time is 1")
        );
    }
    health.watch_failed("the first".to_owned());
    answered(&health, StatusCode::OK, 1).await;
    for why in ["the first", "the second", "the first"] {
        health.watch_failed(why.to_owned());
        assert_eq!(said(&tenant_status).2, "the first");
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_api_server_answers_is_a_failure() {
    for status in [StatusCode::FOUND, StatusCode::NO_CONTENT] {
        let (health, tenant_status) = a_health();
        answered(&health, status, 3).await;
        assert_eq!(said(&tenant_status).1, "Degraded", "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_differ_are_reported_until_they_do_not() {
    let (health, tenant_status) = a_health();
    let answer_at = |date: &str| {
        let mut answer = an_answer(StatusCode::OK);
        let date = date.parse().unwrap();
        answer.headers_mut().insert(http::header::DATE, date);
        health.admit(&Method::GET).unwrap().answered(&answer);
    };
    answer_at("Thu, 01 Jan 1970 00:00:10 GMT");
    assert_eq!(said(&tenant_status).1, "Healthy");
    assert_eq!(health.server_time(), Timestamp::UNIX_EPOCH);
    answer_at("Thu, 01 Jan 1970 02:00:10 GMT");
    let (holds, reason, message) = said(&tenant_status);
    assert!(holds && reason == "ClocksDiffer", "{reason}");
    assert!(
        message.contains("clock is 2h ahead of the manager's"),
        "{message}"
    );
    assert_eq!(health.server_time().as_second(), 7_210);
    // A failing watch is reported first, but the difference of the clocks is not forgotten.
    health.watch_failed("why".to_owned());
    answer_at("Thu, 01 Jan 1970 02:00:20 GMT");
    assert_eq!(said(&tenant_status).1, "WatchFailed");
    tokio::time::advance(WATCH_PROBLEM).await;
    answer_at("Thu, 01 Jan 1970 02:01:20 GMT");
    assert_eq!(said(&tenant_status).1, "ClocksDiffer");
    answer_at("Thu, 01 Jan 1970 00:01:00 GMT");
    assert_eq!(said(&tenant_status).1, "Healthy");
    assert_eq!(health.server_time().as_second(), 60);
}
