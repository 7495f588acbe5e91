//! How writes behave: conflicts, preconditions, patches, apply, finalizers, immutability.

use kube::{
    Client,
    api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use super::{
    check_message, code_of, created, deleted, map, maps, merged, object, refusal, secrets, version,
};

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
    created(&maps, &map("a", &json!({}))).await;
    let refused = refusal(maps.create(&post(), &map("a", &json!({}))).await);
    assert_eq!(code_of(&refused), (409, "AlreadyExists"));
    assert_eq!(refused.message, "configmaps \"a\" already exists");
}

/// A PUT with an old version is a conflict and changes nothing.
pub async fn an_old_version_is_a_conflict(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let first = created(&maps, &map("a", &json!({ "k": "1" }))).await;
    merged(&maps, "a", json!({ "data": { "k": "2" } })).await;
    let refused = refusal(maps.replace("a", &post(), &first).await);
    assert_eq!(code_of(&refused), (409, "Conflict"));
    check_message(&refused, "the object has been modified");
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
    assert_eq!(code_of(&refused), (404, "NotFound"));
}

/// A patch that changes the name is refused.
pub async fn a_patch_cannot_rename(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    created(&maps, &map("a", &json!({}))).await;
    let refused = refusal(merge(&maps, "a", json!({ "metadata": { "name": "b" } })).await);
    assert_eq!(refused.code, 400);
}

/// Writing the same again keeps the version.
pub async fn a_write_without_change_leaves_no_trace(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let first = created(&maps, &map("a", &json!({ "k": "1" }))).await;
    let patched = merged(&maps, "a", json!({ "data": { "k": "1" } })).await;
    assert_eq!(version(&first), version(&patched));
    let replaced = maps.replace("a", &post(), &first).await.expect("replaced");
    assert_eq!(version(&first), version(&replaced));
    let applied = map("b", &json!({ "z": "1" }));
    let params = PatchParams::apply("owner");
    let apply = async || maps.patch("b", &params, &Patch::Apply(&applied)).await;
    let once = apply().await.expect("applied");
    let twice = apply().await.expect("applied again");
    assert_eq!(version(&once), version(&twice));
}

/// A JSON patch whose `test` fails is `Invalid`, and nothing of it happens.
pub async fn a_failed_json_patch_test_is_invalid(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let first = created(&maps, &map("a", &json!({ "k": "1" }))).await;
    let operations = json!([
        { "op": "add", "path": "/data/new", "value": "1" },
        { "op": "test", "path": "/data/k", "value": "2" },
    ]);
    let patch: json_patch::Patch = serde_json::from_value(operations).expect("a patch");
    let params = PatchParams::default();
    let refused = refusal(maps.patch("a", &params, &Patch::Json::<()>(patch)).await);
    assert_eq!(code_of(&refused), (422, "Invalid"));
    assert_eq!(
        version(&first),
        version(&maps.get("a").await.expect("it is there"))
    );
}

/// To a JSON patch, a field that a map lacks is null.
pub async fn a_missing_field_is_null_to_a_json_patch(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    created(&maps, &map("a", &json!({ "k": "1" }))).await;
    let operations = json!([
        { "op": "test", "path": "/data/new", "value": null },
        { "op": "replace", "path": "/data/new", "value": "2" },
    ]);
    let patch: json_patch::Patch = serde_json::from_value(operations).expect("a patch");
    let params = PatchParams::default();
    let patched = maps.patch("a", &params, &Patch::Json::<()>(patch)).await;
    let patched = patched.expect("patched");
    assert_eq!(patched.data.pointer("/data/new"), Some(&json!("2")));
}

/// A deletion with another UID or version is a conflict.
pub async fn a_precondition_guards_a_deletion(client: &Client, namespace: &str) {
    let secrets = secrets(client, namespace);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" } });
    let made = created(&secrets, &object(secret)).await;
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
        assert_eq!(code_of(&refused), (409, "Conflict"));
    }
    let uid = made.metadata.uid.clone();
    let good = with(uid.as_deref(), Some(&version(&made)));
    secrets
        .delete("a", &good)
        .await
        .expect("the right preconditions are accepted");
    let refused = refusal(secrets.delete("a", &DeleteParams::default()).await);
    assert_eq!(code_of(&refused), (404, "NotFound"));
}

/// The data of an immutable Secret cannot change, nor can it be made mutable; its labels can.
pub async fn a_secret_that_is_immutable_stays_so(client: &Client, namespace: &str) {
    let secrets = secrets(client, namespace);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" },
        "immutable": true, "stringData": { "k": "v" },
    });
    let made = created(&secrets, &object(secret)).await;
    assert_eq!(made.data.pointer("/data/k"), Some(&json!("dg==")));
    assert_eq!(made.data.pointer("/type"), Some(&json!("Opaque")));
    for (patch, field) in [
        (json!({ "data": { "k": "dw==" } }), "data"),
        (json!({ "immutable": false }), "immutable"),
    ] {
        let refused = refusal(merge(&secrets, "a", patch).await);
        assert_eq!(code_of(&refused), (422, "Invalid"));
        let expected = format!(
            "Secret \"a\" is invalid: {field}: Forbidden: field is immutable when `immutable` is set"
        );
        assert_eq!(refused.message, expected);
    }
    let refused = refusal(merge(&secrets, "a", json!({ "type": "other" })).await);
    assert_eq!(refused.code, 422);
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    // The labels may change.
    merged(&secrets, "a", labels).await;
}

