//! What a hostile API server answers to lists and watches.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Context as _;
use bytes::Bytes;
use fake_cluster::{Chunks, Fault, Matcher, Verb};
use serde_json::{Value, json};

use crate::load::fleet::{Worker, machine_deployment};

pub(super) const MACHINE_DEPLOYMENTS: &str = "machinedeployments";
pub(super) const SECRETS: &str = "secrets";
const FINALIZER: &str = "kubermatic.io/cleanup-operating-system-configs";
const API_VERSION: &str = "cluster.k8s.io/v1alpha1";
/// What a long annotation of a Secret takes.
const ANNOTATION_BYTES: usize = 8 << 10;
/// What makes an event long: a busy machine sends few events a second.
const EVENT_BYTES: usize = 64 << 10;

pub(super) fn on_list(attacker: &Worker, chunks: Chunks) {
    let lists = Matcher::on(&[Verb::List], MACHINE_DEPLOYMENTS);
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
    let head = head("more");
    let item = template()?;
    let made = Arc::new(AtomicU64::new(0));
    Ok(Arc::new(move || {
        let (item, made) = (item.clone(), Arc::clone(&made));
        let items = (0..50).map(move |index| {
            let number = made.fetch_add(1, Ordering::Relaxed).to_string();
            let comma = if index == 0 { "" } else { "," };
            Bytes::from(format!("{comma}{}", item.replace(NUMBER, &number)))
        });
        Box::new(
            std::iter::once(head.clone())
                .chain(items)
                .chain(["]}".into()]),
        )
    }))
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
