//! Behaviours of an API server, as functions over a `kube::Client`, so that the same ones run
//! against this crate and against a real kube-apiserver. Each takes a namespace of its own that
//! exists and is empty, and panics with what was different. Watches and compaction that need help
//! from inside the server are in the tests of this crate.

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, Status},
    discovery::ApiResource,
};
use serde_json::{Value, json};

mod custom;
mod reads;
mod tokens;
mod writes;

pub use custom::{
    a_custom_object_is_pruned_and_defaulted, a_custom_object_that_breaks_its_schema_is_refused,
    a_missing_kind_is_distinguished_from_a_missing_object,
    a_status_and_its_object_do_not_touch_each_other, generation_counts_changes_of_the_spec_only,
    install_definition,
};
pub use reads::{
    a_list_comes_in_pages, a_selected_list_is_exact, a_watch_resumes_where_it_was,
    a_watch_sends_the_first_state_and_marks_its_end, an_answer_says_when_it_was_sent,
    only_metadata_is_sent_when_asked,
};
pub use tokens::a_bootstrap_token_is_good_if_it_is_one_and_until_it_expires;
pub use writes::{
    a_deleted_object_waits_for_its_finalizers, a_failed_json_patch_test_is_invalid,
    a_missing_field_is_null_to_a_json_patch, a_namespace_that_ends_takes_nothing_new,
    a_patch_cannot_rename, a_precondition_guards_a_deletion, a_secret_that_is_immutable_stays_so,
    a_write_without_change_leaves_no_trace, an_apply_conflicts_with_other_managers,
    an_apply_removes_what_it_no_longer_names, an_old_version_is_a_conflict,
    an_update_does_not_create, the_same_name_is_refused_twice,
};

/// Makes a namespace for one behaviour.
pub async fn a_namespace(client: &Client, name: &str) -> String {
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let namespace = k8s_openapi::api::core::v1::Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..Default::default()
    };
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .expect("a namespace can be made");
    name.to_owned()
}

/// All behaviours, each in a namespace that starts with `prefix`. The definition of
/// [`install_definition`] is installed on the way.
pub async fn suite(client: &Client, prefix: &str) {
    install_definition(client).await;
    macro_rules! run {
        ($($behaviour:ident)*) => {$(
            let name = format!("{prefix}-{}", stringify!($behaviour).replace('_', "-"));
            let name: String = name.chars().take(60).collect();
            let namespace = a_namespace(client, name.trim_end_matches('-')).await;
            $behaviour(client, &namespace).await;
        )*};
    }
    run! {
        a_custom_object_is_pruned_and_defaulted
        a_custom_object_that_breaks_its_schema_is_refused
        a_status_and_its_object_do_not_touch_each_other
        a_missing_kind_is_distinguished_from_a_missing_object
        generation_counts_changes_of_the_spec_only
        an_answer_says_when_it_was_sent
        a_bootstrap_token_is_good_if_it_is_one_and_until_it_expires
        a_list_comes_in_pages
        a_selected_list_is_exact
        a_watch_resumes_where_it_was
        a_watch_sends_the_first_state_and_marks_its_end
        only_metadata_is_sent_when_asked
        a_deleted_object_waits_for_its_finalizers
        a_failed_json_patch_test_is_invalid
        a_missing_field_is_null_to_a_json_patch
        a_namespace_that_ends_takes_nothing_new
        a_patch_cannot_rename
        a_precondition_guards_a_deletion
        a_secret_that_is_immutable_stays_so
        a_write_without_change_leaves_no_trace
        an_apply_conflicts_with_other_managers
        an_apply_removes_what_it_no_longer_names
        an_old_version_is_a_conflict
        an_update_does_not_create
        the_same_name_is_refused_twice
    }
}

/// An API of dynamic objects: `api(client, ns, "v1/ConfigMap/configmaps")`.
fn api(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let parts: Vec<&str> = kind.split('/').collect();
    let (group, version, kind, plural) = match parts.as_slice() {
        [version, kind, plural] => ("", *version, *kind, *plural),
        [group, version, kind, plural] => (*group, *version, *kind, *plural),
        _ => ("", "", "", ""),
    };
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    Api::namespaced_with(client.clone(), namespace, &resource)
}

fn maps(client: &Client, namespace: &str) -> Api<DynamicObject> {
    api(client, namespace, "v1/ConfigMap/configmaps")
}

fn secrets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    api(client, namespace, "v1/Secret/secrets")
}

fn object(value: Value) -> DynamicObject {
    serde_json::from_value(value).expect("it has types and metadata")
}

fn map(name: &str, data: &Value) -> DynamicObject {
    let metadata = json!({ "name": name });
    object(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }))
}

/// Creates an object, and returns it as the server has it.
async fn created(api: &Api<DynamicObject>, object: &DynamicObject) -> DynamicObject {
    let made = api.create(&PostParams::default(), object).await;
    made.expect("it is created")
}

/// Merges a patch into an object, and returns it as the server has it.
async fn merged(api: &Api<DynamicObject>, name: &str, patch: Value) -> DynamicObject {
    let params = PatchParams::default();
    let answer = api.patch(name, &params, &Patch::Merge(patch)).await;
    answer.expect("the patch is accepted")
}

/// As [`merged`], through the status subresource.
async fn merged_status(api: &Api<DynamicObject>, name: &str, patch: Value) -> DynamicObject {
    let params = PatchParams::default();
    let answer = api.patch_status(name, &params, &Patch::Merge(patch)).await;
    answer.expect("the patch is accepted")
}

/// Deletes an object; returns what is left of it, if it waits for its finalizers.
async fn deleted(api: &Api<DynamicObject>, name: &str) -> Option<DynamicObject> {
    let answer = api.delete(name, &DeleteParams::default()).await;
    answer.expect("the deletion is accepted").left()
}

/// Checks a part of the message of a refusal.
#[track_caller]
fn check_message(refused: &Status, part: &str) {
    assert!(refused.message.contains(part), "{}", refused.message);
}

/// The code and reason of a refusal.
fn code_of(refused: &Status) -> (u16, &str) {
    (refused.code, refused.reason.as_str())
}

fn version(object: &DynamicObject) -> String {
    object
        .metadata
        .resource_version
        .clone()
        .expect("every stored object has a version")
}

/// The refusal in an answer that must be one.
fn refusal<T>(answer: kube::Result<T>) -> Status {
    match answer {
        Err(kube::Error::Api(status)) => *status,
        Err(other) => unexpected(&other.to_string()),
        Ok(_) => unexpected("it was accepted"),
    }
}

#[expect(
    clippy::panic,
    reason = "a behaviour that differs is what these functions are to show"
)]
fn unexpected(what: &str) -> ! {
    panic!("a refusal was expected: {what}")
}
