//! The real binary, as a process: its traces, its end, and what it never tells.

use kube::ResourceExt;
use loadtest::collector::{Collector, Span};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::administrator::list;
use crate::fixtures::{self, a_little_machine_deployment, a_machine_deployment, a_profile};
use crate::process::{Binary, sum};
use crate::proxy::Proxy;
use crate::rotation::{change_profile, install};
use crate::server::ok;
use crate::stage::Stage;
use crate::wait::{self, DEADLINE};
use crate::world::{IN_WORKER, World};

pub async fn a_reconcile_is_one_trace_with_its_steps_flushed_at_sigterm(world: &'static World) {
    let stage = Stage::open(world, "trace");
    let tenant = stage.tenant().await;
    let collector = ok(Collector::start().await, "loopback has a free port");
    let binary = Binary::start(&stage, &["--otlp-endpoint", &collector.endpoint()]);
    tenant.register().await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    binary.stop().await;
    let is_whole = |spans: &[Span]| spans.iter().any(|span| is_first_success(span, spans));
    let spans = ok(
        collector.wait_for(is_whole, DEADLINE).await,
        "the trace came",
    );
    let root = spans.iter().find(|span| is_first_success(span, &spans));
    let root = root.expect("it was just seen");
    assert_eq!(root.parent_span_id, None);
    for (key, value) in [
        ("tenant", tenant.namespace.as_str()),
        ("namespace", "kube-system"),
        ("name", "workers"),
        ("revision", "1"),
    ] {
        assert_eq!(
            root.attributes.get(key).map(String::as_str),
            Some(value),
            "{root:?}"
        );
    }
    let tree = collector.tree(&root.trace_id);
    for step in ["dereference", "validate", "render", "apply"] {
        assert!(
            tree.contains(&format!("\n  {step}  ")),
            "{step} is a step of:\n{tree}"
        );
    }
    let apply = child(&spans, root, "apply").expect("it applied");
    let calls = spans.iter().filter(|span| {
        span.kind == "client" && span.parent_span_id.as_ref() == Some(&apply.span_id)
    });
    // Token, kubelet kubeconfig, config, provisioning, bootstrap.
    assert_eq!(calls.count(), 5, "{tree}");
}

pub async fn a_reconcile_is_linked_to_what_its_machine_deployment_was_changed_for(
    world: &'static World,
) {
    let stage = Stage::open(world, "trace-link");
    let tenant = stage.tenant().await;
    let collector = ok(Collector::start().await, "loopback has a free port");
    let endpoint = collector.http_endpoint();
    let over_http = [
        "--otlp-endpoint",
        &endpoint,
        "--otlp-protocol",
        "http/protobuf",
    ];
    let binary = Binary::start(&stage, &over_http);
    tenant.register().await;
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    for (name, traceparent) in [
        ("linked", format!("00-{trace}-{span}-01")),
        ("not-linked", format!("00-{trace}-nothing-01")),
    ] {
        let mut made = a_machine_deployment(name);
        let annotations = made.metadata.annotations.get_or_insert_default();
        annotations.insert("traceparent".to_owned(), traceparent);
        drop(tenant.serve(&made).await);
    }
    binary.stop().await;
    let roots = |spans: &[Span], name: &str| -> Vec<Span> {
        let mut found = spans.to_vec();
        found.retain(|it| {
            it.parent_span_id.is_none() && it.attributes.get("name").is_some_and(|it| it == name)
        });
        found
    };
    let both = |spans: &[Span]| {
        ["linked", "not-linked"]
            .iter()
            .all(|name| !roots(spans, name).is_empty())
    };
    let spans = ok(collector.wait_for(both, DEADLINE).await, "they came");
    for root in roots(&spans, "linked") {
        assert_eq!(root.links, [(trace.to_owned(), span.to_owned())]);
        assert_ne!(root.trace_id, trace, "a link is no parent");
    }
    for root in roots(&spans, "not-linked") {
        assert_eq!(root.links, []);
    }
}

/// The first reconcile that wrote everything.
fn is_first_success(root: &Span, spans: &[Span]) -> bool {
    root.name == "reconcile machine deployment"
        && root.attributes.get("writes").map(String::as_str) == Some("5")
        && child(spans, root, "apply").is_some()
}

fn child<'a>(spans: &'a [Span], parent: &Span, name: &str) -> Option<&'a Span> {
    let mut spans = spans.iter();
    spans.find(|span| span.name == name && span.parent_span_id.as_ref() == Some(&parent.span_id))
}

pub async fn a_second_signal_ends_the_process_at_once(world: &'static World) {
    let stage = Stage::open(world, "signals");
    let tenant = stage.tenant().await;
    let proxy = Proxy::start(&tenant.worker.url()).await;
    let authority = tenant.worker.authority();
    let token = tenant.worker.token(IN_WORKER).await;
    let kubeconfig = fixtures::a_kubeconfig(&proxy.url(), &authority, &token);
    // A call that is under way is waited for longer than this test is willing to wait.
    let binary = Binary::start(
        &stage,
        &["--request-timeout", "10m", "--lease-duration", "20m"],
    );
    tenant.register_as(crate::stage::WORKER, &kubeconfig).await;
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    let made = tenant.serve(&a_little_machine_deployment("workers")).await;
    // The answer to the last write must have come, or the frozen proxy keeps it.
    has_served(&binary.admin_address().await).await;
    proxy.freeze();
    change_profile(&tenant, "v1.0.1", "second").await;
    // After the config comes a Secret of the worker cluster: that call gets no answer.
    wait::for_object(
        &tenant.configs(),
        &made.names.config,
        "it is new",
        |found| found.uid() != made.config.uid(),
    )
    .await;
    binary.signal("TERM").await;
    wait::until("the first signal is heard", async || {
        binary
            .log()
            .contains("a second signal ends at once")
            .then_some(())
    })
    .await;
    binary.signal("TERM").await;
    let (status, log) = binary.ended().await;
    assert_eq!(status.code(), Some(130), "{log}");
}

/// Everything of a kind, as JSON.
pub async fn all<K: wait::Watched>(api: &kube::Api<K>) -> String {
    let listed = list(api).await;
    assert!(listed.iter().all(|it| !it.name_any().is_empty()));
    serde_json::to_string(&listed).expect("objects are JSON")
}

/// A page of the admin port.
pub async fn page(address: &str, path: &str) -> String {
    page_with(address, (path, &format!("Host: {address}"))).await
}

/// A page of the admin port, asked for with these lines of a head.
pub async fn page_with(address: &str, (path, head): (&str, &str)) -> String {
    let request = format!("GET {path} HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n");
    send(address, &request).await
}

/// The answer to this request, after which the connection is closed.
pub async fn send(address: &str, request: &str) -> String {
    let mut stream = ok(TcpStream::connect(address).await, "the port is open");
    ok(stream.write_all(request.as_bytes()).await, "it is sent");
    let mut text = String::new();
    ok(stream.read_to_string(&mut text).await, "it is answered");
    text
}

/// Waits until a process whose admin port has this address has served a machine deployment.
pub async fn has_served(address: &str) {
    wait::until("a machine deployment is served", async || {
        let metrics = page(address, "/metrics").await;
        let served = sum(&metrics, "osm_reconciles_total", "outcome=\"served\"");
        (served > 0.0).then_some(())
    })
    .await;
}
