//! How writes behave: conflicts, preconditions, patches, apply, finalizers, immutability.

use kube::{
    Client,
    api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use super::{map, maps, object, refusal, secrets, version};

fn post() -> PostParams {
    PostParams::default()
}

async fn merge(api: &Api<DynamicObject>, name: &str, patch: Value) -> kube::Result<DynamicObject> {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
}

/// A second create of the same name is `AlreadyExists`.
pub async fn the_same_name_is_refused_twice(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    maps.create(&post(), &map("a", &json!({})))
        .await
        .expect("the first is accepted");
    let refused = refusal(maps.create(&post(), &map("a", &json!({}))).await);
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (409, "AlreadyExists")
    );
    assert_eq!(refused.message, "configmaps \"a\" already exists");
}

/// A PUT with an old version is a conflict and changes nothing.
pub async fn an_old_version_is_a_conflict(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let first = maps
        .create(&post(), &map("a", &json!({ "k": "1" })))
        .await
        .expect("created");
    merge(&maps, "a", json!({ "data": { "k": "2" } }))
        .await
        .expect("patched");
    let refused = refusal(maps.replace("a", &post(), &first).await);
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert!(
        refused.message.contains("the object has been modified"),
        "{}",
        refused.message
    );
    let now = maps.get("a").await.expect("it is there");
    assert_eq!(now.data.pointer("/data/k"), Some(&json!("2")));
}

/// A PUT to a name that is not there is `NotFound`.
pub async fn an_update_does_not_create(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let refused = refusal(
        maps.replace("none", &post(), &map("none", &json!({})))
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (404, "NotFound"));
}

/// A patch that changes the name is refused.
pub async fn a_patch_cannot_rename(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    maps.create(&post(), &map("a", &json!({})))
        .await
        .expect("created");
    let refused = refusal(merge(&maps, "a", json!({ "metadata": { "name": "b" } })).await);
    assert_eq!(refused.code, 400);
}

/// Writing the same again keeps the version.
pub async fn a_write_without_change_leaves_no_trace(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let first = maps
        .create(&post(), &map("a", &json!({ "k": "1" })))
        .await
        .expect("created");
    let patched = merge(&maps, "a", json!({ "data": { "k": "1" } }))
        .await
        .expect("patched");
    assert_eq!(version(&first), version(&patched));
    let replaced = maps.replace("a", &post(), &first).await.expect("replaced");
    assert_eq!(version(&first), version(&replaced));
    let applied = applied("b", &json!({ "z": "1" }));
    let params = PatchParams::apply("owner");
    let once = maps
        .patch("b", &params, &Patch::Apply(&applied))
        .await
        .expect("applied");
    let twice = maps
        .patch("b", &params, &Patch::Apply(&applied))
        .await
        .expect("applied again");
    assert_eq!(version(&once), version(&twice));
}

/// A JSON patch whose `test` fails is `Invalid`, and nothing of it happens.
pub async fn a_failed_json_patch_test_is_invalid(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let first = maps
        .create(&post(), &map("a", &json!({ "k": "1" })))
        .await
        .expect("created");
    let operations = json!([
        { "op": "add", "path": "/data/new", "value": "1" },
        { "op": "test", "path": "/data/k", "value": "2" },
    ]);
    let patch: json_patch::Patch = serde_json::from_value(operations).expect("a patch");
    let params = PatchParams::default();
    let refused = refusal(maps.patch("a", &params, &Patch::Json::<()>(patch)).await);
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        version(&first),
        version(&maps.get("a").await.expect("it is there"))
    );
}

/// A deletion with another UID or version is a conflict.
pub async fn a_precondition_guards_a_deletion(client: &Client, namespace: &str) {
    let secrets = secrets(client, namespace);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" } });
    let made = secrets
        .create(&post(), &object(secret))
        .await
        .expect("created");
    let with = |uid: Option<&str>, version: Option<&str>| {
        DeleteParams::default().preconditions(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: version.map(str::to_owned),
        })
    };
    for params in [
        with(Some("other"), None),
        with(None, Some("1")),
        with(Some(""), None),
        with(None, Some("")),
    ] {
        let refused = refusal(secrets.delete("a", &params).await);
        assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    }
    let uid = made.metadata.uid.clone();
    let good = with(uid.as_deref(), Some(&version(&made)));
    secrets
        .delete("a", &good)
        .await
        .expect("the right preconditions are accepted");
    let refused = refusal(secrets.delete("a", &DeleteParams::default()).await);
    assert_eq!((refused.code, refused.reason.as_str()), (404, "NotFound"));
}

/// The data of an immutable Secret cannot change, nor can it be made mutable; its labels can.
pub async fn a_secret_that_is_immutable_stays_so(client: &Client, namespace: &str) {
    let secrets = secrets(client, namespace);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" },
        "immutable": true, "stringData": { "k": "v" },
    });
    let made = secrets
        .create(&post(), &object(secret))
        .await
        .expect("created");
    assert_eq!(made.data.pointer("/data/k"), Some(&json!("dg==")));
    assert_eq!(made.data.pointer("/type"), Some(&json!("Opaque")));
    for (patch, field) in [
        (json!({ "data": { "k": "dw==" } }), "data"),
        (json!({ "immutable": false }), "immutable"),
    ] {
        let refused = refusal(merge(&secrets, "a", patch).await);
        assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
        let expected = format!(
            "Secret \"a\" is invalid: {field}: Forbidden: field is immutable when `immutable` is set"
        );
        assert_eq!(refused.message, expected);
    }
    let refused = refusal(merge(&secrets, "a", json!({ "type": "other" })).await);
    assert_eq!(refused.code, 422);
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    merge(&secrets, "a", labels)
        .await
        .expect("labels may change");
}

