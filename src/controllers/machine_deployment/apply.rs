//! Writes the changes, in the order in which the plan put them.
//!
//! Each update and deletion carries the uid and the version that the plan was made from: where
//! somebody else was faster the write is refused, and the next reconcile looks again. Every write
//! may be the last before a crash.

use std::{collections::BTreeMap, num::NonZeroU32};

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
    names::{CLOUD_INIT_SETTINGS, KEPT, KUBE_SYSTEM, MACHINES_MADE_FROM, MADE_FOR, TOKEN_LABEL},
};
use crate::controllers::{context::Context, inventory, tokens};
use crate::fleet::rate_limit::Prepaid;
use crate::plan::{
    bootstrap::{AUTH_GROUPS, Token},
    changes::{Change, ConfigWanted, KeptSecret, SecretWanted},
    observed::Seen,
    validate::Deployment,
};
use crate::telemetry::metrics::{ClusterKind, SecretKind};

/// A deletion and a creation.
const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// Writes the changes, those of configs with the client that is handed in.
pub async fn apply(
    context: &Context,
    deployment: &Deployment,
    (changes, management): (Vec<Change>, Client),
) -> Result<(), Error> {
    let apply = Apply {
        context,
        deployment,
        secrets: Api::namespaced(context.engagement.worker.client(), CLOUD_INIT_SETTINGS),
        configs: Api::namespaced(management, context.engagement.tenant().namespace()),
    };
    for change in changes {
        apply.change(change).await?;
    }
    Ok(())
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

    /// The token's id is drawn from the key: a create that is repeated after a crash is a
    /// conflict, and the token that is there is taken.
    async fn create_token(&self, token: Token) -> Result<(), Error> {
        let key = &self.deployment.names.key;
        let api = tokens::api(&self.context.engagement.worker.client());
        let secret = token_secret(key, &self.deployment.stamp.made_for, &token);
        match api.create(&PostParams::default(), &secret).await {
            Ok(created) => {
                self.keep_token(&created);
                self.wrote(SecretKind::BootstrapToken);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                let name = tokens::secret_name(&token);
                let found = api
                    .get(&name)
                    .await
                    .map_err(Error::call(format!("read {name}")))?;
                if found.labels().get(TOKEN_LABEL) == Some(key) {
                    self.keep_token(&found);
                } else {
                    self.context.tokens.take(key);
                }
                Err(Error::Conflict {
                    what: format!("the bootstrap token {name}"),
                })
            }
            Err(error) => Err(Error::call("create the bootstrap token")(error)),
        }
    }

    async fn extend_token(&self, token: Token) -> Result<(), Error> {
        let key = &self.deployment.names.key;
        let name = tokens::secret_name(&token);
        let Some(known) = self.context.tokens.get(key) else {
            return Err(Error::Conflict {
                what: format!("the bootstrap token {name}"),
            });
        };
        let api = tokens::api(&self.context.engagement.worker.client());
        // The Secret may carry data of others (machine-controller's, kubeadm's): only ours changes.
        let mut secret = api
            .get(&name)
            .await
            .map_err(Error::call(format!("read {name}")))?;
        if secret.uid().as_ref() != Some(&known.uid) {
            self.context.tokens.remove(key);
            return Err(Error::Conflict {
                what: format!("the bootstrap token {name}"),
            });
        }
        let data = secret.data.get_or_insert_default();
        data.insert("expiration".to_owned(), expiration(&token));
        let made_for = self.deployment.stamp.made_for.clone();
        secret
            .annotations_mut()
            .insert(MADE_FOR.to_owned(), made_for);
        let replaced = api
            .replace(&name, &PostParams::default(), &secret)
            .await
            .map_err(Error::call("extend the bootstrap token"))?;
        self.keep_token(&replaced);
        self.context.engagement.shared.metrics.token_renewed();
        Ok(())
    }

    fn keep_token(&self, secret: &Secret) {
        if let Some(known) = tokens::read(secret) {
            self.context.tokens.set(&self.deployment.names.key, known);
        }
    }

    async fn create_secret(&self, wanted: SecretWanted) -> Result<(), Error> {
        let kind = self.kind(&wanted);
        let secret = secret(&wanted, ObjectMeta::default());
        let asked = self.context.secrets.now();
        match self.secrets.create(&PostParams::default(), &secret).await {
            Ok(created) => {
                self.context
                    .secrets
                    .verified(created.metadata, wanted.content, asked);
                self.wrote(kind);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                // The watch has not told yet; the next look verifies what is there.
                inventory::verify_secret(self.context, &wanted.name)
                    .await
                    .map_err(Error::call(format!("read Secret {}", wanted.name)))?;
                Err(Error::Conflict {
                    what: format!("Secret {}", wanted.name),
                })
            }
            Err(error) => Err(Error::call(format!("create Secret {}", wanted.name))(error)),
        }
    }

    async fn replace_secret(&self, wanted: SecretWanted, seen: Seen) -> Result<(), Error> {
        let kind = self.kind(&wanted);
        let name = wanted.name.clone();
        let secret = secret(&wanted, seen.metadata);
        let asked = self.context.secrets.now();
        let replaced = self
            .secrets
            .replace(&name, &PostParams::default(), &secret)
            .await;
        match replaced {
            Ok(replaced) => {
                self.context
                    .secrets
                    .verified(replaced.metadata, wanted.content, asked);
                self.wrote(kind);
                Ok(())
            }
            Err(error) => self.secret_moved(&name, "replace", error).await,
        }
    }

    /// Once for each Secret that another program made: its bytes are read and written back.
    async fn keep_secret(&self, kept: KeptSecret, seen: &Seen) -> Result<(), Error> {
        let name = kept.name;
        let mut secret = self
            .secrets
            .get(&name)
            .await
            .map_err(Error::call(format!("read Secret {name}")))?;
        // What was compared is what is written back, or the API server refuses it.
        secret.metadata.uid = Some(seen.uid().to_owned());
        secret
            .metadata
            .resource_version
            .clone_from(&seen.metadata.resource_version);
        secret.metadata.managed_fields = None;
        secret.annotations_mut().extend(kept.annotations);
        let params = PostParams::default();
        let asked = self.context.secrets.now();
        match self.secrets.replace(&name, &params, &secret).await {
            Ok(replaced) => {
                let content = seen.content.clone();
                let seen = &self.context.secrets;
                seen.verified(replaced.metadata, content, asked);
                Ok(())
            }
            Err(error) => self.secret_moved(&name, "replace", error).await,
        }
    }

    /// Budget for both calls is taken beforehand, so that nodes find the Secret absent for one
    /// round trip and no longer.
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
            return self.secret_moved(&wanted.name, "delete", error).await;
        }
        self.context.secrets.deleted(&wanted.name);
        let asked = self.context.secrets.now();
        let created: PartialObjectMeta<Secret> = send(&engagement.worker.client(), pair.create)
            .await
            .map_err(Error::call(format!("create Secret {}", wanted.name)))?;
        self.context
            .secrets
            .verified(created.metadata, wanted.content, asked);
        self.wrote(kind);
        Ok(())
    }

    async fn delete_secret(&self, name: &str, seen: &Seen) -> Result<(), Error> {
        match self.secrets.delete(name, &only(seen)).await {
            Ok(_) => {
                self.context.secrets.deleted(name);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.context.secrets.deleted(name);
                Ok(())
            }
            Err(error) => self.secret_moved(name, "delete", error).await,
        }
    }

    /// A write was refused: what is known of the object is read again before the next look.
    async fn secret_moved(&self, name: &str, verb: &str, error: kube::Error) -> Result<(), Error> {
        let has_moved = |status: &kube::core::Status| status.is_conflict() || status.is_not_found();
        if matches!(&error, kube::Error::Api(status) if has_moved(status)) {
            inventory::verify_secret(self.context, name)
                .await
                .map_err(Error::call(format!("read Secret {name}")))?;
            return Err(Error::Conflict {
                what: format!("Secret {name}"),
            });
        }
        Err(Error::call(format!("{verb} Secret {name}"))(error))
    }

    async fn create_config(&self, wanted: ConfigWanted) -> Result<(), Error> {
        let name = wanted.name.clone();
        let asked = self.context.configs.now();
        match self
            .configs
            .create(&PostParams::default(), &config(&wanted))
            .await
        {
            Ok(created) => {
                self.context
                    .configs
                    .verified(created.metadata, wanted.content, asked);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.config_moved(&name).await
            }
            Err(error) => Err(Error::call(format!("create OperatingSystemConfig {name}"))(
                error,
            )),
        }
    }

    async fn stamp_config(&self, wanted: &ConfigWanted, seen: &Seen) -> Result<(), Error> {
        let name = &wanted.name;
        let patch = json!({
            "metadata": {
                "uid": seen.uid(),
                "resourceVersion": seen.metadata.resource_version,
                "annotations": wanted.stamp.annotations(&wanted.content),
            }
        });
        let params = PatchParams::default();
        let asked = self.context.configs.now();
        match self
            .configs
            .patch_metadata(name, &params, &Patch::Merge(&patch))
            .await
        {
            Ok(patched) => {
                self.context
                    .configs
                    .verified(patched.metadata, wanted.content.clone(), asked);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                self.config_moved(name).await
            }
            Err(error) => Err(Error::call(format!(
                "annotate OperatingSystemConfig {name}"
            ))(error)),
        }
    }

    /// Nobody but us reads a config: it may be absent for as long as two calls take.
    async fn recreate_config(&self, wanted: ConfigWanted, seen: &Seen) -> Result<(), Error> {
        let name = &wanted.name;
        match self.configs.delete(name, &only(seen)).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                return self.config_moved(name).await;
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => {
                deleted.map_err(Error::call(format!("delete OperatingSystemConfig {name}")))?;
            }
        }
        self.context.configs.deleted(name);
        self.create_config(wanted).await
    }

    async fn config_moved(&self, name: &str) -> Result<(), Error> {
        inventory::verify_config(self.context, name)
            .await
            .map_err(Error::call(format!("read OperatingSystemConfig {name}")))?;
        Err(Error::Conflict {
            what: format!("OperatingSystemConfig {name}"),
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

    fn wrote(&self, kind: SecretKind) {
        self.context.engagement.shared.metrics.secret_written(kind);
    }
}

/// A deletion and a creation, made before the first is sent, and paid for beforehand.
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

/// The object that was seen, and no other under its name.
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

/// A Secret with the bytes and annotations that are wanted; what else its metadata says stays.
fn secret(wanted: &SecretWanted, metadata: ObjectMeta) -> Secret {
    let mut metadata = ObjectMeta {
        name: Some(wanted.name.clone()),
        ..metadata
    };
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(MADE_FOR.to_owned(), wanted.made_for.clone());
    if let Some(stamp) = &wanted.stamp {
        annotations.remove(KEPT);
        annotations.extend(stamp.annotations(&wanted.content));
    }
    if let Some(made_from) = &wanted.made_from {
        annotations.insert(MACHINES_MADE_FROM.to_owned(), made_from.to_string());
    }
    Secret {
        metadata,
        data: Some(BTreeMap::from([(
            wanted.key.to_owned(),
            ByteString(wanted.data.0.clone()),
        )])),
        // The documents never change in place; the kubelet kubeconfig and the edge script do.
        immutable: wanted.stamp.is_some().then_some(true),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

fn config(wanted: &ConfigWanted) -> OperatingSystemConfig {
    let mut config = OperatingSystemConfig::new(&wanted.name, wanted.spec.clone());
    config.metadata.annotations = Some(wanted.stamp.annotations(&wanted.content));
    config
}

fn token_secret(key: &str, made_for: &str, token: &Token) -> Secret {
    let text = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = BTreeMap::from([
        (
            "description".to_owned(),
            text(&format!("bootstrap token for {key}")),
        ),
        ("token-id".to_owned(), text(&token.id)),
        ("token-secret".to_owned(), text(token.secret.expose())),
        ("expiration".to_owned(), expiration(token)),
        ("usage-bootstrap-authentication".to_owned(), text("true")),
        ("usage-bootstrap-signing".to_owned(), text("true")),
        ("auth-extra-groups".to_owned(), text(AUTH_GROUPS)),
    ]);
    Secret {
        metadata: ObjectMeta {
            name: Some(tokens::secret_name(token)),
            namespace: Some(KUBE_SYSTEM.to_owned()),
            labels: Some(BTreeMap::from([(TOKEN_LABEL.to_owned(), key.to_owned())])),
            annotations: Some(BTreeMap::from([(MADE_FOR.to_owned(), made_for.to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(data),
        type_: Some("bootstrap.kubernetes.io/token".to_owned()),
        ..Secret::default()
    }
}

/// RFC 3339 with whole seconds, as the token controllers read it.
fn expiration(token: &Token) -> ByteString {
    let whole = jiff::Timestamp::from_second(token.expires.as_second()).unwrap_or(token.expires);
    ByteString(whole.to_string().into_bytes())
}

#[cfg(test)]
mod tests;
