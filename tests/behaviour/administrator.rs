//! What an administrator does with single objects of an API server. It must succeed.

use std::fmt::Debug;

use k8s_openapi::serde::{Serialize, de::DeserializeOwned};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::Value;

use crate::server::ok;

/// What a server answers with.
pub trait Object: Clone + Debug + DeserializeOwned {}

impl<K: Clone + Debug + DeserializeOwned> Object for K {}

/// Creates an object, and returns it as the server has it.
pub async fn create<K: Object + Serialize>(api: &Api<K>, object: &K) -> K {
    let created = api.create(&PostParams::default(), object).await;
    ok(created, "an administrator may create")
}

/// Returns an object that must be there.
pub async fn get<K: Object>(api: &Api<K>, name: &str) -> K {
    ok(api.get(name).await, &format!("{name} is there"))
}

/// Returns an object, if it is there.
pub async fn find<K: Object>(api: &Api<K>, name: &str) -> Option<K> {
    ok(api.get_opt(name).await, "an administrator may look")
}

/// Returns all objects.
pub async fn list<K: Object>(api: &Api<K>) -> Vec<K> {
    let listed = api.list(&ListParams::default()).await;
    ok(listed, "an administrator may list").items
}

/// Deletes an object.
pub async fn delete<K: Object>(api: &Api<K>, name: &str) {
    let deleted = api.delete(name, &DeleteParams::default()).await;
    ok(deleted, "an administrator may delete").map_left(drop);
}

/// Merges a patch into an object.
pub async fn merge<K: Object>(api: &Api<K>, name: &str, patch: Value) {
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched = api.patch(name, &params, &patch).await;
    drop(ok(patched, "an administrator may patch"));
}