fn applied(name: &str, data: &Value) -> Value {
    let metadata = json!({ "name": name });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data })
}

/// Another manager's field is a conflict, unless the value is the same or force is used.
pub async fn an_apply_conflicts_with_other_managers(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let apply = async |manager: &str, data: Value| {
        let params = PatchParams::apply(manager);
        maps.patch("a", &params, &Patch::Apply(applied("a", &data)))
            .await
    };
    apply("one", json!({ "k": "1", "l": "1" }))
        .await
        .expect("the first owns all");
    apply("two", json!({ "k": "1" }))
        .await
        .expect("the same value is shared");
    let refused = refusal(apply("two", json!({ "k": "2" })).await);
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    let expected = "Apply failed with 1 conflict: conflict with \"one\": .data.k";
    assert_eq!(refused.message, expected);
    let cause = refused
        .details
        .and_then(|details| details.causes.into_iter().next());
    let cause = cause.expect("the conflict is told");
    assert_eq!(
        (cause.reason.as_str(), cause.field.as_str()),
        ("FieldManagerConflict", ".data.k")
    );
    let force = PatchParams::apply("two").force();
    let patch = Patch::Apply(applied("a", &json!({ "k": "2" })));
    let taken = maps
        .patch("a", &force, &patch)
        .await
        .expect("force takes over");
    assert_eq!(
        taken.data.pointer("/data"),
        Some(&json!({ "k": "2", "l": "1" }))
    );
    apply("one", json!({ "l": "1" }))
        .await
        .expect("who lost a field may leave it out");
    let refused = refusal(apply("one", json!({ "k": "1", "l": "1" })).await);
    assert_eq!(refused.code, 409);
    merge(&maps, "a", json!({ "data": { "k": "3" } }))
        .await
        .expect("an update takes all");
    let refused = refusal(apply("two", json!({ "k": "2" })).await);
    assert!(
        refused.message.contains("using v1: .data.k"),
        "{}",
        refused.message
    );
}

/// What a manager leaves out is removed, unless someone else owns it too.
pub async fn an_apply_removes_what_it_no_longer_names(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let apply = async |manager: &str, data: Value| {
        let params = PatchParams::apply(manager);
        let patch = Patch::Apply(applied("a", &data));
        maps.patch("a", &params, &patch)
            .await
            .expect("there is no conflict")
    };
    apply("one", json!({ "mine": "1", "ours": "1" })).await;
    apply("two", json!({ "ours": "1", "theirs": "1" })).await;
    let left = apply("one", json!({})).await;
    assert_eq!(
        left.data.pointer("/data"),
        Some(&json!({ "ours": "1", "theirs": "1" }))
    );
    let left = apply("two", json!({ "theirs": "1" })).await;
    assert_eq!(left.data.pointer("/data"), Some(&json!({ "theirs": "1" })));
}

/// A deleted object with finalizers stays, takes no new ones, and goes with the last.
pub async fn a_deleted_object_waits_for_its_finalizers(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let mut held = map("a", &json!({}));
    held.metadata.finalizers = Some(vec!["example.com/one".to_owned()]);
    maps.create(&post(), &held).await.expect("created");
    maps.delete("a", &DeleteParams::default())
        .await
        .expect("accepted");
    let deleting = maps.get("a").await.expect("it is still there");
    assert!(deleting.metadata.deletion_timestamp.is_some());
    let again = maps
        .delete("a", &DeleteParams::default())
        .await
        .expect("accepted again");
    assert_eq!(
        again.left().map(|left| version(&left)),
        Some(version(&deleting))
    );
    let more = json!({ "metadata": { "finalizers": ["example.com/one", "example.com/two"] } });
    let refused = refusal(merge(&maps, "a", more).await);
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let none = json!({ "metadata": { "finalizers": null } });
    merge(&maps, "a", none)
        .await
        .expect("the last finalizer may go");
    assert!(
        maps.get_opt("a")
            .await
            .expect("it can be asked for")
            .is_none()
    );
}

/// A namespace that is being deleted refuses new objects with a cause of its own; one that does not
/// exist is `NotFound`.
pub async fn a_namespace_that_ends_takes_nothing_new(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let mut held = map("held", &json!({}));
    held.metadata.finalizers = Some(vec!["example.com/one".to_owned()]);
    maps.create(&post(), &held).await.expect("created");
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    namespaces
        .delete(namespace, &DeleteParams::default())
        .await
        .expect("accepted");
    let refused = refusal(maps.create(&post(), &map("late", &json!({}))).await);
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    let causes = refused
        .details
        .map(|details| details.causes)
        .unwrap_or_default();
    assert!(
        causes
            .iter()
            .any(|cause| cause.reason == "NamespaceTerminating"),
        "{causes:?}"
    );
    let none = json!({ "metadata": { "finalizers": null } });
    merge(&maps, "held", none)
        .await
        .expect("the finalizer may go");
    let nowhere = super::maps(client, "there-is-no-such-namespace");
    let refused = refusal(nowhere.create(&post(), &map("a", &json!({}))).await);
    assert_eq!(refused.code, 404);
    assert_eq!(
        refused.message,
        "namespaces \"there-is-no-such-namespace\" not found"
    );
}
