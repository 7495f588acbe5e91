//! What a hostile API server answers to lists and watches.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use fake_cluster::{Chunks, Fault, Matcher, Verb};
use serde_json::{Value, json};

use crate::load::fleet::{KUBE_SYSTEM, Worker, machine_deployment};

pub(super) const MACHINE_DEPLOYMENTS: &str = "machinedeployments";
pub(super) const SECRETS: &str = "secrets";
const MADE_FOR: &str = "operatingsystemmanager.k8c.io/machine-deployment";
const TOKEN_LABEL: &str = "machinedeployment.k8s.io/name";
const TOKEN_GROUP: &str = "system:bootstrappers:machine-controller:default-node-token";
const FINALIZER: &str = "kubermatic.io/cleanup-operating-system-configs";
const API_VERSION: &str = "cluster.k8s.io/v1alpha1";
/// What a long annotation of a Secret takes.
const ANNOTATION_BYTES: usize = 8 << 10;
/// What a uid takes that is longer than any.
const UID_BYTES: usize = 1 << 20;
/// What the secret part of a token takes that is longer than any, and such tokens in a page.
const TOKEN_BYTES: usize = 100 << 10;
const TOKENS: usize = 20;
/// What makes an event long: a busy machine sends few events a second.
const EVENT_BYTES: usize = 64 << 10;

pub(super) fn on_list(attacker: &Worker, resource: &str, chunks: Chunks) {
    let lists = Matcher::on(&[Verb::List], resource);
    attacker.server.cluster.inject(lists, Fault::Body(chunks));
}

/// Answers lists of bootstrap tokens.
pub(super) fn on_list_of_tokens(attacker: &Worker, chunks: Chunks) {
    let lists = Matcher {
        namespace: Some(KUBE_SYSTEM.to_owned()),
        ..Matcher::on(&[Verb::List], SECRETS)
    };
    attacker.server.cluster.inject(lists, Fault::Body(chunks));
}

pub(super) fn on_watch(attacker: &Worker, resource: &str, chunks: Chunks) {
    let watches = Matcher::on(&[Verb::Watch], resource);
    attacker.server.cluster.inject(watches, Fault::Body(chunks));
}

/// A list of ten million empty objects.
pub(super) fn empty_items() -> Chunks {
    let head = head("");
    let items = Bytes::from("{},".repeat(1000));
    Arc::new(move || {
        let items = std::iter::repeat_n(items.clone(), 10_000);
        Box::new(
            std::iter::once(head.clone())
                .chain(items)
                .chain(["{}]}".into()]),
        )
    })
}

/// A list that always has one more page of machine deployments that nobody has seen before.
pub(super) fn endless_list() -> anyhow::Result<Chunks> {
    let template = template()?;
    Ok(endless_pages(50, move |number| {
        template.replace(NUMBER, &number.to_string())
    }))
}

/// As [`endless_list`], with bootstrap tokens. Every other one is too long to be one.
pub(super) fn endless_tokens() -> Chunks {
    let long = "a".repeat(TOKEN_BYTES);
    endless_pages(TOKENS, move |number| {
        let (short, id) = ("0123456789abcdef", number.to_string());
        let (secret, description) = match number % 2 {
            0 => (short, &*long),
            _ => (&*long, short),
        };
        let data = [
            ("token-id", &*id),
            ("token-secret", secret),
            ("description", description),
            ("usage-bootstrap-authentication", "true"),
            ("auth-extra-groups", TOKEN_GROUP),
        ];
        let data = data.map(|(key, text)| (key.to_owned(), json!(STANDARD.encode(text))));
        let token = json!({
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {
                "name": format!("bootstrap-token-{id}"), "namespace": "kube-system",
                "uid": format!("uid-{id}"), "resourceVersion": id,
                "labels": { TOKEN_LABEL: format!("key-{id}") },
            },
            "data": Value::Object(data.into_iter().collect()),
        });
        token.to_string()
    })
}

/// As [`endless_list`], with endpoint slices of a thousand ready API servers each.
pub(super) fn endless_endpoints() -> Chunks {
    let endpoint = |index: usize| {
        let address = format!("10.{}.{}.1", index / 256, index % 256);
        json!({ "addresses": [address], "conditions": { "ready": true } })
    };
    let endpoints: Vec<Value> = (0..1_000).map(endpoint).collect();
    let slice = json!({
        "metadata": { "name": format!("kubernetes-{NUMBER}"), "namespace": "default" },
        "addressType": "IPv4", "endpoints": endpoints,
        "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
    });
    let slice = slice.to_string();
    endless_pages(1, move |number| slice.replace(NUMBER, &number.to_string()))
}

/// Pages without end of this many objects. Each gets another number of six digits.
fn endless_pages(objects: usize, object: impl Fn(u64) -> String + Send + Sync + 'static) -> Chunks {
    let (head, object) = (head("more"), Arc::new(object));
    let made = Arc::new(AtomicU64::new(100_000));
    Arc::new(move || {
        let (object, made) = (Arc::clone(&object), Arc::clone(&made));
        let items = (0..objects).map(move |index| {
            let object = object(made.fetch_add(1, Ordering::Relaxed));
            let comma = if index == 0 { "" } else { "," };
            Bytes::from(format!("{comma}{object}"))
        });
        Box::new(
            std::iter::once(head.clone())
                .chain(items)
                .chain(["]}".into()]),
        )
    })
}

