//! The contents of default profiles in the manager's namespace: an object for each default profile
//! and version, which the thin profiles of all tenants name. A release that has another version
//! reads them there.

use std::collections::{BTreeMap, HashMap};

use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};
use tokio::sync::OnceCell;

use crate::api::{
    names::DEFAULT_PROFILE,
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
};
use crate::client::{pages, write};
use crate::plan::default_profile::DefaultProfile;
use crate::render::thin::{content_name, content_object};
use crate::telemetry::chain::chain;

/// The contents of default profiles that outlive this release.
#[derive(Debug)]
pub struct DefaultContents {
    /// The manager's namespace.
    pub namespace: String,
    read: Api<DeserializeGuard<OperatingSystemProfile>>,
    write: Api<OperatingSystemProfile>,
    /// For each default profile, whether thin profiles may name its content, once that is known.
    kept: HashMap<String, OnceCell<bool>>,
}

impl DefaultContents {
    /// Creates the access to the contents in a namespace.
    pub fn new((client, namespace): (Client, &str), defaults: &[DefaultProfile]) -> Self {
        let kept = defaults.iter().map(|it| (it.name.clone(), OnceCell::new()));
        Self {
            namespace: namespace.to_owned(),
            read: Api::namespaced(client.clone(), namespace),
            write: Api::namespaced(client, namespace),
            kept: kept.collect(),
        }
    }

    /// Ensures that the content of a default profile is there, once per process. Returns false if
    /// thin profiles must not name it: it may not be written, or is another one there.
    ///
    /// # Errors
    ///
    /// A call fails, and may succeed next time.
    pub async fn keep(&self, default: &DefaultProfile) -> Result<bool, kube::Error> {
        let Some(kept) = self.kept.get(&default.name) else {
            return Ok(false);
        };
        kept.get_or_try_init(|| self.write(default)).await.copied()
    }

    async fn write(&self, default: &DefaultProfile) -> Result<bool, kube::Error> {
        let object = content_object(&content_name(&default.name, &default.spec.version));
        let profile = OperatingSystemProfile {
            metadata: ObjectMeta {
                name: Some(object.clone()),
                labels: Some(BTreeMap::from([(
                    DEFAULT_PROFILE.to_owned(),
                    default.name.clone(),
                )])),
                ..ObjectMeta::default()
            },
            spec: default.spec.clone(),
        };
        let why = match write::create(&self.write, &profile).await {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let found = self.list().await?;
                let same = |(name, spec): &(String, OperatingSystemProfileSpec)| {
                    *name == default.name && *spec == default.spec
                };
                if found.iter().any(same) {
                    return Ok(true);
                }
                "it has another content".to_owned()
            }
            Err(error) if pages::is_forbidden(&error) => chain(&error).to_string(),
            Err(error) => return Err(error),
        };
        let namespace = &self.namespace;
        tracing::warn!(namespace, object, why, "tenants get whole default profiles");
        Ok(false)
    }

    /// Returns the contents of all versions, each with the name of its default profile.
    ///
    /// # Errors
    ///
    /// They cannot be listed.
    pub async fn list(&self) -> Result<Vec<(String, OperatingSystemProfileSpec)>, kube::Error> {
        let listed = pages::all(&self.read, ListParams::default().labels(DEFAULT_PROFILE)).await?;
        let contents = listed.objects.into_iter().filter_map(|it| {
            let name = it.labels().get(DEFAULT_PROFILE)?.clone();
            let object = content_object(&content_name(&name, &it.spec.version));
            (it.name_any() == object).then_some((name, it.spec))
        });
        Ok(contents.collect())
    }
}