/// Another manager's field is a conflict, unless the value is the same or force is used.
pub async fn an_apply_conflicts_with_other_managers(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let apply = async |manager: &str, data: Value| {
        let params = PatchParams::apply(manager);
        maps.patch("a", &params, &Patch::Apply(map("a", &data)))
            .await
    };
    apply("one", json!({ "k": "1", "l": "1" }))
        .await
        .expect("the first owns all");
    apply("two", json!({ "k": "1" }))
        .await
        .expect("the same value is shared");
    let refused = refusal(apply("two", json!({ "k": "2" })).await);
    assert_eq!(code_of(&refused), (409, "Conflict"));
    let expected = "Apply failed with 1 conflict: conflict with \"one\": .data.k";
    assert_eq!(refused.message, expected);
    let causes = refused.details.expect("it has details").causes;
    let cause = causes.first().expect("the conflict is told");
    assert_eq!(cause.reason, "FieldManagerConflict");
    assert_eq!(cause.field, ".data.k");
    let force = PatchParams::apply("two").force();
    let patch = Patch::Apply(map("a", &json!({ "k": "2" })));
    let taken = maps.patch("a", &force, &patch).await;
    let taken = taken.expect("force takes over");
    let all = json!({ "k": "2", "l": "1" });
    assert_eq!(taken.data.get("data"), Some(&all));
    apply("one", json!({ "l": "1" }))
        .await
        .expect("who lost a field may leave it out");
    let refused = refusal(apply("one", json!({ "k": "1", "l": "1" })).await);
    assert_eq!(refused.code, 409);
    // An update takes all.
    merged(&maps, "a", json!({ "data": { "k": "3" } })).await;
    let refused = refusal(apply("two", json!({ "k": "2" })).await);
    check_message(&refused, "using v1: .data.k");
}

/// What a manager leaves out is removed, unless someone else owns it too.
pub async fn an_apply_removes_what_it_no_longer_names(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let apply = async |manager: &str, data: Value| {
        let params = PatchParams::apply(manager);
        let patch = Patch::Apply(map("a", &data));
        maps.patch("a", &params, &patch)
            .await
            .expect("there is no conflict")
    };
    apply("one", json!({ "mine": "1", "ours": "1" })).await;
    apply("two", json!({ "ours": "1", "theirs": "1" })).await;
    let left = apply("one", json!({})).await;
    let rest = json!({ "ours": "1", "theirs": "1" });
    assert_eq!(left.data.get("data"), Some(&rest));
    let left = apply("two", json!({ "theirs": "1" })).await;
    assert_eq!(left.data.pointer("/data"), Some(&json!({ "theirs": "1" })));
}

/// A deleted object with finalizers stays, takes no new ones, and goes with the last.
pub async fn a_deleted_object_waits_for_its_finalizers(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let mut held = map("a", &json!({}));
    held.metadata.finalizers = Some(vec!["example.com/one".to_owned()]);
    created(&maps, &held).await;
    deleted(&maps, "a").await;
    let deleting = maps.get("a").await.expect("it is still there");
    assert!(deleting.metadata.deletion_timestamp.is_some());
    let again = deleted(&maps, "a").await;
    assert_eq!(again.as_ref().map(version), Some(version(&deleting)));
    let more = json!({ "metadata": { "finalizers": ["example.com/one", "example.com/two"] } });
    let refused = refusal(merge(&maps, "a", more).await);
    assert_eq!(code_of(&refused), (422, "Invalid"));
    let none = json!({ "metadata": { "finalizers": null } });
    merged(&maps, "a", none).await;
    let gone = maps.get_opt("a").await.expect("it can be asked for");
    assert!(gone.is_none(), "{gone:?}");
}

/// A namespace that is being deleted refuses new objects with a cause of its own; one that does not
/// exist is `NotFound`.
pub async fn a_namespace_that_ends_takes_nothing_new(client: &Client, namespace: &str) {
    let maps = maps(client, namespace);
    let mut held = map("held", &json!({}));
    held.metadata.finalizers = Some(vec!["example.com/one".to_owned()]);
    created(&maps, &held).await;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    namespaces
        .delete(namespace, &DeleteParams::default())
        .await
        .expect("accepted");
    let refused = refusal(maps.create(&post(), &map("late", &json!({}))).await);
    assert_eq!(code_of(&refused), (403, "Forbidden"));
    let causes = refused.details.expect("it has details").causes;
    let mut reasons = causes.iter().map(|cause| cause.reason.as_str());
    assert!(reasons.any(|it| it == "NamespaceTerminating"), "{causes:?}");
    let none = json!({ "metadata": { "finalizers": null } });
    merged(&maps, "held", none).await;
    let nowhere = super::maps(client, "there-is-no-such-namespace");
    let refused = refusal(nowhere.create(&post(), &map("a", &json!({}))).await);
    assert_eq!(refused.code, 404);
    assert_eq!(
        refused.message,
        "namespaces \"there-is-no-such-namespace\" not found"
    );
}