/// A list of one machine deployment that is being deleted, whose name turns a read of it into a
/// watch.
pub(super) fn smuggled_name() -> anyhow::Result<Chunks> {
    let head = head("");
    let mut object: Value = serde_json::from_str(&template()?)?;
    let metadata = object
        .pointer_mut("/metadata")
        .and_then(Value::as_object_mut);
    let metadata = metadata.context("it has metadata")?;
    metadata.insert("name".to_owned(), json!("x?watch=1&a="));
    metadata.insert(
        "deletionTimestamp".to_owned(),
        json!("2026-01-01T00:00:00Z"),
    );
    metadata.insert("finalizers".to_owned(), json!([FINALIZER]));
    let item = Bytes::from(object.to_string());
    Ok(Arc::new(move || {
        Box::new([head.clone(), item.clone(), "]}".into()].into_iter())
    }))
}

/// A watch that sends one machine deployment with 3.9 MiB of managed fields over and over.
pub(super) fn managed_fields() -> anyhow::Result<Chunks> {
    let fields = json!([{ "manager": "a", "fieldsV1": { "f:a": "a".repeat(3_900 << 10) } }]);
    let event = event(&template()?.replacen(
        "\"metadata\":{",
        &format!("\"metadata\":{{\"managedFields\":{fields},"),
        1,
    ));
    let event = Bytes::from(event.replace(NUMBER, "0"));
    Ok(Arc::new(move || Box::new(std::iter::repeat(event.clone()))))
}

/// A watch that sends a machine deployment that changes without end.
pub(super) fn endless_events() -> anyhow::Result<Chunks> {
    let one = template()?.replace(&format!("-{NUMBER}"), "-0");
    let long = format!(
        "\"annotations\":{{\"long\":\"{}\",",
        "a".repeat(EVENT_BYTES)
    );
    Ok(endless(&one.replacen("\"annotations\":{", &long, 1)))
}

/// A watch that sends new machine deployments without end.
pub(super) fn endless_objects() -> anyhow::Result<Chunks> {
    Ok(endless(&template()?))
}

/// A watch that sends the metadata of new Secrets without end.
pub(super) fn endless_secrets() -> Chunks {
    let secret = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {
            "name": format!("secret-{NUMBER}"), "namespace": "cloud-init-settings",
            "uid": format!("uid-{NUMBER}"), "resourceVersion": NUMBER,
            "annotations": { "long": "a".repeat(ANNOTATION_BYTES) },
        },
    });
    endless(&secret.to_string())
}

/// A watch that sends the metadata of a new Secret without end, whose uid is longer than any.
pub(super) fn long_uids() -> Chunks {
    let long = "a".repeat(UID_BYTES);
    endless(&made_for_nobody(&format!("uid-{NUMBER}-{long}")))
}

/// A watch that sends the metadata of Secrets without end that belong to machine deployments which
/// do not exist, and never that they are deleted.
pub(super) fn unreported_deletions() -> Chunks {
    endless(&made_for_nobody(&format!("uid-{NUMBER}")))
}

/// Returns the metadata of a Secret that was created for a machine deployment.
fn made_for_nobody(uid: &str) -> String {
    let secret = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {
            "name": format!("gone-{NUMBER}-kube-system-provisioning-config"),
            "namespace": "cloud-init-settings", "uid": uid, "resourceVersion": NUMBER,
            "annotations": { MADE_FOR: format!("kube-system/gone-{NUMBER}") },
        },
    });
    secret.to_string()
}

/// Events of a template, with numbers from 0 on.
fn endless(template: &str) -> Chunks {
    let event = event(template);
    Arc::new(move || {
        let event = event.clone();
        Box::new((0_u64..).map(move |number| event.replace(NUMBER, &number.to_string()).into()))
    })
}

fn event(object: &str) -> String {
    format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n")
}

/// The beginning of a list.
fn head(more: &str) -> Bytes {
    let head = format!(
        "{{\"apiVersion\":\"{API_VERSION}\",\"kind\":\"MachineDeploymentList\",\
         \"metadata\":{{\"resourceVersion\":\"1\",\"continue\":\"{more}\"}},\"items\":["
    );
    head.into()
}

/// Stands for a number in [`template`].
const NUMBER: &str = "NUMBER";

/// A machine deployment as text, with a number in its name, uid and version.
fn template() -> anyhow::Result<String> {
    let mut object = machine_deployment(&format!("pool-{NUMBER}"));
    let metadata = object
        .pointer_mut("/metadata")
        .and_then(Value::as_object_mut);
    metadata.context("it has metadata")?.extend(
        [
            ("uid", json!(format!("uid-{NUMBER}"))),
            ("resourceVersion", json!(NUMBER)),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    Ok(object.to_string())
}
