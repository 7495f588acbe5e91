//! The traces of the real binary, in an OpenTelemetry Collector of the project of that name:
//! `.ci/go-programs monitoring` has it built.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use loadtest::collector::{Span, tree};
use osm::telemetry::metrics::Trigger;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::fixtures::{a_little_machine_deployment, a_profile};
use crate::process::Binary;
use crate::rotation::{change_profile, install};
use crate::server::ok;
use crate::stage::Stage;
use crate::wait;
use crate::world::World;

/// Spans wait in a queue of 2,048: what is kept for a collector that is dead is less than this.
const GROWTH_KIB_MAX: u64 = 48 * 1024;
/// Changes that leave a dozen spans each where each is looked at: about what the queue takes.
const CHANGES: usize = 200;
/// No change waits for a budget.
const UNHURRIED: [&str; 4] = [
    "--worker-requests=1000",
    "--worker-burst=1000",
    "--management-requests=1000",
    "--management-burst=1000",
];

/// A process that receives by OTLP, and writes each batch as a line of JSON.
struct RealCollector {
    child: Child,
    endpoint: String,
    folder: TempDir,
}

impl RealCollector {
    async fn start() -> Self {
        let folder = ok(tempfile::tempdir(), "there is room for a folder");
        let free = ok(TcpListener::bind("127.0.0.1:0").await, "a port is free");
        let address = ok(free.local_addr(), "it has an address").to_string();
        drop(free);
        let config = json!({
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": address}}}},
            "exporters": {"file": {
                "path": folder.path().join("traces").display().to_string(),
                "flush_interval": "100ms",
            }},
            "service": {
                "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
            },
        });
        let file = folder.path().join("config.yaml");
        ok(
            std::fs::write(&file, config.to_string()),
            "the folder is ours",
        );
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/monitoring/collector");
        let child = Command::new(program)
            .arg("--config")
            .arg(format!("file:{}", file.display()))
            .env_clear()
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect(".ci/go-programs monitoring has built the collector");
        wait::until("the collector listens", async || {
            TcpStream::connect(&address).await.ok().map(drop)
        })
        .await;
        Self {
            child,
            endpoint: format!("http://{address}"),
            folder,
        }
    }

    fn spans(&self) -> Vec<Span> {
        let file: PathBuf = self.folder.path().join("traces");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        // The last line may be on its way.
        let batches = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        batches.flat_map(|batch: Value| spans_of(&batch)).collect()
    }
}

fn array<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// What OTLP calls spans, in its JSON.
fn spans_of(batch: &Value) -> Vec<Span> {
    array(batch, "resourceSpans")
        .flat_map(|resource| array(resource, "scopeSpans"))
        .flat_map(|scope| array(scope, "spans"))
        .map(span_of)
        .collect()
}

fn span_of(span: &Value) -> Span {
    let text = |key: &str| span.get(key).and_then(Value::as_str).unwrap_or_default();
    let nanoseconds = |key: &str| text(key).parse::<u64>().unwrap_or_default();
    let (start, end) = (
        nanoseconds("startTimeUnixNano"),
        nanoseconds("endTimeUnixNano"),
    );
    let attributes = array(span, "attributes").filter_map(|pair| {
        let value = pair.get("value")?.as_object()?.values().next()?;
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        Some((pair.get("key")?.as_str()?.to_owned(), value))
    });
    let parent = text("parentSpanId").to_owned();
    Span {
        trace_id: text("traceId").to_owned(),
        span_id: text("spanId").to_owned(),
        parent_span_id: (!parent.is_empty()).then_some(parent),
        name: text("name").to_owned(),
        kind: if span.get("kind") == Some(&json!(3)) {
            "client"
        } else {
            "internal"
        },
        start,
        duration: std::time::Duration::from_nanos(end.saturating_sub(start)),
        attributes: attributes.collect(),
        ..Span::default()
    }
}

fn attribute<'a>(span: &'a Span, key: &str) -> &'a str {
    span.attributes.get(key).map_or("", String::as_str)
}

