//! The page of one tenant.

use axum::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{HOSTILE, a_row, a_state, ask, on_loopback, text};
use crate::admin::fleet_page::Fleet;
use crate::tenant::{
    settings::TenantSettings,
    summary::{FleetSummary, Rfc3339Time, Row, SentEvent, Sort, TenantPage},
};

/// A fleet of these rows.
pub(super) struct Rows(pub Vec<Row>);

impl Fleet for Rows {
    fn summary(&self, sort: Sort) -> FleetSummary {
        let taken_by = ("osm-0".to_owned(), Timestamp::from_second(4_700).unwrap());
        FleetSummary::new(taken_by, self.0.clone(), sort)
    }

    fn tenant(&self, name: &str) -> Option<TenantPage> {
        let row = self.0.iter().find(|row| row.name == name)?.clone();
        let why = row.why.clone().unwrap_or_default();
        let status = json!({
            "server": "https://one.example",
            "conditions": [{
                "type": "Ready", "status": "False", "reason": "SomeNotServed", "message": why,
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }],
            "machineDeployments": [{
                "name": "kube-system/workers", "state": "Failing", "reason": "CallFailed",
                "message": why, "since": "1970-01-01T00:00:00Z", "traceId": "4bf92f",
                "profile": { "name": "osp-ubuntu", "version": "v1.0.0" },
                "behind": { "class": "Reload", "parts": "/etc/crictl.yaml", "document": "a" },
            }, {
                "name": "kube-system/new", "state": "Waiting", "reason": "AwaitingProfile",
                "since": "1970-01-01T00:00:00Z",
            }],
        });
        let settings = TenantSettings {
            http_proxy: Some("http://robot:hunter2@proxy.example".to_owned()),
            ..TenantSettings::default()
        };
        Some(TenantPage {
            replica: "osm-0".to_owned(),
            taken_at: Rfc3339Time(Timestamp::from_second(4_700).unwrap()),
            tenant: row,
            status: serde_json::from_value(status).unwrap(),
            settings: settings.in_use(None, &TenantSettings::default()),
            settings_refused: None,
            events: vec![SentEvent {
                at: Rfc3339Time(Timestamp::from_second(4_640).unwrap()),
                is_warning: true,
                reason: "SomeNotServed".to_owned(),
                about: "WorkerCluster tenant-berlin/berlin".to_owned(),
                note: why,
            }],
        })
    }
}

#[tokio::test]
async fn a_tenant_has_a_page_with_all_that_is_known_of_it() {
    let state = a_state(on_loopback(), vec![a_row("berlin/worker", "lost")]);
    let page = text(&state, "/fleet?tenant=berlin/worker").await;
    for told in [
        "<h1>berlin&#x2f;worker</h1>",
        "<dt>API server</dt><dd>https:&#x2f;&#x2f;one.example</dd>",
        "<th scope=\"row\">Ready</th><td class=\"is-false\">False</td>",
        "SomeNotServed: CallFailed: kube-system&#x2f;lost: lost",
        "<th scope=\"row\">kube-system&#x2f;workers</th><td class=\"is-failing\">Failing</td>",
        "<td>osp-ubuntu v1.0.0</td><td>Reload: &#x2f;etc&#x2f;crictl.yaml</td><td>4bf92f</td>",
        "<th scope=\"row\">clusterDNS</th>",
        "…@proxy.example",
        "<td>built in</td>",
        "1 min ago</time></td><td class=\"some\">SomeNotServed</td>",
        "href=\"fleet.json?tenant=berlin%2Fworker\"",
    ] {
        assert!(page.contains(told), "{told} is missing in {page}");
    }
    assert!(!page.contains("hunter2"), "{page}");
    let json = text(&state, "/fleet.json?tenant=berlin/worker").await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["tenant"]["name"], "berlin/worker");
    assert_eq!(json["status"]["machineDeployments"][0]["traceId"], "4bf92f");
    assert_eq!(json["events"][0]["reason"], "SomeNotServed");
    assert_eq!(json["settings"][0]["from"], "built in");
}

#[tokio::test]
async fn a_tenant_that_is_not_registered_is_not_found() {
    let state = a_state(on_loopback(), vec![a_row("berlin/worker", "lost")]);
    for (path, expected) in [
        ("/fleet?tenant=oslo/worker", "no tenant of this name"),
        ("/fleet?tenant=", "no tenant of this name"),
        ("/fleet.json?tenant=berlin", "no tenant of this name"),
    ] {
        let (answer, text) = ask(&state, path, "").await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
        assert!(text.contains(expected), "{path}: {text}");
    }
}

#[tokio::test]
async fn nothing_on_the_page_of_a_tenant_becomes_markup() {
    let state = a_state(on_loopback(), vec![a_row("berlin/worker", HOSTILE)]);
    let page = text(&state, "/fleet?tenant=berlin/worker").await;
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    assert_eq!(page.matches("<script").count(), 0, "{page}");
    assert_eq!(page.matches("<!--").count(), 0, "{page}");
}
