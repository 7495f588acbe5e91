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

/// In how many places of a kubeconfig a token is replaced. One with more would grow beyond measure.
const PLACES_MAX: usize = 8;

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
    (kubeconfig, access): (&SecretBytes, &ClusterAccess),
    token: &SecretText,
    rules: &AccessRules,
) -> Result<SecretBytes, NotRenewed> {
    let text = str::from_utf8(kubeconfig.expose()).map_err(|_| NotRenewed::InPieces)?;
    let before = access.credential.token().map_or("", SecretText::expose);
    let renewed = text.replacen(before, token.expose(), PLACES_MAX);
    let renewed = SecretText::new(renewed).to_bytes();
    let after = ClusterAccess::parse(renewed.expose(), rules);
    let after = after.map_err(|_| NotRenewed::NotForTheSameUser)?;
    if after.credential.token() == access.credential.token() {
        return Err(NotRenewed::InPieces);
    }
    // A text that means more than a token in YAML would be read as another one.
    let is_it = after.credential.token() == Some(token);
    if !is_it || after.principal().is_none() || after.principal() != access.principal() {
        return Err(NotRenewed::NotForTheSameUser);
    }
    Ok(renewed)
}
