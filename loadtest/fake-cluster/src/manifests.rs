//! Loads manifests into a cluster, as `kubectl apply` by the super user would. Documents that are
//! lists are not unpacked.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    cluster::Cluster,
    meta::{name, text},
    request::{Call, Target, Verb},
    status::Refusal,
};

impl Cluster {
    /// Applies manifests (YAML, many documents) as the super user, in their order; the namespace is
    /// "default" where a document has none. The first refusal ends it.
    pub fn apply_yaml(&self, manifests: &str) -> Result<(), Refusal> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifests)
            .map_err(|error| Refusal::bad_request(format!("cannot read the manifests: {error}")))?;
        for document in documents.iter().filter(|document| document.is_object()) {
            apply_one(self, document)?;
        }
        Ok(())
    }
}

fn apply_one(cluster: &Cluster, document: &Value) -> Result<(), Refusal> {
    cluster.inner.change(|state| {
        let kind = state
            .kind_named(text(document, "/apiVersion"), text(document, "/kind"))
            .ok_or_else(|| {
                Refusal::bad_request(format!(
                    "no matches for kind \"{}\" in version \"{}\"",
                    text(document, "/kind"),
                    text(document, "/apiVersion")
                ))
            })?;
        let namespace = match (kind.namespaced, text(document, "/metadata/namespace")) {
            (false, _) => "",
            (true, "") => "default",
            (true, given) => given,
        };
        let call = Call {
            verb: Verb::Patch,
            target: Target {
                group: kind.group.clone(),
                version: kind.version.clone(),
                resource: kind.resource.clone(),
                namespace: namespace.to_owned(),
                name: name(document).to_owned(),
                subresource: String::new(),
            },
            path: String::new(),
            query: vec![
                ("fieldManager".to_owned(), "manifests".to_owned()),
                ("force".to_owned(), "true".to_owned()),
            ],
            accept: String::new(),
            content_type: "application/apply-patch+yaml".to_owned(),
            user_agent: "manifests".to_owned(),
            bearer: None,
            impersonated: String::new(),
            body: Bytes::from(document.to_string()),
            behind: 0,
        };
        state.patch(&call, &kind).map(|_| ())
    })
}
