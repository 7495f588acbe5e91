//! Tokens on request.

use std::time::Duration;

use k8s_openapi::api::{
    authentication::v1::{SelfSubjectReview, TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};
use tokio::sync::OnceCell;

use crate::tenant::{access::renewal::ServiceAccountName, secret_text::SecretText};

/// The longest token of a ServiceAccount. Clusters issue them with about 1,000 bytes.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Requests a token for a ServiceAccount, for this audience or the API server itself, and valid for
/// this number of seconds. The API server may grant less. Returns what it has answered, which may
/// be anything of up to [`TOKEN_BYTES_MAX`] bytes: a longer text is none.
///
/// # Errors
///
/// The call fails.
pub async fn request(
    client: &Client,
    account: &ServiceAccountName,
    audience: Option<String>,
    seconds: i64,
) -> Result<SecretText, kube::Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &account.namespace);
    let asked = TokenRequest {
        spec: Some(TokenRequestSpec {
            audiences: audience.map(|audience| vec![audience]),
            expiration_seconds: Some(seconds),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(&account.name, &PostParams::default(), &asked)
        .await?;
    let token = answer.status.and_then(|status| status.token);
    let token = token.filter(|token| token.len() <= TOKEN_BYTES_MAX);
    Ok(SecretText::new(token.unwrap_or_default()))
}

/// What the process knows of tokens.
#[derive(Debug)]
pub struct Tokens {
    /// The age at which a token is renewed, where that is the manager's task.
    pub renewal_age: Duration,
    /// The manager's own ServiceAccount in the management cluster, once it is known.
    account: OnceCell<ServiceAccountName>,
}

/// Why the manager's own ServiceAccount is not known.
#[derive(Debug, thiserror::Error)]
pub enum NoAccount {
    /// The call fails.
    #[error("cannot ask for the manager's own user")]
    Call(#[source] kube::Error),
    /// The kubeconfig of the management cluster has another user.
    #[error("the manager is no ServiceAccount of the management cluster")]
    AnotherUser,
}

impl Tokens {
    /// Creates it. Tokens are renewed at this age.
    pub fn new(renewal_age: Duration) -> Self {
        Self {
            renewal_age,
            account: OnceCell::new(),
        }
    }

    /// Returns the ServiceAccount as which the manager sends requests to the management cluster. It
    /// asks for it once.
    ///
    /// # Errors
    ///
    /// [`NoAccount`] if it is not known.
    pub async fn own_account(&self, management: &Client) -> Result<&ServiceAccountName, NoAccount> {
        let ask = async || {
            let reviews: Api<SelfSubjectReview> = Api::all(management.clone());
            let asked = SelfSubjectReview::default();
            let review = reviews.create(&PostParams::default(), &asked).await;
            let status = review.map_err(NoAccount::Call)?.status;
            let name = status.and_then(|status| status.user_info?.username);
            let account = name.as_deref().and_then(ServiceAccountName::of_user);
            account.ok_or(NoAccount::AnotherUser)
        };
        self.account.get_or_try_init(ask).await
    }
}
