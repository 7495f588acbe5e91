//! Writes whose answer contains only the object's metadata. The caller has just sent the rest, and
//! a provisioning document would be another 30 KB in the answer.

use http::{HeaderValue, Request, header::ACCEPT};
use kube::{
    Api, Resource,
    api::{ObjectMeta, PartialObjectMeta, PostParams},
    core,
};
use serde::Serialize;

/// Asks for metadata only. A server that does not support that sends the whole object.
const METADATA: HeaderValue = HeaderValue::from_static(
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json",
);

/// Creates an object and returns its metadata.
///
/// # Errors
///
/// Returns the same errors as [`Api::create`].
pub async fn create<K: Clone + Resource + Serialize>(
    api: &Api<K>,
    object: &K,
) -> Result<ObjectMeta, kube::Error> {
    let bytes = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let request = core::Request::new(api.resource_url()).create(&PostParams::default(), bytes);
    send(api, request, "create").await
}

/// Replaces an object and returns its metadata.
///
/// # Errors
///
/// Returns the same errors as [`Api::replace`].
pub async fn replace<K: Clone + Resource + Serialize>(
    api: &Api<K>,
    name: &str,
    object: &K,
) -> Result<ObjectMeta, kube::Error> {
    let bytes = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
    let params = PostParams::default();
    let request = core::Request::new(api.resource_url()).replace(name, &params, bytes);
    send(api, request, "replace").await
}

/// Asks for only the metadata in the answer to a write.
pub fn ask_for_metadata(request: &mut Request<Vec<u8>>) {
    request.headers_mut().insert(ACCEPT, METADATA);
}

async fn send<K: Clone + Resource>(
    api: &Api<K>,
    request: Result<Request<Vec<u8>>, core::request::Error>,
    call: &'static str,
) -> Result<ObjectMeta, kube::Error> {
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    ask_for_metadata(&mut request);
    // kube marks the requests of its own calls in the same way.
    request.extensions_mut().insert(call);
    let answer: PartialObjectMeta<K> = api.clone().into_client().request(request).await?;
    Ok(answer.metadata)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use k8s_openapi::api::core::v1::Secret;
    use kube::{Client, client::Body};
    use serde_json::{Value, json};

    use super::*;

    /// Creates a server that answers with the metadata or the whole of a Secret.
    fn server(answer: Value) -> Api<Secret> {
        let service = tower::service_fn(move |request: Request<Body>| {
            let accept = request.headers().get(ACCEPT).unwrap().to_str().unwrap();
            let (first, second) = accept.split_once(", ").unwrap();
            assert!(first.contains("as=PartialObjectMetadata;"), "{accept}");
            assert_eq!(second, "application/json");
            let answer = Response::new(Body::from(answer.to_string().into_bytes()));
            async { Ok::<_, Infallible>(answer) }
        });
        Api::namespaced(Client::new(service, "default"), "cloud-init-settings")
    }

    #[tokio::test]
    async fn a_write_returns_the_metadata_of_what_was_written() {
        let metadata = json!({"name": "a", "uid": "1", "resourceVersion": "7"});
        let only = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata,
        });
        let whole = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": "YQ=="},
        });
        for answer in [only, whole] {
            let api = server(answer);
            let created = create(&api, &Secret::default()).await.unwrap();
            let replaced = replace(&api, "a", &Secret::default()).await.unwrap();
            assert_eq!(created, replaced);
            assert_eq!(created.resource_version.as_deref(), Some("7"));
        }
    }
}