/// The trace of a reconcile that wrote so much, whole, by start.
fn reconcile(spans: &[Span], writes: &str) -> Option<Vec<Span>> {
    let is_root = |span: &&Span| {
        span.name == "reconcile machine deployment" && attribute(span, "writes") == writes
    };
    let root = spans.iter().find(is_root)?;
    let of_it = spans.iter().filter(|span| span.trace_id == root.trace_id);
    let mut of_it: Vec<Span> = of_it.cloned().collect();
    of_it.sort_by_key(|span| span.start);
    of_it
        .iter()
        .any(|span| span.name == "apply")
        .then_some(of_it)
}

pub async fn a_real_collector_shows_what_a_reconcile_did_and_its_death_costs_traces_alone(
    world: &'static World,
) {
    let stage = Stage::open(world, "collector");
    let tenant = stage.tenant().await;
    let mut collector = RealCollector::start().await;
    let exporting = ["--otlp-endpoint", &collector.endpoint];
    let binary = Binary::start(&stage, &[&exporting[..], &UNHURRIED].concat());
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    tenant.register().await;
    drop(tenant.serve(&a_little_machine_deployment("workers")).await);
    let trace = wait::until("the trace of the first reconcile comes", async || {
        reconcile(&collector.spans(), "5")
    })
    .await;
    check_trace(&trace);

    ok(collector.child.kill().await, "it is ours");
    let before = binary.resident_kib();
    for number in 0..CHANGES {
        let number = number.to_string();
        tenant
            .annotate("workers", ("example.com/number", &number))
            .await;
    }
    change_profile(&tenant, "v1.0.1", "second").await;
    drop(tenant.serve(&a_little_machine_deployment("more")).await);
    let after = binary.resident_kib();
    eprintln!("resident memory: {before} KiB with a collector, {after} KiB without");
    assert!(
        after < before + GROWTH_KIB_MAX,
        "{before} KiB grew to {after} KiB"
    );
    wait::until("the loss is told", async || {
        binary.log().contains("traces are lost").then_some(())
    })
    .await;
    assert_eq!(binary.log().matches("traces are lost").count(), 1);
    binary.stop().await;
}

/// What triggered it, what it waited for, what it wrote, how long each call took.
fn check_trace(trace: &[Span]) {
    let root = trace.iter().find(|span| span.parent_span_id.is_none());
    let root = root.expect("a trace has a root");
    let shown = tree(&root.trace_id, trace);
    eprintln!("{shown}");
    assert!(
        Trigger::VALUES.contains(&attribute(root, "trigger")),
        "{shown}"
    );
    assert_ne!(
        attribute(root, "trigger"),
        Trigger::Other.as_str(),
        "{shown}"
    );
    let waited: f64 = ok(
        attribute(root, "queue_wait_ms").parse(),
        "it says for how long",
    );
    assert!(waited >= 0.0, "{shown}");
    let child = |name: &str| {
        let mut found = trace.iter();
        let found = found
            .find(|span| span.name == name && span.parent_span_id.as_ref() == Some(&root.span_id));
        found.unwrap_or_else(|| unreachable!("{name} is not in\n{shown}"))
    };
    for name in ["k8s.cluster.name", "k8s.cluster.uid", "k8s.namespace.name"] {
        assert!(!attribute(root, name).is_empty(), "{name}: {shown}");
    }
    for step in ["dereference", "validate", "wait for a worker", "render"] {
        assert!(child(step).duration <= root.duration, "{shown}");
    }
    let apply = child("apply");
    let writes: Vec<&Span> = trace
        .iter()
        .filter(|span| span.parent_span_id.as_ref() == Some(&apply.span_id))
        .collect();
    // Token, kubelet kubeconfig, config, provisioning, bootstrap.
    assert_eq!(writes.len(), 5, "{shown}");
    for write in writes {
        assert_eq!(write.kind, "client", "{shown}");
        assert_eq!(attribute(write, "osm.request.verb"), "create", "{shown}");
        assert_eq!(
            attribute(write, "http.response.status_code"),
            "201",
            "{shown}"
        );
        assert!(!write.duration.is_zero(), "{shown}");
    }
}
