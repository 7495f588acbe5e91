//! The contents of default profiles in the manager's namespace: an object for each content, which
//! the thin profiles of all tenants name. A release with other versions reads them there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};
use tokio::sync::OnceCell;

use crate::api::{
    names::{CONTENT_NAME, DEFAULT_PROFILE},
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
};
use crate::client::{connect::Clients, pages, permits::Priority, write};
use crate::plan::default_profile::DefaultProfile;
use crate::render::thin::{content_name, content_object, parse_content_name};
use crate::telemetry::chain::chain;

/// The contents of default profiles that outlive this release.
#[derive(Debug)]
pub struct DefaultContents {
    /// The manager's namespace.
    pub namespace: String,
    read: Api<DeserializeGuard<OperatingSystemProfile>>,
    /// The objects that were there when the process first needed one.
    found: OnceCell<BTreeSet<String>>,
    ours: HashMap<String, Content>,
}

/// The content of one of our default profiles.
#[derive(Debug)]
struct Content {
    name: String,
    /// Whether thin profiles may name it, once that is known.
    is_kept: OnceCell<bool>,
}

impl DefaultContents {
    /// Creates the access to the contents in a namespace.
    pub fn new((client, namespace): (Client, &str), defaults: &[DefaultProfile]) -> Self {
        let ours = defaults.iter().map(|default| {
            let content = Content {
                name: content_name(&default.name, &default.spec),
                is_kept: OnceCell::new(),
            };
            (default.name.clone(), content)
        });
        Self {
            namespace: namespace.to_owned(),
            read: Api::namespaced(client, namespace),
            found: OnceCell::new(),
            ours: ours.collect(),
        }
    }

    /// Ensures that the content of a default profile is there, once per process. `home` has the
    /// budget and the fence of the tenant that needs it. Returns the content's name for a thin
    /// profile; `None` if it may not be written.
    ///
    /// # Errors
    ///
    /// A call fails, and may succeed next time.
    pub async fn keep(
        &self,
        default: &DefaultProfile,
        home: &Clients,
    ) -> Result<Option<&str>, kube::Error> {
        let Some(content) = self.ours.get(&default.name) else {
            return Ok(None);
        };
        let write = || self.write((default, &content.name), home);
        let is_kept = content.is_kept.get_or_try_init(write).await?;
        Ok(is_kept.then_some(&content.name))
    }

    async fn find(&self) -> Result<BTreeSet<String>, kube::Error> {
        let labelled = ListParams::default().labels(DEFAULT_PROFILE);
        match self.read.list_metadata(&labelled).await {
            Ok(found) => Ok(found.iter().map(ResourceExt::name_any).collect()),
            // Then it may not write either, and says so.
            Err(error) if pages::is_forbidden(&error) => Ok(BTreeSet::new()),
            Err(error) => Err(error),
        }
    }

    async fn write(
        &self,
        (default, content_name): (&DefaultProfile, &str),
        home: &Clients,
    ) -> Result<bool, kube::Error> {
        let object = content_object(content_name);
        let found = self.found.get_or_try_init(|| self.find()).await?;
        if found.contains(&object) {
            return Ok(true);
        }
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let profile = OperatingSystemProfile {
            metadata: ObjectMeta {
                name: Some(object.clone()),
                labels: Some(one(DEFAULT_PROFILE, &default.name)),
                annotations: Some(one(CONTENT_NAME, content_name)),
                ..ObjectMeta::default()
            },
            spec: default.spec.clone(),
        };
        let paid = home.paid(Priority::High).await;
        let api: Api<OperatingSystemProfile> = Api::namespaced(paid, &self.namespace);
        match write::create(&api, &profile).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(true),
            Err(error) if pages::is_forbidden(&error) => {
                let (namespace, error) = (&self.namespace, chain(&error).to_string());
                tracing::warn!(
                    namespace,
                    object,
                    error,
                    "cannot create a profile; until a restart, tenants get whole default profiles"
                );
                Ok(false)
            }
            created => created.map(|_| true),
        }
    }

    /// Returns true if a profile in the manager's namespace is a content.
    pub fn has(&self, profile: &impl ResourceExt) -> bool {
        let is_ours = profile.namespace().is_some_and(|it| it == self.namespace);
        is_ours && profile.labels().contains_key(DEFAULT_PROFILE)
    }

    /// Returns all contents, each with its name.
    ///
    /// # Errors
    ///
    /// They cannot be listed.
    pub async fn list(&self) -> Result<Vec<(String, OperatingSystemProfileSpec)>, kube::Error> {
        let labelled = ListParams::default().labels(DEFAULT_PROFILE);
        let listed = pages::all(&self.read, labelled).await?;
        let contents = listed.objects.into_iter().filter_map(|it| {
            let name = it.annotations().get(CONTENT_NAME)?.clone();
            // The spec of a profile changes with its version alone.
            let is_unchanged = parse_content_name(&name)?.1 == it.spec.version;
            is_unchanged.then_some((name, it.spec))
        });
        Ok(contents.collect())
    }
}
