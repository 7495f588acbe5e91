//! Writes the changes in the order of the plan.
//!
//! Each update carries the uid and the version that the plan was made from, and each deletion the
//! uid. If another program was faster, the write is rejected, and the next reconcile plans again.
//! The process may crash after any write.

mod bootstrap_token;

use std::{collections::BTreeMap, fmt, num::NonZeroU32};

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{
        DeleteParams, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams, Preconditions,
    },
    core::Request,
};
use serde::Serialize;
use serde_json::json;

use super::error::Error;
use crate::api::{
    config::OperatingSystemConfig,
    names::{CLOUD_INIT_SETTINGS, KEPT, MADE_FOR},
};
use crate::client::{rate_limit::Prepaid, write};
use crate::controllers::{
    context::Context,
    initial_sync,
    object_cache::{LogicalTime, ObjectCache},
};
use crate::plan::{
    changes::{Change, ConfigWanted, KeptSecret, SecretWanted},
    digest::Digest,
    observed::Seen,
    validate::Deployment,
};
use crate::telemetry::{
    chain::quoted,
    metrics::{ClusterKind, SecretKind},
};

/// The number of requests for a deletion and a creation.
const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// Writes the changes. Configs are written with the client of the home that is passed in.
///
/// # Errors
///
/// A write fails, or another program writes the same object.
pub async fn apply(
    context: &Context,
    deployment: &Deployment,
    (changes, home): (Vec<Change>, Client),
) -> Result<(), Error> {
    let apply = Apply {
        context,
        deployment,
        secrets: Api::namespaced(context.engagement.worker.client(), CLOUD_INIT_SETTINGS),
        configs: Api::namespaced(home, &context.engagement.home.namespace),
    };
    for change in changes {
        apply.change(change).await?;
    }
    Ok(())
}

/// The object that is written.
#[derive(Clone, Copy)]
enum Target<'a> {
    Secret(&'a str),
    Config(&'a str),
}

/// The kind of write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Create,
    Replace,
    Annotate,
    Delete,
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(name) => write!(formatter, "Secret {name}"),
            Self::Config(name) => write!(formatter, "OperatingSystemConfig {name}"),
        }
    }
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Annotate => "annotate",
            Self::Delete => "delete",
        }
    }
}

/// A write in flight, and the digest of the object's bytes after it.
struct Write<'a> {
    verb: Verb,
    target: Target<'a>,
    content: Digest,
    asked: LogicalTime,
}

struct Apply<'a> {
    context: &'a Context,
    deployment: &'a Deployment,
    secrets: Api<Secret>,
    configs: Api<OperatingSystemConfig>,
}

