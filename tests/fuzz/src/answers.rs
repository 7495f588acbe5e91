//! What must hold for any answer of an API server, and for any review that one sends.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
};
use osm::{
    admission::reviewer::Reviewer,
    api::{machine_deployment::MachineDeployment, names::is_path_segment},
    client::{
        connect::{self, ClientParts},
        pages::Pages,
        rate_limit::Budget,
        transport::ResponseBody,
    },
    telemetry::metrics::{ClusterKind, Metrics},
    tenant::policy::TenantPolicy,
};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::{BoxError, ServiceExt as _, service_fn, util::BoxCloneSyncService};

/// As many objects as are asked for.
const PAGE: u32 = 3;
/// Longer than anybody waits.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A page of a list is read or refused, and has no more objects than were asked for.
pub fn list(data: &[u8]) {
    paused().block_on(async {
        let api = Api::all(answering(data));
        let read = Pages::of(ListParams::default(), PAGE).next(&api).await;
        let found: Vec<MachineDeployment> =
            read.ok().flatten().map_or_else(Vec::new, |it| it.objects);
        assert!(found.len() <= PAGE as usize);
        found.iter().for_each(has_a_name);
    });
}

/// Events of a watch are read or refused.
pub fn watch_event(data: &[u8]) {
    paused().block_on(async {
        let api: Api<MachineDeployment> = Api::all(answering(data));
        let Ok(events) = api.watch(&WatchParams::default(), "0").await else {
            return;
        };
        let read = events.for_each(|event| async {
            if let Ok(WatchEvent::Added(it) | WatchEvent::Modified(it) | WatchEvent::Deleted(it)) =
                event
            {
                has_a_name(&it);
            }
        });
        read.await;
    });
}

/// A review is answered under its own name, or refused.
pub fn review(data: &[u8]) {
    for path in [
        "/mutate-v1alpha1-machinedeployment",
        "/operatingsystemprofile",
        "/operatingsystemconfig",
        "/workercluster",
    ] {
        ordinary().block_on(async {
            let router = Reviewer::new(Metrics::new()).router();
            let asked = Request::post(path).body(axum::body::Body::from(data.to_vec()));
            let answered = router.oneshot(asked.expect("a request")).await;
            let Ok(answer) = answered;
            let status = answer.status();
            assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "it panicked");
            let body = answer.into_body().collect().await.expect("it is whole");
            // A parser that skips a field accepts a number in it that is too large.
            if status == StatusCode::OK
                && let Ok(asked) = serde_json::from_slice::<Value>(data)
            {
                assert!(str::from_utf8(data).is_ok());
                let answer: Value =
                    serde_json::from_slice(&body.to_bytes()).expect("an answer is JSON");
                let uid = "/request/uid";
                assert_eq!(answer.pointer("/response/uid"), asked.pointer(uid));
            }
        });
    }
}

/// A name that says more than a name would lead a request elsewhere.
fn has_a_name(found: &MachineDeployment) {
    let (name, namespace) = (found.name_any(), found.namespace().unwrap_or_default());
    assert!(name.is_empty() || is_path_segment(&name));
    assert!(namespace.is_empty() || is_path_segment(&namespace));
}

/// A client whose only answer is what stands behind the first byte, in parts of that many bytes.
fn answering(data: &[u8]) -> Client {
    let (size, answer) = data.split_first().unwrap_or((&1, &[]));
    let parts = answer.chunks(usize::from(*size).max(1));
    let parts: Vec<Bytes> = parts.map(Bytes::copy_from_slice).collect();
    let transport = service_fn(move |_: Request<kube::client::Body>| {
        let parts = parts.clone();
        async move {
            let frames = parts.into_iter().map(|part| Ok(Frame::data(part)));
            let body = ResponseBody::new(StreamBody::new(stream::iter(frames)));
            Ok::<_, BoxError>(Response::new(body))
        }
    });
    connect::client(ClientParts {
        transport: BoxCloneSyncService::new(transport),
        budget: Arc::new(Budget::new(TenantPolicy::default().worker_requests)),
        share: None,
        timeout: TIMEOUT,
        health: None,
        fence: None,
        memory: None,
        kind: ClusterKind::Worker,
        metrics: Metrics::new(),
    })
}

/// Where nobody waits for a clock.
fn paused() -> Runtime {
    let paused = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    paused.expect("a runtime")
}

fn ordinary() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime")
}
