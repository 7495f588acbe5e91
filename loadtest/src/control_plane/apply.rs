//! Installs manifests: the custom resource definitions, roles and objects that a test starts
//! from. It forces, since nobody else owns a field in a cluster that the test itself has made.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, ApiResource, Scope, pinned_kind};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::Value;

pub(super) const FIELD_MANAGER: &str = "control-plane";

/// The kind whose objects bring further kinds.
const DEFINITION: &str = "CustomResourceDefinition";
/// A definition is established within a second; this is for a busy machine.
const ESTABLISHED_TIMEOUT: Duration = Duration::from_mins(1);
/// The API server says that a definition is established a moment before it serves it, and a new
/// namespace may still be unknown to admission. Both answer 404 meanwhile.
const NOT_FOUND_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Why manifests could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// A file or folder.
    #[error("reading {path}")]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not YAML.
    #[error("parsing {origin}")]
    Yaml {
        /// Where the text is from.
        origin: String,
        /// What is wrong with it.
        source: Box<serde_saphyr::Error>,
    },
    /// YAML, but not an object with a kind and a name.
    #[error("a document of {origin} is not a Kubernetes object")]
    NotAnObject {
        /// Where the text is from.
        origin: String,
    },
    /// The API server refused it.
    #[error("applying {object}")]
    Refused {
        /// Kind and name.
        object: String,
        /// The answer.
        source: Box<kube::Error>,
    },
    /// A definition is accepted and not served.
    #[error("{definition} is not established in time")]
    NotEstablished {
        /// The name of the definition.
        definition: String,
    },
}

/// The objects of a multi-document text; a `List` gives its items.
pub(super) fn parse(origin: &str, yaml: &str) -> Result<Vec<DynamicObject>, ApplyError> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(yaml).map_err(|source| ApplyError::Yaml {
            origin: origin.to_owned(),
            source: Box::new(source),
        })?;
    let mut objects = Vec::new();
    for mut document in documents {
        let is_list = document.get("kind").and_then(Value::as_str) == Some("List");
        let items = match document.get_mut("items") {
            Some(Value::Array(items)) if is_list => std::mem::take(items),
            _ => vec![document],
        };
        for item in items {
            let object = serde_json::from_value::<DynamicObject>(item).ok();
            let named =
                |object: &DynamicObject| object.types.is_some() && object.metadata.name.is_some();
            objects.push(
                object
                    .filter(named)
                    .ok_or_else(|| ApplyError::NotAnObject {
                        origin: origin.to_owned(),
                    })?,
            );
        }
    }
    Ok(objects)
}

pub(super) fn parse_file(path: &Path) -> Result<Vec<DynamicObject>, ApplyError> {
    let text = std::fs::read_to_string(path).map_err(|source| ApplyError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&path.display().to_string(), &text)
}

/// Applies namespaces and definitions first, waits for the definitions, then applies the rest in
/// the order given.
pub(super) async fn apply(client: Client, objects: Vec<DynamicObject>) -> Result<(), ApplyError> {
    let (first, rest): (Vec<_>, Vec<_>) = objects
        .into_iter()
        .partition(|it| matches!(kind(it), "Namespace" | DEFINITION));
    let mut applier = Applier {
        client,
        kinds: HashMap::new(),
    };
    for object in &first {
        applier.apply_when_served(object).await?;
    }
    for object in first.iter().filter(|it| kind(it) == DEFINITION) {
        applier.wait_until_established(name(object)).await?;
    }
    for object in &rest {
        applier.apply_when_served(object).await?;
    }
    Ok(())
}

struct Applier {
    client: Client,
    /// What discovery has told about a kind, so that it is asked once for each.
    kinds: HashMap<GroupVersionKind, (ApiResource, ApiCapabilities)>,
}

impl Applier {
    async fn apply_when_served(&mut self, object: &DynamicObject) -> Result<(), ApplyError> {
        let deadline = Instant::now() + NOT_FOUND_TIMEOUT;
        loop {
            match self.apply_once(object).await {
                Ok(()) => return Ok(()),
                Err(error) if is_not_found(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                Err(error) => {
                    let object = format!("{} {}", kind(object), name(object));
                    return Err(ApplyError::Refused {
                        object,
                        source: Box::new(error),
                    });
                }
            }
        }
    }

    async fn apply_once(&mut self, object: &DynamicObject) -> Result<(), kube::Error> {
        let (resource, capabilities) = self.discover(object).await?;
        let api: Api<DynamicObject> = match (&capabilities.scope, &object.metadata.namespace) {
            (Scope::Cluster, _) => Api::all_with(self.client.clone(), &resource),
            (Scope::Namespaced, Some(namespace)) => {
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
            (Scope::Namespaced, None) => {
                Api::default_namespaced_with(self.client.clone(), &resource)
            }
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(name(object), &params, &Patch::Apply(object))
            .await
            .map(drop)
    }

    async fn discover(
        &mut self,
        object: &DynamicObject,
    ) -> Result<(ApiResource, ApiCapabilities), kube::Error> {
        let types = object.types.clone().unwrap_or_default();
        let gvk = GroupVersionKind::try_from(types)
            .map_err(|error| kube::Error::Service(error.into()))?;
        if let Some(known) = self.kinds.get(&gvk) {
            return Ok(known.clone());
        }
        let found = pinned_kind(&self.client, &gvk).await?;
        self.kinds.insert(gvk, found.clone());
        Ok(found)
    }

    async fn wait_until_established(&self, definition: &str) -> Result<(), ApplyError> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let established =
            await_condition(definitions, definition, conditions::is_crd_established());
        match tokio::time::timeout(ESTABLISHED_TIMEOUT, established).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(ApplyError::NotEstablished {
                definition: definition.to_owned(),
            }),
        }
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 404,
        kube::Error::Discovery(_) => true,
        _ => false,
    }
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| &types.kind)
}

fn name(object: &DynamicObject) -> &str {
    object.metadata.name.as_deref().unwrap_or_default()
}
