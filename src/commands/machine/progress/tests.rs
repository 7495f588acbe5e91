//! Tests of the output for a machine, by how far it has come.

use super::*;

/// Returns the facts about a machine that is a Ready node. Each test changes some of them.
fn joined() -> Observations {
    let issued = || CertificateRequest {
        name: "csr-1".to_owned(),
        approved: true,
        issued: true,
        ..CertificateRequest::default()
    };
    Observations {
        namespace: "kube-system".to_owned(),
        name: "one".to_owned(),
        machine: Known::Is(Some(Machine::default())),
        documents: Known::Is(Documents {
            deployment: "kube-system/workers".to_owned(),
            revision: "3".to_owned(),
            made_for: vec!["3".to_owned()],
            ..Documents::default()
        }),
        fetched: Known::Is(Some("2026-03-01".to_owned())),
        client: Known::Is(vec![issued()]),
        serving: Known::Is(vec![issued()]),
        node: Known::Is(Some(Node {
            ready: Some(("True".to_owned(), None, String::new())),
            ..Node::default()
        })),
    }
}

fn is_new() -> Observations {
    Observations {
        fetched: Known::Is(None),
        client: Known::Is(Vec::new()),
        serving: Known::Is(Vec::new()),
        node: Known::Is(None),
        ..joined()
    }
}

fn next(observed: &Observations) -> String {
    progress(observed).next.expect("it is not Ready")
}

#[test]
fn a_ready_node_needs_no_look() {
    let progress = progress(&joined());
    assert!(progress.ready && progress.next.is_none(), "{progress:?}");
    assert!(progress.steps.iter().all(|it| it.state != State::Waiting));
}

#[test]
fn the_first_step_that_is_not_done_says_what_to_look_at() {
    let mut observed = is_new();
    assert!(next(&observed).contains("console"));
    observed.client = Known::Is(vec![CertificateRequest {
        name: "csr-7".to_owned(),
        ..CertificateRequest::default()
    }]);
    assert!(next(&observed).contains("kubectl certificate approve csr-7"));
    observed.client = Known::Is(vec![CertificateRequest {
        approved: true,
        ..CertificateRequest::default()
    }]);
    assert!(next(&observed).contains("--cluster-signing-cert-file"));
    observed.client = joined().client;
    assert!(next(&observed).contains("journalctl -u kubelet"));
    observed.node = Known::Is(Some(Node {
        ready: Some(("False".to_owned(), None, "no network".to_owned())),
        ..Node::default()
    }));
    assert!(next(&observed).contains("no network"));
}

#[test]
fn what_went_wrong_comes_before_what_waits() {
    let mut observed = is_new();
    observed.documents = Known::Is(Documents {
        deployment: "kube-system/workers".to_owned(),
        missing: vec!["it".to_owned()],
        ..Documents::default()
    });
    assert!(next(&observed).contains("osm explain kube-system/workers"));
}

#[test]
fn what_may_not_be_read_is_unknown_and_said_after_what_is_known() {
    let forbidden = || "forbidden".to_owned();
    let mut observed = is_new();
    observed.client = Known::Unknown(forbidden());
    assert!(
        next(&observed).contains("console"),
        "the token was never used"
    );
    observed.fetched = Known::Unknown(forbidden());
    observed.node = Known::Unknown(forbidden());
    assert_eq!(next(&observed), "document fetched is unknown: forbidden");
}

#[test]
fn a_later_step_proves_an_earlier_one() {
    let mut observed = joined();
    observed.fetched = Known::Is(None);
    observed.client = Known::Is(Vec::new());
    let progress = progress(&observed);
    let proven = |step: &str| {
        progress
            .steps
            .iter()
            .any(|it| it.step == step && it.state == State::Done)
    };
    assert!(proven(FETCHED) && proven(CLIENT), "{progress:?}");
}

#[test]
fn a_node_does_not_hide_that_its_new_certificate_is_refused() {
    let mut observed = joined();
    observed.client = Known::Is(vec![CertificateRequest {
        name: "csr-9".to_owned(),
        refused: Some("Denied: no".to_owned()),
        ..CertificateRequest::default()
    }]);
    observed.node = Known::Is(Some(Node {
        ready: Some(("Unknown".to_owned(), None, "stopped".to_owned())),
        ..Node::default()
    }));
    assert_eq!(next(&observed), "kubectl describe csr csr-9");
}

#[test]
fn what_the_machine_is_past_is_not_what_to_look_at() {
    let mut observed = joined();
    observed.machine = Known::Is(None);
    observed.documents = Known::Is(Documents {
        missing: vec!["it".to_owned()],
        ..Documents::default()
    });
    observed.node = Known::Is(Some(Node {
        ready: Some(("Unknown".to_owned(), None, "stopped".to_owned())),
        ..Node::default()
    }));
    assert!(next(&observed).contains("no longer reports"));
}

#[test]
fn a_machine_that_reports_says_how_it_differs_from_its_document() {
    let mut observed = joined();
    let Known::Is(Some(node)) = &mut observed.node else {
        unreachable!("it has joined")
    };
    let since = Some("2026-03-01T08:00:00Z".to_owned());
    node.applied = Some(("False".to_owned(), since, "files differ".to_owned()));
    let mut behind = observed.clone();
    if let Known::Is(Some(node)) = &mut behind.node {
        node.is_behind = true;
    }
    let waits = super::progress(&behind).steps;
    assert_eq!(waits.last().unwrap().state, State::Waiting);
    let progress = progress(&observed);
    let step = progress.steps.last().unwrap();
    assert_eq!((step.step, step.state), (APPLIED, State::Failed));
    assert_eq!(step.detail, "False 2026-03-01T08:00:00Z: files differ");
    assert!(progress.ready && progress.next.is_none(), "{progress:?}");
}
