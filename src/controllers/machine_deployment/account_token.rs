//! The token of a ServiceAccount that kubelets bootstrap with, if the operator names one instead of
//! using bootstrap tokens. It is not watched, so each reconcile reads it.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::Api;

use super::error::Error;
use crate::controllers::context::Context;
use crate::fleet::prerequisites::TOKEN_TYPE;
use crate::plan::bootstrap::Token;
use crate::tenant::{mode::NamespacedName, secret_text::SecretText};

/// Returns the token in the first token Secret that the ServiceAccount lists.
pub(super) async fn read(context: &Context, account: &NamespacedName) -> Result<Token, Error> {
    let NamespacedName { namespace, name } = account;
    let worker = &context.engagement.worker.client();
    let accounts: Api<ServiceAccount> = Api::namespaced(worker.clone(), namespace);
    let secrets: Api<Secret> = Api::namespaced(worker.clone(), namespace);
    let found = accounts
        .get(name)
        .await
        .map_err(Error::call(format!("read ServiceAccount {name}")))?;
    for secret in found.secrets.into_iter().flatten() {
        let secret = secret.name.unwrap_or_default();
        let found = secrets
            .get(&secret)
            .await
            .map_err(Error::call(format!("read Secret {secret}")))?;
        if let Some(token) = token_in(found) {
            return Ok(as_token(context, &token));
        }
    }
    Err(Error::BootstrapAccount(format!("{namespace}/{name}")))
}

fn token_in(secret: Secret) -> Option<String> {
    if secret.type_.as_deref() != Some(TOKEN_TYPE) {
        return None;
    }
    let token = secret.data?.remove("token")?;
    String::from_utf8(token.0).ok().filter(|it| !it.is_empty())
}

/// Returns the token with an expiration time like that of our own tokens, so that it is read again
/// as often. We cannot extend it.
fn as_token(context: &Context, text: &str) -> Token {
    let now = context.engagement.health.server_time();
    let expires = now.saturating_add(context.rules.token_lifetime);
    let (id, secret) = text.split_once('.').unwrap_or((text, ""));
    Token {
        id: id.to_owned(),
        secret: SecretText::new(secret),
        expires: expires.unwrap_or(now),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_token_is_read_from_a_token_secret_that_has_one() {
        let secret = |type_: &str, key: &str, text: &str| Secret {
            type_: Some(type_.to_owned()),
            data: Some(BTreeMap::from([(
                key.to_owned(),
                ByteString(text.as_bytes().to_vec()),
            )])),
            ..Secret::default()
        };
        let token = token_in(secret(TOKEN_TYPE, "token", "t"));
        assert_eq!(token.as_deref(), Some("t"));
        assert_eq!(token_in(secret("Opaque", "token", "t")), None);
        assert_eq!(token_in(secret(TOKEN_TYPE, "token", "")), None);
        assert_eq!(token_in(secret(TOKEN_TYPE, "other", "t")), None);
        assert_eq!(token_in(Secret::default()), None);
    }
}
