//! Tokens on request.

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};

use crate::tenant::{access::renewal::Account, secret_text::SecretText};

/// Requests a token for a ServiceAccount, valid for this number of seconds. The API server may
/// grant less. Returns what it has answered, which may be anything.
///
/// # Errors
///
/// The call fails.
pub async fn request(
    client: &Client,
    account: &Account,
    seconds: i64,
) -> Result<SecretText, kube::Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &account.namespace);
    let asked = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(seconds),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(&account.name, &PostParams::default(), &asked)
        .await?;
    let token = answer.status.and_then(|status| status.token);
    Ok(SecretText::new(token.unwrap_or_default()))
}
