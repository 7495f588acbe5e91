//! How custom resources behave: pruning, defaults, validation, status, generation, missing kinds.

use kube::{
    Client,
    api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::Status,
};
use serde_json::{Value, json};

use super::{
    api, check_message, code_of, created, merged, merged_status, object, refusal, version,
};

fn definition() -> Value {
    let spec = json!({
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": { "type": "integer", "minimum": 1, "maximum": 9 },
            "mode": { "type": "string", "enum": ["a", "b"], "default": "a" },
            "name": { "type": "string", "pattern": "^x" },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "parts": { "type": "array", "items": {
                "type": "object",
                "properties": { "k": { "type": "string" }, "d": { "type": "string", "default": "d" } },
            } },
        },
    });
    let status = json!({ "type": "object", "properties": { "seen": { "type": "integer" } } });
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": { "spec": spec, "status": status },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "gadgets.contract.example.com" },
        "spec": {
            "group": "contract.example.com",
            "scope": "Namespaced",
            "names": { "plural": "gadgets", "kind": "Gadget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "subresources": { "status": {} },
            }],
        },
    })
}

/// Installs the definition that the behaviours of custom resources use, and waits until it serves.
pub async fn install_definition(client: &Client) {
    install(client, &definition(), &gadgets(client, "default")).await;
}

/// Installs a definition and waits until its objects can be listed.
pub(super) async fn install(client: &Client, definition: &Value, objects: &Api<DynamicObject>) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as ext;
    let definitions: Api<ext::CustomResourceDefinition> = Api::all(client.clone());
    let name = definition
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .expect("a definition has a name");
    let params = PatchParams::apply("contract").force();
    definitions
        .patch(name, &params, &Patch::Apply(definition))
        .await
        .expect("installed");
    // The real server begins to serve some time after the condition says so.
    for _ in 0..200 {
        if objects.list(&ListParams::default()).await.is_ok() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    super::unexpected("the definition does not serve");
}

fn gadgets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    api(client, namespace, "contract.example.com/v1/Gadget/gadgets")
}

fn gadget(name: &str, spec: &Value) -> DynamicObject {
    object(json!({
        "apiVersion": "contract.example.com/v1",
        "kind": "Gadget",
        "metadata": { "name": name },
        "spec": spec,
    }))
}

/// Unknown fields are dropped, absent ones get their defaults, free ones stay.
pub async fn a_custom_object_is_pruned_and_defaulted(client: &Client, namespace: &str) {
    let gadgets = gadgets(client, namespace);
    let spec = json!({
        "size": 1, "bogus": 1, "name": null, "free": { "any": [1] },
        "parts": [{ "k": "1", "bogus": 1 }],
    });
    let made = created(&gadgets, &gadget("a", &spec)).await;
    let expected = json!({
        "size": 1, "mode": "a", "free": { "any": [1] }, "parts": [{ "k": "1", "d": "d" }],
    });
    assert_eq!(made.data.pointer("/spec"), Some(&expected));
    let path = format!("/apis/contract.example.com/v1/namespaces/{namespace}/gadgets");
    let body = serde_json::to_vec(&gadget("b", &spec)).expect("it is JSON");
    let request = http::Request::post(format!("{path}?fieldValidation=Strict"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .expect("the request is well-formed");
    let refused = refusal(client.request::<Value>(request).await);
    assert_eq!(code_of(&refused), (400, "BadRequest"));
    check_message(&refused, "unknown field \"spec.bogus\"");
}

/// What the schema forbids is `Invalid`, and the message names the field.
pub async fn a_custom_object_that_breaks_its_schema_is_refused(client: &Client, namespace: &str) {
    let gadgets = gadgets(client, namespace);
    for (spec, text) in [
        (json!({}), "spec.size: Required value"),
        (
            json!({ "size": "x" }),
            "spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({ "size": 10 }),
            "spec.size in body should be less than or equal to 9",
        ),
        (
            json!({ "size": 1, "mode": "c" }),
            "Unsupported value: \"c\": supported values: \"a\", \"b\"",
        ),
        (
            json!({ "size": 1, "name": "y" }),
            "spec.name in body should match '^x'",
        ),
    ] {
        let new = gadget("a", &spec);
        let refused = refusal(gadgets.create(&PostParams::default(), &new).await);
        assert_eq!(code_of(&refused), (422, "Invalid"), "{spec}");
        check_message(&refused, text);
        let start = "Gadget.contract.example.com \"a\" is invalid: ";
        assert!(refused.message.starts_with(start), "{}", refused.message);
    }
}

/// A write to the object leaves the status alone, and the other way round.
pub async fn a_status_and_its_object_do_not_touch_each_other(client: &Client, namespace: &str) {
    let gadgets = gadgets(client, namespace);
    let mut new = gadget("a", &json!({ "size": 1 }));
    if let Some(fields) = new.data.as_object_mut() {
        fields.insert("status".to_owned(), json!({ "seen": 1 }));
    }
    let made = created(&gadgets, &new).await;
    assert_eq!(made.data.get("status"), None, "a new object has no status");
    let both = json!({ "spec": { "size": 2 }, "status": { "seen": 2 } });
    let written = merged(&gadgets, "a", both).await;
    assert_eq!(written.data.pointer("/status"), None);
    assert_eq!(written.data.pointer("/spec/size"), Some(&json!(2)));
    let both = json!({ "spec": { "size": 3 }, "status": { "seen": 3 } });
    let seen = merged_status(&gadgets, "a", both).await;
    assert_eq!(seen.data.pointer("/status/seen"), Some(&json!(3)));
    assert_eq!(seen.data.pointer("/spec/size"), Some(&json!(2)));
}

/// The generation counts changes of the spec, not of metadata or status.
pub async fn generation_counts_changes_of_the_spec_only(client: &Client, namespace: &str) {
    let gadgets = gadgets(client, namespace);
    let made = created(&gadgets, &gadget("a", &json!({ "size": 1 }))).await;
    assert_eq!(made.metadata.generation, Some(1));
    for (patch, expected) in [
        (json!({ "metadata": { "labels": { "a": "b" } } }), 1),
        (json!({ "spec": { "size": 1 } }), 1),
        (json!({ "spec": { "size": 2 } }), 2),
    ] {
        let patched = merged(&gadgets, "a", patch.clone()).await;
        assert_eq!(patched.metadata.generation, Some(expected), "{patch}");
    }
    let status = json!({ "status": { "seen": 1 } });
    let seen = merged_status(&gadgets, "a", status).await;
    assert_eq!(seen.metadata.generation, Some(2));
    assert_ne!(version(&seen), version(&made));
}

fn named_in(refused: Status) -> Option<String> {
    refused.details.map(|details| details.name)
}

/// A missing object has details with its name; a missing kind or group has none.
pub async fn a_missing_kind_is_distinguished_from_a_missing_object(
    client: &Client,
    namespace: &str,
) {
    let missing = refusal(gadgets(client, namespace).get("none").await);
    assert_eq!(code_of(&missing), (404, "NotFound"));
    assert_eq!(named_in(missing).as_deref(), Some("none"));
    for group in ["contract.example.com", "nothing.example.com"] {
        let unserved = api(client, namespace, &format!("{group}/v1/Widget/widgets"));
        let unserved = refusal(unserved.get("none").await);
        assert_eq!(unserved.code, 404, "{group}");
        assert_eq!(named_in(unserved).unwrap_or_default(), "", "{group}");
    }
}
