//! Another token for the same user, in a kubeconfig that stays the same otherwise.

use serde::Deserialize;

use super::{AccessRules, ClusterAccess, principal::claims_of};
use crate::secret_text::{SecretBytes, SecretText};

/// What the names of ServiceAccounts as users begin with.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The claim of a JWT about its user.
#[derive(Deserialize)]
struct Claims {
    sub: String,
}

impl ServiceAccountName {
    /// Returns the ServiceAccount with this name as a user.
    pub fn of_user(user: &str) -> Option<Self> {
        let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
        Some(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl ClusterAccess {
    /// Returns the ServiceAccount that the token says it is for.
    pub fn account(&self) -> Option<ServiceAccountName> {
        let Claims { sub } = claims_of(self.credential.token()?)?;
        ServiceAccountName::of_user(&sub)
    }
}

/// Why a kubeconfig does not get another token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRenewed {
    /// It has none.
    #[error("it has no token")]
    NoToken,
    /// It is folded, or written with escapes.
    #[error("the kubeconfig does not have its token in one piece")]
    InPieces,
    /// The API server has answered with something else than a token, or for somebody else.
    #[error("the API server has not answered with a token for the same user")]
    NotForTheSameUser,
}

/// Returns a kubeconfig with another token. The token is what an API server has answered with: it
/// must not be able to change anything else.
///
/// # Errors
///
/// [`NotRenewed`] if the token is not there in one piece, or the other one is for another user.
pub fn with_token(
    kubeconfig: &SecretBytes,
    token: &SecretText,
    rules: &AccessRules,
) -> Result<SecretBytes, NotRenewed> {
    let parsed = |kubeconfig: &SecretBytes| ClusterAccess::parse(kubeconfig.expose(), rules);
    let access = parsed(kubeconfig).map_err(|_| NotRenewed::NoToken)?;
    let before = access.credential.token().ok_or(NotRenewed::NoToken)?;
    // Those of a JWT. None of them means anything in YAML.
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !token.expose().bytes().all(is_of_token) {
        return Err(NotRenewed::NotForTheSameUser);
    }
    let text = str::from_utf8(kubeconfig.expose()).map_err(|_| NotRenewed::InPieces)?;
    if !text.contains(before.expose()) {
        return Err(NotRenewed::InPieces);
    }
    let renewed = SecretText::new(text.replace(before.expose(), token.expose())).to_bytes();
    let after = parsed(&renewed).map_err(|_| NotRenewed::NotForTheSameUser)?;
    if after.principal().is_none() || after.principal() != access.principal() {
        return Err(NotRenewed::NotForTheSameUser);
    }
    Ok(renewed)
}