impl Apply<'_> {
    async fn change(&self, change: Change) -> Result<(), Error> {
        match change {
            Change::CreateToken(token) => self.create_token(token).await,
            Change::ExtendToken(token) => self.extend_token(token).await,
            Change::CreateSecret(wanted) => self.create_secret(wanted).await,
            Change::ReplaceSecret(wanted, seen) => self.replace_secret(wanted, seen).await,
            Change::KeepSecret(kept, seen) => self.keep_secret(kept, &seen).await,
            Change::RecreateSecret(wanted, seen) => self.recreate_secret(wanted, &seen).await,
            Change::DeleteSecret(name, seen) => self.delete_secret(&name, &seen).await,
            Change::CreateConfig(wanted) => self.create_config(wanted).await,
            Change::StampConfig(wanted, seen) => self.stamp_config(&wanted, &seen).await,
            Change::RecreateConfig(wanted, seen) => self.recreate_config(wanted, &seen).await,
        }
    }

    async fn create_secret(&self, wanted: SecretWanted) -> Result<(), Error> {
        let kind = self.kind(&wanted);
        let secret = secret(&wanted, ObjectMeta::default());
        let target = Target::Secret(&wanted.name);
        let write = self.write(Verb::Create, target, wanted.content);
        let created = write::create(&self.secrets, &secret).await;
        self.wrote(write, created).await?;
        self.count(kind);
        Ok(())
    }

    async fn replace_secret(&self, wanted: SecretWanted, seen: Seen) -> Result<(), Error> {
        let kind = self.kind(&wanted);
        let secret = secret(&wanted, seen.metadata.clone());
        let content = wanted.content.clone();
        match self.replace(&wanted.name, &secret, content).await {
            Err(error) if error.is_of_fixed_fields() => self.recreate_secret(wanted, &seen).await,
            Err(error) => Err(error),
            Ok(()) => {
                self.count(kind);
                Ok(())
            }
        }
    }

    /// Reads the bytes of a Secret that another program created, and writes them back with our
    /// annotations. This happens once per Secret.
    async fn keep_secret(&self, kept: KeptSecret, seen: &Seen) -> Result<(), Error> {
        let name = kept.name;
        let mut secret = self
            .secrets
            .get(&name)
            .await
            .map_err(Error::call(format!("read Secret {name}")))?;
        // If the Secret is no longer the one that was compared, the API server rejects the write.
        secret.metadata.uid = Some(seen.uid().to_owned());
        secret
            .metadata
            .resource_version
            .clone_from(&seen.metadata.resource_version);
        secret.metadata.managed_fields = None;
        secret.annotations_mut().extend(kept.annotations);
        self.replace(&name, &secret, seen.content.clone()).await
    }

    async fn replace(&self, name: &str, secret: &Secret, content: Digest) -> Result<(), Error> {
        let write = self.write(Verb::Replace, Target::Secret(name), content);
        let replaced = write::replace(&self.secrets, name, secret).await;
        self.wrote(write, replaced).await
    }

    /// Deletes and creates a Secret. The budget for both requests is taken first, so that the
    /// Secret is absent for one round trip only.
    async fn recreate_secret(&self, wanted: SecretWanted, seen: &Seen) -> Result<(), Error> {
        let kind = self.kind(&wanted);
        let engagement = &self.context.engagement;
        let url = Secret::url_path(&(), Some(CLOUD_INIT_SETTINGS));
        let fresh = secret(&wanted, ObjectMeta::default());
        let pair = Pair::new(&url, &wanted.name, seen, &fresh)
            .map_err(Error::call(format!("replace Secret {}", wanted.name)))?;
        let throttled = engagement.worker_budget.take(TWO).await;
        engagement
            .shared
            .metrics
            .throttled(ClusterKind::Worker, throttled);
        if let Err(error) =
            send::<serde_json::Value>(&engagement.worker.client(), pair.delete).await
        {
            return self
                .failed(Verb::Delete, Target::Secret(&wanted.name), error)
                .await;
        }
        self.context.secrets.deleted(&wanted.name);
        let target = Target::Secret(&wanted.name);
        let write = self.write(Verb::Create, target, wanted.content);
        let created: Result<PartialObjectMeta<Secret>, _> =
            send(&engagement.worker.client(), pair.create).await;
        self.wrote(write, created.map(|it| it.metadata)).await?;
        self.count(kind);
        Ok(())
    }

    async fn delete_secret(&self, name: &str, seen: &Seen) -> Result<(), Error> {
        match self.secrets.delete(name, &only(seen)).await {
            Ok(_) => {
                self.context.secrets.deleted(name);
                Ok(())
            }
            Err(error) => self.failed(Verb::Delete, Target::Secret(name), error).await,
        }
    }

    async fn create_config(&self, wanted: ConfigWanted) -> Result<(), Error> {
        let config = config(&wanted);
        let target = Target::Config(&wanted.name);
        let write = self.write(Verb::Create, target, wanted.content);
        let created = write::create(&self.configs, &config).await;
        self.wrote(write, created).await
    }

    async fn stamp_config(&self, wanted: &ConfigWanted, seen: &Seen) -> Result<(), Error> {
        let name = &wanted.name;
        let patch = json!({
            "metadata": {
                "uid": seen.uid(),
                "resourceVersion": seen.metadata.resource_version,
                "annotations": wanted.provenance.annotations(&wanted.content),
            }
        });
        let content = wanted.content.clone();
        let write = self.write(Verb::Annotate, Target::Config(name), content);
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = self.configs.patch_metadata(name, &params, &patch).await;
        self.wrote(write, patched.map(|it| it.metadata)).await
    }

    /// Deletes and creates a config. It is absent in between, which is safe because only we read
    /// it.
    async fn recreate_config(&self, wanted: ConfigWanted, seen: &Seen) -> Result<(), Error> {
        let name = &wanted.name;
        if let Err(error) = self.configs.delete(name, &only(seen)).await {
            return self.failed(Verb::Delete, Target::Config(name), error).await;
        }
        self.context.configs.deleted(name);
        self.create_config(wanted).await
    }

    /// Begins a write.
    fn write<'b>(&self, verb: Verb, target: Target<'b>, content: Digest) -> Write<'b> {
        Write {
            verb,
            target,
            content,
            asked: self.seen(target).now(),
        }
    }

    /// Records the result of a write in the object cache.
    async fn wrote(
        &self,
        write: Write<'_>,
        outcome: Result<ObjectMeta, kube::Error>,
    ) -> Result<(), Error> {
        match outcome {
            Ok(metadata) => {
                let seen = self.seen(write.target);
                seen.verified(metadata, write.content, write.asked);
                Ok(())
            }
            Err(error) => self.failed(write.verb, write.target, error).await,
        }
    }

    fn seen(&self, target: Target<'_>) -> &ObjectCache {
        match target {
            Target::Secret(_) => &self.context.secrets,
            Target::Config(_) => &self.context.configs,
        }
    }

    /// Handles a failed write. If another program was faster, the object is read again before the
    /// next reconcile, because the watch may not have shown it yet.
    async fn failed(
        &self,
        verb: Verb,
        target: Target<'_>,
        error: kube::Error,
    ) -> Result<(), Error> {
        let what = target.to_string();
        // A creation that returns NotFound means that the namespace is missing.
        let is_overtaken = |code| code == 409 || code == 404 && verb != Verb::Create;
        if !matches!(&error, kube::Error::Api(status) if is_overtaken(status.code)) {
            return Err(Error::call(format!("{} {what}", verb.name()))(error));
        }
        match target {
            Target::Secret(name) => initial_sync::verify_secret(self.context, name).await,
            Target::Config(name) => initial_sync::verify_config(self.context, name).await,
        }
        .map_err(Error::call(format!("read {what}")))?;
        let (Target::Secret(name) | Target::Config(name)) = target;
        let found = self.seen(target).get(name);
        Err(Error::Conflict {
            what: match found.and_then(|found| held_by(&found.metadata)) {
                Some(finalizers) => {
                    format!(
                        "{what}, which is being deleted, and whose finalizers hold it: {finalizers}"
                    )
                }
                None => what,
            },
        })
    }

    fn kind(&self, wanted: &SecretWanted) -> SecretKind {
        let names = &self.deployment.names;
        if wanted.name == names.bootstrap {
            SecretKind::Bootstrap
        } else if wanted.name == names.provisioning {
            SecretKind::Provisioning
        } else if wanted.name == names.edge_script {
            SecretKind::EdgeScript
        } else {
            SecretKind::BootstrapKubeconfig
        }
    }

    fn count(&self, kind: SecretKind) {
        self.context.engagement.shared.metrics.secret_written(kind);
    }
}

