//! Creates and extends the bootstrap tokens that nodes join with.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    ResourceExt,
    api::{ObjectMeta, PostParams},
};

use super::{super::error::Error, Apply};
use crate::api::names::{KUBE_SYSTEM, MADE_FOR, TOKEN_LABEL};
use crate::controllers::state::tokens;
use crate::fleet::removal;
use crate::plan::bootstrap::{AUTH_GROUPS, Token};
use crate::telemetry::metrics::SecretKind;
use crate::tenant::mode::Right;

impl Apply<'_> {
    /// Creates a token. Its ID is derived from the key: if a creation is repeated after a crash, it
    /// conflicts, and the existing token is used.
    pub(super) async fn create_token(&self, token: Token) -> Result<(), Error> {
        let key = &self.deployment.names.key;
        let api = tokens::api(&self.context.engagement.worker.client());
        let secret = token_secret(key, &self.deployment.provenance.made_for, &token);
        match api.create(&PostParams::default(), &secret).await {
            Ok(created) => {
                self.keep_token(&created);
                self.count(SecretKind::BootstrapToken);
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let name = tokens::secret_name(&token);
                let found = api
                    .get_opt(&name)
                    .await
                    .map_err(Error::call(format!("read {name}")))?;
                match found {
                    Some(ours)
                        if ours.labels().get(TOKEN_LABEL) == Some(key)
                            && tokens::read(&ours).is_some() =>
                    {
                        self.keep_token(&ours);
                    }
                    Some(broken) if self.may_delete(&broken) => {
                        removal::delete_as_read(&api, &broken.metadata)
                            .await
                            .map_err(Error::call(format!("delete {name}")))?;
                    }
                    // It belongs to another program, or is being deleted. The next attempt uses
                    // another ID.
                    Some(_) => self.context.tokens.take(key),
                    None => {}
                }
                Err(token_moved(&name))
            }
            Err(error) => Err(Error::call("create the bootstrap token")(error)),
        }
    }

    pub(super) async fn extend_token(&self, token: Token) -> Result<(), Error> {
        let key = &self.deployment.names.key;
        let name = tokens::secret_name(&token);
        let Some(known) = self.context.tokens.get(key) else {
            return Err(token_moved(&name));
        };
        let api = tokens::api(&self.context.engagement.worker.client());
        // The Secret may contain data of other programs (machine-controller, kubeadm). Only ours
        // changes.
        let found = api
            .get_opt(&name)
            .await
            .map_err(Error::call(format!("read {name}")))?;
        let found = found.filter(|it| it.uid().as_ref() == Some(&known.uid));
        let Some(mut secret) = found.filter(|it| tokens::read(it).is_some()) else {
            self.context.tokens.remove(key);
            return Err(token_moved(&name));
        };
        let data = secret.data.get_or_insert_default();
        data.insert("expiration".to_owned(), expiration(&token));
        let made_for = self.deployment.provenance.made_for.clone();
        secret
            .annotations_mut()
            .insert(MADE_FOR.to_owned(), made_for);
        let replaced = match api.replace(&name, &PostParams::default(), &secret).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                self.context.tokens.remove(key);
                return Err(token_moved(&name));
            }
            replaced => replaced.map_err(Error::call("extend the bootstrap token"))?,
        };
        self.keep_token(&replaced);
        self.context.engagement.shared.metrics.token_renewed();
        Ok(())
    }

    /// Returns true if a token is one that we created, and no machine can join with it.
    fn may_delete(&self, broken: &Secret) -> bool {
        let made_for = broken.annotations().get(MADE_FOR);
        made_for == Some(&self.deployment.provenance.made_for)
            && tokens::read(broken).is_none()
            && broken.metadata.deletion_timestamp.is_none()
            && self.context.engagement.mode.has(Right::DeleteTokens)
    }

    fn keep_token(&self, secret: &Secret) {
        if let Some(known) = tokens::read(secret) {
            self.context.tokens.set(&self.deployment.names.key, known);
        }
    }
}

fn token_moved(name: &str) -> Error {
    Error::Conflict {
        what: format!("the bootstrap token {name}"),
    }
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
        type_: Some(tokens::TOKEN_TYPE.to_owned()),
        ..Secret::default()
    }
}

/// Returns the expiration time in RFC 3339 with whole seconds, as token controllers expect it.
fn expiration(token: &Token) -> ByteString {
    let whole = jiff::Timestamp::from_second(token.expires.as_second()).unwrap_or(token.expires);
    ByteString(whole.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::secret_text::SecretText;

    #[test]
    fn a_bootstrap_token_is_one_that_token_controllers_read() {
        let token = Token {
            id: "abcdef".to_owned(),
            secret: SecretText::new("0123456789abcdef"),
            expires: jiff::Timestamp::from_millisecond(1_500).unwrap(),
        };
        let secret = token_secret("kube-system-md", "kube-system/md", &token);
        assert_eq!(secret.annotations()[MADE_FOR], "kube-system/md");
        assert_eq!(
            secret.type_.as_deref(),
            Some("bootstrap.kubernetes.io/token")
        );
        assert_eq!(secret.metadata.namespace.as_deref(), Some("kube-system"));
        let labels = secret.metadata.labels.unwrap();
        assert_eq!(labels[TOKEN_LABEL], "kube-system-md");
        let data = secret.data.unwrap();
        assert_eq!(data["token-id"].0, b"abcdef");
        assert_eq!(data["expiration"].0, b"1970-01-01T00:00:01Z");
    }
}