/// The requests of a deletion and a creation. Both are built before the first is sent, and their
/// budget has been taken.
struct Pair {
    delete: http::Request<Vec<u8>>,
    create: http::Request<Vec<u8>>,
}

impl Pair {
    fn new<K: Serialize>(
        url: &str,
        name: &str,
        seen: &Seen,
        fresh: &K,
    ) -> Result<Self, kube::Error> {
        let request = Request::new(url);
        let bytes = serde_json::to_vec(fresh).map_err(kube::Error::SerdeError)?;
        let mut delete = request
            .delete(name, &only(seen))
            .map_err(kube::Error::BuildRequest)?;
        let mut create = request
            .create(&PostParams::default(), bytes)
            .map_err(kube::Error::BuildRequest)?;
        delete.extensions_mut().insert(Prepaid);
        write::ask_for_metadata(&mut create);
        create.extensions_mut().insert(Prepaid);
        Ok(Self { delete, create })
    }
}

async fn send<T: serde::de::DeserializeOwned>(
    client: &Client,
    request: http::Request<Vec<u8>>,
) -> Result<T, kube::Error> {
    client.request(request).await
}

/// Returns parameters that delete only the object that was seen, not another of its name.
fn only(seen: &Seen) -> DeleteParams {
    let preconditions = Preconditions {
        uid: Some(seen.uid().to_owned()),
        resource_version: None,
    };
    DeleteParams {
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    }
}

/// Returns a Secret with the desired bytes and annotations. The rest of the metadata is kept.
fn secret(wanted: &SecretWanted, metadata: ObjectMeta) -> Secret {
    let mut metadata = ObjectMeta {
        name: Some(wanted.name.clone()),
        ..metadata
    };
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(MADE_FOR.to_owned(), wanted.made_for.clone());
    if let Some(provenance) = &wanted.provenance {
        annotations.remove(KEPT);
        annotations.extend(provenance.annotations(&wanted.content));
    }
    annotations.extend(wanted.more_annotations.clone());
    Secret {
        metadata,
        data: Some(BTreeMap::from([(
            wanted.key.to_owned(),
            ByteString(wanted.data.expose().to_vec()),
        )])),
        // The documents never change in place; the kubelet kubeconfig and the edge script do.
        immutable: wanted.provenance.is_some().then_some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

fn config(wanted: &ConfigWanted) -> OperatingSystemConfig {
    let mut config = OperatingSystemConfig::new(&wanted.name, wanted.spec.clone());
    config.metadata.annotations = Some(wanted.provenance.annotations(&wanted.content));
    config
}

#[cfg(test)]
mod tests;

/// Returns the finalizers of an object that is being deleted, quoted.
pub(in crate::controllers) fn held_by(metadata: &ObjectMeta) -> Option<String> {
    metadata.deletion_timestamp.as_ref()?;
    let finalizers = metadata.finalizers.as_ref()?;
    Some(quoted(&finalizers.join(", ")))
}
